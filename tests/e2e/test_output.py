"""Commands whose output cannot be written: a secret is shown once, so nobody may lose one unawares (section D9)."""

from pathlib import Path

import pytest

from stoplist.oauth.authentication import find_client, is_authenticated
from tests.builders import audit_rows, on_database
from tests.cli.command_line import CommandResult
from tests.e2e.server_process import STOPLIST, Installation, run_program
from tests.keys import Key

pytestmark = pytest.mark.interpreter

FULL = Path("/dev/full")


@pytest.fixture
def filled(installation: Installation) -> Installation:
    """Return an installation with the organization `acme`."""
    installation.migrate("acme")
    return installation


def run_redirected(installation: Installation, redirection: str, *arguments: str) -> CommandResult:
    """Run `stoplist` with these arguments in a shell that redirects its output."""
    shell, folder = f'"$0" "$@" {redirection}', installation.folder
    return run_program("/bin/sh", "-c", shell, STOPLIST, *arguments, folder=folder, variables=installation.variables)


def assert_is_refused(result: CommandResult, text: str) -> None:
    """Assert exit status 1, and one line with the error."""
    assert (result.status, result.out) == (1, ""), result
    assert result.err.startswith("stoplist: ")
    assert text in result.err
    assert result.err.count("\n") == 1, result.err


def audit_actions(installation: Installation) -> list[str]:
    return [row.action for row in on_database(installation.database_url, audit_rows)]


def is_secret_of(installation: Installation, key: Key) -> bool:
    """Return whether the key's secret is valid."""
    return is_authenticated(on_database(installation.database_url, find_client, key.client_id), key.presented)


CREATE = ("key", "create", "--label", "x", "--org", "acme")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("json", [(), ("--json",)])
def test_a_lost_secret_can_be_replaced(filled: Installation, json: tuple[str, ...]) -> None:
    """The key exists; the message names the command that gives its owner a new secret."""
    assert_is_refused(run_redirected(filled, "> /dev/full", *CREATE, *json), "`stoplist key rotate-secret`")
    [key] = filled.json("key", "list")
    assert_is_refused(
        run_redirected(filled, "> /dev/full", "key", "rotate-secret", key["client_id"], *json), "rotate-secret"
    )
    rotated = filled.json("key", "rotate-secret", key["client_id"])
    assert is_secret_of(filled, Key(key["client_id"], rotated["client_secret"]))


@pytest.mark.parametrize("json", [(), ("--json",)])
def test_without_an_output_no_secret_is_created(filled: Installation, json: tuple[str, ...]) -> None:
    """The secret would be lost: nothing is changed, and the old secret is valid."""
    key = filled.new_key()
    before = audit_actions(filled)
    for arguments in (CREATE, ("key", "rotate-secret", key.client_id)):
        assert_is_refused(run_redirected(filled, ">&-", *arguments, *json), "output is closed")
    assert audit_actions(filled) == before
    assert is_secret_of(filled, key)


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "command", ["migrate", "migrate --json", "org list", "key list --json", "group list --org acme"]
)
def test_any_output_that_cannot_be_written_is_reported(filled: Installation, command: str) -> None:
    """One line on stderr, no traceback."""
    assert_is_refused(run_redirected(filled, "> /dev/full", *command.split()), "could not be written")


def test_a_closed_pipe_is_no_error(filled: Installation) -> None:
    """`stoplist key list | head -0`."""
    result = run_redirected(filled, "| true", "org", "list")
    assert result.status == 0
    assert "Traceback" not in result.err
    assert "Exception ignored" not in result.err

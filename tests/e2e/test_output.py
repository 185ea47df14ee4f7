"""Commands whose output goes nowhere: a secret is shown once, so nobody may lose one unawares (section D9)."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from stoplist.oauth.authentication import PresentedCredentials, find_client, is_authenticated
from tests.builders import audit_rows, opened
from tests.e2e.running import PATIENCE_S, STOPLIST, Done, Key, Place

FULL = Path("/dev/full")


@pytest.fixture
def filled(place: Place) -> Place:
    """A place with the organization `acme`."""
    place.ok("migrate")
    place.ok("org", "create", "acme", "--name", "Acme")
    return place


def redirected(place: Place, redirection: str, *arguments: str) -> Done:
    """`stoplist` with these arguments, started by a shell that redirects its output so."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$0" "$@" {redirection}', STOPLIST, *arguments],
        cwd=place.folder,
        env=place.variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def assert_is_refused(done: Done, text: str) -> None:
    """Exit status 1, and one line that says what is wrong."""
    assert (done.status, done.out) == (1, ""), done
    assert done.err.startswith("stoplist: ")
    assert text in done.err
    assert done.err.count("\n") == 1, done.err


def audited(place: Place) -> list[str]:
    async def actions() -> list[str]:
        async with opened(place.database_url) as database:
            return [row.action for row in await audit_rows(database)]

    return asyncio.run(actions())


def proves(place: Place, key: Key) -> bool:
    """Whether the secret is that of the key."""

    async def look() -> bool:
        async with opened(place.database_url) as database:
            shown = PresentedCredentials(client_id=key.client_id, client_secret=key.secret)
            return is_authenticated(await find_client(database, key.client_id), shown)

    return asyncio.run(look())


CREATE = ("key", "create", "--label", "x", "--org", "acme")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("json", [(), ("--json",)])
def test_a_secret_that_could_not_be_written_is_replaced_by_another(filled: Place, json: tuple[str, ...]) -> None:
    """The key is there; the message names the command with which its owner gets a secret after all."""
    assert_is_refused(redirected(filled, "> /dev/full", *CREATE, *json), "`stoplist key rotate-secret`")
    [key] = filled.json("key", "list")
    assert_is_refused(
        redirected(filled, "> /dev/full", "key", "rotate-secret", key["client_id"], *json), "rotate-secret"
    )
    rotated = filled.json("key", "rotate-secret", key["client_id"])
    assert proves(filled, Key(key["client_id"], rotated["client_secret"]))


@pytest.mark.parametrize("json", [(), ("--json",)])
def test_without_an_output_no_secret_is_made(filled: Place, json: tuple[str, ...]) -> None:
    """Nobody would see it: nothing is changed, and the old secret is good."""
    key = filled.new_key()
    before = audited(filled)
    for arguments in (CREATE, ("key", "rotate-secret", key.client_id)):
        assert_is_refused(redirected(filled, ">&-", *arguments, *json), "output is closed")
    assert audited(filled) == before
    assert proves(filled, key)


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "command", ["migrate", "migrate --json", "org list", "key list --json", "group list --org acme"]
)
def test_any_output_that_cannot_be_written_is_said(filled: Place, command: str) -> None:
    """One line on stderr, no traceback."""
    assert_is_refused(redirected(filled, "> /dev/full", *command.split()), "could not be written")


def test_a_reader_that_goes_away_is_no_defect(filled: Place) -> None:
    """`stoplist key list | head -0`."""
    done = redirected(filled, "| true", "org", "list")
    assert done.status == 0
    assert "Traceback" not in done.err
    assert "Exception ignored" not in done.err

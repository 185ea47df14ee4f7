"""The actor of a command, and the database that it works on."""

import os
import pwd

import pytest

from stoplist.cli.context import command_actor
from tests.builders import audit_rows, on_database
from tests.cli.command_line import Prompt

ACCOUNT = pwd.getpwuid(os.getuid()).pw_name
TOO_LONG = "x" * 300  # for a file name, of which common file systems allow 255 bytes


def act_as(monkeypatch: pytest.MonkeyPatch, user_id: int, **variables: str) -> str:
    """Return whom the audit names when this user runs a command with these variables set."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "SUDO_USER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "getuid", lambda: user_id)
    return command_actor().id


def test_variables_do_not_choose_who_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user may set them: the audit names the account of the process."""
    mask = {"LOGNAME": "eve", "USER": "eve", "LNAME": "eve", "USERNAME": "eve"}
    assert act_as(monkeypatch, os.getuid(), **mask) == ACCOUNT
    nobody = pwd.getpwnam("nobody")
    assert act_as(monkeypatch, nobody.pw_uid, **mask, SUDO_USER="eve") == "nobody"


def test_sudo_user_is_trusted_only_for_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """sudo sets the variable for root, who could write to the audit anyway. The account is still named."""
    root = pwd.getpwuid(0).pw_name
    assert act_as(monkeypatch, 0, SUDO_USER="alice") == f"alice as {root}"
    assert act_as(monkeypatch, 0, LOGNAME="alice") == root


def test_an_account_without_a_name_is_named_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may have such an account."""
    unused = next(number for number in range(60_000, 1_000_000) if not _is_account(number))
    assert act_as(monkeypatch, unused, LOGNAME="eve", SUDO_USER="eve") == str(unused)


def test_the_audit_names_the_account(prompt: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the account that runs the command, in spite of all variables."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "eve")
    monkeypatch.delenv("SUDO_USER", raising=False)
    prompt.ok("org", "create", "bolt", "--name", "Bolt")
    assert on_database(prompt.database_url, audit_rows)[-1].actor == f"command {ACCOUNT}"


@pytest.mark.parametrize("folder", [TOO_LONG, f"./{TOO_LONG}/data", "x/" * 3000])
@pytest.mark.parametrize("command", [["org", "list"], ["key", "list", "--json"], ["migrate"]])
def test_a_data_folder_with_a_too_long_name_is_refused(empty: Prompt, command: list[str], folder: str) -> None:
    """The refusal has the reason that the system gives."""
    assert "name too long" in empty.refused(*command, "--data-dir", folder)


def _is_account(user_id: int) -> bool:
    try:
        pwd.getpwuid(user_id)
    except KeyError:
        return False
    return True

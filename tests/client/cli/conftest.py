"""Fixtures that run commands in this process, for partners of the real server."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from stoplist_client.cli.main import main
from stoplist_client.cli.profile import Profile, save_profile
from stoplist_client.secret import Secret

from tests.client.cli.command_runner import ClientCommandResult, LogIn, RunCommand, variables_of
from tests.client.partners import Partner


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch, client_folder: Path) -> None:
    """Unset the variables that a developer may have set."""
    for name in ("BASE_URL", "CLIENT_ID", "CLIENT_SECRET", "CLIENT_SECRET_FILE"):
        monkeypatch.delenv(f"STOPLISTCLIENT_{name}", raising=False)
    for name in ("ORG", "GROUP", "CA_FILE", "MIRROR", "PROFILE"):
        monkeypatch.delenv(f"STOPLISTCLIENT_{name}", raising=False)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> RunCommand:
    """Runs a command in this process: `cli("check", "email", stdin=b"…")`."""

    def run_command(*arguments: str, stdin: bytes = b"") -> ClientCommandResult:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capsysbinary.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsysbinary.readouterr()
        assert isinstance(ended.value.code, int)
        return ClientCommandResult(ended.value.code, out, err)

    return run_command


@pytest.fixture
def log_in(client_folder: Path) -> LogIn:
    """Stores a profile of a partner, as `login` does: `log_in(partner, name="other", group_id=…)`."""

    def stored(partner: Partner, *, name: str = "default", group_id: str | None = None) -> Path:
        profile = Profile(
            name=name,
            base_url=partner.service.base_url,
            client_id=partner.key.client_id,
            client_secret=Secret(partner.key.client_secret),
            org_slug=partner.org_slug,
            group_id=group_id,
            ca_file=partner.service.ca_file,
        )
        return save_profile(name, profile)

    return stored


@pytest.fixture
def set_variables(monkeypatch: pytest.MonkeyPatch) -> Callable[[Partner], None]:
    """Sets the variables that replace a profile."""

    def set_all(partner: Partner) -> None:
        for name, value in variables_of(partner).items():
            monkeypatch.setenv(name, value)

    return set_all

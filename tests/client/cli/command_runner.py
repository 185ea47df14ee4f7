"""Runs commands as processes, and holds what a command returned."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.client.partners import Partner
from tests.constants import PATIENCE_S

COMMAND = Path(sys.executable).with_name("stoplist-client")


class ClientCommandResult(NamedTuple):
    """The exit status and the output of a command."""

    status: int
    out: bytes
    err: bytes

    @property
    def out_text(self) -> str:
        return self.out.decode()

    @property
    def err_text(self) -> str:
        return self.err.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def assert_failed(self, status: int, *texts: str) -> None:
        """Assert this status, nothing on stdout, and one line on stderr that contains all these texts."""
        assert (self.status, self.out) == (status, b""), self
        assert self.err_text.startswith("stoplist-client: "), self
        assert self.err_text.count("\n") == 1, self
        for text in texts:
            assert text in self.err_text, self


RunCommand = Callable[..., ClientCommandResult]
LogIn = Callable[..., Path]


def variables_of(partner: Partner) -> dict[str, str]:
    """Return the environment variables that replace a profile."""
    return {
        "STOPLISTCLIENT_BASE_URL": partner.service.base_url,
        "STOPLISTCLIENT_CLIENT_ID": partner.key.client_id,
        "STOPLISTCLIENT_CLIENT_SECRET": partner.key.client_secret,
        "STOPLISTCLIENT_CA_FILE": partner.service.ca_file,
        "STOPLISTCLIENT_ORG": partner.org_slug,
    }


def run_process(
    *arguments: str | Path, stdin: bytes = b"", variables: dict[str, str] | None = None
) -> ClientCommandResult:
    """Run the command as a process."""
    result = subprocess.run(
        [COMMAND, *arguments],
        input=stdin,
        env=environment(**(variables or {})),
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return ClientCommandResult(result.returncode, result.stdout, result.stderr)


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of a process, with these variables; Python warnings are errors."""
    return os.environ | {"PYTHONWARNINGS": "error"} | variables

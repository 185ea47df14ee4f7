"""What a typed command did, and how to type one as a process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.client.partners import Partner

COMMAND = Path(sys.executable).with_name("stoplist-client")
PATIENCE_S = 60.0


class Done(NamedTuple):
    """What became of a command."""

    status: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def told(self) -> str:
        return self.err.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def failed(self, status: int, *texts: str) -> None:
        """It ended with this status and one line on stderr, which holds all of these texts; nothing is on stdout."""
        assert (self.status, self.out) == (status, b""), self
        assert self.told.startswith("stoplist-client: "), self
        assert self.told.count("\n") == 1, self
        for text in texts:
            assert text in self.told, self


Typed = Callable[..., Done]
Logged = Callable[..., Path]


def variables_of(partner: Partner) -> dict[str, str]:
    """The variables that replace a profile."""
    return {
        "STOPLISTCLIENT_BASE_URL": partner.service.base_url,
        "STOPLISTCLIENT_CLIENT_ID": partner.key.client_id,
        "STOPLISTCLIENT_CLIENT_SECRET": partner.key.secret,
        "STOPLISTCLIENT_CA_FILE": partner.service.ca_file,
        "STOPLISTCLIENT_ORG": partner.org_slug,
    }


def run(*arguments: str | Path, stdin: bytes = b"", variables: dict[str, str] | None = None) -> Done:
    """The command as a process, with its exit status."""
    done = subprocess.run(
        [COMMAND, *arguments],
        input=stdin,
        env=environment(**(variables or {})),
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def environment(**variables: str) -> dict[str, str]:
    """The variables of a process; no warning of it passes unseen."""
    return os.environ | {"PYTHONWARNINGS": "error"} | variables

"""Clients that generators make from the OpenAPI document work against a real server (docs/interface.md section D10).

The programs around them, in `generated_clients/`, are what a partner would write, and all do the same.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.server_process import Installation, run_program
from tests.services.npm import Npm

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).with_name("generated_clients")
WORK = {
    "token_type": "Bearer",
    "expires_in": 900,
    "submitted": [2, 2, ["created", "created"]],
    "listed": [
        ["ann@example.com", "unsubscribed", "complaint", "form"],
        ["bob@example.com", "unsubscribed", "unsubscribe", None],
    ],
    "looked_up": [["ann@example.com", "nobody@example.com"], ["ann@example.com"], None],
    "later": [["carla@example.com", None]],
    "refusals": ["invalid_client", "invalid_item", "invalid_cursor", "invalid_token"],
    "bad_items": [0],
}


class PartnerAccess(NamedTuple):
    """A folder with the description, and the variables that a program needs: server, key, authority."""

    folder: Path
    variables: dict[str, str]

    def run(self, *command: str | Path, **variables: str) -> str:
        """Run a command and return what it printed."""
        return run_program(*command, folder=self.folder, variables=self.variables | variables).of_success()

    def work(self, *command: str | Path, **variables: str) -> Any:
        """Run a program and return the JSON that it printed."""
        return json.loads(self.run(*command, **variables))


@pytest.fixture
def partner(installation: Installation, tmp_path: Path) -> Iterator[PartnerAccess]:
    """Yield a partner of a new server, with an organization that has a default group."""
    with installation.serving() as server:
        installation.ok("org", "create", "acme", "--name", "Acme", "--default-group", "Newsletter")
        key = installation.json("key", "create", "--label", "generated", "--org", "acme")
        folder = tmp_path / "generated"
        folder.mkdir()
        with server.client() as client:
            (folder / "openapi.json").write_text(client.get("/openapi.json").raise_for_status().text)
        yield PartnerAccess(
            folder,
            installation.variables
            | {
                "BASE_URL": server.base_url,
                "CLIENT_ID": key["client_id"],
                "CLIENT_SECRET": key["client_secret"],
                "SSL_CERT_FILE": str(server.ca),
                "NODE_EXTRA_CA_CERTS": str(server.ca),
                # The generator formats what it makes with ruff.
                "PATH": f"{Path(sys.executable).parent}:{installation.variables['PATH']}",
            },
        )


def prepare(partner: PartnerAccess, npm: Npm, *files: str) -> None:
    """Copy a program in TypeScript to where its client will be generated, with the packages beside it."""
    for name in (*files, "tsconfig.json", "package.json"):
        shutil.copy(PROGRAMS / name, partner.folder)
    (partner.folder / "node_modules").symlink_to(npm.packages)


def test_a_client_of_openapi_python_client_works(partner: PartnerAccess) -> None:
    """Every answer is an object of a class in Python; nothing is left out with a warning."""
    generator = [sys.executable, "-m", "openapi_python_client", "generate", "--fail-on-warning"]
    partner.run(*generator, "--path", "openapi.json", "--output-path", "made")
    program = PROGRAMS / "with_openapi_python_client.py"
    assert partner.work(sys.executable, program, PYTHONPATH=str(partner.folder / "made")) == WORK


def test_a_client_of_openapi_fetch_works(partner: PartnerAccess, npm: Npm) -> None:
    """TypeScript checks it strictly against the types of openapi-typescript."""
    prepare(partner, npm, "with_openapi_fetch.ts")
    partner.run(*npm.script("openapi-typescript"), "openapi.json", "--output", "schema.d.ts")
    partner.run(*npm.script("tsc"))
    assert partner.work(npm.node, "built/with_openapi_fetch.js") == WORK


def test_a_client_of_hey_api_works(partner: PartnerAccess, npm: Npm) -> None:
    """It has a function in TypeScript for each operation."""
    prepare(partner, npm, "with_hey_api.ts", "openapi-ts.config.mjs")
    partner.run(*npm.script("openapi-ts"))
    partner.run(*npm.script("tsc"))
    assert partner.work(npm.node, "built/with_hey_api.js") == WORK

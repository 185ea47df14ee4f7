"""One server for all tests of the client and one that can be restored, and an organization and a key for each test."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keyring
import pytest
from stoplist_client import Client

from tests.client.memory_keyring import MemoryKeyring
from tests.client.mirror.restorable import Restorable
from tests.client.partners import BlockingAsyncClient, Opener, Partner, Service
from tests.e2e.server_process import Installation

_numbers = itertools.count(1)
# A developer's proxy or certificate authority must not reach the tests.
_FOREIGN = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(autouse=True)
def client_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The default folder of tokens, separate for each test and not yet created."""
    for name in _FOREIGN:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    folder = tmp_path / "client"
    monkeypatch.setenv("STOPLISTCLIENT_DIR", str(folder))
    return folder


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server on SQLite that runs until the last test is done."""
    installation = Installation(tmp_path_factory.mktemp("service"))
    with installation.serving() as server:
        yield Service(installation, server)


@pytest.fixture(scope="session")
def restorable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restorable]:
    """Another server, whose database tests restore to an earlier state: then the tokens of all its partners end."""
    installation = Installation(tmp_path_factory.mktemp("restorable"))
    with installation.serving() as server:
        yield Restorable(Service(installation, server))


@pytest.fixture
def new_partner(service: Service) -> Callable[..., Partner]:
    """Creates a partner with its own organization; takes the options of `Service.new_partner`."""
    return lambda **options: service.new_partner(f"org-{next(_numbers)}", **options)


@pytest.fixture
def partner(new_partner: Callable[..., Partner]) -> Partner:
    """A partner with its own organization, every permission, and limits that no test reaches."""
    return new_partner()


@pytest.fixture(params=["sync", "async"])
def open_client(request: pytest.FixtureRequest) -> Iterator[Opener]:
    """Opens a client of a partner: `open_client(partner, org_slug=…)`. All clients are closed after the test."""
    opened: list[Client | BlockingAsyncClient] = []

    def open_one(partner: Partner, **options: Any) -> Client | BlockingAsyncClient:
        kind = Client if request.param == "sync" else BlockingAsyncClient
        client = kind(**(partner.access | options))
        opened.append(client)
        return client

    yield open_one
    for client in opened:
        client.close()
        if isinstance(client, BlockingAsyncClient):
            client.runner.close()


@pytest.fixture
def memory_keyring() -> Iterator[MemoryKeyring]:
    """The keyring that the package `keyring` finds."""
    before, ours = keyring.get_keyring(), MemoryKeyring()
    keyring.set_keyring(ours)
    yield ours
    keyring.set_keyring(before)

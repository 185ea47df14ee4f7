"""The options of clients, and the cost of importing them."""

import subprocess
import sys
from typing import Any

import pytest
import stoplist_client
from stoplist_client import AsyncClient, Client, ConfigurationError
from stoplist_client.transport import wire

from tests.client.exposed_text import exposed_by
from tests.client.partners import BlockingAsyncClient, Opener, Partner


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("https://stoplist.example", "https://stoplist.example"),
        ("https://stoplist.example/", "https://stoplist.example"),
        ("HTTPS://Stoplist.Example:443", "https://stoplist.example"),
        ("https://localhost:8443/", "https://localhost:8443"),
        ("https://127.0.0.1:8443", "https://127.0.0.1:8443"),
        ("https://[::1]:8443", "https://[::1]:8443"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
    ],
)
def test_base_address_is_normalized(given: str, taken: str) -> None:
    """Tokens are stored under it, so two spellings of one service must not be two services."""
    assert wire.checked_base_url(given) == taken


@pytest.mark.parametrize(
    "given",
    [
        "http://localhost:8443",
        "localhost:8443",
        "//localhost",
        "https://",
        "https:///path",
        "https://localhost/api",
        "https://localhost//",
        "https://localhost?x=1",
        "https://localhost/?",
        "https://localhost#x",
        "https://user@localhost",
        "https://user:svc_cs_hunter2@localhost",
        "https://local host",
        "https://localhost:port",
        "https://localhost\n",
        "",
        None,
        5,
    ],
)
def test_invalid_base_address_is_refused(given: Any) -> None:
    """The message does not repeat it, since it may contain a password."""
    with pytest.raises(ConfigurationError, match="base_url must be https://") as caught:
        wire.checked_base_url(given)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"client_id": ""}, {"attempts": 0}])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_password_in_the_base_address_is_in_no_frame(kind: type[Client | AsyncClient], options: dict[str, Any]) -> None:
    """No traceback with locals shows it, whatever other mistake there is."""
    known: dict[str, Any] = {"client_id": "svc_ci_x", "client_secret": "svc_cs_x"}
    for base_url in ("https://user:hunter2@localhost", b"https://user:hunter2@localhost", "http://user:hunter2@["):
        with pytest.raises(ConfigurationError) as caught:
            kind(base_url, **(known | options))  # type: ignore[arg-type]
        assert "hunter2" not in exposed_by(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"client_id": ""},
        {"client_id": None},
        {"client_secret": ""},
        {"client_secret": None},
        {"client_secret": "svc_cs_x\n"},
        {"client_secret": "svc_cs_ü"},
        {"client_id": "svc_cs_x", "client_secret": "svc_ci_x"},
        {"org_slug": ""},
        {"group_id": ""},
        {"ca_file": "/nowhere/ca.pem"},
        {"ca_file": __file__},
        {"timeout_s": 0},
        {"timeout_s": -1},
        {"timeout_s": float("nan")},
        {"timeout_s": float("inf")},
        {"timeout_s": "60"},
        {"total_s": 0},
        {"timeout_s": None},
        {"attempts": 0},
        {"attempts": 1.5},
        {"attempts": True},
        {"renew_ahead_s": -1},
        {"renew_ahead_s": 900},
        {"renew_ahead_s": "60"},
        {"batch_items": 0},
        {"batch_items": 10_001},
    ],
    ids=str,
)
def test_invalid_options_are_refused(open_client: Opener, partner: Partner, options: dict[str, Any]) -> None:
    """Creating the client fails with a message that names the option."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        open_client(partner, **options)


def test_repr_shows_service_and_client_id_only(open_client: Opener, partner: Partner) -> None:
    client = open_client(partner, org_slug="acme")
    kind = "AsyncClient" if isinstance(client, BlockingAsyncClient) else "Client"
    assert repr(client) == f"{kind}('{partner.service.base_url}', client_id='{partner.key.client_id}')"


def test_every_public_name_can_be_imported() -> None:
    for name in stoplist_client.__all__:
        if name != "KeyringStore":  # needs an extra
            assert getattr(stoplist_client, name) is not None
    assert not hasattr(stoplist_client, "Nothing")
    assert set(stoplist_client.__all__) == set(dir(stoplist_client))


@pytest.mark.parametrize(
    ("statement", "left_out"),
    [
        (
            "import stoplist_client",
            {"httpx2", "anyio", "sqlite3", "stoplist_addresses", "click", "filelock", "keyring"},
        ),
        (
            "from stoplist_client import Client",
            {"anyio", "sqlite3", "stoplist_addresses", "click", "filelock", "keyring"},
        ),
        ("from stoplist_client import AsyncClient", {"sqlite3", "stoplist_addresses", "click", "filelock", "keyring"}),
        ("from stoplist_client import Client, AsyncClient, Mirror", {"click", "filelock", "keyring"}),
    ],
)
def test_slow_imports_are_lazy(statement: str, left_out: set[str]) -> None:
    """Slow modules are imported on first use, and modules of the server never."""
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    imported = set(done.stdout.split())
    assert "stoplist_client" in imported
    assert imported & (left_out | {"stoplist"}) == set()

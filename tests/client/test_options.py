"""What clients are made with, and what importing them costs."""

import subprocess
import sys
from typing import Any

import pytest
import stoplist_client
from stoplist_client import AsyncClient, Client, ConfigurationError
from stoplist_client.transport import wire

from tests.client.notices import told_by
from tests.client.partners import Blocking, Opener, Partner


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
def test_a_base_address_has_one_spelling(given: str, taken: str) -> None:
    """Tokens are kept by it, so two spellings of one service must not be two."""
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
def test_any_other_base_address_is_refused(given: Any) -> None:
    """With what would be right, and without repeating it: there may be a password in it."""
    with pytest.raises(ConfigurationError, match="base_url must be https://") as caught:
        wire.checked_base_url(given)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"client_id": ""}, {"attempts": 0}])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_password_in_the_base_address_is_in_no_frame(
    kind: type[Client | AsyncClient], options: dict[str, Any]
) -> None:
    """Whatever else is wrong: a traceback with the locals of our frames does not have it."""
    known: dict[str, Any] = {"client_id": "svc_ci_x", "client_secret": "svc_cs_x"}
    for base_url in ("https://user:hunter2@localhost", b"https://user:hunter2@localhost", "http://user:hunter2@["):
        with pytest.raises(ConfigurationError) as caught:
            kind(base_url, **(known | options))  # type: ignore[arg-type]
        assert "hunter2" not in told_by(caught.value)


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
def test_options_that_cannot_be_right_are_refused(both: Opener, partner: Partner, options: dict[str, Any]) -> None:
    """When the client is made, by a text that names the option."""
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        both(partner, **options)


def test_a_client_shows_which_key_it_uses(both: Opener, partner: Partner) -> None:
    """Its repr has the service and the client_id, which may be logged, and no more."""
    client = both(partner, org_slug="acme")
    kind = "AsyncClient" if isinstance(client, Blocking) else "Client"
    assert repr(client) == f"{kind}('{partner.service.base_url}', client_id='{partner.key.client_id}')"


def test_whatever_is_offered_is_there() -> None:
    """Every name of the package leads somewhere, once it is asked for; another one does not."""
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
def test_nothing_is_imported_before_it_is_used(statement: str, left_out: set[str]) -> None:
    """What takes long to import is left to whoever uses it; of the server there is nothing at all."""
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    imported = set(done.stdout.split())
    assert "stoplist_client" in imported
    assert imported & (left_out | {"stoplist"}) == set()

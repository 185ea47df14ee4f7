"""The store at the start of a server: absent, refusing, with a wrong certificate, or at a wrong address."""

import asyncio
import gc
import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from stoplist.clock import Clock
from stoplist.errors import SettingsError
from stoplist.limits.limiter import StoreHealth
from stoplist.limits.memory import MemoryLimiter
from stoplist.limits.opening import open_limiter
from stoplist.limits.store import LimitStore, StoreLost
from tests.builders import Run
from tests.conftest import needed
from tests.deployment import in_own_loop
from tests.limits.counting import patience
from tests.limits.scripted_store import scripted_store
from tests.services import valkey as services
from tests.services.managed_program import reserve_port
from tests.services.valkey import Valkey

pytestmark = [pytest.mark.interpreter, pytest.mark.usefixtures("long_store_timeout")]

PASSWORD = "not-to-be-repeated"
# The rights that the error text names, and no others.
RIGHTS = ["+evalsha", "+script|load", "+time", "+zadd", "+zcard", "+zrange", "+zremrangebyscore", "+del", "+pexpire"]


async def opened(url: str) -> StoreHealth:
    """Return the limiter's health after one decision at this address; it is closed without leaving anything open."""
    limiter = await open_limiter(url, Clock())
    try:
        assert (await limiter.api("opened", limit=10**9)).accepted
        return limiter.health()
    finally:
        await limiter.close()


def refused(run: Run, url: str) -> str:
    """Return the text of the refusal, which repeats nothing of the address."""
    with pytest.raises(SettingsError) as refusal:
        run(opened(url))
    gc.collect()  # an open connection would warn, and warnings are errors
    text = refusal.value.text
    assert "STOPLIST_LIMITS_URL" in text
    assert PASSWORD not in text
    assert "127.0.0.1" not in text
    return text


@pytest.fixture
def user(valkey: Valkey) -> Iterator[str]:
    """A user of the session's server with the rights that the error text names."""
    valkey.execute("ACL", "SETUSER", "narrow", "reset", "on", f">{PASSWORD}", "~stoplist:*", *RIGHTS)
    yield f"redis://narrow:{PASSWORD}@127.0.0.1:{valkey.port}/0"
    valkey.execute("ACL", "DELUSER", "narrow")


@pytest.mark.parametrize("url", [None, "memory:"])
def test_without_a_store_each_process_counts(run: Run, url: str | None) -> None:
    """Section D1: in process by default, and with `memory:`."""
    assert isinstance(run(open_limiter(url, Clock())), MemoryLimiter)


def test_the_store_counts_over_tcp_and_unix_sockets(run: Run, valkey: Valkey) -> None:
    """Both lead to the same counts, and nothing is left open."""
    for url in (valkey.url, valkey.unix_url):
        assert run(opened(url)) == StoreHealth(is_lost=False, decided_alone=0)
    gc.collect()


def test_the_rights_in_the_error_text_are_enough(run: Run, user: str) -> None:
    """The user of the test has these rights and no others."""
    assert run(opened(user)) == StoreHealth(is_lost=False, decided_alone=0)


@pytest.mark.parametrize("right", ["+evalsha", "+script|load", "+time", "+zrange", "+zadd", "+pexpire", "~stoplist:*"])
def test_a_missing_right_stops_the_start(run: Run, valkey: Valkey, user: str, right: str) -> None:
    """Each right that a first request needs; the other three are for later requests."""
    without = ["resetkeys"] if right.startswith("~") else [f"-{right[1:].partition('|')[0]}"]
    valkey.execute("SCRIPT", "FLUSH")
    valkey.execute("ACL", "SETUSER", "narrow", *without)
    assert "may run scripts" in refused(run, user)


def test_an_absent_store_does_not_stop_the_start(run: Run, caplog: pytest.LogCaptureFixture, tmp_path: Any) -> None:
    """No store listens: the server starts, counts alone, and warns once."""
    with reserve_port() as closed:
        port = closed.getsockname()[1]
        for url in (f"redis://:{PASSWORD}@127.0.0.1:{port}/0", f"unix://:{PASSWORD}@{tmp_path}/none.sock"):
            caplog.clear()
            assert run(opened(url)) == StoreHealth(is_lost=True, decided_alone=1)
            (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
            assert record.__dict__["fields"] == {"why": "ConnectionError"}
    gc.collect()


def test_a_silent_store_does_not_stop_the_start(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """It accepts the connection and sends nothing: a frozen server, or a firewall."""
    with socket.create_server(("127.0.0.1", 0)) as mute, patience(0.25):
        assert run(opened(f"redis://127.0.0.1:{mute.getsockname()[1]}/0")) == StoreHealth(is_lost=True, decided_alone=1)
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.__dict__["fields"] == {"why": "no answer within 250 ms"}
    gc.collect()


def test_a_store_that_refuses_stops_the_start(run: Run, valkey: Valkey) -> None:
    """A wrong or missing password, an unknown user or database: the text names the remedy."""
    at = f"127.0.0.1:{valkey.port}"
    for url in (f"redis://:{PASSWORD}@{at}/0", f"redis://{at}/0", f"redis://nobody:{PASSWORD}@{at}/0"):
        assert "check user, password and database" in refused(run, url)
    assert "check user, password and database" in refused(run, valkey.url.removesuffix("/0") + "/999")


@pytest.mark.parametrize("answer", [b"-MOVED 1 127.0.0.1:7001\r\n", b"-ERR unknown command 'EVALSHA'\r\n"])
@in_own_loop
async def test_a_store_that_can_never_decide_stops_the_start(answer: bytes) -> None:
    """One node of a cluster, or a server without scripts."""
    async with scripted_store(answer) as url:
        with pytest.raises(SettingsError, match="one primary, or a proxy before a cluster"):
            await opened(url)


@pytest.fixture(scope="module")
def tls(pytestconfig: pytest.Config) -> Iterator[Valkey]:
    """A server that speaks only TLS, if the machine's own server supports it."""
    with needed(pytestconfig, "on a limit store over TLS"), services.Valkey(tls=True) as own:
        yield own


def test_the_store_counts_over_tls(run: Run, tls: Valkey) -> None:
    """The URL names the authority."""
    assert run(opened(tls.url)) == StoreHealth(is_lost=False, decided_alone=0)
    gc.collect()


def test_an_untrusted_certificate_stops_the_start(run: Run, tls: Valkey) -> None:
    """An unknown authority, or the certificate of another host: neither is transient."""
    untrusted = tls.url.partition("?")[0]
    for_another_host = tls.url.replace("127.0.0.1", "127.1")  # the same server under another name
    for url in (untrusted, for_another_host):
        assert "ssl_ca_certs=PATH" in refused(run, url), url


@in_own_loop
async def test_a_certificate_that_is_no_longer_trusted_loses_the_store(
    tls: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """A running server continues alone; the warning names the reason."""
    store = LimitStore.at(tls.url.partition("?")[0])
    with pytest.raises(StoreLost, match="TLS: CERTIFICATE_VERIFY_FAILED"):
        await store.acquire(("api", "a"), None, limit=1)
    await store.close()


@pytest.mark.parametrize(
    "rest",
    [
        "redis://",
        "redis:///0",
        "redis://:{}@/0",
        "redis://:{}@127.0.0.1:99999/0",
        "redis://:{}@127.0.0.1:x/0",
        "redis://:{}@127.0.0.1/x",
        "redis://:{}@127.0.0.1/0?colour=red",
        "redis://:{}@127.0.0.1/0?health_check_interval=soon",
        "redis://:{}@[::1/0",
        "rediss://:{}@127.0.0.1/0?ssl_ca_certs=/nowhere/ca.pem",
        "unix://",
        "unix://:{}@",
        "http://:{}@127.0.0.1",
    ],
)
def test_a_malformed_address_stops_the_start(run: Run, rest: str) -> None:
    """The text names the setting and the right form, never the value."""
    text = refused(run, rest.replace("{}", PASSWORD))
    assert text.startswith("STOPLIST_LIMITS_URL is malformed: write redis://")


def test_closing_ends_all_waiting_calls(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Calls that are sent and calls that are queued end at once."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            store = LimitStore.at(f"redis://127.0.0.1:{mute.getsockname()[1]}/0")
            asked = [asyncio.create_task(store.acquire(("api", str(number)), None, limit=1)) for number in range(300)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await store.close()
            async with asyncio.timeout(60):
                answers = await asyncio.gather(*asked, return_exceptions=True)
        assert {str(answer) for answer in answers} == {"CancelledError"}
        assert all(isinstance(answer, StoreLost) for answer in answers)

    run(main())
    gc.collect()

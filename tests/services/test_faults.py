"""The fault proxy does what the tests of the client rely on, before a real server."""

import contextlib
import gzip
import itertools
import os
import socket
import ssl
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.constants import PATIENCE_S
from tests.e2e.server_process import Installation, RunningServer
from tests.keys import CLIENT_CREDENTIALS, Key
from tests.services.fault_kinds import (
    CUT,
    DROP,
    LOSE,
    RESET,
    Alter,
    ConnectionFault,
    Hold,
    Reply,
    is_api,
    is_credentials,
    is_refresh,
)
from tests.services.faults import Faults

# The interpreter does not matter to the proxy: once is enough.
pytestmark = pytest.mark.slow

_numbers = itertools.count(1)
PATH = "/api/v1/unsubscribe/email"


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return an installation for SQLite."""
    return Installation(tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def server(installation: Installation) -> Iterator[RunningServer]:
    """Start a server that terminates TLS itself."""
    with installation.serving() as server:
        yield server


@pytest.fixture
def key(installation: Installation, server: RunningServer) -> Key:
    """Create a key of a new organization."""
    return installation.new_key(per_minute=10_000, organization=f"org-{next(_numbers)}")


@pytest.fixture
def between(server: RunningServer) -> Iterator[Faults]:
    """Start a proxy before the server."""
    with Faults(server.base_url, server.ca.parent) as own:
        yield own


@pytest.fixture
def line(server: RunningServer, between: Faults) -> Iterator[httpx.Client]:
    """Return a client through the proxy, on one connection, without retries."""
    one = httpx.Limits(max_connections=1)
    with server.client(base_url=between.base_url, limits=one) as line:
        yield line


def tokens(line: httpx.Client, key: Key, **form: str) -> Any:
    """Return the answer of the token endpoint."""
    if form:
        answer = line.post("/oauth/token", data=form)
    else:
        answer = line.post("/oauth/token", data=CLIENT_CREDENTIALS, auth=key)
    assert answer.status_code == 200, answer.text
    return answer.json()


def authorized(line: httpx.Client, key: Key) -> dict[str, str]:
    """Return the header of a new token."""
    return {"Authorization": f"Bearer {tokens(line, key)['access_token']}"}


def read_to_the_end(raw: socket.socket) -> None:
    """Read until the connection ends normally."""
    while raw.recv(10_000):
        pass


def submit(line: httpx.Client, headers: dict[str, str], address: str) -> httpx.Response:
    """Submit one opt-out."""
    return line.post(PATH, headers=headers, json={"all_groups": True, "items": [{"address": address}]})


def stored_addresses(line: httpx.Client, headers: dict[str, str]) -> set[str]:
    """Return the addresses that the server has."""
    return {record["address"] for record in line.get(PATH, headers=headers, params={"limit": 10_000}).json()["items"]}


def test_without_faults_it_is_transparent(line: httpx.Client, between: Faults, key: Key) -> None:
    """Requests and answers pass unchanged, compressed ones too, all on one connection."""
    headers = authorized(line, key)
    stored = submit(line, headers, "ann@pass.test")
    assert stored.status_code == 200
    packed = gzip.compress(b'{"all_groups": true, "items": [{"address": "bob@pass.test"}]}')
    kinds = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert line.post(PATH, headers=headers | kinds, content=packed).json()["created"] == 1
    page = line.get(PATH, headers=headers | {"Accept-Encoding": "gzip"}, params={"limit": 10_000})
    assert page.headers["content-encoding"] == "gzip"
    assert {"ann@pass.test", "bob@pass.test"} <= {record["address"] for record in page.json()["items"]}
    assert line.get("/nowhere").status_code == 404
    assert between.connections == 1
    assert [(seen.method, seen.path, seen.status, seen.client_status) for seen in between.seen] == [
        ("POST", "/oauth/token", 200, 200),
        ("POST", PATH, 200, 200),
        ("POST", PATH, 200, 200),
        ("GET", PATH, 200, 200),
        ("GET", "/nowhere", 404, 404),
    ]


def test_it_terminates_tls_for_a_trusting_server(
    tmp_path_factory: pytest.TempPathFactory, server: RunningServer
) -> None:
    """An operator's proxy does the same."""
    behind = Installation(tmp_path_factory.mktemp("behind"), TRUSTED_PROXIES="127.0.0.1/32")
    with behind.serving() as plain, Faults(f"http://127.0.0.1:{plain.port}", server.ca.parent) as between:
        key = behind.new_key(per_minute=100)
        with server.client(base_url=between.base_url) as line:
            assert submit(line, authorized(line, key), "ann@behind.test").status_code == 200


def test_it_answers_by_itself(line: httpx.Client, between: Faults, key: Key) -> None:
    """A planned answer is given once, in order, to the selected requests; the server sees nothing of it."""
    headers = authorized(line, key)
    limited = Reply(status=429, headers={"Retry-After": "7", "Content-Type": "application/json"}, body=b"{}")
    between.next(limited, None, Reply(status=502, body=b"<html>"), when=is_api)
    first = submit(line, headers, "ann@itself.test")
    assert (first.status_code, first.headers["retry-after"], first.content) == (429, "7", b"{}")
    tokens(line, key)
    assert submit(line, headers, "bob@itself.test").status_code == 200
    assert between.planned == 1
    assert submit(line, headers, "cleo@itself.test").text == "<html>"
    assert between.planned == 0
    assert stored_addresses(line, headers) & {"ann@itself.test", "bob@itself.test", "cleo@itself.test"} == {
        "bob@itself.test"
    }
    assert [(seen.status, seen.client_status) for seen in between.seen][1:5] == [
        (None, 429),
        (200, 200),
        (200, 200),
        (None, 502),
    ]
    assert between.connections == 1


@pytest.mark.parametrize(
    ("mishap", "is_stored", "words"),
    [
        (DROP, False, "without sending a response"),
        (LOSE, True, "without sending a response"),
        (CUT, True, "without sending complete message body"),
    ],
)
def test_a_connection_breaks_before_or_after_the_commit(
    line: httpx.Client, between: Faults, key: Key, mishap: ConnectionFault, is_stored: bool, words: str
) -> None:
    """The client sees a broken connection each time; whether the server stored the item depends on the fault."""
    headers, address = authorized(line, key), f"ann@{mishap.name.lower()}.test"
    between.next(mishap, when=is_api)
    with pytest.raises(httpx.TransportError, match=words):
        submit(line, headers, address)
    assert (address in stored_addresses(line, headers)) == is_stored
    assert [(seen.status, seen.client_status) for seen in between.seen][1] == (200 if is_stored else None, None)
    assert between.connections == 2


def test_a_reset_is_a_tcp_reset(server: RunningServer, between: Faults) -> None:
    """It is seen on the wire; Python's TLS treats it like any other end."""
    between.next(RESET)
    with (
        socket.create_connection(("127.0.0.1", between.port), timeout=PATIENCE_S) as tcp,
        server.tls.wrap_socket(tcp, server_hostname="localhost") as tls,
        socket.socket(fileno=os.dup(tls.fileno())) as raw,
    ):
        raw.settimeout(PATIENCE_S)
        tls.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            read_to_the_end(raw)
        assert between.seen[0].fault is RESET


def test_half_of_a_long_answer_arrives(line: httpx.Client, between: Faults, key: Key) -> None:
    """A cut in the middle of a body comes after the bytes before it."""
    headers = authorized(line, key)
    batch = {"all_groups": True, "items": [{"address": f"person{number}@half.test"} for number in range(10_000)]}
    between.next(None, CUT, when=is_api)
    whole = line.post(PATH, headers=headers, json=batch)
    received = b""
    with line.stream("POST", PATH, headers=headers, json=batch) as answer:
        announced = int(answer.headers["content-length"])
        with contextlib.suppress(httpx.RemoteProtocolError):
            for piece in answer.iter_raw():
                received += piece
    assert len(received) == announced - announced // 2
    unpacked = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(received)
    assert len(unpacked) > len(whole.content) // 4
    assert unpacked.startswith(b'{"items":[{"item_index":0')


def test_an_answer_can_be_altered(line: httpx.Client, between: Faults, key: Key) -> None:
    """The server did what was requested, and the client is told something else."""
    headers = authorized(line, key) | {"Accept-Encoding": "identity"}
    between.next(Alter(lambda reply: Reply(status=reply.status, headers=reply.headers, body=b"[]")), when=is_api)
    altered = submit(line, headers, "ann@altered.test")
    assert (altered.status_code, altered.content) == (200, b"[]")
    assert altered.headers["x-request-id"]
    assert "ann@altered.test" in stored_addresses(line, headers)


def test_a_held_answer_waits_for_its_release(line: httpx.Client, between: Faults, key: Key) -> None:
    """The server has committed when `wait` returns, and the client is answered afterwards."""
    headers, held = authorized(line, key), Hold()
    between.next(held, when=is_api)
    with ThreadPoolExecutor(max_workers=1) as other:
        waiting = other.submit(submit, line, headers, "ann@held.test")
        held.wait()
        tls = ssl.create_default_context(cafile=between.ca)
        with httpx.Client(base_url=between.base_url, verify=tls, trust_env=False) as second:
            assert "ann@held.test" in stored_addresses(second, headers)
        assert not waiting.done()
        held.release()
        assert waiting.result(PATIENCE_S).status_code == 200


def test_a_rule_applies_to_requests_without_a_plan(line: httpx.Client, between: Faults, key: Key) -> None:
    """It is called for each request, until `forget`."""
    headers = authorized(line, key)
    between.otherwise(lambda request: Reply(status=500) if is_api(request) else None)
    between.next(None, when=is_api)
    assert [submit(line, headers, "ann@rule.test").status_code for _ in range(3)] == [200, 500, 500]
    tokens(line, key)
    between.next(DROP)
    between.forget()
    assert submit(line, headers, "ann@rule.test").status_code == 200
    assert [(seen.path, seen.client_status) for seen in between.seen] == [(PATH, 200)]


def test_a_refresh_token_is_identified_by_its_hash(line: httpx.Client, between: Faults, key: Key) -> None:
    """It may never have been passed on; its text appears nowhere in the proxy's records."""
    first = tokens(line, key)["refresh_token"]
    between.next(DROP, when=is_refresh)
    form = {"grant_type": "refresh_token", "refresh_token": first}
    with pytest.raises(httpx.TransportError):
        tokens(line, key, **form)
    assert between.presented_twice == []
    second = tokens(line, key, **form)["refresh_token"]
    assert between.presented_twice == between.presented[:1]
    tokens(line, key, grant_type="refresh_token", refresh_token=second)
    assert len(between.presented) == 3
    assert len(between.presented_twice) == 1
    assert first not in repr((between.seen, between.arrived, between.presented))
    assert [is_credentials(request) for request in between.arrived] == [True, False, False, False]


def test_idle_connections_are_closed(line: httpx.Client, between: Faults, key: Key) -> None:
    """The client finds its connection closed before its next request; a request in progress is not disturbed."""
    headers, held = authorized(line, key), Hold()
    between.close_idle()
    between.next(held, when=is_api)
    with ThreadPoolExecutor(max_workers=1) as other:
        waiting = other.submit(submit, line, headers, "ann@idle.test")
        held.wait()
        between.close_idle()
        held.release()
        assert waiting.result(PATIENCE_S).status_code == 200
    assert between.connections == 2


def test_a_stopped_server_breaks_the_connection(
    tmp_path_factory: pytest.TempPathFactory, server: RunningServer
) -> None:
    """The proxy does not answer for it, and connects to the next server at the same address."""
    installation = Installation(tmp_path_factory.mktemp("gone"), TRUSTED_PROXIES="127.0.0.1/32")
    with (
        installation.serving() as first,
        Faults(f"http://127.0.0.1:{first.port}", server.ca.parent) as between,
        server.client(base_url=between.base_url) as line,
    ):
        assert line.get("/healthz").status_code == 200
        first.kill()
        with pytest.raises(httpx.TransportError):
            line.get("/healthz")
        with installation.serving() as second:
            between.server = f"http://127.0.0.1:{second.port}"
            assert line.get("/healthz").status_code == 200


def test_it_leaves_no_thread(server: RunningServer) -> None:
    """It leaves none even while it holds an answer."""
    before, held = set(threading.enumerate()), Hold()
    with (
        ThreadPoolExecutor(max_workers=1) as other,
        Faults(server.base_url, server.ca.parent) as between,
        server.client(base_url=between.base_url) as line,
    ):
        between.next(held)
        waiting = other.submit(line.get, "/healthz")
        held.wait()
        between.close()
        assert isinstance(waiting.exception(PATIENCE_S), httpx.TransportError)
    assert set(threading.enumerate()) <= before

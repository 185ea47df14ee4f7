"""One connection: bounds on its input, its deadlines, and the refusals."""

import asyncio
import errno
import itertools
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import uvloop
from hypothesis import example, given
from hypothesis import strategies as st

from stoplist.errors import BadRequest
from stoplist.server.bounds import HEAD, NEW, Bounds
from stoplist.server.http_protocol import WireProtocol
from stoplist.server.http_server import serve_http
from stoplist.server.sweep import Sweep
from stoplist.web.body import ClientGone, read_body
from stoplist.web.request_context import BODY_PROGRESS
from tests.constants import PATIENCE_S
from tests.server.serving import WireAnswer, in_uvloop, on_uvloop, respond, serving

pytestmark = pytest.mark.interpreter

HEAD_BYTES = 64 * 1024
NEVER = Bounds(head_s=600, request_s=600, idle_s=600, unread_s=600, sweep_s=600)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the path and the body; refuse a body that is too large or late, as the product does."""
    try:
        body = await read_body(receive, scope["headers"], max_bytes=1 << 20)
    except BadRequest as error:
        await respond(send, error.text.encode(), status=400)
    except ClientGone:
        pass
    else:
        await respond(send, scope["path"].encode() + b" " + body)


async def names_of_headers(scope: Any, receive: Any, send: Any) -> None:
    await read_body(receive, scope["headers"], max_bytes=1 << 20)
    await respond(send, b" ".join(name for name, _ in scope["headers"]))


def short_deadlines(**deadlines: float) -> Bounds:
    """Return bounds in which only these deadlines are short, so that a busy machine passes no other."""
    return msgspec.structs.replace(Bounds(sweep_s=0.02), **deadlines)


def wait_for_bytes(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Enforce no deadline on a head before so many of its bytes have come, however slow the machine is."""
    enforce = WireProtocol.enforce_bounds

    def enforce_later(connection: WireProtocol, now_s: float) -> None:
        is_in_head = connection._phase in (NEW, HEAD)
        if not is_in_head or connection._overhead_bytes >= count:
            enforce(connection, now_s)

    monkeypatch.setattr(WireProtocol, "enforce_bounds", enforce_later)


def get(path: str = "/", *fields: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *fields, "", ""]).encode("latin-1")


def post(body: bytes, *fields: str) -> bytes:
    head = ["POST /p HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *fields, "", ""]
    return "\r\n".join(head).encode() + body


def chunked(*chunks: bytes) -> bytes:
    return b"POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(chunks)


def head_of(size: int) -> bytes:
    """Return a request whose head has exactly this size."""
    padding = size - len(get("/", "X-Padding: "))
    return get("/", "X-Padding: " + "p" * padding)


def assert_is_bad_request(answer: WireAnswer, text: str) -> None:
    """Check a 400 in the envelope, with a request id and `no-store`, and without a `Server` header."""
    assert answer.status == 400
    assert answer.json() == {"error": "bad_request", "message": text, "error_description": text}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["connection"] == "close"
    assert len(answer.headers["x-request-id"]) == 24
    assert "date" in answer.headers
    assert "server" not in answer.headers


MALFORMED = "The request is not well-formed HTTP."
TOO_MANY = "The head of the request has more than 500 fields and no end."
TOO_LARGE = "The head of the request is larger than 64 KiB."


@pytest.mark.parametrize("piece", [1 << 20, 4096, 65535, 65536, 65537])
@in_uvloop
async def test_a_head_may_have_64_kib_and_not_a_byte_more(piece: int) -> None:
    """Source: docs/interface.md section D4. In pieces of any size, and with a body behind it."""
    async with serving(echo) as server:
        connection = await server.connect()
        for _ in range(2):
            await in_pieces(connection, head_of(HEAD_BYTES), piece)
            assert (await connection.answer()).body == b"/ "
        large = post(b"b" * 70_000, "X-Padding: " + "p" * (HEAD_BYTES - len(post(b"", "X-Padding: ")) - 4))
        await in_pieces(connection, large, piece)
        assert (await connection.answer()).body == b"/p " + b"b" * 70_000
        await in_pieces(connection, head_of(HEAD_BYTES + 1), piece)
        assert_is_bad_request(await connection.answer(), TOO_LARGE)
        assert await connection.is_closed()


def in_pieces(connection: Any, data: bytes, piece: int) -> Any:
    return connection.send_all(data[start : start + piece] for start in range(0, len(data), piece))


@pytest.mark.parametrize(
    ("start", "endless"),
    [
        (b"", b"\r\n"),
        (b"GET /", b"x"),
        (b"GET / HTTP/1.1\r\n", b"X: y\r\n"),
        (b"GET / HTTP/1.1\r\nX: ", b"y"),
        (b"GET / HTTP/1.1\r\nX:", b" "),
        (chunked(b"3\r\nabc\r\n0\r\n"), b"X: y\r\n"),
        (chunked(b"3\r\nabc\r\n0\r\nX: "), b"y"),
        (chunked(b"3;"), b"e"),
        (chunked(), b"0"),
    ],
)
@in_uvloop
async def test_everything_but_a_body_is_bounded(start: bytes, endless: bytes) -> None:
    """Empty lines, one long line, many fields, trailers, chunk extensions, leading zeros."""
    async with serving(echo) as server:
        connection = await server.connect()
        await connection.send(start)
        await connection.send(endless * (3 * HEAD_BYTES // len(endless)))
        answer = await connection.answer()
        assert answer.status == 400
        assert answer.json()["message"] in (TOO_LARGE, TOO_MANY, MALFORMED)
        assert await connection.is_closed()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"get / HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nsecret-\x00: svc_cs_secret\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET http:// HTTP/1.1\r\n\r\n",
    ],
)
@in_uvloop
async def test_malformed_input_gets_one_answer_that_repeats_nothing(garbage: bytes) -> None:
    """Then the connection ends; `on_own_answer` gets the request id of the answer."""
    async with serving(echo) as server:
        connection = await server.connect()
        await connection.send(garbage)
        answer = await connection.answer()
        assert_is_bad_request(answer, MALFORMED)
        assert await connection.is_closed()
        assert server.own_answers == [(answer.headers["x-request-id"], 400)]


@in_uvloop
async def test_connect_is_refused() -> None:
    async with serving(echo) as server:
        answer = await server.ask(b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert_is_bad_request(answer, "This server is not a proxy.")


def test_a_malformed_body_is_answered_and_ends_the_application() -> None:
    """The application that waits for the body learns that the client is gone."""
    events: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await read_body(receive, scope["headers"], max_bytes=100)
        except ClientGone:
            events.append("gone")

    async def main() -> None:
        async with serving(app) as server:
            connection = await server.connect()
            await connection.send(chunked(b"3\r\nabc\r\n"))
            await connection.send(b"no chunk\r\n")
            assert_is_bad_request(await connection.answer(), MALFORMED)
            assert await connection.is_closed()

    on_uvloop(main())
    assert events == ["gone"]


@in_uvloop
async def test_garbage_after_a_request_does_not_spoil_its_answer() -> None:
    """The request is answered, then the connection ends without another answer."""
    async with serving(echo) as server:
        connection = await server.connect()
        await connection.send(get("/first") + b"\x00\x01garbage")
        answer = await connection.answer()
        assert answer.body == b"/first "
        assert answer.headers["connection"] == "close"
        assert await connection.is_closed()


@in_uvloop
async def test_requests_before_a_malformed_body_are_answered() -> None:
    """The pipelined requests are answered in order, the malformed one with 400, and the connection ends."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        await go_on.wait()
        await echo(scope, receive, send)

    async with serving(app) as server:
        connection = await server.connect()
        await connection.send(
            get("/first") + get("/second") + chunked(b"3\r\nabc\r\n", b"no chunk\r\n") + get("/never")
        )
        await begun.wait()
        go_on.set()
        assert (await connection.answer()).body == b"/first "
        assert (await connection.answer()).body == b"/second "
        refused = await connection.answer()
        assert (refused.status, refused.headers["connection"]) == (400, "close")
        assert b"not well-formed" in refused.body
        assert await connection.is_closed()


@in_uvloop
async def test_garbage_after_an_early_answer_gets_no_second_answer() -> None:
    """The application answered before the body was complete; what follows belongs to that request."""

    async def early(scope: Any, receive: Any, send: Any) -> None:
        await respond(send, b"early")

    async with serving(early) as server:
        connection = await server.connect()
        await connection.send(chunked(b"3\r\nabc\r\n"))
        assert (await connection.answer()).body == b"early"
        await connection.send(b"no chunk\r\n")
        assert await connection.is_closed()


@pytest.mark.parametrize(
    "request_", [head_of(20 << 20), b"\x00" * (20 << 20), post(b"b" * (20 << 20), "Connection: close")]
)
@in_uvloop
async def test_a_client_that_is_still_sending_can_read_its_refusal(request_: bytes) -> None:
    """On a plain connection, a reset would overtake the answer if the server closed with unread input."""
    async with serving(echo, bounds=Bounds(linger_s=PATIENCE_S)) as server:
        connection = await server.connect()
        await connection.send(request_)
        answer = await connection.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert await connection.is_closed()


@in_uvloop
async def test_a_client_that_ignores_its_refusal_is_cut_off() -> None:
    async with serving(echo, bounds=short_deadlines(linger_s=0.1)) as server:
        connection = await server.connect()
        await connection.send(b"\x00")
        assert (await connection.answer()).status == 400
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(ConnectionError):
                await connection.send_all(b"\x00" * 1000 for _ in itertools.count())


@in_uvloop
async def test_the_rest_of_a_refused_body_is_dropped() -> None:
    """The client reads its refusal after sending everything, and reuses the connection."""
    async with serving(echo) as server:
        connection = await server.connect()
        await connection.send(post(b"b" * (2 << 20)))
        assert (await connection.answer()).body == b"The body is larger than 1 MiB."
        await connection.send(get("/next"))
        assert (await connection.answer()).body == b"/next "


@pytest.mark.parametrize("sent", [b"G", b"GET / HTTP/1.1\r\nHost: x\r\n", b"\r\n"])
@in_uvloop
async def test_a_head_has_a_deadline(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 seconds in production, 0.1 here."""
    wait_for_bytes(monkeypatch, 1)
    async with serving(echo, bounds=short_deadlines(head_s=0.1)) as server:
        connection = await server.connect()
        await connection.send(sent)
        text = "The head of the request did not arrive within 0.1 seconds."
        assert_is_bad_request(await connection.answer(), text)
        assert await connection.is_closed()


@in_uvloop
async def test_a_trickling_head_does_not_extend_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline counts from the first byte, not from the last."""
    wait_for_bytes(monkeypatch, 2)
    async with serving(echo, bounds=short_deadlines(head_s=0.1)) as server:
        connection = await server.connect()
        answer = asyncio.ensure_future(connection.answer())
        sent = 0
        while not answer.done():
            await connection.send(b"GET /"[sent : sent + 1] or b"x")
            sent += 1
            await asyncio.wait([answer], timeout=0.02)
        assert (await answer).status == 400
        assert sent > 1


@in_uvloop
async def test_a_body_has_a_deadline() -> None:
    """The application is told, answers in its own words, and the connection ends; requests before it are answered."""

    async def patient(scope: Any, receive: Any, send: Any) -> None:
        try:
            while (await receive())["more_body"]:
                pass
        except TimeoutError as late:
            await respond(send, str(late).encode(), status=400)
        else:
            await respond(send, b"complete")

    async with serving(patient, bounds=short_deadlines(request_s=0.2)) as server:
        connection = await server.connect()
        await connection.send(post(b"abc") + post(b"abc")[:-1])
        assert (await connection.answer()).body == b"complete"
        late = await connection.answer()
        assert (late.status, late.body) == (400, b"The body did not arrive within 0.2 seconds.")
        assert await connection.is_closed()


@pytest.mark.timeout(60)
@in_uvloop
async def test_a_body_gets_more_time_if_the_application_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file may take longer than the deadline, as long as it goes on arriving."""
    swept, went_on = asyncio.Event(), asyncio.Event()
    enforce = WireProtocol.enforce_bounds

    def enforce_and_note(connection: WireProtocol, now_s: float) -> None:
        enforce(connection, now_s)
        if went_on.is_set():
            swept.set()

    monkeypatch.setattr(WireProtocol, "enforce_bounds", enforce_and_note)

    async def storing(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        receive.__self__.protocol._since_s -= 1_000
        await send({"type": BODY_PROGRESS})
        went_on.set()
        await respond(send, (await receive())["body"])

    async with serving(storing, bounds=Bounds(sweep_s=0.02)) as server:
        connection = await server.connect()
        await connection.send(post(b"abc")[:-1])
        await swept.wait()
        await connection.send(b"c")
        assert (await connection.answer()).body == b"c"


@in_uvloop
async def test_a_body_sent_after_its_answer_has_a_deadline() -> None:
    """A refused body that is still being sent cannot hold a connection for ever."""
    async with serving(echo, bounds=short_deadlines(request_s=0.2)) as server:
        connection = await server.connect()
        await connection.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n")
        assert (await connection.answer()).status == 400
        assert await connection.is_closed()


@pytest.mark.parametrize(("sent", "bounds"), [(b"", short_deadlines(head_s=0.1)), (get(), short_deadlines(idle_s=0.1))])
@in_uvloop
async def test_an_idle_connection_is_closed_without_an_answer(sent: bytes, bounds: Bounds) -> None:
    """One that never sent anything, and one that was answered."""
    async with serving(echo, bounds=bounds) as server:
        connection = await server.connect()
        if sent:
            await connection.send(sent)
            await connection.answer()
        assert await connection.is_closed()


@in_uvloop
async def test_deadlines_do_not_bound_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that has arrived is answered after any time: here longer than all deadlines."""
    wait_for_bytes(monkeypatch, 1)
    may_answer = asyncio.Event()
    bounds = short_deadlines(head_s=0.1, request_s=0.2, idle_s=0.3, unread_s=0.3, linger_s=0.1)

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            await may_answer.wait()
        await respond(send, b"late")

    async with serving(slow, bounds=bounds) as server:
        connection, other = await server.connect(), await server.connect()
        await connection.send(get("/slow"))
        await other.send(get())
        await other.answer()
        assert await other.is_closed()  # after the longest of the deadlines
        may_answer.set()
        assert (await connection.answer()).body == b"late"


@pytest.mark.parametrize("bounds", [{"unread_s": 0.3}, {"unread_bytes": 1 << 16, "stalled_s": 0.3}])
@in_uvloop
async def test_an_unread_answer_is_given_up(bounds: dict[str, Any]) -> None:
    """Its deadline ends it, or earlier the memory that all unread answers take together."""
    ended: list[str] = []

    async def large(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(100):
            await send({"type": "http.response.body", "body": b"x" * (1 << 20), "more_body": True})
        await send({"type": "http.response.body"})
        ended.append("application")

    async with serving(large, bounds=Bounds(sweep_s=0.02, **({"unread_s": 6000.0} | bounds))) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.send(get())
            async with asyncio.timeout(PATIENCE_S):
                while not ended:
                    await asyncio.wait([server.done], timeout=0.02)


def test_a_slowly_read_answer_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is sent as long as the client reads something now and then; here time passes with each part."""
    size = 16 << 20
    now_s, swept = 0.0, asyncio.Event()

    def sweep(running: Any) -> None:
        for connection in tuple(running._state.connections):
            connection.enforce_bounds(now_s)
        swept.set()

    monkeypatch.setattr(Sweep, "run", sweep)

    async def large(scope: Any, receive: Any, send: Any) -> None:
        await respond(send, b"x" * size)

    async def main() -> None:
        nonlocal now_s
        now_s = asyncio.get_running_loop().time()
        async with serving(large, bounds=Bounds(unread_s=1.0, sweep_s=0.005)) as server:
            connection = await server.connect()
            await connection.send(get())
            received = 0
            while received < size:
                now_s += 0.05
                swept.clear()
                await swept.wait()
                part = await connection.reader.read(200_000)
                assert part, "cut off"
                received += len(part)

    on_uvloop(main())


def test_pipelined_requests_are_answered_in_order() -> None:
    """One after the other, as RFC 9112 section 9.3.2 requires."""
    running = most = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0))])
        await echo(scope, receive, send)
        running -= 1

    async def main() -> None:
        async with serving(app) as server:
            connection = await server.connect()
            await connection.send(b"".join(post(b"%d" % number) for number in range(20)))
            assert [(await connection.answer()).body for _ in range(20)] == [b"/p %d" % n for n in range(20)]

    on_uvloop(main())
    assert most == 1


def test_a_flood_of_pipelined_requests_is_bounded() -> None:
    """The first ones are answered and the connection ends; no other reaches the application."""
    begun = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal begun
        begun += 1
        await echo(scope, receive, send)

    async def main() -> None:
        async with serving(app) as server:
            connection = await server.connect()
            flood = asyncio.ensure_future(connection.send(get() * 200_000))
            answers = 0
            while "connection" not in (await connection.answer()).headers:
                answers += 1
            assert await connection.is_closed()
            await asyncio.wait([flood])
            assert flood.exception() is None or isinstance(flood.exception(), ConnectionError)
            assert answers < 64

    on_uvloop(main())
    assert begun < 64


@pytest.mark.parametrize("protocol", ["websocket", "h2c", "TLS/1.2"])
def test_an_upgrade_is_ignored(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    """RFC 9110 section 7.8: the request is an ordinary one, and so is the next."""

    async def main() -> None:
        async with serving(echo) as server:
            connection = await server.connect()
            fields = ["Connection: Upgrade, HTTP2-Settings", f"Upgrade: {protocol}", "HTTP2-Settings: AAMAAABk"]
            for _ in range(3):
                await connection.send(get("/ordinary", *fields))
                answer = await connection.answer()
                assert (answer.status, answer.body) == (200, b"/ordinary ")
            await connection.send(get("/one", *fields) + get("/two", *fields) + get("/three"))
            bodies = [(await connection.answer()).body for _ in range(3)]
            assert bodies == [b"/one ", b"/two ", b"/three "]

    on_uvloop(main())
    assert not caplog.records


@pytest.mark.parametrize("is_apart", [False, True])
@in_uvloop
async def test_the_body_of_an_upgrade_request_is_its_body(is_apart: bool) -> None:
    """It is never the next request: a client behind a proxy could forge requests of others."""
    smuggled = get("/smuggled")
    begun = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        await echo(scope, receive, send)

    async with serving(app) as server:
        connection = await server.connect()
        request = post(smuggled, "Connection: Upgrade", "Upgrade: h2c")
        split = len(request) - len(smuggled) if is_apart else len(request)
        await connection.send(request[:split])
        if is_apart:
            await begun.wait()
            await connection.send(smuggled)
        assert (await connection.answer()).body == b"/p " + smuggled
        await connection.send(get("/next"))
        assert (await connection.answer()).body == b"/next "


@in_uvloop
async def test_a_flood_of_upgrades_is_bounded() -> None:
    """Each is parsed twice; many in one piece of data must not recurse."""
    async with serving(echo) as server:
        connection = await server.connect()
        await connection.send(get("/", "Connection: Upgrade", "Upgrade: h2c") * 900)
        while "connection" not in (await connection.answer()).headers:
            pass
        assert await connection.is_closed()


@pytest.mark.parametrize(("fields", "is_refused"), [(498, False), (501, True)])
@in_uvloop
async def test_the_fields_of_an_unfinished_head_are_bounded(fields: int, *, is_refused: bool) -> None:
    """There are at most 500 with the Host: thousands of short ones would take ten times their bytes of memory."""
    head = get("/", *["a:b"] * fields)
    async with serving(echo) as server:
        connection = await server.connect()
        await connection.send(head[:-2])
        if is_refused:
            assert_is_bad_request(await connection.answer(), TOO_MANY)
            return
        await connection.send(head[-2:])
        assert (await connection.answer()).status == 200
        # A head that comes in one piece is soon freed.
        assert (await server.ask(get("/", *["a:b"] * 10_000))).status == 200


def test_an_upgrade_request_may_have_a_head_of_64_kib() -> None:
    """The second parse, with more spaces, does not count."""
    fields = ["Connection:Upgrade", "Upgrade:h2c", *["a:b"] * 10_000]
    padding = HEAD_BYTES - len(get("/", *fields, "X-Padding: "))
    request = get("/", *fields, "X-Padding: " + "p" * padding)

    async def main() -> None:
        async with serving(echo) as server:
            assert (await server.ask(request)).body == b"/ "

    on_uvloop(main())
    assert len(request) == HEAD_BYTES


@in_uvloop
async def test_trailers_do_not_become_headers() -> None:
    """RFC 9110 section 6.5.1: a proxy in front checks the head, and nobody the trailers."""
    request = chunked(b"3\r\nabc\r\n0\r\nAuthorization: Bearer x\r\nX-Forwarded-Proto: https\r\n\r\n")
    async with serving(names_of_headers) as server:
        assert (await server.ask(request)).body == b"host transfer-encoding"


@in_uvloop
async def test_a_client_that_waits_for_100_continue_gets_it() -> None:
    """The server sends it as soon as the application reads the body."""
    async with serving(echo) as server:
        connection = await server.connect()
        request = post(b"abc", "Expect: 100-continue")
        await connection.send(request[:-3])
        assert (await connection.answer()).status == 100
        await connection.send(b"abc")
        assert (await connection.answer()).body == b"/p abc"
        await connection.send(get("/next"))
        assert (await connection.answer()).body == b"/next "


@in_uvloop
async def test_an_answer_instead_of_100_continue_ends_the_connection() -> None:
    """The client may leave the body out, and its next request would then be read as the body."""
    async with serving(echo) as server:
        connection = await server.connect()
        await connection.send(post(b"b" * (2 << 20), "Expect: 100-continue")[: -(2 << 20)])
        answer = await connection.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert await connection.is_closed()


@pytest.mark.parametrize("is_head_sent", [False, True])
def test_a_defect_of_the_application_is_answered_in_the_envelope(
    is_head_sent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Answer and log have one request id; the log shows the place of the error and no text that might be secret."""

    async def defect(scope: Any, receive: Any, send: Any) -> None:
        if is_head_sent:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError(scope["query_string"])

    async def main() -> None:
        async with serving(defect) as server:
            connection = await server.connect()
            await connection.send(get("/?svc_cs_secret"))
            answer = await connection.answer()
            assert answer.status == 500
            assert answer.json()["error"] == "server_error"
            assert answer.json()["request_id"] == answer.headers["x-request-id"]
            assert answer.json()["message"] == answer.json()["error_description"]
            assert server.own_answers == [(answer.headers["x-request-id"], 500)]
            assert await connection.is_closed()

    on_uvloop(main())
    assert "ValueError" in caplog.text
    assert "in defect" in caplog.text
    assert "svc_cs_secret" not in caplog.text


@in_uvloop
async def test_a_broken_off_answer_ends_the_connection() -> None:
    """The client sees fewer bytes than announced, and nothing is made up."""

    async def breaks_off(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError

    async with serving(breaks_off) as server:
        connection = await server.connect()
        await connection.send(get())
        assert (await connection.rest()).endswith(b"\r\n\r\nhalf")


@in_uvloop
async def test_answers_of_every_kind_are_complete() -> None:
    """Head and body leave together: also without a body, to HEAD, in parts, and without a length."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        parts = {"/empty": [b""], "/parts": [b"one", b"two", b""], "/head": [b""]}[scope["path"]]
        status = 204 if scope["path"] == "/empty" else 200
        await send({"type": "http.response.start", "status": status, "headers": []})
        for part in parts[:-1]:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": parts[-1]})

    async with serving(app) as server:
        connection = await server.connect()
        await connection.send(get("/empty"))
        assert (await connection.answer()).status == 204
        await connection.send(get("/head").replace(b"GET", b"HEAD"))
        assert (await connection.answer()).status == 200
        await connection.send(get("/parts", "Connection: close"))
        assert (await connection.rest()).endswith(b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")


@in_uvloop
async def test_http_1_0_is_answered_and_closed() -> None:
    """Old health checkers use it."""
    async with serving(echo) as server:
        connection = await server.connect()
        await connection.send(b"GET /old HTTP/1.0\r\n\r\n")
        assert (await connection.answer()).body == b"/old "
        assert await connection.is_closed()


class LogCollector(logging.Handler):
    """Collects log records of this level and above."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class BackgroundServer:
    """A server in its own thread, for a test with many examples."""

    def __init__(self) -> None:
        self.port = 0
        self._loop = uvloop.new_event_loop()
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.warnings = LogCollector(logging.WARNING)

    def __enter__(self) -> "BackgroundServer":
        logging.getLogger().addHandler(self.warnings)
        self._thread.start()
        assert self._started.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_S)
        logging.getLogger().removeHandler(self.warnings)
        assert not self._thread.is_alive()

    def answers(self, *pieces: bytes) -> bytes:
        """Send these pieces, and return everything that the server sends before it closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as client:
            received = b""
            try:
                for piece in pieces:
                    client.sendall(piece)
                client.shutdown(socket.SHUT_WR)
                while part := client.recv(65536):
                    received += part
            except OSError as error:
                if error.errno not in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN):
                    raise
            return received

    def _run(self) -> None:
        self._loop.run_until_complete(
            serve_http(
                echo,
                host="127.0.0.1",
                port=0,
                tls=None,
                drain_s=1,
                stop=self._stop,
                on_started=self._note_port,
                bounds=NEVER,
            )
        )
        self._loop.close()

    def _note_port(self, addresses: list[tuple[str, int]]) -> None:
        self.port = addresses[0][1]
        self._started.set()


@pytest.fixture(scope="module")
def background() -> Iterator[BackgroundServer]:
    with BackgroundServer() as server:
        yield server


words = st.sampled_from(
    [
        *[b"GET ", b"POST ", b"CONNECT ", b"PRI ", b"/", b"*", b"http://x/", b"?q=%00%ff", b"%"],
        *[b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b"\r\n", b"\r\n\r\n", b"\n", b"\x00", b"\xff", b":", b" "],
        *[b"Host: x\r\n", b"Content-Length: 3\r\n", b"Content-Length: 999\r\n"],
        *[b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"Connection: close\r\n"],
        *[b"Connection: Upgrade\r\n", b"Upgrade: h2c\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"],
        *[b"abc", b"3\r\nabc\r\n", b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n"],
    ]
)


@given(st.lists(st.lists(words | st.binary(max_size=30)).map(b"".join), max_size=4))
@example([b"CONNECT ", b"/", b" HTTP/1.1\r\n\r\n"])
@example([b"GET http://x/ HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabcGET"])
def test_any_bytes_are_answered_or_refused(background: BackgroundServer, pieces: list[bytes]) -> None:
    """Nothing is logged as a defect, and the server goes on."""
    received = background.answers(*pieces)
    assert {line[9:12] for line in received.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")} <= {b"100", b"200", b"400"}
    assert received == b"" or received.startswith(b"HTTP/1.1 ")
    assert b"/still-there " in background.answers(get("/still-there", "Connection: close"))
    assert background.warnings.records == []

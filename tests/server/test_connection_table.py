"""The bounds on connections, in all and of one source (docs/interface.md section D4, Connections)."""

from collections.abc import Callable
from typing import Any

import pytest

from stoplist.server.bounds import Bounds
from stoplist.server.connection_table import ConnectionTable
from tests.server.serving import in_uvloop, respond, serving

pytestmark = pytest.mark.interpreter

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
HALF_A_BODY = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"


class FakeConnection:
    """A connection that is idle or sends a body, or that waits for an answer."""

    def __init__(self, *, is_idle: bool = True, is_sending_body: bool = False) -> None:
        self.is_idle, self.is_sending_body = is_idle, is_sending_body
        self.is_closed, self.listed_s = False, 0.0

    def abort(self) -> None:
        self.is_closed = True


def table(**bounds: int) -> ConnectionTable:
    return ConnectionTable(Bounds(**bounds), is_trusted=lambda peer: peer == "10.0.0.1")


def closed(table: ConnectionTable, *connections: FakeConnection, peer: str = "192.0.2.1") -> list[int]:
    """Add the connections, and return which were closed."""
    for connection in connections:
        table.add(connection, peer, 0.0)
    return [number for number, connection in enumerate(connections) if connection.is_closed]


def idle(number: int) -> list[FakeConnection]:
    return [FakeConnection() for _ in range(number)]


def test_the_longest_idle_of_a_source_makes_room() -> None:
    few, connections = table(connections_per_source=3), idle(3)
    assert closed(few, *connections) == []
    few.touch(connections[0], 1.0)
    assert closed(few, FakeConnection()) == []
    assert closed(few, FakeConnection()) == []
    assert [connection.is_closed for connection in connections] == [False, True, True]


def test_a_source_is_a_network_of_ipv6_addresses() -> None:
    one = table(connections_per_source=1)
    assert closed(one, FakeConnection(), peer="2001:db8::1") == []
    old = FakeConnection()
    assert closed(one, old, peer="2001:db8:0:1::1") == []
    assert closed(one, FakeConnection(), peer="2001:db8:0:1::2") == []
    assert old.is_closed


def test_a_trusted_proxy_is_no_source() -> None:
    assert closed(table(connections_per_source=1), *idle(5), peer="10.0.0.1") == []


def test_all_sources_together_are_bounded_too() -> None:
    both, first = table(connections=3), idle(2)
    assert closed(both, *first, peer="10.0.0.1") == []
    assert closed(both, *idle(3)) == []
    assert [connection.is_closed for connection in first] == [True, True]


def test_a_connection_that_waits_for_its_answer_is_kept() -> None:
    """The new one may have to go for it. Once answered, it is idle like any other, from then on."""
    few, connections = table(connections_per_source=2), [FakeConnection(is_idle=False) for _ in range(2)]
    assert closed(few, *connections, FakeConnection()) == [2]
    for connection in connections:
        connection.is_idle = True
        few.touch(connection, 1.0)
    assert closed(few, *idle(1)) == []
    assert [connection.is_closed for connection in connections] == [True, False]


def test_whoever_sends_a_body_goes_last() -> None:
    sending = FakeConnection(is_sending_body=True)
    few = table(connections_per_source=2)
    assert closed(few, sending, *idle(2)) == [1]
    assert closed(few, FakeConnection(is_idle=False), FakeConnection(is_idle=False)) == []
    assert sending.is_closed


def test_room_is_made_without_looking_through_all_connections() -> None:
    """Those that wait for their answers are looked at once, and not for each new connection."""
    full, answering = table(connections=3000), [FakeConnection(is_idle=False) for _ in range(1000)]
    closed(full, *answering, *idle(2000), peer="10.0.0.1")
    closed(full, *idle(2000), peer="10.0.0.1")
    assert (full.closed, full.looked_at) == (2000, 3000)


def test_closed_connections_leave_the_table() -> None:
    few, connection = table(connections_per_source=1), FakeConnection()
    few.add(connection, "192.0.2.1", 0.0)
    few.hold(connection, 10, is_body=False)
    for _ in range(2):
        few.remove(connection)
    assert (len(few), few._heads.size_bytes, few._by_source) == (0, 0, {})
    assert closed(few, FakeConnection()) == []


@pytest.mark.parametrize("is_body", [False, True])
def test_incomplete_requests_are_bounded_together(*, is_body: bool) -> None:
    """The oldest goes first; heads never go for bodies, nor bodies for heads."""
    some, other, connections = table(incomplete_bytes=100), FakeConnection(), idle(3)
    closed(some, other, *connections)
    some.hold(other, 90, is_body=not is_body)
    some.hold(connections[0], 10, is_body=is_body)
    some.hold(connections[1], 40, is_body=is_body)
    some.hold(connections[0], 60, is_body=is_body)
    assert not connections[0].is_closed
    some.hold(connections[2], 20, is_body=is_body)
    assert [connection.is_closed for connection in connections] == [True, False, False]
    some.release(connections[1])
    some.hold(connections[2], 90, is_body=is_body)
    assert [connection.is_closed for connection in connections] == [True, False, False]
    assert not other.is_closed


async def slow_or_at_once(scope: Any, receive: Callable[[], Any], send: Any) -> None:
    """Answer at once, but read the body of a POST first."""
    while scope["method"] == "POST" and (await receive()).get("more_body"):
        pass
    await respond(send, b"ok")


@in_uvloop
async def test_a_client_is_served_although_others_hold_all_connections() -> None:
    """They are idle after an answer, have sent nothing, or are in the middle of a head."""
    async with serving(slow_or_at_once, bounds=Bounds(connections_per_source=3)) as running:
        holders = [await running.connect() for _ in range(3)]
        await holders[0].send(GET)
        await holders[0].answer()
        await holders[1].send(GET[:10])
        for _ in range(10):
            assert (await running.ask(GET)).status == 200


@in_uvloop
async def test_a_client_is_served_although_others_send_endless_bodies() -> None:
    async with serving(slow_or_at_once, bounds=Bounds(connections_per_source=3)) as running:
        holders = [await running.connect() for _ in range(3)]
        for holder in holders:
            await holder.send(HALF_A_BODY)
        assert (await running.ask(GET)).status == 200


@in_uvloop
async def test_incomplete_requests_are_closed_for_others() -> None:
    """They stand in the middle of a head, or of a body."""
    async with serving(slow_or_at_once, bounds=Bounds(incomplete_bytes=200_000)) as running:
        holders = [await running.connect() for _ in range(40)]
        for holder in holders[:20]:
            await holder.send(HALF_A_BODY)
        for holder in holders[20:]:
            await holder.send(GET[:-2] + b"X: " + b"x" * 20_000)
        assert (await running.ask(GET)).status == 200
        assert await holders[20].is_closed()
        assert await holders[0].is_closed()
        for holder, end in ((holders[19], b"12345"), (holders[39], b"\r\n\r\n")):
            await holder.send(end)
            assert (await holder.answer()).status == 200

"""Clients whose tokens expire, are revoked, or are renewed while they are cancelled: work goes on, without an alarm."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from stoplist_client import AsyncClient, Client, FileStore, InvalidToken, MemoryStore, Tokens, TokenStoreError
from stoplist_client.tokens.stores import TokenMemory

from tests.client.partners import Opener, Partner
from tests.client.renewing import Rows
from tests.services.fault_kinds import LOSE, Hold, Reply, is_api, is_refresh
from tests.services.faults import Faults, faults

ADDRESSES = ["ann@example.com"]
MANY = 20


@pytest.fixture
def rows(partner: Partner) -> Rows:
    """What the server has of this partner's tokens."""
    return Rows(partner)


@pytest.fixture
def between(partner: Partner) -> Iterator[Faults]:
    """What can go wrong on the way; at the end no refresh token came by twice, and there was no alarm."""
    server = partner.service.server
    with faults(server.base_url, server.ca.parent) as between:
        yield between
        assert between.presented_twice == []
        assert Rows(partner).alarms == 0


def asked(between: Faults) -> list[str]:
    """What came by, in its order."""
    return [request.grant_type or request.method for request in between.arrived]


async def called(client: AsyncClient) -> None:
    """One call, answered."""
    async for _ in client.look_up("email", ADDRESSES):
        pass


@pytest.fixture
def working(partner: Partner, both: Opener, between: Faults) -> Callable[..., Callable[[], Any]]:
    """Makes a client of either kind by way of what can go wrong, and gives a call of it, which must be answered."""

    def make(**options: Any) -> Callable[[], Any]:
        client = both(partner, base_url=between.base_url, **options)
        return lambda: list(client.look_up("email", ADDRESSES))

    return make


def test_an_expired_token_costs_one_refresh(
    working: Callable[..., Callable[[], Any]], between: Faults, rows: Rows
) -> None:
    """401, refresh, the request again, once; and nothing more until the next expiry."""
    call = working()
    call()
    for _ in range(2):
        rows.expire()
        between.forget()
        call()
        call()
        assert asked(between) == ["GET", "refresh_token", "GET", "GET"]
        assert [seen.told for seen in between.seen] == [401, 200, 200, 200]


def test_revoked_tokens_cost_a_new_session(
    working: Callable[..., Callable[[], Any]], between: Faults, rows: Rows
) -> None:
    """The refresh is refused with `invalid_grant`, and the secret does."""
    call = working()
    call()
    rows.revoke()
    between.forget()
    call()
    assert asked(between) == ["GET", "refresh_token", "client_credentials", "GET"]
    assert [seen.told for seen in between.seen] == [401, 400, 200, 200]


def test_a_lost_answer_to_a_refresh_costs_a_new_session(
    working: Callable[..., Callable[[], Any]], between: Faults, rows: Rows
) -> None:
    """The server has rotated the token, the client never heard of it; neither sends it again, now or later."""
    call = working()
    call()
    for _ in range(3):
        rows.expire()
        between.forget()
        between.next(LOSE, when=is_refresh)
        call()
        assert asked(between) == ["GET", "refresh_token", "client_credentials", "GET"]


def test_the_next_process_goes_on_with_the_stored_tokens(
    working: Callable[..., Callable[[], Any]], between: Faults, rows: Rows
) -> None:
    """No token request where the access token is good, one refresh where it has expired."""
    working()()
    between.forget()
    working()()
    assert asked(between) == ["GET"]
    rows.expire()
    between.forget()
    working()()
    assert asked(between) == ["GET", "refresh_token", "GET"]


def test_a_stored_token_that_is_refused_too_leads_to_a_request(
    working: Callable[..., Callable[[], Any]], between: Faults, rows: Rows
) -> None:
    """What another process has stored is used first; once that is refused as well, new tokens are asked for."""
    first, second = working(), working()
    first()
    second()
    rows.expire()
    first()
    rows.expire()
    between.forget()
    second()
    assert asked(between) == ["GET", "GET", "refresh_token", "GET"]


def test_new_tokens_that_are_refused_are_told(working: Callable[..., Callable[[], Any]], between: Faults) -> None:
    """Asking on and on would not help: InvalidToken, after one token request."""
    call = working()
    call()
    between.forget()
    refused = Reply(
        status=401, body=b'{"error": "invalid_token", "message": "No.", "error_description": "No."}', headers={}
    )
    between.next(refused, refused, when=is_api)
    with pytest.raises(InvalidToken):
        call()
    assert asked(between) == ["GET", "refresh_token", "GET"]
    call()


def test_renewal_ahead_needs_no_refusal(working: Callable[..., Callable[[], Any]], between: Faults, rows: Rows) -> None:
    """The request goes out with a token that has more left; the way over 401 stays."""
    working()()
    call = working(renew_ahead_s=899.999)
    between.forget()
    call()
    assert asked(between) == ["refresh_token", "GET"]
    rows.revoke()
    between.forget()
    call()
    assert asked(between) == ["refresh_token", "client_credentials", "GET"]


@pytest.mark.parametrize("new_store", [MemoryStore, FileStore])
def test_twenty_threads_that_start_together_need_one_token_request(
    partner: Partner, rows: Rows, new_store: Callable[[], Any]
) -> None:
    """And again one when all are refused at once."""
    start = threading.Barrier(MANY)

    def call() -> None:
        start.wait()
        list(client.look_up("email", ADDRESSES))

    with partner.client(store=new_store()) as client, ThreadPoolExecutor(MANY) as threads:
        for given in (1, 2, 3):
            for done in [threads.submit(call) for _ in range(MANY)]:
                done.result()
            assert (rows.given, rows.refreshed) == (given, given - 1)
            rows.expire()
    assert rows.alarms == 0


class NoRoom(MemoryStore):
    """A store that keeps nothing."""

    def of(self, base_url: str, client_id: str) -> TokenMemory:
        memory = super().of(base_url, client_id)
        memory.write = _refuse  # type: ignore[method-assign]
        return memory


def _refuse(tokens: Tokens) -> None:
    raise TokenStoreError("No space left on device")


def test_threads_share_tokens_that_can_not_be_stored(partner: Partner, rows: Rows) -> None:
    """A full disk costs a new session where others would refresh, and no more: one request for all."""
    start = threading.Barrier(MANY)

    def call() -> None:
        start.wait()
        list(client.look_up("email", ADDRESSES))

    with partner.client(store=NoRoom()) as client, ThreadPoolExecutor(MANY) as threads:
        for given in (1, 2, 3):
            for done in [threads.submit(call) for _ in range(MANY)]:
                done.result()
            assert (rows.given, rows.refreshed) == (given, 0)
            rows.expire()


def test_twenty_clients_in_threads_need_one_token_request(partner: Partner, rows: Rows) -> None:
    """Each with a memory of its own, over one file."""
    start = threading.Barrier(MANY)

    def call() -> None:
        with partner.client() as client:
            start.wait()
            list(client.look_up("email", ADDRESSES))

    with ThreadPoolExecutor(MANY) as threads:
        for done in [threads.submit(call) for _ in range(MANY)]:
            done.result()
    assert rows.given == 1


@pytest.mark.parametrize("new_store", [MemoryStore, FileStore])
def test_twenty_tasks_that_start_together_need_one_token_request(
    partner: Partner, rows: Rows, new_store: Callable[[], Any]
) -> None:
    """And again one when all are refused at once."""

    async def work() -> None:
        async with AsyncClient(**partner.access, store=new_store()) as client:
            for given in (1, 2, 3):
                await asyncio.gather(*[called(client) for _ in range(MANY)])
                assert (rows.given, rows.refreshed) == (given, given - 1)
                rows.expire()

    asyncio.run(work())
    assert rows.alarms == 0


def test_a_cancelled_task_leaves_mark_and_lock_in_order(
    partner: Partner, rows: Rows, between: Faults, client_folder: Path
) -> None:
    """Cancelled while its refresh is under way: the others go on at once, with a new session."""
    held = Hold()
    store = FileStore(folder=client_folder).of(between.base_url, partner.key.client_id)

    async def work() -> None:
        async with AsyncClient(**(partner.access | {"base_url": between.base_url})) as client:
            await called(client)
            rows.expire()
            between.next(held, when=is_refresh)
            task = asyncio.create_task(called(client))
            await asyncio.to_thread(held.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            tokens = store.read()
            assert tokens is not None
            assert tokens.is_presented
            unlock = store.try_lock()
            assert unlock is not None
            unlock()
            held.release()
            await called(client)

    asyncio.run(work())
    assert asked(between) == [
        "client_credentials", "GET", "GET", "refresh_token", "GET", "client_credentials", "GET",
    ]  # fmt: skip


def test_an_interrupted_call_leaves_mark_and_lock_in_order(
    partner: Partner, rows: Rows, between: Faults, client_folder: Path
) -> None:
    """Ctrl-C while the refresh is under way: the same client goes on afterwards, with a new session."""
    held = Hold()
    store = FileStore(folder=client_folder).of(between.base_url, partner.key.client_id)

    def interrupt() -> None:
        held.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with Client(**(partner.access | {"base_url": between.base_url})) as client:
        list(client.look_up("email", ADDRESSES))
        rows.expire()
        between.next(held, when=is_refresh)
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            list(client.look_up("email", ADDRESSES))
        thread.join()
        tokens = store.read()
        assert tokens is not None
        assert tokens.is_presented
        unlock = store.try_lock()
        assert unlock is not None
        unlock()
        held.release()
        list(client.look_up("email", ADDRESSES))
    assert asked(between)[-4:] == ["refresh_token", "GET", "client_credentials", "GET"]

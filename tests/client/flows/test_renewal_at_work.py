"""Clients whose tokens expire, are revoked, or are renewed while they are cancelled: calls succeed without an alarm."""

import asyncio
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from stoplist_client import AsyncClient, Client, FileStore, InvalidToken, MemoryStore, TokenStoreError
from stoplist_client.tokens.stores import TokenMemory

from tests.client.partners import Opener, Partner
from tests.client.renewal_workers import TokenRows
from tests.services.fault_kinds import LOSE, Hold, Reply, is_api, is_refresh
from tests.services.faults import Faults

ADDRESSES = ["ann@example.com"]
MANY = 20


def requests_seen(between: Faults) -> list[str]:
    """Return the requests that arrived, in order."""
    return [request.grant_type or request.method for request in between.arrived]


async def call_once(client: AsyncClient) -> None:
    """Make one call, which must be answered."""
    async for _ in client.look_up("email", ADDRESSES):
        pass


@pytest.fixture
def working(partner: Partner, open_client: Opener, between: Faults) -> Callable[..., Callable[[], Any]]:
    """Creates a client of either kind behind the proxy, and returns a function that makes a call."""

    def make(**options: Any) -> Callable[[], Any]:
        client = open_client(partner, base_url=between.base_url, **options)
        return lambda: list(client.look_up("email", ADDRESSES))

    return make


def test_expired_token_costs_one_refresh(
    working: Callable[..., Callable[[], Any]], between: Faults, token_rows: TokenRows
) -> None:
    """401, refresh and the request again, once until the next expiry."""
    call = working()
    call()
    for _ in range(2):
        token_rows.expire()
        between.forget()
        call()
        call()
        assert requests_seen(between) == ["GET", "refresh_token", "GET", "GET"]
        assert [seen.client_status for seen in between.seen] == [401, 200, 200, 200]


def test_revoked_tokens_cost_a_new_session(
    working: Callable[..., Callable[[], Any]], between: Faults, token_rows: TokenRows
) -> None:
    """The refresh is refused with `invalid_grant`, and the secret is used."""
    call = working()
    call()
    token_rows.revoke()
    between.forget()
    call()
    assert requests_seen(between) == ["GET", "refresh_token", "client_credentials", "GET"]
    assert [seen.client_status for seen in between.seen] == [401, 400, 200, 200]


def test_lost_answer_to_a_refresh_costs_a_new_session(
    working: Callable[..., Callable[[], Any]], between: Faults, token_rows: TokenRows
) -> None:
    """The server has rotated the token; the old one is never sent again."""
    call = working()
    call()
    for _ in range(3):
        token_rows.expire()
        between.forget()
        between.next(LOSE, when=is_refresh)
        call()
        assert requests_seen(between) == ["GET", "refresh_token", "client_credentials", "GET"]


def test_next_process_uses_the_stored_tokens(
    working: Callable[..., Callable[[], Any]], between: Faults, token_rows: TokenRows
) -> None:
    """No token request for a valid access token, and one refresh for an expired one."""
    working()()
    between.forget()
    working()()
    assert requests_seen(between) == ["GET"]
    token_rows.expire()
    between.forget()
    working()()
    assert requests_seen(between) == ["GET", "refresh_token", "GET"]


def test_refused_stored_token_leads_to_a_request(
    working: Callable[..., Callable[[], Any]], between: Faults, token_rows: TokenRows
) -> None:
    """The token of another process is tried first."""
    first, second = working(), working()
    first()
    second()
    token_rows.expire()
    first()
    token_rows.expire()
    between.forget()
    second()
    assert requests_seen(between) == ["GET", "GET", "refresh_token", "GET"]


def test_refused_new_tokens_are_invalid_token(working: Callable[..., Callable[[], Any]], between: Faults) -> None:
    """One token request is sent."""
    call = working()
    call()
    between.forget()
    refused = Reply(
        status=401, body=b'{"error": "invalid_token", "message": "No.", "error_description": "No."}', headers={}
    )
    between.next(refused, refused, when=is_api)
    with pytest.raises(InvalidToken):
        call()
    assert requests_seen(between) == ["GET", "refresh_token", "GET"]
    call()


def test_renewal_ahead_needs_no_refusal(
    working: Callable[..., Callable[[], Any]], between: Faults, token_rows: TokenRows
) -> None:
    """A renewal after a 401 stays possible."""
    working()()
    call = working(renew_ahead_s=899.999)
    between.forget()
    call()
    assert requests_seen(between) == ["refresh_token", "GET"]
    token_rows.revoke()
    between.forget()
    call()
    assert requests_seen(between) == ["refresh_token", "client_credentials", "GET"]


class FullStore(MemoryStore):
    """A store that cannot be written."""

    def of(self, base_url: str, client_id: str) -> TokenMemory:
        memory = super().of(base_url, client_id)
        memory.write = Mock(side_effect=TokenStoreError("No space left on device"))  # type: ignore[method-assign]
        return memory


@pytest.mark.parametrize(("new_store", "refreshes"), [(MemoryStore, 1), (FileStore, 1), (FullStore, 0)])
def test_twenty_new_threads_make_one_token_request(
    partner: Partner, token_rows: TokenRows, new_store: Callable[[], Any], refreshes: int
) -> None:
    """They make another one after all tokens were refused: a full disk costs one new session for all threads."""
    start = threading.Barrier(MANY)

    def call() -> None:
        start.wait()
        list(client.look_up("email", ADDRESSES))

    with partner.client(store=new_store()) as client, ThreadPoolExecutor(MANY) as threads:
        for issued in (1, 2, 3):
            for done in [threads.submit(call) for _ in range(MANY)]:
                done.result()
            assert (token_rows.issued, token_rows.refreshed) == (issued, refreshes * (issued - 1))
            token_rows.expire()
    assert token_rows.reuse_alarms == 0


def test_twenty_clients_in_threads_make_one_token_request(partner: Partner, token_rows: TokenRows) -> None:
    """Each has its own memory, and all share a file."""
    start = threading.Barrier(MANY)

    def call() -> None:
        with partner.client() as client:
            start.wait()
            list(client.look_up("email", ADDRESSES))

    with ThreadPoolExecutor(MANY) as threads:
        for done in [threads.submit(call) for _ in range(MANY)]:
            done.result()
    assert token_rows.issued == 1


@pytest.mark.parametrize("new_store", [MemoryStore, FileStore])
def test_twenty_new_tasks_make_one_token_request(
    partner: Partner, token_rows: TokenRows, new_store: Callable[[], Any]
) -> None:
    """They make another one after all tokens were refused."""

    async def work() -> None:
        async with AsyncClient(**partner.access, store=new_store()) as client:
            for issued in (1, 2, 3):
                await asyncio.gather(*[call_once(client) for _ in range(MANY)])
                assert (token_rows.issued, token_rows.refreshed) == (issued, issued - 1)
                token_rows.expire()

    asyncio.run(work())
    assert token_rows.reuse_alarms == 0


def test_cancelled_refresh_leaves_the_mark_and_no_lock(
    partner: Partner, token_rows: TokenRows, between: Faults, client_folder: Path
) -> None:
    """The others go on at once with a new session."""
    held = Hold()
    store = FileStore(folder=client_folder).of(between.base_url, partner.key.client_id)

    async def work() -> None:
        async with AsyncClient(**(partner.access | {"base_url": between.base_url})) as client:
            await call_once(client)
            token_rows.expire()
            between.next(held, when=is_refresh)
            task = asyncio.create_task(call_once(client))
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
            await call_once(client)

    asyncio.run(work())
    assert requests_seen(between) == [
        "client_credentials", "GET", "GET", "refresh_token", "GET", "client_credentials", "GET",
    ]  # fmt: skip


def test_interrupted_refresh_leaves_the_mark_and_no_lock(
    partner: Partner, token_rows: TokenRows, between: Faults, client_folder: Path
) -> None:
    """After Ctrl+C the same client goes on with a new session."""
    held = Hold()
    store = FileStore(folder=client_folder).of(between.base_url, partner.key.client_id)

    def interrupt() -> None:
        held.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with Client(**(partner.access | {"base_url": between.base_url})) as client:
        list(client.look_up("email", ADDRESSES))
        token_rows.expire()
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
    assert requests_seen(between)[-4:] == ["refresh_token", "GET", "client_credentials", "GET"]

"""Renewal flow by flow at a real server: each refresh token is sent once or not at all."""

import contextlib
import logging
import random
import re
import threading
import traceback
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import msgspec
import pytest
from stoplist_client.errors import (
    InvalidClient,
    NotUnderstood,
    TemporarilyUnavailable,
    TokenStoreError,
    TransportFailed,
)
from stoplist_client.flows.flow import NoAnswer, Pause, Send
from stoplist_client.tokens.stores import FileStore, MemoryStore, TokenFile
from stoplist_client.tokens.tokens import Tokens, Unlock

from tests.client.partners import Partner
from tests.client.renewal_workers import TokenRows, Worker, token_file
from tests.constants import DAY_S
from tests.services.fault_kinds import CUT, DROP, LOSE, RESET, Alter, Fault, Hold, Reply, is_credentials, is_refresh
from tests.services.faults import Faults


@pytest.fixture
def store(partner: Partner, tmp_path: Path) -> TokenFile:
    """The file that all workers of a test share."""
    return token_file(tmp_path, partner)


@pytest.fixture
def new_worker(partner: Partner, store: TokenFile, between: Faults) -> Iterator[Callable[..., Worker]]:
    """Creates workers that share the store, behind the proxy."""
    made: list[Worker] = []

    def new(**options: Any) -> Worker:
        made.append(Worker(partner, via_base_url=between.base_url, **({"store": store} | options)))
        return made[-1]

    yield new
    for worker in made:
        worker.close()


def stored_tokens(store: TokenFile) -> Tokens:
    """Return the tokens in the store, which must exist."""
    tokens = store.read()
    assert tokens is not None
    return tokens


def grants(between: Faults) -> list[str | None]:
    """Return the grants that the token endpoint received, in order."""
    return [request.grant_type for request in between.arrived]


def test_workers_share_the_tokens_of_the_first(
    new_worker: Callable[..., Worker], store: TokenFile, token_rows: TokenRows
) -> None:
    """One of them requests tokens with the secret."""
    first = new_worker().current_token()
    assert first.is_fresh
    assert stored_tokens(store).access_token == first.access_token
    second = new_worker().current_token()
    assert (second.access_token, second.is_fresh) == (first.access_token, False)
    assert token_rows.issued == 1


def test_store_has_the_expiry_of_tokens(new_worker: Callable[..., Worker], store: TokenFile) -> None:
    """15 minutes and 30 days after the request, by this host's clock."""
    worker = new_worker()
    before_s = worker.environment.now_s()
    worker.current_token()
    after_s = worker.environment.now_s()
    assert before_s + 900 <= stored_tokens(store).access_ends_s <= after_s + 900
    assert before_s + 30 * DAY_S <= stored_tokens(store).refresh_ends_s <= after_s + 30 * DAY_S


def test_refused_token_is_refreshed(
    new_worker: Callable[..., Worker], store: TokenFile, token_rows: TokenRows, between: Faults
) -> None:
    """The new tokens are stored for the next time."""
    worker = new_worker()
    old = worker.current_token()
    for _ in range(3):
        new = worker.replace_refused(old.access_token)
        assert new.is_fresh
        assert new.access_token != old.access_token
        assert stored_tokens(store).access_token == new.access_token
        assert not stored_tokens(store).is_presented
        old = new
    assert (token_rows.issued, token_rows.refreshed) == (4, 3)
    assert grants(between) == ["client_credentials"] + ["refresh_token"] * 3


def test_refresh_sends_no_secret(new_worker: Callable[..., Worker], between: Faults) -> None:
    """Section 4.1: the client secret is not sent."""
    worker = new_worker()
    worker.replace_refused(worker.current_token().access_token)
    refresh = between.arrived[-1]
    assert refresh.grant_type == "refresh_token"
    assert "authorization" not in refresh.headers
    assert b"secret" not in refresh.body


def test_refresh_sends_the_secret_once_the_service_asked_for_it(
    new_worker: Callable[..., Worker], token_rows: TokenRows, between: Faults
) -> None:
    """Section D2, Refresh with credentials: the first refresh is refused, and a new session begins."""
    worker = new_worker()
    token = worker.current_token().access_token
    token_rows.need_secret()
    for _ in range(3):
        token = worker.replace_refused(token).access_token
    assert grants(between) == ["client_credentials", "refresh_token", "client_credentials"] + ["refresh_token"] * 2
    assert (token_rows.issued, token_rows.refreshed, token_rows.reuse_alarms) == (4, 2, 0)


def test_refresh_is_sent_with_mark_and_lock(
    new_worker: Callable[..., Worker], store: TokenFile, between: Faults
) -> None:
    """While the answer is pending, the store has the mark, and no other worker can request tokens."""
    worker = new_worker()
    old = worker.current_token().access_token
    held = Hold()
    between.next(held, when=is_refresh)
    thread = threading.Thread(target=worker.replace_refused, args=(old,))
    thread.start()
    held.wait()
    assert stored_tokens(store).is_presented
    assert store.try_lock() is None
    held.release()
    thread.join()
    assert not stored_tokens(store).is_presented
    unlock = store.try_lock()
    assert unlock is not None
    unlock()


def test_marked_refresh_token_is_not_sent(new_worker: Callable[..., Worker], store: TokenFile, between: Faults) -> None:
    """The worker that set the mark may have sent it."""
    old = new_worker().current_token().access_token
    store.write(msgspec.structs.replace(stored_tokens(store), is_presented=True))
    assert new_worker().replace_refused(old).is_fresh
    assert grants(between) == ["client_credentials", "client_credentials"]
    assert not stored_tokens(store).is_presented


def test_revoked_refresh_token_leads_to_the_secret(
    new_worker: Callable[..., Worker], token_rows: TokenRows, between: Faults
) -> None:
    """`invalid_grant` starts a new session."""
    worker = new_worker()
    old = worker.current_token().access_token
    token_rows.revoke()
    assert worker.replace_refused(old).is_fresh
    assert grants(between) == ["client_credentials", "refresh_token", "client_credentials"]
    assert [seen.client_status for seen in between.seen] == [200, 400, 200]


def _without_tokens(reply: Reply) -> Reply:
    return Reply(status=200, headers={"content-type": "application/json"}, body=b'{"access_token": "svc_at_alone"}')


@pytest.mark.parametrize("digits", ["1" + "0" * 20, "1" + "0" * 400])
def test_an_absurd_lifetime_is_not_understood(new_worker: Callable[..., Worker], between: Faults, digits: str) -> None:
    """It leads neither to an OverflowError nor to tokens that last for ever."""
    body = re.compile(rb'"expires_in":\s*[0-9]+')

    def absurd(reply: Reply) -> Reply:
        changed, count = body.subn(b'"expires_in": ' + digits.encode(), reply.body)
        assert count == 1
        return msgspec.structs.replace(reply, body=changed)

    between.next(Alter(absurd), when=is_credentials)
    with pytest.raises(NotUnderstood):
        new_worker().current_token()


@pytest.mark.parametrize(
    "mishap",
    [
        LOSE,
        CUT,
        DROP,
        RESET,
        Reply(status=400, body=b'{"error": "invalid_request"}'),
        Reply(status=403, body=b"<html>"),
        Reply(status=429, headers={"retry-after": "7"}, body=b'{"error": "rate_limited"}'),
        Reply(status=500),
        Reply(status=503, headers={"retry-after": "7"}, body=b'{"error": "temporarily_unavailable"}'),
        pytest.param(Alter(_without_tokens), id="without tokens"),
        pytest.param(Alter(lambda reply: msgspec.structs.replace(reply, body=reply.body[:40])), id="cut short"),
        pytest.param(Alter(lambda reply: msgspec.structs.replace(reply, status=502)), id="as 502"),
    ],
    ids=str,
)
def test_refresh_is_never_repeated(new_worker: Callable[..., Worker], between: Faults, mishap: Fault) -> None:
    """No answer, half of one, any status, any content: the next request uses the secret."""
    worker = new_worker()
    old = worker.current_token().access_token
    between.next(mishap, when=is_refresh)
    new = worker.replace_refused(old)
    assert new.is_fresh
    assert between.planned == 0
    assert grants(between) == ["client_credentials", "refresh_token", "client_credentials"]
    new_worker().replace_refused(new.access_token)
    assert grants(between)[3:] == ["refresh_token"]


def test_refresh_over_the_limit_waits_before_the_secret(new_worker: Callable[..., Worker], between: Faults) -> None:
    """Both grants share one limit; the wait is at most 60 s."""
    worker = new_worker()
    for told_s, waited_s in (("7", 7.0), ("3600", 60.0)):
        old = worker.current_token().access_token
        between.next(Reply(status=429, headers={"retry-after": told_s}), when=is_refresh)
        worker.replace_refused(old)
        assert worker.pauses == [waited_s]
        worker.pauses.clear()


def test_request_with_the_secret_is_retried(
    new_worker: Callable[..., Worker], between: Faults, token_rows: TokenRows
) -> None:
    """Each gives new tokens, and earlier ones stay valid."""
    for mishaps in ((LOSE, DROP), (Reply(status=503), CUT), (Reply(status=429, headers={"retry-after": "2"}), RESET)):
        between.next(*mishaps, when=is_credentials)
        worker = new_worker(store=MemoryStore())
        assert worker.current_token().is_fresh
        assert between.planned == 0
        assert len(worker.pauses) == 2


def test_last_failure_is_raised_after_all_attempts(new_worker: Callable[..., Worker], between: Faults) -> None:
    """The lock is released for the next worker."""
    between.next(DROP, LOSE, DROP, when=is_credentials)
    with pytest.raises(TransportFailed):
        new_worker().current_token()
    between.next(*[_UNAVAILABLE] * 3, when=is_credentials)
    with pytest.raises(TemporarilyUnavailable):
        new_worker().current_token()
    assert new_worker().current_token().is_fresh


def test_wrong_secret_is_noticed_although_tokens_are_stored(
    new_worker: Callable[..., Worker], store: TokenFile, token_rows: TokenRows
) -> None:
    """The worker that has it notices: the stored tokens stay, and workers with the right secret use them."""
    right = new_worker()
    token = right.current_token().access_token
    before = stored_tokens(store)
    with pytest.raises(InvalidClient):
        new_worker(client_secret="svc_cs_mistyped").current_token()
    assert stored_tokens(store) == before
    assert new_worker().current_token().access_token == right.current_token().access_token == token
    assert token_rows.issued == 1


def test_rotated_secret_of_one_worker_serves_the_others(new_worker: Callable[..., Worker], partner: Partner) -> None:
    """A worker whose secret was right goes on with the tokens of one that has the new secret."""
    old = new_worker()
    refused = old.current_token().access_token
    rotated = partner.service.installation.json("key", "rotate-secret", partner.key.client_id)["client_secret"]
    fresh = new_worker(client_secret=rotated).current_token()
    assert fresh.is_fresh
    assert old.replace_refused(refused).access_token == fresh.access_token


def test_wrong_secret_is_not_retried(new_worker: Callable[..., Worker], between: Faults) -> None:
    """The error does not contain the secret."""
    secret = "svc_cs_WrongWrongWrong"
    worker = new_worker(client_secret=secret)
    with pytest.raises(InvalidClient) as refused:
        worker.current_token()
    assert grants(between) == ["client_credentials"]
    assert secret not in "".join(traceback.format_exception(refused.value))


def test_credentials_of_any_characters_are_encoded(new_worker: Callable[..., Worker], between: Faults) -> None:
    """Each half of Basic is form-encoded (RFC 6749 section 2.3.1)."""
    for client_id, secret in (("a:b", "c%d"), ("ä €", "+&=:"), (" ", "\x7f")):
        with pytest.raises(InvalidClient):
            new_worker(client_id=client_id, client_secret=secret, store=MemoryStore()).current_token()
        scheme, _, coded = between.arrived[-1].headers["authorization"].partition(" ")
        halves = b64decode(coded, validate=True).decode("ascii").split(":")
        assert (scheme, *map(unquote_plus, halves)) == ("Basic", client_id, secret)


def test_new_token_of_another_worker_is_used(new_worker: Callable[..., Worker], token_rows: TokenRows) -> None:
    """A refused worker reads the store first, so that of N workers one requests tokens."""
    first, second, third = new_worker(), new_worker(), new_worker()
    old = {worker.current_token().access_token for worker in (first, second, third)}
    assert len(old) == 1
    new = first.replace_refused(old.pop())
    for late in (second, third):
        held = late.replace_refused(held_token(late))
        assert (held.access_token, held.is_fresh) == (new.access_token, False)
        assert late.current_token() == held
    assert token_rows.issued == 2


def held_token(worker: Worker) -> str:
    """Return the token that this worker has in memory."""
    return worker.current_token().access_token


def test_late_thread_uses_the_token_in_memory(new_worker: Callable[..., Worker], token_rows: TokenRows) -> None:
    """It does not read the store: two threads of a client were refused, and one has renewed."""
    worker = new_worker()
    old = worker.current_token().access_token
    new = worker.replace_refused(old)
    late = worker.replace_refused(old)
    assert (late.access_token, late.is_fresh) == (new.access_token, False)
    assert token_rows.issued == 2


class FailingStore:
    """A store that fails to write what `fails` selects."""

    def __init__(self, store: TokenFile, fails: Callable[[Tokens], bool]) -> None:
        self._store, self.fails = store, fails

    def read(self) -> Tokens | None:
        return self._store.read()

    def write(self, tokens: Tokens) -> None:
        if self.fails(tokens):
            raise TokenStoreError("No space left on device")
        self._store.write(tokens)

    def try_lock(self) -> Unlock | None:
        return self._store.try_lock()


def test_refresh_token_is_not_sent_without_a_mark(
    new_worker: Callable[..., Worker], store: TokenFile, between: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    """If the mark cannot be written, the secret is used."""
    worker = new_worker(store=FailingStore(store, lambda tokens: tokens.is_presented))
    assert worker.replace_refused(worker.current_token().access_token).is_fresh
    assert grants(between) == ["client_credentials", "client_credentials"]
    assert "cannot be marked: No space left" in caplog.text
    assert "svc_" not in caplog.text


def test_unstored_tokens_are_used_from_memory(
    new_worker: Callable[..., Worker], store: TokenFile, between: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning says so; a refresh token that is not stored is never sent."""
    failing = FailingStore(store, lambda tokens: not tokens.is_presented)
    worker = new_worker(store=failing)
    first = worker.current_token()
    assert first.is_fresh
    assert worker.current_token().access_token == first.access_token
    second = worker.replace_refused(first.access_token)
    assert second.is_fresh
    assert grants(between) == ["client_credentials", "client_credentials"]
    assert store.read() is None
    assert "cannot be stored: No space left" in caplog.text
    assert "svc_" not in caplog.text
    # The disk has space again, is full between mark and tokens, and has space once more.
    failing.fails = lambda tokens: False
    third = worker.replace_refused(second.access_token)
    failing.fails = lambda tokens: not tokens.is_presented
    fourth = worker.replace_refused(third.access_token)
    failing.fails = lambda tokens: False
    fifth = worker.replace_refused(fourth.access_token)
    fifth = fifth if fifth.is_fresh else worker.replace_refused(fifth.access_token)  # what the store still had
    assert fifth.is_fresh
    assert grants(between)[2:] == ["client_credentials", "refresh_token", "client_credentials"]


def test_tokens_of_another_key_or_service_are_ignored(
    new_partner: Callable[..., Partner], between: Faults, tmp_path: Path
) -> None:
    """A store given to the wrong client costs one request, and no token goes to the wrong service."""
    shared = FileStore(tmp_path / "one.json")
    partners = [new_partner(), new_partner()]
    elsewhere = {"base_url": "https://elsewhere.example"}
    workers = [
        Worker(partners[0], shared, via_base_url=between.base_url),
        Worker(partners[1], shared, via_base_url=between.base_url),
        Worker(partners[1], shared, via_base_url=between.base_url, **elsewhere),
    ]
    issued = [worker.current_token() for worker in workers]
    assert [held.is_fresh for held in issued] == [True] * 3
    # The second worker finds tokens of its own key for another service, which the third has written.
    assert workers[1].replace_refused(issued[1].access_token).is_fresh
    assert grants(between) == ["client_credentials"] * 4
    for worker in workers:
        worker.close()


def test_waiting_worker_polls_the_store(
    new_worker: Callable[..., Worker], store: TokenFile, token_rows: TokenRows
) -> None:
    """Every few hundredths of a second, and uses a token that appears before the lock is free."""
    first, waiting = new_worker(), new_worker()
    old = first.current_token().access_token
    waiting.current_token()
    tokens = stored_tokens(store)
    unlock = store.try_lock()
    assert unlock is not None
    pauses: list[float] = []

    def pass_time(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 5:
            store.write(msgspec.structs.replace(tokens, access_token="svc_at_new"))

    waiting.on_wait(pass_time)
    held = waiting.replace_refused(old)
    assert (held.access_token, held.is_fresh) == ("svc_at_new", False)
    assert len(pauses) == 5
    assert all(0.02 <= pause <= 0.05 for pause in pauses)
    assert token_rows.issued == 1
    unlock()


@pytest.mark.parametrize("jump_s", [0.0, -365 * DAY_S, 365 * DAY_S])
@pytest.mark.parametrize(
    ("total_s", "attempts", "longest_s"), [(10.0, 1, 300), (10.0, 3, 300), (300.0, 3, 1440), (1200.0, 2, 3780)]
)
def test_wait_for_the_lock_is_bounded(
    new_worker: Callable[..., Worker], partner: Partner, jump_s: float, total_s: float, attempts: int, longest_s: int
) -> None:
    """A refresh and all attempts with the secret bound it, with their total time and the longest wait; at least 300 s.

    Setting the clock does not matter; the message says what to do.
    """
    memory = MemoryStore()
    worker = new_worker(store=memory, total_s=total_s, attempts=attempts)
    old = worker.current_token().access_token
    unlock = memory.of(partner.service.base_url, partner.key.client_id).try_lock()
    assert unlock is not None
    pauses: list[float] = []

    def pass_time(seconds: float) -> None:
        pauses.append(seconds)
        worker.environment.off_s = jump_s

    worker.on_wait(pass_time)
    with pytest.raises(TokenStoreError, match=f" {longest_s} s"):
        worker.replace_refused(old)
    assert longest_s <= sum(pauses) < longest_s + 1
    unlock()
    assert worker.replace_refused(old).is_fresh


class StrictStore:
    """A store whose locks end only by calling the unlock function."""

    def __init__(self, store: TokenFile) -> None:
        self._store = store
        self._unlocks: list[Unlock | None] = []
        self.read, self.write = store.read, store.write

    def try_lock(self) -> Unlock | None:
        self._unlocks.append(self._store.try_lock())
        return self._unlocks[-1]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, GeneratorExit, RuntimeError])
def test_interrupted_flow_releases_the_lock(
    new_worker: Callable[..., Worker], store: TokenFile, interruption: type[BaseException]
) -> None:
    """The mark stays: closing or throwing into the flow at any point leaves the store usable."""
    worker = new_worker(store=StrictStore(store))
    for steps in range(6):
        old = worker.replace_refused(worker.current_token().access_token).access_token
        flow = worker.renewal.replace_refused(old)
        effects = [next(flow)]
        for _ in range(steps):
            effects.append(flow.send(None) if isinstance(effects[-1], Pause) else flow.throw(NoAnswer("cut")))
            if len(effects) == 6:
                break
        assert isinstance(effects[0], Send)
        assert store.try_lock() is None
        if interruption is GeneratorExit:
            flow.close()
        else:
            with pytest.raises(interruption):
                flow.throw(interruption())
        assert stored_tokens(store).is_presented
        unlock = store.try_lock()
        assert unlock is not None
        unlock()


def test_expired_refresh_token_is_not_sent(new_worker: Callable[..., Worker], between: Faults) -> None:
    """It expires after 30 days."""
    worker = new_worker()
    old = worker.current_token().access_token
    worker.environment.off_s = 31 * DAY_S
    assert worker.replace_refused(old).is_fresh
    assert grants(between) == ["client_credentials", "client_credentials"]


def test_without_renewal_ahead_only_a_refusal_renews(new_worker: Callable[..., Worker], token_rows: TokenRows) -> None:
    """The clock of this host may be wrong."""
    worker = new_worker()
    first = worker.current_token()
    for off_s in (-DAY_S, 899.0, 901.0, 20 * DAY_S):
        worker.environment.off_s = off_s
        assert worker.current_token().access_token == first.access_token
    assert token_rows.issued == 1


def test_renewal_ahead_of_the_expiry(new_worker: Callable[..., Worker], token_rows: TokenRows) -> None:
    """A refresh renews the token, and later workers use its tokens."""
    worker = new_worker(renew_ahead_s=60.0)
    first = worker.current_token()
    worker.environment.off_s = 830.0
    assert worker.current_token().access_token == first.access_token
    worker.environment.off_s = 850.0
    second = worker.current_token()
    assert (second.access_token != first.access_token, second.is_fresh) == (True, False)
    assert worker.current_token().access_token == second.access_token
    assert (token_rows.issued, token_rows.refreshed) == (2, 1)
    other = new_worker(renew_ahead_s=60.0)
    assert other.current_token().access_token == second.access_token
    assert token_rows.issued == 2


def test_failed_renewal_ahead_keeps_the_token(new_worker: Callable[..., Worker], between: Faults) -> None:
    """Once the token has expired, the failure is raised."""
    worker = new_worker(renew_ahead_s=60.0)
    first = worker.current_token()
    worker.environment.off_s = 850.0
    between.otherwise(lambda request: DROP)
    held = worker.current_token()
    assert (held.access_token, held.is_fresh) == (first.access_token, False)
    worker.environment.off_s = 901.0
    with pytest.raises(TransportFailed):
        worker.current_token()


_UNAVAILABLE = Reply(status=503, body=b'{"error": "temporarily_unavailable", "error_description": "Later."}')
_MISHAPS: list[Fault] = [LOSE, CUT, DROP, _UNAVAILABLE]


@pytest.mark.parametrize("seed", range(3))
def test_no_refresh_token_is_sent_twice(
    new_worker: Callable[..., Worker], token_rows: TokenRows, between: Faults, seed: int
) -> None:
    """Workers that are refused, die at any step, lose answers, and have clocks that are years apart."""
    rng = random.Random(seed)  # noqa: S311 - of a test
    between.otherwise(lambda request: rng.choice([None] * 6 + _MISHAPS))
    workers = [new_worker(renew_ahead_s=rng.choice([None, 60.0, 1000.0])) for _ in range(4)]
    for _ in range(120):
        worker = rng.choice(workers)
        worker.environment.off_s = rng.choice([0.0, 0.0, 800.0, -400 * DAY_S, 29 * DAY_S, 31 * DAY_S, 4000 * DAY_S])
        with contextlib.suppress(TransportFailed, TemporarilyUnavailable):
            refused = worker.current_token().access_token
            match rng.randrange(8):
                case 0:
                    token_rows.revoke()
                case 1:
                    flow = worker.renewal.replace_refused(refused)
                    with contextlib.suppress(StopIteration):
                        next(flow)
                    flow.close()  # it is dead, with what it was about to send
                case _:
                    worker.replace_refused(refused)
    assert token_rows.refreshed > 10
    assert between.presented_twice == []
    assert token_rows.reuse_alarms == 0


def test_renewal_shows_no_token_and_no_secret(
    new_worker: Callable[..., Worker],
    store: TokenFile,
    between: Faults,
    partner: Partner,
    token_rows: TokenRows,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No repr, no log line of any package and no traceback of a failure has one."""
    caplog.set_level(logging.DEBUG)
    worker = new_worker()
    old = worker.current_token()
    flow = worker.renewal.replace_refused(old.access_token)
    shown = [repr(next(flow)), repr(old), repr(worker.renewal), repr(stored_tokens(store)), str(worker.renewal)]
    flow.close()
    worker.replace_refused(old.access_token)
    token_rows.revoke()
    between.next(*[DROP] * 9)
    with pytest.raises(TransportFailed) as failed:
        worker.replace_refused(worker.current_token().access_token)
    shown += ["".join(traceback.format_exception(failed.value)), caplog.text]
    assert caplog.records
    for hidden in ("svc_at_", "svc_rt_", "svc_cs_", partner.key.client_secret, "Basic "):
        assert not [text for text in shown if hidden in text]

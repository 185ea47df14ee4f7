"""Where access tokens come from, flow by flow, at a real server: each refresh token leaves once, or not at all."""

import contextlib
import logging
import random
import threading
import traceback
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import msgspec
import pytest
from stoplist_client.errors import InvalidClient, TemporarilyUnavailable, TokenStoreError, TransportFailed
from stoplist_client.flows.flow import NoAnswer, Pause, Send
from stoplist_client.tokens.stores import FileStore, MemoryStore, TokenFile
from stoplist_client.tokens.tokens import Tokens, Unlock

from tests.client.partners import Partner
from tests.client.renewing import Rows, Worker, token_file
from tests.services.fault_kinds import CUT, DROP, LOSE, RESET, Alter, Fault, Hold, Reply, is_credentials, is_refresh
from tests.services.faults import Faults, faults

DAY_S = 86_400.0


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


@pytest.fixture
def store(partner: Partner, tmp_path: Path) -> TokenFile:
    """The file that all workers of a test share."""
    return token_file(tmp_path, partner)


@pytest.fixture
def new_worker(partner: Partner, store: TokenFile, between: Faults) -> Iterator[Callable[..., Worker]]:
    """Makes workers that share the store, by way of what can go wrong."""
    made: list[Worker] = []

    def new(**options: Any) -> Worker:
        made.append(Worker(partner, base_url_of_way=between.base_url, **({"store": store} | options)))
        return made[-1]

    yield new
    for worker in made:
        worker.close()


def kept(store: TokenFile) -> Tokens:
    """The tokens in the store, where there are some."""
    tokens = store.read()
    assert tokens is not None
    return tokens


def grants(between: Faults) -> list[str | None]:
    """What the token endpoint was asked for, in this order."""
    return [request.grant_type for request in between.arrived]


def test_the_first_worker_asks_with_the_secret_and_all_others_use_what_it_got(
    new_worker: Callable[..., Worker], store: TokenFile, rows: Rows
) -> None:
    """Of any number of workers that share a store one asks; its token is kept for all."""
    first = new_worker().current_token()
    assert first.is_fresh
    assert kept(store).access_token == first.access_token
    second = new_worker().current_token()
    assert (second.access_token, second.is_fresh) == (first.access_token, False)
    assert rows.given == 1


def test_the_store_says_when_tokens_end(new_worker: Callable[..., Worker], store: TokenFile) -> None:
    """15 minutes and 30 days from the moment of asking, by this host's clock."""
    worker = new_worker()
    before_s = worker.environment.now_s()
    worker.current_token()
    after_s = worker.environment.now_s()
    assert before_s + 900 <= kept(store).access_ends_s <= after_s + 900
    assert before_s + 30 * DAY_S <= kept(store).refresh_ends_s <= after_s + 30 * DAY_S


def test_a_refused_token_is_replaced_by_a_refresh(
    new_worker: Callable[..., Worker], store: TokenFile, rows: Rows, between: Faults
) -> None:
    """Where a refresh token is held it is presented, and what comes back is stored, ready for the next time."""
    worker = new_worker()
    old = worker.current_token()
    for _ in range(3):
        new = worker.replace_refused(old.access_token)
        assert new.is_fresh
        assert new.access_token != old.access_token
        assert kept(store).access_token == new.access_token
        assert not kept(store).is_presented
        old = new
    assert (rows.given, rows.refreshed) == (4, 3)
    assert grants(between) == ["client_credentials"] + ["refresh_token"] * 3


def test_a_refresh_sends_no_secret(new_worker: Callable[..., Worker], between: Faults) -> None:
    """Section 4.1: the client secret is not sent."""
    worker = new_worker()
    worker.replace_refused(worker.current_token().access_token)
    refresh = between.arrived[-1]
    assert refresh.grant_type == "refresh_token"
    assert "authorization" not in refresh.headers
    assert b"secret" not in refresh.body


def test_the_mark_is_stored_and_the_lock_held_before_a_refresh_leaves(
    new_worker: Callable[..., Worker], store: TokenFile, between: Faults
) -> None:
    """While the answer is under way the store says that the token was presented, and nobody else can ask."""
    worker = new_worker()
    old = worker.current_token().access_token
    held = Hold()
    between.next(held, when=is_refresh)
    thread = threading.Thread(target=worker.replace_refused, args=(old,))
    thread.start()
    held.wait()
    assert kept(store).is_presented
    assert store.try_lock() is None
    held.release()
    thread.join()
    assert not kept(store).is_presented
    unlock = store.try_lock()
    assert unlock is not None
    unlock()


def test_whoever_finds_the_mark_starts_with_the_secret(
    new_worker: Callable[..., Worker], store: TokenFile, between: Faults
) -> None:
    """Whether the one who set it ever sent anything, nobody knows."""
    old = new_worker().current_token().access_token
    store.write(msgspec.structs.replace(kept(store), is_presented=True))
    assert new_worker().replace_refused(old).is_fresh
    assert grants(between) == ["client_credentials", "client_credentials"]
    assert not kept(store).is_presented


def test_a_refresh_token_that_was_revoked_is_followed_by_the_secret(
    new_worker: Callable[..., Worker], rows: Rows, between: Faults
) -> None:
    """`invalid_grant`: the key is asked for a new session."""
    worker = new_worker()
    old = worker.current_token().access_token
    rows.revoke()
    assert worker.replace_refused(old).is_fresh
    assert grants(between) == ["client_credentials", "refresh_token", "client_credentials"]
    assert [seen.told for seen in between.seen] == [200, 400, 200]


def _without_tokens(reply: Reply) -> Reply:
    return Reply(status=200, headers={"content-type": "application/json"}, body=b'{"access_token": "svc_at_alone"}')


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
def test_whatever_becomes_of_a_refresh_its_token_is_never_sent_again(
    new_worker: Callable[..., Worker], between: Faults, mishap: Fault
) -> None:
    """No answer, half of one, any status, any content: the next request is made with the secret."""
    worker = new_worker()
    old = worker.current_token().access_token
    between.next(mishap, when=is_refresh)
    new = worker.replace_refused(old)
    assert new.is_fresh
    assert between.planned == 0
    assert grants(between) == ["client_credentials", "refresh_token", "client_credentials"]
    new_worker().replace_refused(new.access_token)
    assert grants(between)[3:] == ["refresh_token"]


def test_a_refresh_over_the_limit_waits_before_the_secret_is_sent(
    new_worker: Callable[..., Worker], between: Faults
) -> None:
    """The budget is one for both grants; nobody waits longer than 60 s."""
    worker = new_worker()
    for told_s, waited_s in (("7", 7.0), ("3600", 60.0)):
        old = worker.current_token().access_token
        between.next(Reply(status=429, headers={"retry-after": told_s}), when=is_refresh)
        worker.replace_refused(old)
        assert worker.pauses == [waited_s]
        worker.pauses.clear()


def test_a_request_with_the_secret_is_repeated(new_worker: Callable[..., Worker], between: Faults, rows: Rows) -> None:
    """It may be: each gives new tokens, and earlier ones live on."""
    for mishaps in ((LOSE, DROP), (Reply(status=503), CUT), (Reply(status=429, headers={"retry-after": "2"}), RESET)):
        between.next(*mishaps, when=is_credentials)
        worker = new_worker(store=MemoryStore())
        assert worker.current_token().is_fresh
        assert between.planned == 0
        assert len(worker.pauses) == 2


def test_after_all_attempts_the_last_failure_is_told(new_worker: Callable[..., Worker], between: Faults) -> None:
    """As an error of its class; and the lock is free for the next worker."""
    between.next(DROP, LOSE, DROP, when=is_credentials)
    with pytest.raises(TransportFailed):
        new_worker().current_token()
    between.next(*[_UNAVAILABLE] * 3, when=is_credentials)
    with pytest.raises(TemporarilyUnavailable):
        new_worker().current_token()
    assert new_worker().current_token().is_fresh


def test_a_wrong_secret_is_told_at_once(new_worker: Callable[..., Worker], between: Faults) -> None:
    """`invalid_client` is not tried again, and the error holds no secret."""
    secret = "svc_cs_WrongWrongWrong"
    worker = new_worker(client_secret=secret)
    with pytest.raises(InvalidClient) as refused:
        worker.current_token()
    assert grants(between) == ["client_credentials"]
    assert secret not in "".join(traceback.format_exception(refused.value))


def test_ids_and_secrets_of_any_characters_are_sent_as_they_are(
    new_worker: Callable[..., Worker], between: Faults
) -> None:
    """Each half of Basic is form-encoded (RFC 6749 section 2.3.1), so that the service understands what it refuses."""
    for client_id, secret in (("a:b", "c%d"), ("ä €", "+&=:"), (" ", "\x7f")):
        with pytest.raises(InvalidClient):
            new_worker(client_id=client_id, client_secret=secret, store=MemoryStore()).current_token()
        scheme, _, coded = between.arrived[-1].headers["authorization"].partition(" ")
        halves = b64decode(coded, validate=True).decode("ascii").split(":")
        assert (scheme, *map(unquote_plus, halves)) == ("Basic", client_id, secret)


def test_a_token_that_somebody_else_has_got_meanwhile_is_used(new_worker: Callable[..., Worker], rows: Rows) -> None:
    """Whoever is refused reads the store before asking, so that of N workers one asks."""
    first, second, third = new_worker(), new_worker(), new_worker()
    old = {worker.current_token().access_token for worker in (first, second, third)}
    assert len(old) == 1
    new = first.replace_refused(old.pop())
    for late in (second, third):
        held = late.replace_refused(kept_before(late))
        assert (held.access_token, held.is_fresh) == (new.access_token, False)
        assert late.current_token() == held
    assert rows.given == 2


def kept_before(worker: Worker) -> str:
    """The token that this worker still has in memory."""
    return worker.current_token().access_token


def test_a_thread_that_was_refused_late_takes_what_memory_has(new_worker: Callable[..., Worker], rows: Rows) -> None:
    """Without a look at the store: two threads of one client were refused, and one has renewed."""
    worker = new_worker()
    old = worker.current_token().access_token
    new = worker.replace_refused(old)
    late = worker.replace_refused(old)
    assert (late.access_token, late.is_fresh) == (new.access_token, False)
    assert rows.given == 2


class Failing:
    """A store that fails to write what `fails` says."""

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


def test_without_a_mark_nothing_is_presented(
    new_worker: Callable[..., Worker], store: TokenFile, between: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the mark cannot be written the refresh token stays where it is, and the secret must do."""
    worker = new_worker(store=Failing(store, lambda tokens: tokens.is_presented))
    assert worker.replace_refused(worker.current_token().access_token).is_fresh
    assert grants(between) == ["client_credentials", "client_credentials"]
    assert "cannot be marked: No space left" in caplog.text
    assert "svc_" not in caplog.text


def test_tokens_that_can_not_be_stored_are_used_from_memory(
    new_worker: Callable[..., Worker], store: TokenFile, between: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    """Work goes on, with a warning; a refresh token that is in no store is never presented."""
    failing = Failing(store, lambda tokens: not tokens.is_presented)
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
    # The disk has room again, fills up between mark and tokens, and has room once more.
    failing.fails = lambda tokens: False
    third = worker.replace_refused(second.access_token)
    failing.fails = lambda tokens: not tokens.is_presented
    fourth = worker.replace_refused(third.access_token)
    failing.fails = lambda tokens: False
    fifth = worker.replace_refused(fourth.access_token)
    fifth = fifth if fifth.is_fresh else worker.replace_refused(fifth.access_token)  # what the store still had
    assert fifth.is_fresh
    assert grants(between)[2:] == ["client_credentials", "refresh_token", "client_credentials"]


def test_tokens_of_another_key_or_service_count_as_nothing(
    new_partner: Callable[..., Partner], between: Faults, tmp_path: Path
) -> None:
    """A store that was given to the wrong client costs a request, and no token goes where it does not belong."""
    shared = FileStore(tmp_path / "one.json")
    partners = [new_partner(), new_partner()]
    elsewhere = {"base_url": "https://elsewhere.example"}
    workers = [
        Worker(partners[0], shared, base_url_of_way=between.base_url),
        Worker(partners[1], shared, base_url_of_way=between.base_url),
        Worker(partners[1], shared, base_url_of_way=between.base_url, **elsewhere),
    ]
    given = [worker.current_token() for worker in workers]
    assert [held.is_fresh for held in given] == [True] * 3
    # The second finds what the third has written, of its own key, but for another service.
    assert workers[1].replace_refused(given[1].access_token).is_fresh
    assert grants(between) == ["client_credentials"] * 4
    for worker in workers:
        worker.close()


def test_whoever_waits_for_the_lock_looks_again_every_few_hundredths_of_a_second(
    new_worker: Callable[..., Worker], store: TokenFile, rows: Rows
) -> None:
    """And asks for nothing where there is a token before the lock is free."""
    first, waiting = new_worker(), new_worker()
    old = first.current_token().access_token
    waiting.current_token()
    tokens = kept(store)
    unlock = store.try_lock()
    assert unlock is not None
    pauses: list[float] = []

    def pass_time(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 5:
            store.write(msgspec.structs.replace(tokens, access_token="svc_at_new"))

    waiting.wait_with(pass_time)
    held = waiting.replace_refused(old)
    assert (held.access_token, held.is_fresh) == ("svc_at_new", False)
    assert len(pauses) == 5
    assert all(0.02 <= pause <= 0.05 for pause in pauses)
    assert rows.given == 1
    unlock()


@pytest.mark.parametrize("jump_s", [0.0, -365 * DAY_S, 365 * DAY_S])
@pytest.mark.parametrize(
    ("timeout_s", "attempts", "longest_s"), [(5.0, 1, 300), (5.0, 3, 300), (60.0, 3, 720), (600.0, 2, 3780)]
)
def test_nobody_waits_for_the_lock_longer_than_its_holder_may_take(
    new_worker: Callable[..., Worker], partner: Partner, jump_s: float, timeout_s: float, attempts: int, longest_s: int
) -> None:
    """Which is a refresh and all attempts with the secret, each with its timeouts and the longest wait; at least 300 s.

    However the clock is set meanwhile; the text says what to look for.
    """
    memory = MemoryStore()
    worker = new_worker(store=memory, timeout_s=timeout_s, attempts=attempts)
    old = worker.current_token().access_token
    unlock = memory.of(partner.service.base_url, partner.key.client_id).try_lock()
    assert unlock is not None
    pauses: list[float] = []

    def pass_time(seconds: float) -> None:
        pauses.append(seconds)
        worker.environment.off_s = jump_s

    worker.wait_with(pass_time)
    with pytest.raises(TokenStoreError, match=f" {longest_s} s"):
        worker.replace_refused(old)
    assert longest_s <= sum(pauses) < longest_s + 1
    unlock()
    assert worker.replace_refused(old).is_fresh


class Keeping:
    """A store that holds on to its locks, so that only calling what lets go of them does."""

    def __init__(self, store: TokenFile) -> None:
        self._store = store
        self._unlocks: list[Unlock | None] = []
        self.read, self.write = store.read, store.write

    def try_lock(self) -> Unlock | None:
        self._unlocks.append(self._store.try_lock())
        return self._unlocks[-1]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, GeneratorExit, RuntimeError])
def test_an_interruption_at_any_point_lets_go_of_the_lock_and_leaves_the_mark(
    new_worker: Callable[..., Worker], store: TokenFile, interruption: type[BaseException]
) -> None:
    """A flow that is closed or thrown into, wherever it stands, leaves the store to the next worker."""
    worker = new_worker(store=Keeping(store))
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
        assert kept(store).is_presented
        unlock = store.try_lock()
        assert unlock is not None
        unlock()


def test_a_refresh_token_that_has_expired_is_not_presented(new_worker: Callable[..., Worker], between: Faults) -> None:
    """After 30 days the secret is the shorter way."""
    worker = new_worker()
    old = worker.current_token().access_token
    worker.environment.off_s = 31 * DAY_S
    assert worker.replace_refused(old).is_fresh
    assert grants(between) == ["client_credentials", "client_credentials"]


def test_without_renewal_ahead_only_a_refusal_renews(new_worker: Callable[..., Worker], rows: Rows) -> None:
    """However old the token is by this host's clock, which may be wrong."""
    worker = new_worker()
    first = worker.current_token()
    for off_s in (-DAY_S, 899.0, 901.0, 20 * DAY_S):
        worker.environment.off_s = off_s
        assert worker.current_token().access_token == first.access_token
    assert rows.given == 1


def test_renewal_ahead_comes_when_less_is_left(new_worker: Callable[..., Worker], rows: Rows) -> None:
    """By a refresh; who comes later takes what it gave."""
    worker = new_worker(renew_ahead_s=60.0)
    first = worker.current_token()
    worker.environment.off_s = 830.0
    assert worker.current_token().access_token == first.access_token
    worker.environment.off_s = 850.0
    second = worker.current_token()
    assert (second.access_token != first.access_token, second.is_fresh) == (True, False)
    assert worker.current_token().access_token == second.access_token
    assert (rows.given, rows.refreshed) == (2, 1)
    other = new_worker(renew_ahead_s=60.0)
    assert other.current_token().access_token == second.access_token
    assert rows.given == 2


def test_renewal_ahead_that_fails_leaves_the_token_in_use(new_worker: Callable[..., Worker], between: Faults) -> None:
    """It is still good. Once it has ended the failure is told."""
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
def test_no_refresh_token_is_sent_twice_whatever_happens(
    new_worker: Callable[..., Worker], rows: Rows, between: Faults, seed: int
) -> None:
    """Workers that are refused, die at any step, lose answers, and live by clocks that are years apart."""
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
                    rows.revoke()
                case 1:
                    flow = worker.renewal.replace_refused(refused)
                    with contextlib.suppress(StopIteration):
                        next(flow)
                    flow.close()  # it is dead, with what it was about to send
                case _:
                    worker.replace_refused(refused)
    assert rows.refreshed > 10
    assert between.presented_twice == []
    assert rows.alarms == 0


def test_nothing_of_a_renewal_is_to_be_seen(
    new_worker: Callable[..., Worker],
    store: TokenFile,
    between: Faults,
    partner: Partner,
    rows: Rows,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No token and no secret in a repr, in a log line of whatever package, or in the traceback of a failure."""
    caplog.set_level(logging.DEBUG)
    worker = new_worker()
    old = worker.current_token()
    flow = worker.renewal.replace_refused(old.access_token)
    shown = [repr(next(flow)), repr(old), repr(worker.renewal), repr(kept(store)), str(worker.renewal)]
    flow.close()
    worker.replace_refused(old.access_token)
    rows.revoke()
    between.next(*[DROP] * 9)
    with pytest.raises(TransportFailed) as failed:
        worker.replace_refused(worker.current_token().access_token)
    shown += ["".join(traceback.format_exception(failed.value)), caplog.text]
    assert caplog.records
    for hidden in ("svc_at_", "svc_rt_", "svc_cs_", partner.key.secret, "Basic "):
        assert not [text for text in shown if hidden in text]

"""Programs of partners, all kinds at once, while something breaks under the server. Each records its answers.

Source: docs/interface.md sections 5 (what a partner does about tokens), 8 (what it repeats), D4, D6 and D8.
"""

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import psutil

from stoplist.ids import hash_secret
from tests.constants import PATIENCE_S
from tests.e2e import load
from tests.e2e.partners import Acts, Follower, PairHashes, Writer
from tests.e2e.server_process import RunningServer
from tests.keys import Key
from tests.server.serving import RawConnection, WireAnswer

# Pauses of a program after an answer and after a refusal.
PACE_S, BACK_OFF_S = 0.1, 0.1
# Connections of the hasty program at first; more are added until each worker has one.
HASTY = 4
# Sizes that the drivers treat differently: a single item, a small and a heavy batch.
SIZES = (1, 50, 500)
WINDOW_S = 60.0
_HASTY_TOKEN_S = 300.0
SPENT = "do not send it again"
LOST = WireAnswer(0, {}, b"")
"""Stands for the answer of a worker that has ended."""

Pair = dict[str, str]
Step = Callable[[], Awaitable[bool]]


class Accepted(NamedTuple):
    """A request that the limits accepted: it was counted between these two moments."""

    sent_s: float
    answered_s: float


class AnswerLog:
    """Records and checks every answer while something is broken."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.longest_s = 0.0
        self.worker_ends_s: list[float] = []
        self.generation = 0
        """Count how often workers have ended; an earlier connection is replaced before its next request."""
        self._are_workers_ending = False

    @contextlib.contextmanager
    def ending_workers(self) -> Iterator[None]:
        """Let connections break within this context: workers end and are replaced."""
        self._are_workers_ending = True
        try:
            yield
        finally:
            self._are_workers_ending = False
            self.generation += 1

    def note_worker_end(self) -> None:
        """Note that a worker ends now."""
        self.worker_ends_s.append(time.monotonic())

    def may_break(self, generation: int) -> bool:
        """Return whether a connection of this generation may break now."""
        return self._are_workers_ending or generation != self.generation

    def record(self, answer: WireAnswer, took_s: float) -> None:
        """Assert that the answer is 200 or 404, or 429 or 503 with Retry-After; never 401 or 500."""
        self.statuses[answer.status] += 1
        self.longest_s = max(self.longest_s, took_s)
        assert answer.status in (200, 404, 429, 503), answer
        if answer.status in (429, 503):
            assert int(answer.headers["retry-after"]) > 0
            assert answer.json()["error"] == {429: "rate_limited", 503: "temporarily_unavailable"}[answer.status]


class CheckedConnection(RawConnection):
    """A connection whose answers are all checked. Unless its worker ends, the server never closes it.

    If `is_patient`, a request is repeated for as long as the answer is 503 or lost.
    """

    def __init__(self, line: RawConnection, server: RunningServer, seen: AnswerLog, *, is_patient: bool) -> None:
        super().__init__(line.reader, line.writer)
        self._server, self._seen, self._is_patient = server, seen, is_patient
        self._generation = seen.generation
        self._request = b""
        self._sent_s = 0.0

    async def send(self, data: bytes) -> None:
        if self._generation != self._seen.generation:
            await self._open_anew()
        self._request, self._sent_s = data, time.monotonic()
        with contextlib.suppress(*load.BROKEN):  # also raised by the answer
            await super().send(data)

    async def answer(self) -> WireAnswer:
        """Read the next answer; return LOST if the worker has ended before."""
        try:
            answer = await super().answer()
        except load.BROKEN:
            if not self._seen.may_break(self._generation):
                raise
            answer = LOST
            await self._open_anew()
        else:
            self._seen.record(answer, time.monotonic() - self._sent_s)
        if answer.status not in (503, LOST.status) or not self._is_patient:
            return answer
        await asyncio.sleep(BACK_OFF_S)
        return await load.send_once(self, self._request)

    async def _open_anew(self) -> None:
        self.writer.transport.abort()
        self._generation = self._seen.generation
        line = await connect(self._server, self._seen)
        self.reader, self.writer = line.reader, line.writer


class Partners:
    """The programs of one organization, with their answers."""

    def __init__(self, server: RunningServer, *, workers: int, key: Key, hasty: Key) -> None:
        """`hasty` has a low limit and a program that exceeds it, on a connection to each of the workers."""
        self.server, self.key, self.hasty, self._workers = server, key, hasty, workers
        self.seen = AnswerLog()
        self.successes: Counter[str] = Counter()
        """Return how often each program succeeded."""
        self.issued: list[PairHashes] = []
        self.rotations: dict[bytes, PairHashes | None] = {}
        """By the hash of the presented token, its successors; None if the outcome is unknown."""
        self.presented: deque[bytes] = deque(maxlen=4)
        """The hashes of the last refresh tokens in the order sent."""
        self.token = ""
        """The newest access token: the programs may run for longer than one is valid."""
        self.accepted: list[Accepted] = []
        acts = Acts()
        self.writers = [Writer(number, size, acts) for number, size in enumerate(SIZES)]
        self.follower = Follower("email", 1_000)
        self._known: str | None = None
        self._hasty_token, self._hasty_until_s = "", 0.0
        self._is_over = False
        self.pace_s = PACE_S

    @asynccontextmanager
    async def run_programs(self) -> AsyncIterator[None]:
        """Run all programs within this context; then each finishes what it has begun."""
        async with AsyncExitStack() as opened, asyncio.TaskGroup() as group:
            plain = await opened.enter_async_context(load.connections([self.server], 4 + len(SIZES)))
            to_each = await connections_to_each_worker(opened, self.server, self._workers)
            hasty = [self._checked(line, is_patient=False) for line in to_each]
            patient = [self._checked(line, is_patient=True) for line in plain[:2]]
            once = [self._checked(line, is_patient=False) for line in plain[2:]]
            for line in (*hasty, *patient, *once):
                opened.push_async_callback(load.hang_up, line)
            await self._new_pair(patient[0])
            await self._renew_hasty_token()
            programs: dict[str, Step] = {
                "issue": lambda: self._issue(patient[0]),
                "follow": lambda: self._follow(patient[1]),
                "look up": self._look_up,
                "refresh 1": self._refresh_chain(once[0]),
                "refresh 2": self._refresh_chain(once[1]),
                **{
                    f"submit {SIZES[at]}": self._submissions(writer, once[2 + at])
                    for at, writer in enumerate(self.writers)
                },
            }
            self.successes.update(dict.fromkeys(programs, 0))
            for name, step in programs.items():
                group.create_task(self._repeat(name, step))
            for line in hasty:
                group.create_task(self._exceed_limit(line))
            try:
                yield
            finally:
                self._is_over = True

    async def wait_for_successes(self, more: int) -> None:
        """Wait until every program has succeeded so many times more."""
        goal = {name: successes + more for name, successes in self.successes.items()}
        await wait_until(
            lambda: all(self.successes[name] >= least for name, least in goal.items()), lambda: str(self.successes)
        )

    async def wait_for_refusals(self, more: int) -> None:
        """Wait until the server has answered 503 so many times more."""
        goal = self.seen.statuses[503] + more
        await wait_until(lambda: self.seen.statuses[503] >= goal, lambda: str(self.seen.statuses))

    def assert_limit_kept(self, limit: int, *, have_counted_alone: bool) -> None:
        """Assert that the hasty program never had more requests accepted in 60 s, although it tried.

        If workers have counted alone, it had at most so many from each, of which some may have ended meanwhile.
        """
        for first in self.accepted:
            until_s = first.sent_s + WINDOW_S
            surely = [other for other in self.accepted if first.sent_s <= other.sent_s and other.answered_s <= until_s]
            ended = sum(first.sent_s <= ended_s <= until_s for ended_s in self.seen.worker_ends_s)
            assert len(surely) <= limit * ((self._workers + ended) if have_counted_alone else 1)
        assert self.seen.statuses[429] > 0

    async def _repeat(self, name: str, step: Step) -> None:
        while not self._is_over or any(name == f"submit {other}" for other in self._unsettled()):
            successes = await step()
            self.successes[name] += successes
            await asyncio.sleep(self.pace_s if successes else BACK_OFF_S)

    def _unsettled(self) -> list[int]:
        return [SIZES[at] for at, writer in enumerate(self.writers) if writer.is_unanswered]

    async def _new_pair(self, line: CheckedConnection) -> Pair:
        pair: Pair = (await load.send_once(line, load.issue(self.key))).json()
        self.issued.append(PairHashes.of(pair))
        self.token = pair["access_token"]
        return pair

    async def _issue(self, line: CheckedConnection) -> bool:
        await self._new_pair(line)
        return True

    async def _follow(self, line: CheckedConnection) -> bool:
        await self.follower.read_page(line, self.token)
        return True

    async def _look_up(self) -> bool:
        """Find an address from the last answered batch, over a new connection to any worker."""
        address = self._known = next(filter(None, (writer.opted_out for writer in self.writers)), self._known)
        if address is None:
            return False
        async with self._new_connection() as line:
            answer = await load.send_once(line, load.look_up(self.token, "email", address))
        assert [record["address"] for record in answer.json()["items"]] == [address]
        return True

    def _submissions(self, writer: Writer, line: CheckedConnection) -> Step:
        async def step() -> bool:
            answer = await load.send_once(line, load.submit(self.token, "email", writer.batch()))
            if answer.status in (503, LOST.status):
                writer.repeat_unanswered()
                return False
            writer.accept_answer(answer)
            return True

        return step

    @asynccontextmanager
    async def _new_connection(self) -> AsyncIterator[CheckedConnection]:
        """Open a patient connection: one that is used rarely would be closed by the server as idle."""
        line = self._checked(await connect(self.server, self.seen), is_patient=True)
        try:
            yield line
        finally:
            await load.hang_up(line)

    def _checked(self, line: RawConnection, *, is_patient: bool) -> CheckedConnection:
        return CheckedConnection(line, self.server, self.seen, is_patient=is_patient)

    def _refresh_chain(self, line: CheckedConnection) -> Step:
        """Refresh tokens in a chain. A token is presented again only if the server says that it was not used.

        If the answer is lost, its outcome is unknown, too.
        """
        held: list[str] = []

        async def step() -> bool:
            if not held:
                async with self._new_connection() as patient:
                    held.append((await self._new_pair(patient))["refresh_token"])
            presented = hash_secret(held[0])
            self.presented.append(presented)
            answer = await load.send_once(line, load.refresh(held[0]))
            assert answer.status != 400, answer
            if answer.status == 503 and SPENT not in answer.json()["error_description"]:
                return False
            del held[0]
            pair = answer.json() if answer.status == 200 else None
            self.rotations[presented] = pair and PairHashes.of(pair)
            held.extend([pair["refresh_token"]] if pair else [])
            return pair is not None

        return step

    async def _exceed_limit(self, line: CheckedConnection) -> None:
        """Send more requests than allowed. 404 is the answer to an accepted request."""
        while not self._is_over:
            if time.monotonic() > self._hasty_until_s:
                await self._renew_hasty_token()
            sent_s = time.monotonic()
            if (await load.send_once(line, load.call(self._hasty_token))).status == 404:
                self.accepted.append(Accepted(sent_s, time.monotonic()))
            await asyncio.sleep(BACK_OFF_S)

    async def _renew_hasty_token(self) -> None:
        """Get a token for all connections of the hasty program, which may ask for few."""
        self._hasty_until_s = time.monotonic() + _HASTY_TOKEN_S
        async with self._new_connection() as line:
            self._hasty_token = (await load.send_once(line, load.issue(self.hasty))).json()["access_token"]


async def connect(server: RunningServer, seen: AnswerLog) -> RawConnection:
    """Open a connection, at a further attempt if a worker ends meanwhile."""
    while True:
        generation = seen.generation
        try:
            return await load.connect(server)
        except load.BROKEN:
            if not seen.may_break(generation):
                raise
        await asyncio.sleep(BACK_OFF_S)


async def connections_to_each_worker(
    opened: AsyncExitStack, server: RunningServer, workers: int
) -> list[RawConnection]:
    """Open connections until each worker serves at least one."""
    lines: list[RawConnection] = []
    while len(by_worker(server, lines)) < workers:
        lines += await opened.enter_async_context(load.connections([server], HASTY))
    return lines


def by_worker(server: RunningServer, lines: Iterable[RawConnection]) -> dict[int, RawConnection]:
    """Return a connection to each worker that serves one of these, by its process id.

    Those that were closed, as unused ones are, are left out.
    """
    of_port = {line.writer.get_extra_info("sockname")[1]: line for line in lines}
    return {
        worker.pid: of_port[end.raddr.port]
        for worker in psutil.Process(server.process.pid).children()
        for end in worker.net_connections("tcp")
        if end.raddr and end.raddr.port in of_port
    }


async def wait_until(is_true: Callable[[], bool], what: Callable[[], str]) -> None:
    """Wait until `is_true`; fail after PATIENCE_S."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline_s, what()
        await asyncio.sleep(0.02)

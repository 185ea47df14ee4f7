"""Partners at work, all kinds at once, while something breaks under the server; each remembers what it was answered.

Source: docs/interface.md sections 5 (what a partner does about tokens), 8 (what it repeats), D4, D6 and D8.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import psutil

from tests.e2e import load
from tests.e2e.partners import Acts, Follower, Writer
from tests.e2e.running import Key, Server
from tests.server.serving import Answer, Connection

# How soon a program asks again: after an answer, and after a refusal.
PACE_S, BACK_OFF_S = 0.03, 0.1
HEALED_WITHIN_S = 60.0
# So many connections of the hasty program at first; more, until each worker has one.
HASTY = 4
# Alone, together with others, and heavy, as the drivers tell them apart.
SIZES = (1, 50, 500)
WINDOW_S = 60.0
SPENT = "do not send it again"

Pair = dict[str, str]
Turn = Callable[[], Awaitable[bool]]


class Accepted(NamedTuple):
    """A request that the limits let in: it was counted between these two moments."""

    sent_s: float
    answered_s: float


class Seen:
    """Every answer, each of which is one that partners are promised while something is broken."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.longest_s = 0.0

    def take(self, answer: Answer, took_s: float) -> None:
        """200 or 404 by the rules, 429 or 503 with a time to come back at; never 401 or 500, whatever is broken."""
        self.statuses[answer.status] += 1
        self.longest_s = max(self.longest_s, took_s)
        assert answer.status in (200, 404, 429, 503), answer
        if answer.status in (429, 503):
            assert int(answer.headers["retry-after"]) > 0
            assert answer.json()["error"] == {429: "rate_limited", 503: "temporarily_unavailable"}[answer.status]


class Line(Connection):
    """A connection on which every answer is looked at. It lasts: the server breaks none, whatever is broken behind it.

    What may be repeated is, for as long as the answer is 503, where `is_patient`.
    """

    def __init__(self, line: Connection, seen: Seen, *, is_patient: bool) -> None:
        super().__init__(line.reader, line.writer)
        self._seen, self._is_patient = seen, is_patient
        self._request = b""
        self._sent_s = 0.0

    async def send(self, data: bytes) -> None:
        self._request, self._sent_s = data, time.monotonic()
        await super().send(data)

    async def answer(self) -> Answer:
        answer = await super().answer()
        self._seen.take(answer, time.monotonic() - self._sent_s)
        if answer.status != 503 or not self._is_patient:
            return answer
        await asyncio.sleep(BACK_OFF_S)
        return await load.acquire(self, self._request)


class Partners:
    """The programs of one organization, with what they were answered."""

    def __init__(self, server: Server, *, workers: int, key: Key, hasty: Key) -> None:
        """`hasty` has a low ceiling, and a program that asks far more often than that, of each of the workers."""
        self.server, self.key, self.hasty, self._workers = server, key, hasty, workers
        self.seen = Seen()
        self.had: Counter[str] = Counter()
        """How often each program had what it asked for."""
        self.issued: list[Pair] = []
        self.rotations: dict[str, Pair | None] = {}
        """By the token presented, its successors; None where the server said that nobody knows."""
        self.presented: list[str] = []
        """Every refresh token that is sent, as it is sent."""
        self.accepted: list[Accepted] = []
        acts = Acts()
        self.writers = [Writer(number, size, acts) for number, size in enumerate(SIZES)]
        self.follower = Follower("email", 1_000)
        self._known: str | None = None
        self._is_over = False

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """All programs go on for as long as the block lasts; then each brings to its end what it has begun."""
        async with AsyncExitStack() as opened, asyncio.TaskGroup() as group:
            plain = await opened.enter_async_context(load.connections([self.server], 6 + len(SIZES)))
            hasty = await self._at_each_worker(opened)
            patient = [Line(line, self.seen, is_patient=True) for line in plain[:4]]
            once = [Line(line, self.seen, is_patient=False) for line in plain[4:]]
            token = (await self._new_pair(patient[0]))["access_token"]
            hasty_token = (await load.acquire(patient[0], load.issue(self.hasty))).json()["access_token"]
            programs: dict[str, Turn] = {
                "issue": lambda: self._issue(patient[0]),
                "follow": lambda: self._follow(patient[1], token),
                "look up": lambda: self._look_up(token),
                "refresh 1": self._chain(once[0], patient[2]),
                "refresh 2": self._chain(once[1], patient[3]),
                **{
                    f"submit {SIZES[at]}": self._submitting(writer, once[2 + at], token)
                    for at, writer in enumerate(self.writers)
                },
            }
            self.had.update(dict.fromkeys(programs, 0))
            for name, turn in programs.items():
                group.create_task(self._go_on(name, turn))
            for line in hasty:
                group.create_task(self._hurry(line, hasty_token))
            try:
                yield
            finally:
                self._is_over = True

    async def each_had(self, more: int) -> None:
        """Every program has had what it asked for so many times more: the server is back, if it was away."""
        goal = {name: had + more for name, had in self.had.items()}
        await until(lambda: all(self.had[name] >= least for name, least in goal.items()), lambda: str(self.had))

    async def were_refused(self, more: int) -> None:
        """The server has answered 503 so many times more."""
        goal = self.seen.statuses[503] + more
        await until(lambda: self.seen.statuses[503] >= goal, lambda: str(self.seen.statuses))

    def assert_within(self, limit: int) -> None:
        """The hasty program never had more than so many requests accepted in any 60 s, and it did try."""
        for first in self.accepted:
            surely = [
                it for it in self.accepted if first.sent_s <= it.sent_s and it.answered_s <= first.sent_s + WINDOW_S
            ]
            assert len(surely) <= limit
        assert self.seen.statuses[429] > 0

    async def _at_each_worker(self, opened: AsyncExitStack) -> list[Line]:
        """Connections of which each worker serves one."""
        lines: list[Connection] = []
        while len({self._worker_of(line) for line in lines}) < self._workers:
            lines += await opened.enter_async_context(load.connections([self.server], HASTY))
        return [Line(line, self.seen, is_patient=False) for line in lines]

    def _worker_of(self, line: Connection) -> int:
        port = line.writer.get_extra_info("sockname")[1]
        workers = psutil.Process(self.server.process.pid).children()
        return next(
            it.pid for it in workers if any(end.raddr and end.raddr.port == port for end in it.net_connections("tcp"))
        )

    async def _go_on(self, name: str, turn: Turn) -> None:
        while not self._is_over or any(name == f"submit {it}" for it in self._unsettled()):
            had = await turn()
            self.had[name] += had
            await asyncio.sleep(PACE_S if had else BACK_OFF_S)

    def _unsettled(self) -> list[int]:
        return [SIZES[at] for at, writer in enumerate(self.writers) if writer.is_unanswered]

    async def _new_pair(self, line: Line) -> Pair:
        pair: Pair = (await load.acquire(line, load.issue(self.key))).json()
        self.issued.append(pair)
        return pair

    async def _issue(self, line: Line) -> bool:
        await self._new_pair(line)
        return True

    async def _follow(self, line: Line, token: str) -> bool:
        await self.follower.read_on(line, token)
        return True

    async def _look_up(self, token: str) -> bool:
        """Whoever opted out in a batch that was answered is found, over a connection of its own to whichever worker."""
        address = self._known = next(filter(None, (writer.known for writer in self.writers)), self._known)
        if address is None:
            return False
        async with load.connection(self.server) as plain:
            line = Line(plain, self.seen, is_patient=True)
            answer = await load.acquire(line, load.look_up(token, "email", address))
        assert [record["address"] for record in answer.json()["items"]] == [address]
        return True

    def _submitting(self, writer: Writer, line: Line, token: str) -> Turn:
        async def turn() -> bool:
            answer = await load.acquire(line, load.submit(token, "email", writer.batch()))
            if answer.status == 503:
                writer.begin()
                return False
            writer.take(answer)
            return True

        return turn

    def _chain(self, line: Line, patient: Line) -> Turn:
        """A chain of refreshes. A token is presented again only where the server says that nothing became of it."""
        held: list[str] = []

        async def turn() -> bool:
            if not held:
                held.append((await self._new_pair(patient))["refresh_token"])
            presented = held[0]
            self.presented.append(presented)
            answer = await load.acquire(line, load.refresh(presented))
            assert answer.status != 400, answer
            if answer.status == 503 and SPENT not in answer.json()["error_description"]:
                return False
            del held[0]
            self.rotations[presented] = pair = answer.json() if answer.status == 200 else None
            held.extend([pair["refresh_token"]] if pair else [])
            return pair is not None

        return turn

    async def _hurry(self, line: Line, token: str) -> None:
        """Ask more often than one may. 404 is the answer to who may enter."""
        request = load.call(token)
        while not self._is_over:
            sent_s = time.monotonic()
            if (await load.acquire(line, request)).status == 404:
                self.accepted.append(Accepted(sent_s, time.monotonic()))
            await asyncio.sleep(BACK_OFF_S)


async def until(is_true: Callable[[], bool], what: Callable[[], str]) -> None:
    """It is so, within the time in which it must be."""
    by_s = time.monotonic() + HEALED_WITHIN_S
    while not is_true():
        assert time.monotonic() < by_s, what()
        await asyncio.sleep(0.02)

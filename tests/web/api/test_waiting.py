"""`Prefer: wait=N` on a GET with a cursor (docs/interface.md section D14, Waiting for news)."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stoplist.oauth.credentials import Changes, revoke_tokens, update_credential
from stoplist.organizations.groups import retire_group
from stoplist.organizations.organizations import close_organization
from stoplist.proof.held_requests import MAX_HELD_PER_KEY
from stoplist.web.api.prefer import read_wait_s
from tests.builders import ADMINISTRATOR
from tests.unsubscribes.partner import out
from tests.web.api.partner import JSON, ApiPartner, addresses, path
from tests.web.application import Answer, Headers

WAIT = ("prefer", "wait=30")
APPLIED = "wait=30"
_OF_ORGANIZATION = "SELECT client_id FROM client_organizations WHERE organization_id = :organization_id"


class WaitingReader:
    """A partner that follows a feed to its end and then waits for changes."""

    def __init__(self, partner: ApiPartner, **query: str) -> None:
        self.partner, self.app = partner, partner.app
        self.app.held._look_every_s = 3600.0  # what this process stores is noticed without a look
        self.query = query
        self.left = asyncio.Event()

    async def page(self, *headers: tuple[str, str], **query: str) -> Answer:
        """Return the answer to a GET."""
        text = "&".join(f"{name}={value}" for name, value in (self.query | query).items())
        target = f"{path()}?{text}"
        return await self.app.answer("GET", target, headers=[self.partner.authorization, *headers], left=self.left)

    async def wait(self, *, prefer: str = APPLIED, **query: str) -> "asyncio.Task[Answer]":
        """Return the answer to come: a request at the end of the feed that is held."""
        cursor = (await self.page(**query)).json()["next_cursor"]
        before = waiting(self)
        answer = asyncio.create_task(self.page(("prefer", prefer), cursor=cursor, **query))
        async with asyncio.timeout(60):
            while waiting(self) == before:  # noqa: ASYNC110 - the database answers in between
                await asyncio.sleep(0.001)
        return answer

    async def submit(self, *addresses: str, **named: Any) -> None:
        body = json.dumps({**named, "items": [out(address) for address in addresses]}).encode()
        answer = await self.app.answer("POST", path(), headers=[self.partner.authorization, JSON], body=body)
        assert answer.status == 200, answer.body

    async def held_again(self) -> None:
        """Wait until a request that was told of a change is held again or answered."""
        async with asyncio.timeout(60):
            while self.app.held._reading:  # noqa: ASYNC110
                await asyncio.sleep(0.001)


def waiting(reader: WaitingReader) -> int:
    return sum(map(len, reader.app.held._waiting.values()))


def test_a_request_is_held_until_there_is_a_change(partner: ApiPartner) -> None:
    """Then its answer is that of a request that came now, and names what was applied."""

    async def main() -> None:
        reader = WaitingReader(partner)
        held = await reader.wait()
        await reader.submit("ann@x.org")
        answer = await held
        assert (addresses(answer), answer.header("preference-applied")) == (["ann@x.org"], APPLIED)
        assert addresses(await reader.page(cursor=answer.json()["next_cursor"])) == []

    partner.app.run(main())


def test_a_change_that_is_there_already_is_answered_at_once(partner: ApiPartner) -> None:
    async def main() -> None:
        reader = WaitingReader(partner)
        cursor = (await reader.page()).json()["next_cursor"]
        await reader.submit("ann@x.org", "ben@x.org")
        answer = await reader.page(WAIT, cursor=cursor, limit="1")
        assert (addresses(answer), answer.header("preference-applied")) == (["ann@x.org"], APPLIED)

    partner.app.run(main())


def test_a_request_whose_time_is_over_is_answered_without_records(partner_on_sqlite: ApiPartner) -> None:
    """The cursor goes on as before, and no other statement runs."""

    async def main() -> None:
        reader = WaitingReader(partner_on_sqlite)
        held = await reader.wait()
        reader.app.held._answer_all()
        answer = await held
        assert (addresses(answer), answer.json()["has_more"], answer.header("preference-applied")) == (
            [],
            False,
            APPLIED,
        )
        await reader.submit("ann@x.org")
        assert addresses(await reader.page(cursor=answer.json()["next_cursor"])) == ["ann@x.org"]

    partner_on_sqlite.app.run(main())


def test_it_counts_once_against_the_limit_when_it_is_accepted(partner_on_sqlite: ApiPartner) -> None:
    async def main() -> None:
        reader = WaitingReader(partner_on_sqlite)
        held = await reader.wait()
        await reader.submit("ann@x.org")
        answer = await held
        assert answer.header("ratelimit") == '"api";r=58;t=60'  # one to read to the end, and this one

    partner_on_sqlite.app.run(main())


def test_with_a_group_only_what_applies_to_it_is_news(partner: ApiPartner) -> None:
    """Its own records and the all-groups ones, whatever else changes meanwhile."""

    async def main() -> None:
        reader = WaitingReader(partner, group_id=group_id)
        held = await reader.wait()
        await reader.submit("ann@x.org", group_id=other_id)
        await reader.held_again()
        assert not held.done()
        await reader.submit("ben@x.org", all_groups=True)
        answer = await held
        assert (addresses(answer), answer.header("preference-applied")) == (["ben@x.org"], APPLIED)

    group_id, other_id = partner.new_group("Reminders"), partner.new_group("Offers")
    partner.app.run(main())


async def revoke(partner: ApiPartner, client_id: str) -> object:
    return await revoke_tokens(ADMINISTRATOR, partner.app.database, partner.clock, client_id=client_id)


async def take_permission(partner: ApiPartner, client_id: str) -> object:
    changes = Changes(permissions=frozenset({"unsubscribe"}))
    return await update_credential(
        ADMINISTRATOR, partner.app.database, partner.clock, client_id=client_id, changes=changes
    )


async def close(partner: ApiPartner, client_id: str) -> object:
    return await close_organization(ADMINISTRATOR, partner.app.database, partner.clock, slug=partner.slug)


async def retire(partner: ApiPartner, client_id: str) -> object:
    return await retire_group(ADMINISTRATOR, partner.app.database, partner.clock, group_id=partner.group_id)


@pytest.mark.parametrize(
    ("act", "status", "error"),
    [
        (revoke, 401, "invalid_token"),
        (take_permission, 403, "insufficient_scope"),
        (close, 403, "unauthorized_organization"),
        (retire, 403, "unauthorized_organization"),
    ],
)
def test_rights_are_asked_again_before_records_are_answered(
    partner: ApiPartner, act: Callable[[ApiPartner, str], Awaitable[object]], status: int, error: str
) -> None:
    """A reader who has lost them when it is told of a change gets no record."""

    async def main() -> None:
        reader, database = WaitingReader(partner, group_id=partner.group_id), partner.app.database
        held = await reader.wait()
        tell, written = database.on_feed_written, list[int]()
        database.on_feed_written = written.append
        await WaitingReader(colleague).submit("ann@x.org")
        await act(partner, client_id)
        database.on_feed_written = tell
        tell(written[0])
        answer = await held
        assert (answer.status, answer.error) == (status, error)
        assert answer.header("preference-applied") is None

    client_id = str(partner.app.value(_OF_ORGANIZATION, organization_id=partner.organization_id))
    colleague = partner.colleague("read", "unsubscribe")
    partner.app.run(main())


@pytest.mark.parametrize(
    ("method", "query", "prefer"),
    [
        ("HEAD", "cursor={}", APPLIED),
        ("GET", "address=ann%40x.org", APPLIED),
        ("GET", "limit=10", APPLIED),
        ("GET", "cursor={}", "wait=0"),
        ("GET", "cursor={}", "wait=31"),
        ("GET", "cursor={}", "wait=-1"),
        ("GET", "cursor={}", "wait=1.5"),
        ("GET", "cursor={}", "wait"),
        ("GET", "cursor={}", "wait=soon"),
        ("GET", "cursor={}", "wait=31, wait=5"),
    ],
)
def test_anything_else_is_answered_at_once(partner_on_sqlite: ApiPartner, method: str, query: str, prefer: str) -> None:
    """HEAD, look-ups, requests without cursor, and other times; and the answer names no preference."""
    cursor = partner_on_sqlite.get().json()["next_cursor"]
    app = partner_on_sqlite.app
    held = app.held.hold
    app.held.hold = lambda *asked: pytest.fail("the request was held")  # type: ignore[method-assign]
    headers: Headers = [partner_on_sqlite.authorization, ("prefer", prefer)]
    answer = app.request(method, f"{path()}?{query.format(cursor)}", headers=headers)
    app.held.hold = held  # type: ignore[method-assign]
    assert (answer.status, answer.header("preference-applied")) == (200, None)


@pytest.mark.parametrize(
    ("prefer", "wait_s"),
    [("wait=1", 1), ("wait=30", 30), ('Wait = "007"', 7), ("x, wait=5; y=z", 5), ("wait=100", None), ("", None)],
)
def test_the_time_is_a_number_of_seconds(prefer: str, wait_s: int | None) -> None:
    assert read_wait_s([(b"prefer", prefer.encode())]) == wait_s


def test_one_more_than_may_be_held_is_answered_at_once(partner_on_sqlite: ApiPartner) -> None:
    """The preference is not applied."""

    async def main() -> None:
        reader = WaitingReader(partner_on_sqlite)
        held = [await reader.wait() for _ in range(MAX_HELD_PER_KEY)]
        cursor = (await reader.page()).json()["next_cursor"]
        answer = await reader.page(WAIT, cursor=cursor)
        assert (addresses(answer), answer.header("preference-applied")) == ([], None)
        await reader.submit("ann@x.org")
        assert [addresses(answer) for answer in await asyncio.gather(*held)] == [["ann@x.org"]] * MAX_HELD_PER_KEY

    partner_on_sqlite.app.run(main())


def test_a_held_request_keeps_no_memory_for_its_page(partner_on_sqlite: ApiPartner) -> None:
    """Sixteen times the largest page is the whole quota of a key."""

    async def main() -> None:
        reader = WaitingReader(partner_on_sqlite, limit="10000")
        held = [await reader.wait() for _ in range(MAX_HELD_PER_KEY)]
        assert (await reader.page()).status == 200
        reader.app.held.end()
        await asyncio.gather(*held)

    partner_on_sqlite.app.run(main())


def test_a_client_that_leaves_is_forgotten_at_once(partner_on_sqlite: ApiPartner) -> None:
    async def main() -> None:
        reader = WaitingReader(partner_on_sqlite)
        held = await reader.wait()
        reader.left.set()
        assert (await held).status == 0
        assert (reader.app.held.count, waiting(reader)) == (0, 0)

    partner_on_sqlite.app.run(main())


def test_a_stop_answers_all_that_wait(partner_on_sqlite: ApiPartner) -> None:
    """The answers have no records and do not apply the preference; a request that comes later is not held."""

    async def main() -> None:
        reader = WaitingReader(partner_on_sqlite)
        held = await reader.wait()
        reader.app.held.end()
        answer = await held
        assert (addresses(answer), answer.header("preference-applied")) == ([], None)
        answer = await reader.page(WAIT, cursor=answer.json()["next_cursor"])
        assert (addresses(answer), answer.header("preference-applied")) == ([], None)

    partner_on_sqlite.app.run(main())


def test_the_time_for_which_it_was_held_is_not_in_the_metrics(
    partner_on_sqlite: ApiPartner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise every server with patient readers would look slow."""
    counted: list[tuple[int, int]] = []

    async def main() -> None:
        reader = WaitingReader(partner_on_sqlite)
        held = await reader.wait()
        count = reader.app.metrics.count_answer
        monkeypatch.setattr(
            reader.app.metrics, "count_answer", lambda context, took_ns: counted.append((context.held_ns, took_ns))
        )
        await reader.submit("ann@x.org")
        await held
        monkeypatch.setattr(reader.app.metrics, "count_answer", count)

    partner_on_sqlite.app.run(main())
    (posted_ns, _), (held_ns, took_ns) = counted
    assert posted_ns == 0 < held_ns < took_ns

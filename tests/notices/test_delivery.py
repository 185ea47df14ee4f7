"""Notices are tried until delivered, by one process at a time, for three days (docs/interface.md section D16)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stoplist.db import Transaction
from stoplist.notices.delivery import LEASE_MS, PAUSES_S, ClaimedDelivery, NoticeDelivery, Senders, next_attempt_ms
from stoplist.notices.mail_texts import MailText
from stoplist.notices.model import IMPORT_ENDED
from stoplist.notices.outcome import DELIVERED, DeliveryOutcome
from stoplist.notices.sealed_links import SealedLink, add_link, end_links, renew_sealed_links
from stoplist.staff.people import disable_person
from tests.builders import ADMINISTRATOR, execute, value
from tests.constants import DAY_MS, DAY_S, HOUR_S
from tests.deployment import in_loop
from tests.notices.operator import NoticeDeployment

BROKEN = DeliveryOutcome("HTTP 500")
KEY, NEXT_KEY = "k" * 32, "n" * 32


class ScriptedWays:
    """A webhook and a mail server that fail as a test says, and keep what was sent."""

    def __init__(self, deployment: NoticeDeployment) -> None:
        self._deployment = deployment
        self.outcome: Callable[[], DeliveryOutcome] = lambda: DELIVERED
        self.posts: list[tuple[str, int]] = []
        self.mails: list[tuple[str, MailText]] = []
        self.counted: list[tuple[str, str]] = []
        self.hang: asyncio.Event | None = None
        self.reached, self.mailed = asyncio.Event(), asyncio.Event()

    async def post(self, notice_id: str, body: str, *, now_ms: int) -> DeliveryOutcome:
        self.posts.append((notice_id, now_ms))
        self.reached.set()
        if self.hang is not None:
            await self.hang.wait()
        return self.outcome()

    async def send(self, recipient: str, text: MailText, *, message_id: str, now_ms: int) -> DeliveryOutcome:
        self.mails.append((recipient, text))
        self.mailed.set()
        return self.outcome()

    def process(
        self, *, by_mail: bool = False, by_webhook: bool = True, keys: tuple[str, ...] = (KEY,)
    ) -> NoticeDelivery:
        """Return the delivery of a server process."""
        senders = Senders(self if by_webhook else None, self if by_mail else None, "https://stoplist.example", keys)
        return NoticeDelivery(
            self._deployment.database,
            self._deployment.clock,
            senders,
            count=lambda outcome, way: self.counted.append((outcome, way)),
            spread=lambda: 1.0,
        )

    async def live(self, seconds: float, *, step_s: float = 5, **ways: Any) -> None:
        """Let time pass, with a process that runs its chores."""
        process = self.process(**ways)
        for _ in range(round(seconds / step_s)):
            await process.finish()
            await process.clean_up()
            self._deployment.clock.advance(step_s)


@pytest.fixture
def ways(deployment: NoticeDeployment) -> ScriptedWays:
    return ScriptedWays(deployment)


@in_loop
async def test_a_notice_is_delivered_once(deployment: NoticeDeployment, ways: ScriptedWays) -> None:
    notice_ids = []
    for _ in range(3):
        notice_ids.append(await deployment.add())
        deployment.clock.advance(1)
    await ways.live(60)
    assert [notice_id for notice_id, _ in ways.posts] == notice_ids
    assert ways.counted == [("delivered", "webhook")] * 3
    (ended, *_) = await deployment.deliveries()
    assert (ended["is_delivered"], ended["attempts"], ended["last_error"]) == (1, 1, None)


@in_loop
async def test_pauses_grow_until_the_receiver_is_back(deployment: NoticeDeployment, ways: ScriptedWays) -> None:
    """It answers 500 for a day, then 200: the same id, and no more than a handful of attempts."""
    began_ms = deployment.now_ms
    notice_id = await deployment.add()
    ways.outcome = lambda: DELIVERED if deployment.now_ms - began_ms >= DAY_MS else BROKEN
    await ways.live(27 * HOUR_S, step_s=300)
    assert {name for name, _ in ways.posts} == {notice_id}
    times_h = [round((at_ms - began_ms) / 3_600_000, 1) for _, at_ms in ways.posts]
    assert times_h[-3:] == [13.9, 19.9, 25.9]
    assert len(ways.posts) == 12
    assert ways.counted[-1] == ("delivered", "webhook")


@in_loop
async def test_a_notice_is_given_up_after_three_days(deployment: NoticeDeployment, ways: ScriptedWays) -> None:
    """The last attempt is made shortly before; a receiver that comes back later hears nothing of it."""
    began_ms = deployment.now_ms
    await deployment.add()
    ways.outcome = lambda: BROKEN
    await ways.live(3 * DAY_S - 600, step_s=900)
    await ways.live(1_200)
    assert 3 * DAY_MS - 60_000 <= ways.posts[-1][1] - began_ms < 3 * DAY_MS
    assert ways.counted.count(("given_up", "webhook")) == 1
    ways.outcome = lambda: DELIVERED
    await ways.live(DAY_S, step_s=HOUR_S)
    assert ("delivered", "webhook") not in ways.counted
    (delivery,) = await deployment.deliveries()
    assert (delivery["is_delivered"], delivery["last_error"]) == (0, "HTTP 500")


@in_loop
async def test_a_setting_that_comes_late_sends_nothing_old(deployment: NoticeDeployment, ways: ScriptedWays) -> None:
    """A notice that waited for more than three days is neither sent nor counted."""
    await deployment.add()
    deployment.clock.advance(2 * DAY_S)
    recent = await deployment.add()
    deployment.clock.advance(DAY_S + 1)
    await ways.live(60)
    assert [notice_id for notice_id, _ in ways.posts] == [recent]
    assert ways.counted == [("delivered", "webhook")]


def test_the_receiver_may_ask_for_a_longer_pause() -> None:
    """Up to six hours; a shorter one changes nothing."""
    claimed = ClaimedDelivery("ntc_1", "webhook", "lease", 2, 3 * DAY_MS, None, IMPORT_ENDED, "{}")
    asked = {
        retry: next_attempt_ms(claimed, DeliveryOutcome("HTTP 503", retry), 0, 1.1) for retry in (None, 1, 300, 999_999)
    }
    assert asked == {None: 132_000, 1: 132_000, 300: 300_000, 999_999: 6 * HOUR_S * 1000}
    assert sorted(PAUSES_S) == list(PAUSES_S)


@in_loop
async def test_of_two_processes_one_sends(deployment: NoticeDeployment, ways: ScriptedWays) -> None:
    """The second sends nothing while the first one waits for its answer, and after it."""
    await deployment.add()
    ways.hang = asyncio.Event()
    first, second = ways.process(), ways.process()
    await first.deliver_waiting()
    await ways.reached.wait()
    await second.finish()
    ways.hang.set()
    await first.finish()
    await second.finish()
    assert len(ways.posts) == 1


@in_loop
async def test_a_receiver_that_is_away_is_asked_once(deployment: NoticeDeployment, ways: ScriptedWays) -> None:
    """The waiting notices do not each make a request."""
    for _ in range(3):
        await deployment.add()
    ways.outcome = lambda: BROKEN
    await ways.process().finish()
    assert len(ways.posts) == 1


@in_loop
async def test_many_processes_share_the_work(deployment: NoticeDeployment, ways: ScriptedWays) -> None:
    notice_ids = {await deployment.add() for _ in range(20)}
    await asyncio.gather(*(ways.process().finish() for _ in range(4)))
    await ways.process().finish()
    assert sorted(notice_id for notice_id, _ in ways.posts) == sorted(notice_ids)


@in_loop
async def test_what_a_killed_process_left_is_sent_again(deployment: NoticeDeployment, ways: ScriptedWays) -> None:
    """It is sent at least once, with the same id, once its lease has ended."""
    notice_id = await deployment.add()
    ways.hang = asyncio.Event()
    killed = ways.process()
    await killed.deliver_waiting()
    await ways.reached.wait()
    ways.hang = None
    await ways.process().finish()
    assert len(ways.posts) == 1
    deployment.clock.advance(LEASE_MS / 1000)
    await ways.process().finish()
    assert [name for name, _ in ways.posts] == [notice_id] * 2
    (delivery,) = await deployment.deliveries()
    assert delivery["is_delivered"]
    await killed.end()
    assert (await deployment.deliveries()) == [delivery]


@pytest.mark.parametrize("outcome", [BROKEN, DELIVERED])
@in_loop
async def test_who_lost_the_lease_notes_no_outcome(
    deployment: NoticeDeployment, ways: ScriptedWays, outcome: DeliveryOutcome
) -> None:
    """Another process has sent the notice meanwhile."""
    await deployment.add()
    ways.hang = hang = asyncio.Event()
    slow = ways.process()
    await slow.deliver_waiting()
    await ways.reached.wait()
    ways.hang = None
    deployment.clock.advance(LEASE_MS / 1000)
    await ways.process().finish()
    settled = await deployment.deliveries()
    ways.outcome = lambda: outcome
    hang.set()
    await slow.finish()
    assert len(ways.posts) == 2
    assert await deployment.deliveries() == settled


@in_loop
async def test_a_process_that_stops_leaves_its_notice_at_once(deployment: NoticeDeployment, ways: ScriptedWays) -> None:
    notice_id = await deployment.add()
    ways.hang = asyncio.Event()
    stopping = ways.process()
    await stopping.deliver_waiting()
    await ways.reached.wait()
    await stopping.end()
    ways.hang = None
    await ways.process().finish()
    assert [name for name, _ in ways.posts] == [notice_id] * 2
    assert ways.counted == [("delivered", "webhook")]


@in_loop
async def test_a_receiver_that_hangs_delays_no_mail(deployment: NoticeDeployment, ways: ScriptedWays) -> None:
    await deployment.person("admin@example.org", is_administrator=True)
    await deployment.add()
    ways.hang = asyncio.Event()
    process = ways.process(by_mail=True)
    await process.deliver_waiting()
    await ways.reached.wait()
    await ways.mailed.wait()
    assert [recipient for recipient, _ in ways.mails] == ["admin@example.org"]
    await process.end()


@in_loop
async def test_an_e_mail_goes_to_those_who_still_may_know(deployment: NoticeDeployment, ways: ScriptedWays) -> None:
    """People who were disabled or lost the role since get none, which is no failure."""
    acme = await deployment.new_organization()
    await deployment.person("admin@example.org", is_administrator=True)
    await deployment.person("gone@example.org", is_administrator=True)
    await deployment.person("ann@example.org", org_slug=acme.slug, role="admin")
    await deployment.person("bob@example.org", org_slug=acme.slug, role="admin")
    await deployment.add(organizations=[acme.slug], rows=7)
    await disable_person(ADMINISTRATOR, deployment.database, deployment.clock, email="gone@example.org")
    bob = await value(deployment.database, "SELECT person_id FROM people WHERE email = 'bob@example.org'")
    await execute(deployment.database, "DELETE FROM person_organizations WHERE person_id = :id", id=bob)
    await ways.live(60, by_mail=True)
    assert sorted(recipient for recipient, _ in ways.mails) == ["admin@example.org", "ann@example.org"]
    text = ways.mails[0][1]
    assert text.subject == "Stoplist: An import ended"
    assert "rows: 7\n" in text.body
    assert f"organizations: {acme.slug}\n" in text.body


@in_loop
async def test_an_e_mail_names_no_organization_of_others(deployment: NoticeDeployment, ways: ScriptedWays) -> None:
    """The admin of one of a key's organizations does not learn of the others."""
    acme, other = await deployment.new_organization(), await deployment.new_organization()
    await deployment.person("ann@example.org", org_slug=acme.slug, role="admin")
    await deployment.add(organizations=[acme.slug, other.slug])
    await ways.live(10, by_mail=True)
    ((_, text),) = ways.mails
    assert other.slug not in text.body


@in_loop
async def test_notices_are_deleted_after_thirty_days(deployment: NoticeDeployment, ways: ScriptedWays) -> None:
    await deployment.add()
    deployment.clock.advance(15 * DAY_S)
    kept = await deployment.add()
    deployment.clock.advance(15 * DAY_S + 1)
    await ways.process().clean_up()
    assert [notice.notice_id for notice in await deployment.notices()] == [kept]
    assert len(await deployment.deliveries()) == 1


# Sign-in links


async def send_link(deployment: NoticeDeployment, url: str, *, keys: tuple[str, ...] = (KEY,)) -> int:
    """Have a link sent to a person; return the person's id."""
    person_id: int = await value(deployment.database, "SELECT person_id FROM people")
    now_ms = deployment.now_ms

    async def add(transaction: Transaction) -> None:
        await end_links(transaction, person_id, now_ms)
        await add_link(
            transaction,
            SealedLink(url),
            person_id=person_id,
            secret_keys=keys,
            now_ms=now_ms,
            expires_ms=now_ms + DAY_MS,
        )

    await deployment.database.write(add)
    return person_id


@in_loop
async def test_a_link_is_sealed_until_it_is_sent(deployment: NoticeDeployment, ways: ScriptedWays) -> None:
    """Only its person gets it, and the webhook hears nothing of it."""
    await deployment.person("ann@example.org")
    await send_link(deployment, "https://stoplist.example/link?token=secret")
    (waiting,) = await deployment.deliveries()
    assert "secret" not in str(waiting) + str(await deployment.notices())
    await ways.live(10, by_mail=True)
    ((recipient, text),) = ways.mails
    assert (recipient, ways.posts) == ("ann@example.org", [])
    assert "\nhttps://stoplist.example/link?token=secret\n" in text.body
    (sent,) = await deployment.deliveries()
    assert (sent["is_delivered"], sent["sealed"]) == (1, None)


@in_loop
async def test_only_the_latest_link_is_sent(deployment: NoticeDeployment, ways: ScriptedWays) -> None:
    """Earlier ones do not work any more; nor does one that was ended."""
    await deployment.person("ann@example.org")
    for number in range(3):
        person_id = await send_link(deployment, f"https://stoplist.example/{number}")
        deployment.clock.advance(1)
    await ways.live(10, by_mail=True)
    assert ["/2\n" in text.body for _, text in ways.mails] == [True]
    await send_link(deployment, "https://stoplist.example/3")
    await deployment.database.write(lambda transaction: end_links(transaction, person_id, deployment.now_ms))
    await ways.live(10, by_mail=True)
    assert len(ways.mails) == 1
    assert all(one["sealed"] is None for one in await deployment.deliveries())


@in_loop
async def test_a_link_is_not_sent_after_its_life(deployment: NoticeDeployment, ways: ScriptedWays) -> None:
    await deployment.person("ann@example.org")
    await send_link(deployment, "https://stoplist.example/link")
    deployment.clock.advance(DAY_S)
    await ways.live(10, by_mail=True)
    (expired,) = await deployment.deliveries()
    assert (ways.mails, expired["sealed"], expired["is_delivered"]) == ([], None, 0)


@in_loop
async def test_links_follow_the_secret_key(deployment: NoticeDeployment, ways: ScriptedWays) -> None:
    """A start encrypts them under its first key."""
    await deployment.person("ann@example.org")
    await send_link(deployment, "https://stoplist.example/link")
    await renew_sealed_links(deployment.database, (NEXT_KEY, KEY))
    await ways.live(10, by_mail=True, keys=(NEXT_KEY,))
    assert len(ways.mails) == 1


@in_loop
async def test_a_link_that_cannot_be_read_is_given_up(deployment: NoticeDeployment, ways: ScriptedWays) -> None:
    """It blocks no start, and no other e-mail."""
    await deployment.person("ann@example.org", is_administrator=True)
    await send_link(deployment, "https://stoplist.example/link")
    deployment.clock.advance(1)
    await deployment.add()
    await renew_sealed_links(deployment.database, (NEXT_KEY,))
    await ways.process(by_mail=True, keys=(NEXT_KEY,)).finish()
    assert [text.subject for _, text in ways.mails] == ["Stoplist: An import ended"]
    assert ("given_up", "mail") in ways.counted

"""Following a feed page by page, and looking up addresses (docs/interface.md section D6)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoplist.db import Database
from stoplist.errors import BadRequest
from stoplist.organizations.groups import retire_group
from stoplist.unsubscribes import follow as module
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import MAX_EXAMINED, RequestedTarget
from tests.builders import ADMINISTRATOR
from tests.deployment import SharedDatabase, in_loop
from tests.unsubscribes.partner import OptOutDeployment, Organization, addresses, back, out, records

EXAMPLES = {"sqlite": 60, "postgresql": 20}


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "pooled"])
def module_database_url(request: pytest.FixtureRequest) -> str:
    """An empty database; the tests also run on PostgreSQL through PgBouncer."""
    url: str = request.getfixturevalue(f"module_{request.param}_url")
    return url


async def filled(deployment: OptOutDeployment, count: int) -> Organization:
    """Return an organization with this many records, p0 first."""
    organization = await deployment.new_organization()
    await organization.submit(*(out(f"p{n}@x.org", deployment.ago(50)) for n in range(count)))
    return organization


def numbered(numbers: range | list[int]) -> list[str]:
    return [f"p{n}@x.org" for n in numbers]


# Pages


@in_loop
async def test_an_empty_feed_has_a_cursor_too(deployment: OptOutDeployment) -> None:
    """Presented later, it returns what was added since."""
    organization = await deployment.new_organization()
    page = await organization.follow()
    assert (records(page), page.has_more) == ([], False)
    assert isinstance(page.next_cursor, str)
    assert addresses(await organization.follow(page.next_cursor)) == []
    await organization.submit(out("a@x.org"))
    assert addresses(await organization.follow(page.next_cursor)) == ["a@x.org"]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7, 1_000])
@in_loop
async def test_pages_hold_every_record_once_in_the_order_of_seq(deployment: OptOutDeployment, limit: int) -> None:
    """Every page but the last is full; a page that ends with the feed says that there is no more."""
    organization = await filled(deployment, 6)
    pages = [page async for page in organization.pages(limit=limit)]
    assert [record.address for page in pages for record in records(page)] == numbered(range(6))
    assert [len(records(page)) for page in pages[:-1]] == [limit] * (len(pages) - 1)
    assert [page.has_more for page in pages] == [True] * (len(pages) - 1) + [False]
    assert len(pages) == -(-6 // limit)
    assert addresses(await organization.follow(pages[-1].next_cursor)) == []


@in_loop
async def test_a_cursor_returns_exactly_what_changed_since(deployment: OptOutDeployment) -> None:
    """Each changed record once, at its latest change; unchanged records do not come again."""
    organization = await filled(deployment, 5)
    cursor = (await organization.follow()).next_cursor
    await organization.submit(back("p3@x.org", deployment.ago(40)), back("p1@x.org", deployment.ago(40)))
    await organization.submit(out("p3@x.org", deployment.ago(30)), out("p2@x.org", deployment.ago(30)))
    page = await organization.follow(cursor)
    assert [(record.address, record.status) for record in records(page)] == [
        ("p1@x.org", "resubscribed"),
        ("p3@x.org", "unsubscribed"),
    ]
    assert not page.has_more
    assert addresses(await organization.feed()) == numbered([0, 2, 4, 1, 3])
    assert addresses(await organization.follow(cursor)) == addresses(page)


@in_loop
async def test_a_record_that_changes_between_pages_is_read_last(deployment: OptOutDeployment) -> None:
    """A reader ends with the records as they are, whatever is written meanwhile."""
    organization = await filled(deployment, 6)
    first = await organization.follow(limit=3)
    await organization.submit(
        back("p0@x.org", deployment.ago(40)), back("p4@x.org", deployment.ago(40)), out("p6@x.org")
    )
    assert addresses(await organization.feed(first.next_cursor, limit=2)) == numbered([3, 5, 0, 4, 6])


@in_loop
async def test_a_page_can_hold_10_000_records(deployment: OptOutDeployment) -> None:
    """Built in slices; one more record is on the next page."""
    organization = await filled(deployment, 10_000)
    await organization.submit(out("p10000@x.org"))
    pages = [page async for page in organization.pages(limit=10_000)]
    assert [(len(records(page)), page.has_more) for page in pages] == [(10_000, True), (1, False)]
    assert [record.seq for page in pages for record in records(page)] == list(range(1, 10_002))


@in_loop
async def test_a_record_shows_what_was_sent(deployment: OptOutDeployment) -> None:
    """Times are in UTC with milliseconds, whatever their offset was."""
    organization = await deployment.new_organization()
    await organization.submit(
        out("Ann@X.org", "2026-03-01T10:30:00.2509+01:00", reason="complaint", source="Büro №1 \U0001f4e8"),
        out("b@x.org", "2026-03-01t09:30:00z"),
    )
    first, second = await organization.feed()
    assert (first.address, first.occurred_at) == ("ann@x.org", "2026-03-01T09:30:00.250Z")
    assert (first.reason, first.source, first.status) == ("complaint", "Büro №1 \U0001f4e8", "unsubscribed")
    assert (first.org_slug, first.group_id) == (organization.slug, organization.default_group)
    assert (second.occurred_at, second.reason, second.source) == ("2026-03-01T09:30:00.000Z", "unsubscribe", None)
    assert second.recorded_at == "2047-01-15T08:00:00.000Z"


# A group


@in_loop
async def test_a_group_reads_its_own_and_all_groups_records(deployment: OptOutDeployment) -> None:
    """Their status does not matter; records of other groups are never read."""
    organization = await deployment.new_organization()
    other = await organization.new_group("Reminders")
    await organization.submit(out("own@x.org", deployment.ago(9)))
    await organization.submit(out("others@x.org", deployment.ago(9)), group_id=other)
    await organization.submit(out("all@x.org", deployment.ago(9)), all_groups=True)
    await organization.submit(back("own@x.org", deployment.ago(5)))
    default = organization.default_group
    assert addresses(await organization.feed(group_id=default)) == ["all@x.org", "own@x.org"]
    assert addresses(await organization.feed(group_id=other)) == ["others@x.org", "all@x.org"]
    assert addresses(await organization.feed()) == ["others@x.org", "all@x.org", "own@x.org"]
    people = ["own@x.org", "others@x.org", "all@x.org"]
    assert addresses(await organization.look_up(*people, group_id=other)) == ["others@x.org", "all@x.org"]


@in_loop
async def test_records_of_a_retired_group_stay(deployment: OptOutDeployment) -> None:
    """They are read with the organization's others, under the group's id."""
    organization = await deployment.new_organization()
    other = await organization.new_group("Reminders")
    await organization.submit(out("a@x.org"), group_id=other)
    await retire_group(ADMINISTRATOR, deployment.database, deployment.clock, group_id=other)
    assert [record.group_id for record in await organization.feed()] == [other]
    assert [record.group_id for record in records(await organization.look_up("a@x.org"))] == [other]


async def groups_in_turn(deployment: OptOutDeployment, pattern: str) -> tuple[Organization, str]:
    """Store records of the default group (d), another one (o) and all groups (a) in this order.

    Return the other group's id too.
    """
    organization = await deployment.new_organization()
    other = await organization.new_group("Reminders")
    for number, group in enumerate(pattern):
        item = out(f"p{number}@x.org", deployment.ago(9))
        await organization.submit(item, group_id=other if group == "o" else None, all_groups=group == "a")
    return organization, other


@in_loop
async def test_a_page_of_a_group_examines_a_bounded_number(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be empty while there is more; its cursor is at the last record examined."""
    monkeypatch.setattr(module, "MAX_EXAMINED", 6)
    monkeypatch.setattr(module, "_EXAMINED_AT_ONCE", 2)
    organization, other = await groups_in_turn(deployment, "ddddddd" + "ddddado" + "ddd")
    pages = [page async for page in organization.pages(group_id=other)]
    assert [(addresses(page), page.has_more) for page in pages] == [
        ([], True),
        (["p11@x.org"], True),
        (["p13@x.org"], False),
    ]
    assert addresses(await organization.follow(pages[-1].next_cursor, group_id=other)) == []
    await organization.submit(out("q@x.org"), group_id=other)
    assert addresses(await organization.follow(pages[-1].next_cursor, group_id=other)) == ["q@x.org"]


def test_a_page_of_a_group_examines_at_most_50_000_records() -> None:
    """Reading in slices does not exceed the bound."""
    assert MAX_EXAMINED == 50_000
    assert MAX_EXAMINED % module._EXAMINED_AT_ONCE == 0


PATTERNS = st.text("dddoa", max_size=12)


def test_a_group_reads_every_record_whatever_the_bounds(
    shared_database: SharedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any order of groups, any page size, any bound: each record once, in order, none skipped."""

    @settings(max_examples=EXAMPLES[shared_database.database.kind])
    @given(PATTERNS, st.integers(1, 5), st.integers(1, 4), st.integers(1, 3))
    def any_bounds(pattern: str, limit: int, at_once: int, parts: int) -> None:
        monkeypatch.setattr(module, "_EXAMINED_AT_ONCE", at_once)
        monkeypatch.setattr(module, "MAX_EXAMINED", at_once * parts)
        deployment = OptOutDeployment.on(shared_database)

        async def read() -> None:
            organization, other = await groups_in_turn(deployment, pattern)
            pages = [page async for page in organization.pages(limit=limit, group_id=other)]
            found = [record.address for page in pages for record in records(page)]
            assert found == numbered([n for n, group in enumerate(pattern) if group in "oa"])
            assert all(len(records(page)) <= limit for page in pages)
            # A page examines at most this many records, so fewer pages cannot have examined all of them.
            assert len(pages) >= len(pattern) / (at_once * parts)

        deployment.run(read())

    any_bounds()


@pytest.mark.parametrize("is_in_group", [False, True])
@in_loop
async def test_writes_during_a_page_belong_to_the_next_page(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch, is_in_group: bool
) -> None:
    """They come between head and records, or between two slices: nothing is skipped or out of order."""
    monkeypatch.setattr(module, "_EXAMINED_AT_ONCE", 2)
    organization = await filled(deployment, 5)
    all_rows = deployment.database.all
    writes = iter(
        [
            [back("p4@x.org", deployment.ago(40)), out("q@x.org", deployment.ago(5))],
            [back("p2@x.org", deployment.ago(40))],
        ]
    )

    async def written() -> None:
        if batch := next(writes, None):
            await organization.submit(*batch)

    async def late_all(query: Any, **values: Any) -> Any:
        if query.name in ("records_after", "records_of_group"):
            await written()
        return await all_rows(query, **values)

    monkeypatch.setattr(deployment.database, "all", late_all)
    group_id = organization.default_group if is_in_group else None
    pages = [page async for page in organization.pages(limit=3, group_id=group_id)]
    assert next(writes, None) is None
    pages.append(await organization.follow(pages[-1].next_cursor, group_id=group_id))
    read = [record for page in pages for record in records(page)]
    seqs = [record.seq for record in read]
    assert seqs == sorted(set(seqs))
    latest = {record.address: record for record in read}
    assert sorted(latest.values(), key=lambda record: record.seq) == await organization.feed()


@in_loop
async def test_a_cursor_past_the_head_does_not_go_back(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record written after the page began may be on it, and comes only once. The head is that of the records."""
    monkeypatch.setattr(module, "_EXAMINED_AT_ONCE", 2)
    organization = await filled(deployment, 2)
    one = deployment.database.one
    late = iter([[out("q0@x.org"), out("q1@x.org")]])

    async def late_one(query: Any, **values: Any) -> Any:
        if query.name == "seq_after" and (batch := next(late, None)):
            await organization.submit(*batch)
        return await one(query, **values)

    monkeypatch.setattr(deployment.database, "one", late_one)
    page = await organization.follow(group_id=organization.default_group)
    assert (addresses(page), page.has_more) == (["p0@x.org", "p1@x.org", "q0@x.org", "q1@x.org"], False)
    late = iter([[out("q2@x.org")]])
    named = RequestedTarget(org_slug=organization.slug, group_id=organization.default_group)
    followed = await module.follow(
        organization.partner, deployment.stores, CHANNELS["email"], named, limit=9, cursor=page.next_cursor
    )
    assert (addresses(followed.page), followed.feed.head_seq, followed.position) == (["q2@x.org"], 5, 4)
    page = followed.page
    assert addresses(await organization.follow(page.next_cursor, group_id=organization.default_group)) == []


# Look-ups


@in_loop
async def test_a_look_up_answers_for_exactly_these_addresses(deployment: OptOutDeployment) -> None:
    """Ordered by `seq`, in one page; `looked_up` has the canonical form of every address in the order asked."""
    organization = await filled(deployment, 5)
    asked = ["p3@x.org", " P1@X.ORG", "nobody@x.org", "p3@x.org"]
    page = await organization.look_up(*asked)
    assert addresses(page) == ["p1@x.org", "p3@x.org"]
    assert page.looked_up == ["p3@x.org", "p1@x.org", "nobody@x.org", "p3@x.org"]
    assert (page.next_cursor, page.has_more) == (None, False)


@in_loop
async def test_a_look_up_finds_the_records_of_every_group(deployment: OptOutDeployment) -> None:
    """It keeps to its own channel."""
    organization, _ = await groups_in_turn(deployment, "doa")
    await organization.submit(out("p0@x.org"), all_groups=True)
    assert len(records(await organization.look_up("p0@x.org"))) == 2
    sms = organization.on("sms")
    await sms.submit(out("+44 (0)20 7946 0018"))
    assert addresses(await sms.look_up("+442079460018")) == ["+442079460018"]
    assert addresses(await organization.on("phone").look_up("+442079460018")) == []


@pytest.mark.parametrize(("channel", "address", "names_plus"), [
    ("email", "nobody", False),
    ("email", "", False),
    ("sms", " 12025550123", True),
    ("phone", " 12025550123", True),
    ("phone", "12025550123", False),
    ("sms", "+1202555012x", False),
])  # fmt: skip
@in_loop
async def test_a_bad_address_is_reported_without_repeating_it(
    deployment: OptOutDeployment, channel: str, address: str, names_plus: bool
) -> None:
    """If a phone number begins with a space, the text says to send + as %2B."""
    organization = await deployment.new_organization(channel)
    with pytest.raises(BadRequest) as refusal:
        await organization.look_up("+12025550123" if channel != "email" else "a@x.org", address)
    assert refusal.value.extra == {"parameter": "address"}
    assert ("%2B" in refusal.value.text) is names_plus
    assert not address.strip() or address.strip() not in refusal.value.text


@in_loop
async def test_reading_writes_nothing(deployment: OptOutDeployment) -> None:
    """Except the row of a feed that nobody has followed before."""
    organization = await filled(deployment, 3)
    before, commits = await organization.stored(), deployment.database.counts.commits
    await organization.feed(limit=2)
    await organization.feed(limit=2, group_id=organization.default_group)
    await organization.look_up("p1@x.org")
    database: Database = deployment.database
    assert database.counts.commits == commits
    assert await organization.stored() == before

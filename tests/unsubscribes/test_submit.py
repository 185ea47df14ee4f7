"""Submitting a batch: what is stored, what it costs, and what happens when others write in between.

docs/interface.md section D6. test_precedence.py tests which act wins.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stoplist.db import Unit
from stoplist.errors import InvalidItem
from stoplist.proof.feed_states import compare_states
from stoplist.unsubscribes import storing
from stoplist.unsubscribes.model import BadItem, Submission
from tests.builders import execute
from tests.constants import DAY_MS, DAY_S
from tests.deployment import in_loop
from tests.unsubscribes.partner import (
    OptOutDeployment,
    Organization,
    Sent,
    addresses,
    back,
    heard_all,
    listening,
    out,
    records,
    results,
)

MAX_STATEMENTS = 8
# Small batches share a commit, large ones do not; the last one is processed in several slices.
SIZES = [4, 160, 1_200]


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "pooled"])
def module_database_url(request: pytest.FixtureRequest) -> str:
    """An empty database; the tests also run on PostgreSQL through PgBouncer."""
    url: str = request.getfixturevalue(f"module_{request.param}_url")
    return url


def counts(answer: Submission) -> tuple[int, int, int, int]:
    return answer.created, answer.updated, answer.unchanged, answer.outranked


async def mixed(organization: Organization, size: int) -> list[Sent]:
    """Return a batch of which each quarter creates, updates, leaves unchanged with a later act, or is outranked."""
    ago = organization.deployment.ago
    people = [f"p{n}@x.org" for n in range(size)]
    known = [out(people[n], ago(50)) for n in range(size) if n % 4]
    for at in range(0, len(known), 1000):
        await organization.submit(*known[at : at + 1000])
    acts = [
        lambda who: out(who, ago(9)),
        lambda who: back(who, ago(8)),
        lambda who: out(who, ago(7)),
        lambda who: back(who, ago(60)),
    ]
    return [acts[n % 4](people[n]) for n in range(size)]


def written_meanwhile(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch, other: Callable[[], Awaitable[Any]]
) -> None:
    """Run `other` before the next unit of work begins."""
    write = deployment.database.write

    async def late(unit: Unit[Any], **options: Any) -> Any:
        monkeypatch.setattr(deployment.database, "write", write)
        await other()
        return await write(unit, **options)

    monkeypatch.setattr(deployment.database, "write", late)


# What is kept


@in_loop
async def test_a_submission_records_its_sender_and_changes(deployment: OptOutDeployment) -> None:
    """One row: the actor, its request and source, the time, the counts, and the changes it made."""
    organization = await deployment.new_organization()
    await organization.submit(*(out(f"{name}@x.org", deployment.ago(50)) for name in "abc"))
    deployment.clock.advance(1)
    answer = await organization.submit(
        back("a@x.org", deployment.ago(40)),
        BadItem("is no item"),
        out("b@x.org", deployment.ago(45)),
        back("c@x.org", deployment.ago(5_000)),
        out("d@x.org", deployment.ago(40)),
        out("e@x.org", deployment.ago(40)),
        is_lenient=True,
    )
    assert (answer.received, counts(answer)) == (6, (2, 1, 1, 1))
    rows = {row["submission_id"]: row for row in await organization.rows("submissions", "submission_id")}
    assert len(rows) == 2
    partner = organization.partner
    assert rows[str(answer.submission_id)] == {
        "feed_id": organization.feed_id,
        "submission_id": answer.submission_id,
        "group_no": 1,
        "actor_kind": "client",
        "actor_id": partner.id,
        "request_id": partner.request_id,
        "source_ip": partner.source_ip,
        "received_ms": deployment.now_ms,
        "received": 6,
        "created": 2,
        "updated": 1,
        "unchanged": 1,
        "outranked": 1,
        "rejected": 1,
        "first_seq": 4,
        "last_seq": 6,
    }


@in_loop
async def test_a_submission_that_moved_only_latest_acts_has_no_changes(deployment: OptOutDeployment) -> None:
    """It has an id, because something was stored; but followers read nothing, and no day counts it."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org", deployment.ago(50)))
    before = await organization.stored()
    answer = await organization.submit(out("a@x.org", deployment.ago(40)), all_groups=False)
    after = await organization.stored()
    (row,) = [row for row in after["submissions"] if row["submission_id"] == answer.submission_id]
    assert (row["unchanged"], row["first_seq"], row["last_seq"]) == (1, None, None)
    assert after["feeds"][0]["head_seq"] == 1
    for table in ("feed_days", "unsubscribe_versions"):
        assert after[table] == before[table]


@in_loop
async def test_a_record_sent_again_by_another_is_confirmed(deployment: OptOutDeployment) -> None:
    """A reversal leaves such records alone. Neither the sender's own repetition nor the same batch counts."""
    at = deployment.ago(50)

    async def is_confirmed(*batches: tuple[str, list[Sent]]) -> bool:
        """Return the flag after these batches of these senders; the first batch creates the record."""
        organization = await deployment.new_organization()
        other = await organization.new_partner()
        for by, items in batches:
            await organization.submit(*items, by=other if by == "other" else organization.partner)
        (row,) = await organization.rows("unsubscribes", "seq")
        return bool(row["is_confirmed"])

    first = ("self", [out("a@x.org", at)])
    assert not await is_confirmed(first)
    assert not await is_confirmed(first, first)
    assert not await is_confirmed(("self", [out("a@x.org", at), out("a@x.org", deployment.ago(40))]))
    assert await is_confirmed(first, ("other", first[1]))
    assert await is_confirmed(first, ("self", [out("a@x.org", deployment.ago(40))]))
    assert await is_confirmed(first, ("self", [out("a@x.org", deployment.ago(60))]))
    assert await is_confirmed(first, ("self", [back("a@x.org", at)]))
    assert await is_confirmed(first, ("other", [back("a@x.org", deployment.ago(60))]))
    assert not await is_confirmed(first, ("other", first[1]), ("self", [back("a@x.org", deployment.ago(40))]))
    both = [back("a@x.org", deployment.ago(40)), back("a@x.org", deployment.ago(30))]
    assert not await is_confirmed(first, ("other", first[1]), ("self", both))


@in_loop
async def test_any_opt_out_wins_if_no_act_is_known(deployment: OptOutDeployment) -> None:
    """The reversal of a new record leaves none; a resubscription is then the first known act."""
    organization = await deployment.new_organization()
    people = ("a@x.org", "b@x.org", "c@x.org")
    await organization.submit(*(back(who, deployment.ago(50)) for who in people))
    forget = "UPDATE unsubscribes SET latest_act_ms = NULL WHERE feed_id = :feed_id"
    await execute(deployment.database, forget, feed_id=organization.feed_id)
    old = deployment.ago(10_000_000)
    answer = await organization.submit(out(people[0], old), back(people[1], old), out(people[2]))
    assert [result for result, _ in results(answer)] == ["updated", "unchanged", "updated"]
    rows = {row["address"]: row["latest_act_ms"] for row in await organization.rows("unsubscribes", "seq")}
    assert rows == {
        people[0]: deployment.now_ms - 10_000_000,
        people[1]: deployment.now_ms - 10_000_000,
        people[2]: deployment.now_ms,
    }


@in_loop
async def test_daily_counts_sum_up_to_the_current_records(deployment: OptOutDeployment) -> None:
    """A change on another day removes its record from the count of the earlier day."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org", deployment.ago(9), reason="bounce"), out("b@x.org", deployment.ago(9)))
    deployment.clock.advance(DAY_S)
    await organization.submit(
        back("a@x.org", deployment.ago(5)),
        back("b@x.org", deployment.ago(5)),
        out("b@x.org", deployment.ago(4), reason="legal"),
    )
    day = deployment.now_ms // DAY_MS
    days = [tuple(row.values())[1:] for row in await organization.rows("feed_days", "day, status, reason")]
    assert days == [
        (day - 1, "unsubscribed", "bounce", 1, 1),
        (day - 1, "unsubscribed", "unsubscribe", 1, 1),
        (day, "resubscribed", "consent", 2, 1),
        (day, "unsubscribed", "bounce", 0, -1),
        (day, "unsubscribed", "legal", 1, 1),
        (day, "unsubscribed", "unsubscribe", 0, -1),
    ]


# What is answered


@in_loop
async def test_a_minimal_answer_is_the_same_without_its_items(deployment: OptOutDeployment) -> None:
    """The same is stored."""
    organization = await deployment.new_organization()
    a, b = out("a@x.org", deployment.ago(9)), out("b@x.org", deployment.ago(9))
    answer = await organization.submit(a, BadItem("is no item"), b, is_lenient=True, is_minimal=True)
    assert not isinstance(answer.items, list)
    assert [error.item_index for error in answer.item_errors] == [1]  # type: ignore[union-attr]
    assert (answer.received, counts(answer)) == (3, (2, 0, 0, 0))
    assert addresses(await organization.feed()) == ["a@x.org", "b@x.org"]


@in_loop
async def test_every_bad_item_is_listed_and_nothing_stored(deployment: OptOutDeployment) -> None:
    """All or nothing, also across the parts in which a large batch is read."""
    organization = await deployment.new_organization()
    await organization.follow()  # which opens the feed
    before = await organization.stored()
    items = [out(f"p{n}@x.org" if n % 700 else "nobody") for n in range(3_000)]
    with pytest.raises(InvalidItem) as refusal:
        await organization.submit(*items)
    errors = refusal.value.extra["item_errors"]
    assert [error.item_index for error in errors] == [0, 700, 1_400, 2_100, 2_800]
    assert (refusal.value.extra["item_index"], refusal.value.extra["item_error"]) == (0, errors[0].item_error)
    assert "nobody" not in f"{refusal.value.text}{errors}"
    assert await organization.stored() == before


@in_loop
async def test_a_lenient_batch_without_a_good_item_stores_nothing(deployment: OptOutDeployment) -> None:
    """Still answered with 200."""
    organization = await deployment.new_organization()
    await organization.follow()
    before = await organization.stored()
    answer = await organization.submit(BadItem("no"), out("nobody"), is_lenient=True)
    assert (answer.submission_id, answer.received, counts(answer)) == (None, 2, (0, 0, 0, 0))
    assert (answer.items, len(answer.item_errors)) == ([], 2)  # type: ignore[arg-type]
    assert await organization.stored() == before


@in_loop
async def test_a_batch_of_10_000_items_is_stored_whole(deployment: OptOutDeployment) -> None:
    """Numbers are in the order of the items, and each address has one record."""
    organization = await deployment.new_organization()
    answer = await organization.submit(*(out(f"p{n % 9_999}@x.org", deployment.ago(n % 7)) for n in range(10_000)))
    assert counts(answer) == (9_999, 0, 1, 0)
    assert [item.item_index for item in answer.items] == list(range(10_000))  # type: ignore[union-attr]
    found = await organization.feed(limit=10_000)
    assert addresses(found) == [f"p{n}@x.org" for n in range(9_999)]
    assert [record.seq for record in found] == list(range(1, 10_000))


# What it costs


@pytest.mark.parametrize("size", SIZES)
@in_loop
async def test_a_submission_takes_eight_statements_at_any_size(deployment: OptOutDeployment, size: int) -> None:
    """BEGIN and COMMIT included, with items that create, update, leave unchanged and are outranked."""
    organization = await deployment.new_organization()
    batch = await mixed(organization, size)
    with listening(deployment.database) as heard:
        answer = await organization.submit(*batch)
        await heard_all()
    assert set(counts(answer)) == {size // 4}
    assert len(heard.in_transaction) == MAX_STATEMENTS, heard.in_transaction
    assert Counter(text for text in heard if text.startswith("COMMIT")).total() == 1


@pytest.mark.parametrize("size", SIZES)
@in_loop
async def test_a_submission_takes_ten_statements_after_a_concurrent_write(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """The records are read again behind the lock, all at once, and the state of the feed is set again."""
    organization = await deployment.new_organization()
    batch = await mixed(organization, size)
    with listening(deployment.database) as heard:

        async def other() -> None:
            await organization.submit(out("somebody@x.org", deployment.ago(9)))
            await heard_all()
            heard.clear()

        written_meanwhile(deployment, monkeypatch, other)
        answer = await organization.submit(*batch)
        await heard_all()
    assert set(counts(answer)) == {size // 4}
    assert len(heard.in_transaction) == MAX_STATEMENTS + 2, heard.in_transaction


@pytest.mark.parametrize("size", SIZES)
@in_loop
async def test_new_records_take_fewer_statements(deployment: OptOutDeployment, size: int) -> None:
    """The lock, a thousand records each, the submission and the counts; there is nothing to supersede or touch."""
    organization = await deployment.new_organization()
    await organization.submit(out("somebody@x.org", deployment.ago(9)))
    with listening(deployment.database) as heard:
        await organization.submit(*(out(f"p{n}@x.org", deployment.ago(9)) for n in range(size)))
        await heard_all()
    assert len(heard.in_transaction) == 6 + (size - 1) // 1_000, heard.in_transaction


@pytest.mark.parametrize("size", SIZES)
@in_loop
async def test_a_batch_that_changes_nothing_takes_no_lock(deployment: OptOutDeployment, size: int) -> None:
    """The same batch again, and a batch too old to matter."""
    organization = await deployment.new_organization()
    batch = [out(f"p{n}@x.org", deployment.ago(9)) for n in range(size)]
    await organization.submit(*batch)
    await organization.submit(*(back(item["address"], deployment.ago(90)) for item in batch))
    commits = deployment.database.counts.commits
    before = await organization.stored()
    with listening(deployment.database) as heard:
        again = await organization.submit(*batch)
        old = await organization.submit(*(back(item["address"], deployment.ago(90)) for item in batch))
        await heard_all()
    assert (again.submission_id, again.unchanged) == (None, size)
    assert (old.submission_id, old.outranked) == (None, size)
    assert [text for text in heard if not text.startswith("SELECT")] == []
    assert deployment.database.counts.commits == commits
    assert await organization.stored() == before


# Concurrent writes


@pytest.mark.parametrize("padding", [0, 200])
@in_loop
async def test_a_batch_is_decided_again_after_a_concurrent_write(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch, padding: int
) -> None:
    """The answer, the records and the versions are those of one batch after the other."""
    organization = await deployment.new_organization()
    await organization.submit(back("old@x.org", deployment.ago(50)))
    pads = [out(f"pad{n}@x.org", deployment.ago(9)) for n in range(padding)]

    async def other() -> None:
        await organization.submit(
            out("old@x.org", deployment.ago(3)),
            out("new@x.org", deployment.ago(3)),
            by=await organization.new_partner(),
        )

    written_meanwhile(deployment, monkeypatch, other)
    answer = await organization.submit(
        out("old@x.org", deployment.ago(9)),
        back("new@x.org", deployment.ago(2)),
        back("old@x.org", deployment.ago(4)),
        *pads,
    )
    assert results(answer)[:3] == [
        ("unchanged", "unsubscribed"),
        ("updated", "resubscribed"),
        ("outranked", "unsubscribed"),
    ]
    feed = await organization.feed()
    assert addresses(feed) == ["old@x.org", "new@x.org", *(pad["address"] for pad in pads)]
    seqs = [record.seq for record in feed]
    assert seqs == sorted(set(seqs))
    versions = await organization.rows("unsubscribe_versions", "seq")
    assert [(row["address"], row["status"]) for row in versions] == [
        ("old@x.org", "resubscribed"),
        ("new@x.org", "unsubscribed"),
    ]
    (submission,) = [
        row
        for row in await organization.rows("submissions", "submission_id")
        if row["submission_id"] == answer.submission_id
    ]
    assert (submission["first_seq"], submission["last_seq"]) == (seqs[1], seqs[-1])


@pytest.mark.parametrize("most_later", [1, 1_000])
@pytest.mark.parametrize("is_of_batch", [True, False])
@pytest.mark.parametrize("size", [1, 200])
@in_loop
async def test_new_people_are_compared_with_those_stored_meanwhile(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch, size: int, is_of_batch: bool, most_later: int
) -> None:
    """One of the batch is found behind the lock, whether its records are read again or those stored since."""
    monkeypatch.setattr(storing, "_MAX_LATER_RECORDS", most_later)
    organization = await deployment.new_organization()
    group = await organization.new_group("Other")

    async def other() -> None:
        await organization.submit(out("p0@x.org", deployment.ago(9)), group_id=group)
        await organization.submit(out("p0@x.org" if is_of_batch else "other@x.org", deployment.ago(9)))

    written_meanwhile(deployment, monkeypatch, other)
    answer = await organization.submit(*(out(f"p{n}@x.org", deployment.ago(9)) for n in range(size)))
    found = int(is_of_batch)
    assert counts(answer) == (size - found, 0, found, 0)
    assert len(await organization.feed()) == size + 2 - found
    assert organization.feed_id not in (await compare_states(deployment.database)).differing


@in_loop
async def test_nothing_is_stored_if_another_request_stored_the_same(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers reserved under the lock are given back."""
    organization = await deployment.new_organization()
    batch = [out("a@x.org", deployment.ago(9)), out("b@x.org", deployment.ago(9))]

    async def other() -> None:
        await organization.submit(*batch)

    written_meanwhile(deployment, monkeypatch, other)
    answer = await organization.submit(*batch)
    assert (answer.submission_id, counts(answer)) == (None, (0, 0, 2, 0))
    assert len(await organization.rows("submissions", "submission_id")) == 1
    page = await organization.follow(limit=2)
    assert (len(records(page)), page.has_more) == (2, False)
    cursor = page.next_cursor
    assert addresses(await organization.feed(limit=2)) == ["a@x.org", "b@x.org"]
    await organization.submit(out("c@x.org", deployment.ago(9)))
    assert addresses(await organization.feed(cursor)) == ["c@x.org"]


@in_loop
async def test_two_requests_can_open_a_feed_at_once(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One inserts the row, the other finds it."""
    organization = await deployment.new_organization()
    one = deployment.database.one

    async def as_if_there_were_none(query: Any, **values: Any) -> Any:
        row = await one(query, **values)
        if query.name == "feed" and row is None:
            monkeypatch.setattr(deployment.database, "one", one)
            await organization.submit(out("a@x.org", deployment.ago(9)))
        return row

    monkeypatch.setattr(deployment.database, "one", as_if_there_were_none)
    assert addresses(await organization.follow()) in ([], ["a@x.org"])
    assert len(await organization.rows("feeds", "feed_id")) == 1
    assert addresses(await organization.follow()) == ["a@x.org"]

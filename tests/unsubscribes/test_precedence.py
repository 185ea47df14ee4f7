"""Precedence of acts, the answers and the stored rows: any batches, on the product and on a naive model.

docs/interface.md section D6; when a record counts as sent again: section D11.
"""

import re
from collections import Counter
from typing import Any, NamedTuple, Self

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from stoplist.actor import Actor
from stoplist.errors import InvalidItem
from stoplist.unsubscribes.model import ItemResult, Submission
from stoplist.unsubscribes.precedence import later_act_wins
from tests.deployment import SharedDatabase, in_loop
from tests.unsubscribes.naive import NEVER, NaiveFeed, NaiveItem, NaiveRecord, NaiveResult
from tests.unsubscribes.partner import (
    OptOutDeployment,
    Organization,
    Sent,
    addresses,
    as_shown,
    back,
    out,
    records,
    results,
    shown,
    written,
)

SPELLINGS = {
    "ann@example.org": "ann@example.org",
    " Ann@Example.ORG\t": "ann@example.org",
    "bob@example.org": "bob@example.org",
    "bob+x@example.org": "bob+x@example.org",
}
BAD_ADDRESS = "nobody at all"
GROUPS = ("default", "other", None)
EXAMPLES = {"sqlite": 120, "postgresql": 30}


class SentBatch(NamedTuple):
    """One batch: its sender, its group, and how much later than the previous one it is sent."""

    sender: int
    group: str | None
    is_lenient: bool
    pause_ms: int
    items: list[tuple[str, str, int | None, str | None, str | None]]
    """Spelling, status, when (milliseconds from the first batch on; None: not said), reason, source."""


@st.composite
def _items(draw: st.DrawFn) -> tuple[str, str, int | None, str | None, str | None]:
    spelling = draw(st.sampled_from([*SPELLINGS, *SPELLINGS, BAD_ADDRESS]))
    source = draw(st.sampled_from([None, None, "a form"]))
    if draw(st.booleans()):
        return spelling, "resubscribed", draw(st.integers(-3, 0)), draw(st.sampled_from([None, "consent"])), source
    when = draw(st.sampled_from([-3, -2, -1, 0, 60_000, 300_000, None]))
    return spelling, "unsubscribed", when, draw(st.sampled_from([None, None, "complaint"])), source


BATCHES = st.lists(
    st.builds(
        SentBatch,
        sender=st.integers(0, 1),
        group=st.sampled_from(GROUPS),
        is_lenient=st.booleans(),
        pause_ms=st.sampled_from([0, 0, 1, 60_000, 86_400_000]),
        items=st.lists(_items(), min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=6,
)


class ComparedOrganization:
    """An organization and its naive counterpart; two partners send the same batches to both."""

    def __init__(self, organization: Organization, senders: list[Actor], other: str) -> None:
        self.organization, self.senders = organization, senders
        self.group_ids = {"default": organization.default_group, "other": other, None: None}
        self.group_numbers = {"default": 1, "other": 2, None: 0}
        self.model = NaiveFeed()
        self.first_ms = organization.deployment.now_ms
        self.ids: dict[tuple[str, str | None], str] = {}
        self.submission_ids: dict[int, str] = {}
        self.rejected: dict[int, int] = {}

    @classmethod
    async def made(cls, deployment: OptOutDeployment) -> Self:
        organization = await deployment.new_organization()
        senders = [organization.partner, await organization.new_partner()]
        return cls(organization, senders, await organization.new_group("Reminders"))

    async def submit(self, asked: SentBatch) -> None:
        """Submit one batch to both and assert that the answers match."""
        deployment = self.organization.deployment
        deployment.clock.advance(asked.pause_ms / 1000)
        bad = [index for index, item in enumerate(asked.items) if item[0] == BAD_ADDRESS]
        if bad and not asked.is_lenient:
            await self.refused(asked, bad)
            return
        kept = [(index, item) for index, item in enumerate(asked.items) if index not in bad]
        expected, has_writes = self.model.submit(
            self.senders[asked.sender].id,
            asked.group,
            [self.naive(item) for _, item in kept],
            deployment.now_ms,
        )
        answer = await self.sent(asked)
        self.check_answer(answer, asked, [index for index, _ in kept], expected)
        assert (answer.submission_id is not None) == has_writes
        if answer.submission_id is not None:
            assert re.fullmatch("sub_[0-9A-Za-z]{22}", answer.submission_id)
            assert answer.submission_id not in self.submission_ids.values()
            self.submission_ids[self.model.batches] = answer.submission_id
            self.rejected[self.model.batches] = len(bad)

    async def refused(self, asked: SentBatch, bad: list[int]) -> None:
        before = await self.organization.stored()
        with pytest.raises(InvalidItem) as refusal:
            await self.sent(asked)
        extra = refusal.value.extra
        assert [error.item_index for error in extra["item_errors"]] == bad
        assert (extra["item_index"], extra["item_error"]) == (bad[0], extra["item_errors"][0].item_error)
        after = await self.organization.stored()
        assert {**after, "feeds": None} == {**before, "feeds": None}

    async def sent(self, asked: SentBatch) -> Submission:
        is_named = asked.group == "other"
        return await self.organization.submit(
            *(self.item(*item) for item in asked.items),
            by=self.senders[asked.sender],
            group_id=self.group_ids["other"] if is_named else None,
            all_groups=asked.group is None,
            is_lenient=asked.is_lenient,
        )

    def item(self, spelling: str, status: str, when: int | None, reason: str | None, source: str | None) -> Sent:
        occurred_at = None if when is None else written(self.first_ms + when)
        return {
            "address": spelling,
            "status": status,
            "occurred_at": occurred_at,
            "reason": reason,
            "source": source,
        }

    def naive(self, item: tuple[str, str, int | None, str | None, str | None]) -> NaiveItem:
        spelling, status, when, reason, source = item
        return NaiveItem(SPELLINGS[spelling], status, None if when is None else self.first_ms + when, reason, source)

    def check_answer(
        self, answer: Submission, asked: SentBatch, indexes: list[int], expected: list[NaiveResult]
    ) -> None:
        assert isinstance(answer.items, list)
        assert (answer.org_slug, answer.group_id) == (self.organization.slug, self.group_ids[asked.group])
        assert [item.item_index for item in answer.items] == indexes
        for item, result in zip(answer.items, expected, strict=True):
            self.check_result(item, asked.group, result)
        counts = Counter(result.result for result in expected)
        assert (answer.created, answer.updated, answer.unchanged, answer.outranked) == tuple(
            counts[name] for name in ("created", "updated", "unchanged", "outranked")
        )
        assert answer.received == len(asked.items)
        if asked.is_lenient:
            assert isinstance(answer.item_errors, list)
            assert len(answer.item_errors) == len(asked.items) - len(indexes)
        else:
            assert not isinstance(answer.item_errors, list)

    def check_result(self, item: ItemResult, group: str | None, expected: NaiveResult) -> None:
        assert (item.address, item.result, item.status) == (expected.address, expected.result, expected.status)
        latest_act_at = None if expected.latest_act_ms is None else shown(expected.latest_act_ms)
        assert (item.latest_act_at or None) == latest_act_at
        assert re.fullmatch("uns_[0-9A-Za-z]{22}", item.id)
        assert self.ids.setdefault((expected.address, group), item.id) == item.id

    async def check_reading(self) -> None:
        """Assert that followers and look-ups return each record once, at its latest change."""
        everything = [self.as_shown(record) for record in self.model.in_order()]
        assert [as_dict(record) for record in await self.organization.feed(limit=3)] == everything
        looked_up = await self.organization.look_up(*SPELLINGS)
        assert [as_dict(record) for record in records(looked_up)] == everything
        for name in ("default", "other"):
            expected = [self.as_shown(r) for r in self.model.in_order() if r.group in (name, None)]
            group_id = self.group_ids[name]
            assert [as_dict(r) for r in await self.organization.feed(limit=2, group_id=group_id)] == expected
            found = await self.organization.look_up(*SPELLINGS, group_id=group_id)
            assert [as_dict(record) for record in records(found)] == expected

    def as_shown(self, record: NaiveRecord) -> dict[str, Any]:
        record_id, group_id = self.ids[record.address, record.group], self.group_ids[record.group]
        return as_shown(record, record_id=record_id, org_slug=self.organization.slug, group_id=group_id)

    async def check_store(self) -> None:
        """Assert the rest of the store: the latest acts, every superseded state, the senders, and the daily counts."""
        stored = await self.organization.stored()
        assert [
            (row["latest_act_ms"], bool(row["is_confirmed"]), row["submission_id"]) for row in stored["unsubscribes"]
        ] == [
            (_known(record.latest_act_ms), record.is_sent_again, self.submission_ids[record.now.batch])
            for record in self.model.in_order()
        ]
        assert [tuple(row.values()) for row in stored["unsubscribe_versions"]] == [
            (
                self.organization.feed_id,
                record.address,
                self.group_numbers[record.group],
                state.seq,
                state.status,
                state.reason,
                state.source,
                state.occurred_ms,
                state.recorded_ms,
                self.submission_ids[state.batch],
                _known(state.latest_act_ms),
            )
            for record, state in self.model.superseded()
        ]
        assert sorted(row["submission_id"] for row in stored["submissions"]) == sorted(self.submission_ids.values())
        self.check_days(stored["feed_days"])
        seqs = [row["seq"] for table in ("unsubscribes", "unsubscribe_versions") for row in stored[table]]
        assert sorted(seqs) == list(range(1, self.model.seq + 1))
        assert [row["head_seq"] for row in stored["feeds"]] in ([], [self.model.seq])

    def check_days(self, days: list[dict[str, Any]]) -> None:
        changes = {(row["day"], row["status"], row["reason"]): row["changes"] for row in days if row["changes"]}
        assert changes == self.model.changes()
        standing: Counter[tuple[str, str]] = Counter()
        for row in days:
            standing[row["status"], row["reason"]] += row["standing"]
        assert +standing == self.model.standing()
        assert min(standing.values(), default=0) >= 0


def as_dict(record: Any) -> dict[str, Any]:
    """Return the fields that are answered."""
    found = {name: getattr(record, name) for name in record.__struct_fields__}
    return {name: value for name, value in found.items() if value is not UNSET}


def test_any_batches_agree_with_the_naive_model(shared_database: SharedDatabase) -> None:
    """Answers, records, versions, counts and latest acts."""

    @settings(max_examples=EXAMPLES[shared_database.database.kind])
    @given(BATCHES)
    @example([SentBatch(0, "default", False, 0, [("ann@example.org", "unsubscribed", -3, None, None)] * 2)])
    def any_batches(batches: list[SentBatch]) -> None:
        deployment = OptOutDeployment.on(shared_database)

        async def both() -> None:
            organization = await ComparedOrganization.made(deployment)
            for asked in batches:
                await organization.submit(asked)
            await organization.check_reading()
            await organization.check_store()

        deployment.run(both())

    any_batches()


ACTS = st.lists(st.tuples(st.sampled_from(["unsubscribed", "resubscribed"]), st.integers(1, 4)), min_size=1, max_size=6)


def test_the_order_of_the_same_acts_does_not_matter(shared_database: SharedDatabase) -> None:
    """The person's last act wins, an opt-out on a tie; later answers are the same too."""

    @settings(max_examples=EXAMPLES[shared_database.database.kind])
    @given(ACTS, st.data())
    def any_order(acts: list[tuple[str, int]], data: st.DataObject) -> None:
        deployment = OptOutDeployment.on(shared_database)

        async def in_two_orders() -> None:
            shuffled = data.draw(st.permutations(acts))
            cut = data.draw(st.integers(0, len(acts)))
            ends = [await self_told(deployment, batches) for batches in ([acts], [shuffled[:cut], shuffled[cut:]])]
            last = max(when for _, when in acts)
            is_out = ("unsubscribed", last) in acts
            for status, later, tie, latest_act_at in ends:
                assert status == ("unsubscribed" if is_out else "resubscribed")
                assert later == [("outranked" if is_out else "unchanged", status)]
                assert tie == [("unchanged" if is_out else "updated", "unsubscribed")]
                assert latest_act_at == shown(deployment.now_ms - 1000 + last)

        deployment.run(in_two_orders())

    any_order()


async def self_told(
    deployment: OptOutDeployment, batches: list[list[tuple[str, int]]]
) -> tuple[str, list[tuple[str, str]], list[tuple[str, str]], object]:
    """Return the status of a new organization's record after these batches, and later answers.

    The answers are those to acts of the last act's time.
    """
    organization = await deployment.new_organization()
    began_ms = deployment.now_ms - 1000
    last = max(when for batch in batches for _, when in batch)
    for batch in batches:
        if batch:
            await organization.submit(
                *({"address": "ann@x.org", "status": s, "occurred_at": written(began_ms + w)} for s, w in batch)
            )
    (record,) = await organization.feed()
    at_last = written(began_ms + last)
    later = results(await organization.submit(back("ann@x.org", at_last)))
    tie = results(await organization.submit(out("ann@x.org", at_last)))
    (outranked,) = (await organization.submit(back("ann@x.org", at_last))).items  # type: ignore[misc]
    return record.status, later, tie, outranked.latest_act_at


# The table of precedence, and the sentences of section D6 one by one


@pytest.mark.parametrize(
    ("status", "latest_act_ms", "offered", "offered_ms", "wins"),
    [
        ("unsubscribed", 5, "unsubscribed", 6, False),
        ("resubscribed", 5, "resubscribed", 6, False),
        ("unsubscribed", 5, "resubscribed", 6, True),
        ("unsubscribed", 5, "resubscribed", 5, False),
        ("unsubscribed", 5, "resubscribed", 4, False),
        ("resubscribed", 5, "unsubscribed", 6, True),
        ("resubscribed", 5, "unsubscribed", 5, True),
        ("resubscribed", 5, "unsubscribed", 4, False),
        ("resubscribed", None, "unsubscribed", -1, True),
        ("resubscribed", 0, "unsubscribed", 0, True),
        ("unsubscribed", 0, "resubscribed", -1, False),
    ],
)
def test_the_later_act_wins(
    status: str, latest_act_ms: int | None, offered: str, offered_ms: int, *, wins: bool
) -> None:
    """On a tie the opt-out wins; if no act is known, any opt-out does."""
    assert later_act_wins(status, latest_act_ms, offered, offered_ms) is wins


@in_loop
async def test_an_opt_out_without_a_time_always_takes_effect(deployment: OptOutDeployment) -> None:
    """Its time is now, or the latest known act if that lies ahead of our clock."""
    organization = await deployment.new_organization()
    await organization.submit(back("ann@x.org", deployment.ago(0)))
    deployment.clock.jump(-60)
    assert results(await organization.submit(out("ann@x.org"))) == [("updated", "unsubscribed")]
    (record,) = await organization.feed()
    assert record.occurred_at == shown(deployment.now_ms + 60_000)
    assert record.recorded_at == record.occurred_at


@in_loop
async def test_an_unchanged_item_moves_only_the_latest_act(deployment: OptOutDeployment) -> None:
    """The record keeps its time, reason, source and seq, but a resubscription between the two acts is outranked."""
    organization = await deployment.new_organization()
    await organization.submit(out("ann@x.org", deployment.ago(10), reason="complaint", source="first"))
    before = await organization.feed()
    again = await organization.submit(out("ann@x.org", deployment.ago(5), reason="bounce", source="second"))
    assert results(again) == [("unchanged", "unsubscribed")]
    assert await organization.feed() == before
    outranked = await organization.submit(back("ann@x.org", deployment.ago(7)))
    assert results(outranked) == [("outranked", "unsubscribed")]
    assert outranked.items[0].latest_act_at == shown(deployment.now_ms - 5)  # type: ignore[index]
    assert results(await organization.submit(back("ann@x.org", deployment.ago(4)))) == [("updated", "resubscribed")]


@in_loop
async def test_a_resubscription_of_an_unknown_address_is_recorded(deployment: OptOutDeployment) -> None:
    """So that a late, older opt-out does not override it."""
    organization = await deployment.new_organization()
    assert results(await organization.submit(back("ann@x.org", deployment.ago(5)))) == [("created", "resubscribed")]
    assert results(await organization.submit(out("ann@x.org", deployment.ago(6)))) == [("outranked", "resubscribed")]
    assert [record.status for record in await organization.feed()] == ["resubscribed"]


@in_loop
async def test_groups_channels_and_organizations_are_independent(deployment: OptOutDeployment) -> None:
    """The all-groups record and those of groups are separate too."""
    organization = await deployment.new_organization("sms")
    other = await organization.new_group("Reminders")
    number = "+12025550123"
    await organization.submit(out(number, deployment.ago(9)))
    await organization.submit(out(number, deployment.ago(9)), group_id=other)
    answer = await organization.submit(out(number, deployment.ago(9)), all_groups=True)
    assert (results(answer), answer.group_id) == ([("created", "unsubscribed")], None)
    assert results(await organization.on("phone").submit(out(number, deployment.ago(9)))) == [
        ("created", "unsubscribed")
    ]
    await organization.submit(back(number, deployment.ago(8)), group_id=other)
    shown_now = [(record.group_id, record.status, record.seq) for record in await organization.feed()]
    assert shown_now == [
        (organization.default_group, "unsubscribed", 1),
        (None, "unsubscribed", 3),
        (other, "resubscribed", 4),
    ]
    assert len({record.id for record in await organization.feed()}) == 3
    assert [record.seq for record in await organization.on("phone").feed()] == [1]
    assert addresses(await (await deployment.new_organization("sms")).look_up(number)) == []


@pytest.mark.parametrize("has_time", [True, False])
@in_loop
async def test_a_repeated_batch_has_no_visible_effect(deployment: OptOutDeployment, has_time: bool) -> None:
    """Each item is `unchanged` or `outranked`; with times nothing is stored, so there is no submission."""
    organization = await deployment.new_organization()
    when = deployment.ago(5) if has_time else None
    batch = [out("ann@x.org", when), back("bob@x.org", deployment.ago(3)), out("bob@x.org", deployment.ago(4))]
    first = await organization.submit(*batch)
    assert results(first)[2] == ("outranked", "resubscribed")
    before = await organization.feed()
    for _ in range(2):
        deployment.clock.advance(60)
        again = await organization.submit(*batch)
        assert {result for result, _ in results(again)} == {"unchanged", "outranked"}
    assert await organization.feed() == before
    assert [item.id for item in again.items] == [item.id for item in first.items]  # type: ignore[union-attr]
    if has_time:
        deployment.clock.advance(60)
        assert (await organization.submit(*batch)).submission_id is None


def _known(latest_act_ms: int | None) -> int | None:
    """Return what the store holds as the latest act: nothing if no act is known."""
    return None if latest_act_ms == NEVER else latest_act_ms

"""Submissions and reversals in any order, on the product and on a naive model.

Source: docs/interface.md sections D6 and D11.
"""

from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from stoplist.actor import ADMINISTER, Actor
from stoplist.records.reversal import count_reversal, left_out, reverse
from stoplist.records.submissions import find_submission, records_of_submission
from stoplist.unsubscribes.model import Record
from tests.builders import ADMINISTRATOR
from tests.deployment import SharedDatabase
from tests.records.naive_reversal import NaiveReversal, ReversibleFeed, counts_of
from tests.unsubscribes.naive import naive_state
from tests.unsubscribes.partner import OptOutDeployment, as_shown
from tests.unsubscribes.test_precedence import BAD_ADDRESS, GROUPS, SPELLINGS, ComparedOrganization, SentBatch, as_dict

EXAMPLES = {"sqlite": 120, "postgresql": 15}
ADMINISTRATORS = (ADMINISTRATOR, Actor(kind="person", id="ann@example.org", may=frozenset((ADMINISTER,))))


class Undo(NamedTuple):
    """A reversal: of which submission (counted from the last one), by whom, and how much later."""

    back: int
    by: int
    is_expected: bool
    pause_ms: int


@st.composite
def _items(draw: st.DrawFn) -> tuple[str, str, int | None, str | None, str | None]:
    spelling = draw(st.sampled_from([*SPELLINGS] * 3 + [BAD_ADDRESS]))
    source = draw(st.sampled_from([None, "a form"]))
    if draw(st.booleans()):
        return spelling, "resubscribed", draw(st.integers(-3, 0)), None, source
    return spelling, "unsubscribed", draw(st.sampled_from([-4, -3, -2, -1, 0, 60_000, None])), None, source


PAUSES = st.sampled_from([0, 0, 1, 60_000, 86_400_000])
STEPS = st.lists(
    st.one_of(
        st.builds(
            SentBatch,
            sender=st.integers(0, 1),
            group=st.sampled_from(["default", *GROUPS]),
            is_lenient=st.just(True),
            pause_ms=PAUSES,
            items=st.lists(_items(), min_size=1, max_size=5),
        ),
        st.builds(Undo, back=st.integers(0, 3), by=st.integers(0, 1), is_expected=st.booleans(), pause_ms=PAUSES),
        st.just("again"),
    ),
    min_size=2,
    max_size=9,
)


class ReversibleOrganization(ComparedOrganization):
    """An organization and its naive counterpart, whose submissions can be reversed in both."""

    model: ReversibleFeed

    def __init__(self, *made: Any) -> None:
        super().__init__(*made)
        self.model = ReversibleFeed()
        self.cursor: str | None = None
        self.followed: dict[str, Record] = {}

    async def undo(self, undo: Undo) -> None:
        """Reverse in both; the outcome and the reported counts must match."""
        if not self.submission_ids:
            return
        deployment = self.organization.deployment
        deployment.clock.advance(undo.pause_ms / 1000)
        batch = sorted(self.submission_ids)[-1 - undo.back % len(self.submission_ids)]
        submission_id, actor = self.submission_ids[batch], ADMINISTRATORS[undo.by]
        counted = await count_reversal(actor, deployment.stores, submission_id)
        before = self.model.would_reverse(batch)
        assert counts_of(counted) == before.counts
        await self.check_left_out(submission_id, before)
        naively = self.model.reverse(batch, actor.id, deployment.now_ms)
        done = await reverse(actor, deployment.stores, submission_id, expected=counted if undo.is_expected else None)
        assert counts_of(done) == naively.counts
        assert done.taken_back == len(naively.taken_back)
        assert (done.submission_id is not None) == bool(naively.restored or naively.corrected)
        if done.submission_id is not None:
            self.submission_ids[self.model.batches] = done.submission_id
        await self.check_left_out(submission_id, naively)

    async def check_left_out(self, submission_id: str, naively: NaiveReversal) -> None:
        """Assert that each record left out has its reason, before and after the reversal, in pages of two."""
        found, after_seq = [], None
        stores = self.organization.deployment.stores
        while some := await left_out(ADMINISTRATOR, stores, submission_id, after_seq=after_seq, limit=2):
            found += some
            after_seq = some[-1].seq
        assert [(one.seq, one.address, one.why, one.status, one.reason, one.now_seq) for one in found] == [
            (
                one.state.seq,
                one.record.address,
                one.why,
                one.record.now.status,
                one.record.now.reason,
                one.record.now.seq,
            )
            for one in naively.left_out
        ]

    async def check_submissions(self) -> None:
        """Assert that each submission lists its states and its reversals."""
        database = self.organization.deployment.database
        for batch, submission_id in self.submission_ids.items():
            shown = await find_submission(ADMINISTRATOR, database, submission_id)
            by = [self.submission_ids[late] for early, late in self.model.reversals if early == batch]
            assert [each for each, _ in shown.reversed] == by
            took_back = [self.submission_ids[early] for early, late in self.model.reversals if late == batch]
            assert [each for each in [shown.reverses] if each] == took_back
            made = [(record, state) for record in self.model.records for state in record.states if state.batch == batch]
            made.sort(key=lambda pair: pair[1].seq)
            found = await records_of_submission(ADMINISTRATOR, database, submission_id)
            assert [
                (one.seq, one.address, one.status, one.reason, one.result, one.is_current, one.is_confirmed)
                for one in found
            ] == [
                (
                    state.seq,
                    record.address,
                    state.status,
                    state.reason,
                    "created" if state is record.states[0] else "updated",
                    state is record.now,
                    state is record.now and record.is_sent_again,
                )
                for record, state in made
            ]
            assert shown.changes == len(made)

    async def follow(self) -> None:
        """Read the changes since the last time: a follower has everything, reversals included."""
        async for page in self.organization.pages(self.cursor, limit=2):
            assert isinstance(page.items, list)
            self.followed |= {record.id: record for record in page.items}
            self.cursor = page.next_cursor
            assert (page.state is None) is page.has_more
        assert page.state == naive_state(self.followed.values(), self.model.seq)
        known = sorted(self.followed.values(), key=lambda record: record.seq)
        assert [as_dict(record) for record in known] == [
            as_shown(
                record,
                record_id=self.ids[record.address, record.group],
                org_slug=self.organization.slug,
                group_id=self.group_ids[record.group],
            )
            for record in self.model.in_order()
        ]


def sent(*items: tuple[str, str, int | None], sender: int = 0, group: str | None = "default") -> SentBatch:
    """Return a batch in short form."""
    return SentBatch(sender, group, True, 1, [(*item, None, None) for item in items])


OUT, IN, ANN, BOB = "unsubscribed", "resubscribed", "ann@example.org", "bob@example.org"
UNDO = Undo(0, 0, True, 1)


def test_any_submissions_and_reversals_agree_with_the_model(shared_database: SharedDatabase) -> None:
    """Each step compares records, versions, numbers, counts and latest acts."""

    @settings(max_examples=EXAMPLES[shared_database.database.kind])
    @given(STEPS)
    @example([sent((ANN, OUT, -3)), UNDO, sent((ANN, OUT, -4)), UNDO, sent((ANN, OUT, -4))])
    @example([sent((ANN, OUT, -3)), UNDO, UNDO, UNDO, Undo(3, 0, True, 1)])
    @example([sent((ANN, OUT, -3)), sent((ANN, IN, -2), (ANN, OUT, -1), sender=1), UNDO, "again"])
    @example([sent((ANN, OUT, -4)), sent((ANN, OUT, -3), (ANN, IN, -2), sender=1), UNDO, sent((ANN, IN, -3))])
    @example(
        [sent((ANN, OUT, -3)), sent((ANN, IN, -2), (BOB, OUT, -3), sender=1), sent((BOB, OUT, -2)), Undo(1, 0, True, 1)]
    )
    @example([sent((ANN, IN, -3)), sent((ANN, OUT, -2), sender=1), "again", UNDO])
    @example([sent((ANN, IN, -3)), sent((ANN, OUT, -2), sender=1), sent((ANN, IN, -3)), UNDO, Undo(1, 0, True, 1)])
    def any_steps(steps: list[Any]) -> None:
        deployment = OptOutDeployment.on(shared_database)

        async def both() -> None:
            organization = await ReversibleOrganization.made(deployment)
            last: SentBatch | None = None
            for step in steps:
                if isinstance(step, Undo):
                    await organization.undo(step)
                elif isinstance(step, SentBatch):
                    await organization.submit(step)
                    last = step
                elif last is not None:  # a partner repeats its last batch
                    await organization.submit(last)
                await organization.check_store()
                await organization.follow()
            await organization.check_reading()
            await organization.check_submissions()

        deployment.run(both())

    any_steps()

"""Submissions, reversals and erasures in any order, on the product and on a naive model.

Source: docs/interface.md sections D6, D11 and D13.
"""

from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from stoplist.records.reversal import count_reversal, left_out, reverse
from tests.builders import ADMINISTRATOR
from tests.deployment import SharedDatabase
from tests.records.naive_reversal import counts_of
from tests.records.test_reversal_model import IN, OUT, sent
from tests.rights.eraser import assert_states_are_right, digest_in, erase
from tests.rights.naive_erasure import ErasableFeed
from tests.unsubscribes.naive import NaiveRecord
from tests.unsubscribes.partner import OptOutDeployment, records
from tests.unsubscribes.test_precedence import ComparedOrganization, SentBatch

EXAMPLES = {"sqlite": 40, "postgresql": 6}
ANN, BOB = "ann@example.org", "bob@example.org"


class TakeBack(NamedTuple):
    """A reversal of a submission, counted from the last one."""

    back: int


class Erase(NamedTuple):
    """The erasure of a person."""

    address: str


_ITEMS = st.one_of(
    st.tuples(st.sampled_from([ANN, BOB]), st.just(IN), st.integers(-3, 0), st.none(), st.just("a form")),
    st.tuples(
        st.sampled_from([ANN, BOB]), st.just(OUT), st.sampled_from([-4, -2, 0, 60_000, None]), st.none(), st.just("x")
    ),
)
STEPS = st.lists(
    st.one_of(
        st.builds(
            SentBatch,
            sender=st.integers(0, 1),
            group=st.sampled_from(["default", "other", None]),
            is_lenient=st.just(True),
            pause_ms=st.sampled_from([0, 60_000]),
            items=st.lists(_ITEMS, min_size=1, max_size=4),
        ),
        st.builds(TakeBack, back=st.integers(0, 3)),
        st.builds(Erase, address=st.sampled_from([ANN, ANN, BOB])),
    ),
    min_size=2,
    max_size=9,
)


class ErasableOrganization(ComparedOrganization):
    """An organization and its naive counterpart, whose persons can be erased in both."""

    model: ErasableFeed

    def __init__(self, *made: Any) -> None:
        super().__init__(*made)
        self.model = ErasableFeed()

    async def erase(self, address: str) -> None:
        """Erase in both."""
        expected = self.model.erase(address, self.organization.deployment.now_ms)
        done = await erase(self.organization, address)
        assert [one.records for one in done] == ([expected] if expected else [])

    async def undo(self, undo: TakeBack) -> None:
        """Reverse in both; counts and what is left out must match."""
        if not self.submission_ids:
            return
        stores = self.organization.deployment.stores
        batch = sorted(self.submission_ids)[-1 - undo.back % len(self.submission_ids)]
        submission_id = self.submission_ids[batch]
        before = self.model.would_reverse(batch)
        assert counts_of(await count_reversal(ADMINISTRATOR, stores, submission_id)) == before.counts
        naively = self.model.reverse(batch, ADMINISTRATOR.id, self.organization.deployment.now_ms)
        done = await reverse(ADMINISTRATOR, stores, submission_id)
        assert (counts_of(done), done.taken_back) == (naively.counts, len(naively.taken_back))
        if done.submission_id is not None:
            self.submission_ids[self.model.batches] = done.submission_id
        others = await left_out(ADMINISTRATOR, stores, submission_id)
        assert sorted((one.now_seq, one.why) for one in others) == sorted(
            (one.record.now.seq, one.why) for one in naively.left_out
        )

    async def check(self) -> None:
        """Assert what followers and look-ups see, every version, and the state of the feed."""
        expected = [await self._shown(record) for record in self.model.in_order()]
        seen = [
            (one.id, one.address, one.address_digest or None, one.status, one.reason, one.source, one.seq)
            for one in await self.organization.feed(limit=2)
        ]
        assert seen == expected
        looked_up = {one.id: one for one in records(await self.organization.look_up(ANN, BOB))}
        assert looked_up.keys() == {one[0] for one in expected}
        for record in self.model.records:
            found = looked_up[self.ids[record.address, record.group]]
            assert (found.address, found.status) == (record.address, record.now.status)
        stored = await self.organization.stored()
        for row in (*stored["unsubscribes"], *stored["unsubscribe_versions"]):
            address = row["address"]
            assert address.startswith("erased:") or self.model.erased.isdisjoint({(address, self._group(row))})
            assert not (address.startswith("erased:") and row["source"])
        await assert_states_are_right(self.organization)

    def _group(self, row: dict[str, Any]) -> str | None:
        return next(name for name, number in self.group_numbers.items() if number == row["group_no"])

    async def _shown(self, record: NaiveRecord) -> tuple[Any, ...]:
        key, now = (record.address, record.group), record.now
        digest = await digest_in(self.organization, record.address) if key in self.model.erased else None
        address = None if digest else record.address
        return self.ids[key], address, digest, now.status, now.reason, now.source, now.seq


def test_any_history_agrees_with_the_model(shared_database: SharedDatabase) -> None:
    """Each step compares records, look-ups, reversals, versions and the state."""

    @settings(max_examples=EXAMPLES[shared_database.database.kind])
    @given(STEPS)
    @example([sent((ANN, OUT, -4)), Erase(ANN), sent((ANN, OUT, -4)), TakeBack(0), Erase(ANN)])
    @example(
        [sent((ANN, OUT, -4)), Erase(ANN), sent((ANN, IN, -2), (ANN, OUT, -1)), TakeBack(0), TakeBack(0), TakeBack(2)]
    )
    @example([sent((ANN, OUT, -4)), Erase(ANN), sent((ANN, IN, -2), group=None), TakeBack(0), sent((ANN, OUT, 0))])
    @example(
        [sent((ANN, OUT, -4)), Erase(ANN), sent((ANN, OUT, -2), (ANN, IN, -1), group=None), Erase(ANN), TakeBack(0)]
    )
    def any_steps(steps: list[Any]) -> None:
        deployment = OptOutDeployment.on(shared_database)

        async def both() -> None:
            compared = await ErasableOrganization.made(deployment)
            for step in steps:
                if isinstance(step, TakeBack):
                    await compared.undo(step)
                elif isinstance(step, Erase):
                    await compared.erase(step.address)
                else:
                    await compared.submit(step)
                await compared.check()

        deployment.run(both())

    any_steps()

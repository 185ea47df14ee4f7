"""Imports, batches and reversals in any order, on the product and on a naive model.

Source: docs/interface.md sections D6, D11 and D12.
"""

from collections import Counter
from typing import NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from stoplist.lists.imports.model import STOPPED, Import, ImportCounts
from stoplist.lists.imports.reversal import count_import_reversal, reverse_import
from stoplist.lists.imports.run import run_import
from tests.builders import ADMINISTRATOR
from tests.deployment import SharedDatabase
from tests.lists.imports.importer import Importer, list_of
from tests.records.naive_reversal import ReversibleFeed
from tests.unsubscribes.agreement import disagreements
from tests.unsubscribes.naive import NaiveItem, NaiveRecord
from tests.unsubscribes.partner import OptOutDeployment, Organization, back, out, shown, written

EXAMPLES = {"sqlite": 120, "postgresql": 20}
NAMES = ("ann", "bob", "eve")
BAD = "no address"


class SentActs(NamedTuple):
    """A partner's batch for one group or all: name, status and time of each act, in minutes from the beginning."""

    acts: list[tuple[str, str, int]]
    is_for_group: bool


class ImportedFile(NamedTuple):
    """A file for one group or all.

    Name and time of each row (None: missing); rows to a part; when the list was true; after how many parts the import
    is stopped and resumed.
    """

    rows: list[tuple[str, int | None]]
    rows_per_part: int
    is_for_group: bool
    as_of: int | None
    stops_after: int


class TakenBack(NamedTuple):
    """A reversal of an import, counted from the latest."""

    back: int


class NaiveImports(ReversibleFeed):
    """The naive feed, in which an import is a sender that confirms nothing of its own."""

    def _is_repetition(self, record: NaiveRecord, sender: str, item: NaiveItem, occurred_ms: int) -> bool:
        if sender.startswith("import") and (sender, item.status) == (record.now.sender, record.now.status):
            return True
        return super()._is_repetition(record, sender, item, occurred_ms)


TIMES = st.integers(-6, 0)
STEPS = st.lists(
    st.one_of(
        st.builds(
            SentActs,
            st.lists(
                st.tuples(st.sampled_from(NAMES), st.sampled_from(["unsubscribed", "resubscribed"]), TIMES),
                min_size=1,
                max_size=3,
            ),
            st.booleans(),
        ),
        st.builds(
            ImportedFile,
            st.lists(
                st.tuples(st.sampled_from([*NAMES, BAD]), st.one_of(TIMES, st.sampled_from([None, 5]))), max_size=7
            ),
            st.integers(1, 4),
            st.booleans(),
            st.one_of(st.none(), TIMES),
            st.integers(1, 3),
        ),
        st.builds(TakenBack, st.integers(0, 2)),
    ),
    min_size=1,
    max_size=7,
)


class ComparedImports:
    """An organization with a group, and its naive counterpart."""

    def __init__(self, organization: Organization, group_id: str) -> None:
        self.organization, self.group_id = organization, group_id
        self.model = NaiveImports()
        self.began_ms = organization.deployment.now_ms
        self.imports: list[tuple[Import, list[int]]] = []

    async def step(self, step: SentActs | ImportedFile | TakenBack) -> None:
        """Do the step in both."""
        self.organization.deployment.clock.advance(1)
        if isinstance(step, SentActs):
            await self.send(step)
        elif isinstance(step, ImportedFile):
            await self.take(step)
        elif self.imports:
            await self.take_back(*self.imports[-1 - step.back % len(self.imports)])

    async def send(self, sent: SentActs) -> None:
        organization, now_ms = self.organization, self.organization.deployment.now_ms
        items = [
            (out if status == "unsubscribed" else back)(f"{name}@example.org", written(self.at_ms(minutes)))
            for name, status, minutes in sent.acts
        ]
        group_id = self.group_id if sent.is_for_group else None
        await organization.submit(*items, group_id=group_id, all_groups=group_id is None)
        naive = [NaiveItem(f"{name}@example.org", status, self.at_ms(minutes)) for name, status, minutes in sent.acts]
        self.model.submit("partner", group_id, naive, now_ms)

    async def take(self, file: ImportedFile) -> None:
        """Check and import the file, with a stop; the counts of all of it and of the model must match."""
        now_ms, group_id = self.organization.deployment.now_ms, self.group_id if file.is_for_group else None
        as_of_ms = None if file.as_of is None else self.at_ms(file.as_of)
        importer = Importer(self.organization, file.rows_per_part, group_id, as_of_ms)
        rows = [
            (name if name == BAD else f"{name}@example.org", None if minutes is None else self.at_ms(minutes))
            for name, minutes in file.rows
        ]
        check = await importer.check(list_of(rows))
        imported = await self.take_with_stop(importer, list_of(rows), file.stops_after)
        expected, batches = ImportCounts(rows=len(rows)), []
        for at in range(0, len(rows), file.rows_per_part):
            items = self.dated(rows[at : at + file.rows_per_part], as_of_ms, now_ms, expected)
            found, _ = self.model.submit(f"import {len(self.imports)}", group_id, items, now_ms)
            for each in found:
                setattr(expected, each.result, getattr(expected, each.result) + 1)
            batches.append(self.model.batches)
        assert imported.counts == expected
        addresses = [address for address, at_ms in rows if address != BAD and (at_ms, as_of_ms) != (None, None)]
        repeated = len(addresses) - len(set(addresses))
        assert check.counts == msgspec.structs.replace(expected, repeated=repeated)
        self.imports.append((imported, batches))

    async def take_with_stop(self, importer: Importer, content: bytes, stops_after: int) -> Import:
        """Import the file; after some parts stop, and resume a second later, with the moments of the beginning."""
        run, stored = await importer.begin(), list[int]()

        async def count(now: Import) -> None:
            stored.append(now.row_count)

        imported = await run_import(
            run, await importer.reader(content, run), is_stopping=lambda: len(stored) >= stops_after, after_part=count
        )
        if imported.state == STOPPED:
            self.organization.deployment.clock.advance(1)
            run = await importer.resume(imported.import_id)
            imported = await run_import(run, await importer.reader(content, run))
        return imported

    def dated(
        self, rows: list[tuple[str, int | None]], as_of_ms: int | None, now_ms: int, counts: ImportCounts
    ) -> list[NaiveItem]:
        """Return the rows that are taken, with their times, by the rules of section D12 one by one."""
        items = []
        for address, at_ms in rows:
            if at_ms is None and as_of_ms is None:
                counts.bad = dict(Counter(counts.bad) + Counter(["missing_time"]))
                continue
            taken_ms = at_ms if at_ms is not None else as_of_ms
            assert taken_ms is not None
            if at_ms is None or at_ms > now_ms:
                counts.redated += 1
                taken_ms = min(taken_ms, now_ms)
            elif as_of_ms is not None and at_ms > as_of_ms:
                counts.dated_after_as_of += 1
            if address == BAD:
                counts.bad = dict(Counter(counts.bad) + Counter(["invalid_address"]))
                continue
            items.append(NaiveItem(address, "unsubscribed", taken_ms, reason="import"))
        return items

    async def take_back(self, imported: Import, batches: list[int]) -> None:
        """Reverse the import in both, the newest part first."""
        stores = self.organization.deployment.stores
        counted = await count_import_reversal(ADMINISTRATOR, stores, imported)
        assert (counted.restored, counted.corrected, counted.superseded, counted.confirmed) == self.would_reverse(
            batches
        )
        *_, total = [each async for each in reverse_import(ADMINISTRATOR, stores, imported.import_id, expected=counted)]
        counts = [0, 0, 0, 0]
        for batch in reversed(batches):
            found = self.model.reverse(batch, ADMINISTRATOR.id, self.organization.deployment.now_ms)
            counts = [one + other for one, other in zip(counts, found.counts, strict=True)]
        assert [total.restored, total.corrected, total.superseded, total.confirmed] == counts

    def would_reverse(self, batches: list[int]) -> tuple[int, ...]:
        """Return the sum of what the model would reverse of each part, as the records are now."""
        return tuple(
            map(sum, zip(*(self.model.would_reverse(batch).counts for batch in batches), (0, 0, 0, 0), strict=True))
        )

    async def check(self) -> None:
        """Assert that both have the same records."""
        assert [
            (each.seq, each.address, each.status, each.reason, each.occurred_at)
            for each in await self.organization.feed()
        ] == [
            (each.now.seq, each.address, each.now.status, each.now.reason, shown(each.now.occurred_ms))
            for each in self.model.in_order()
        ]
        assert not await disagreements(self.organization.deployment.database)

    def at_ms(self, minutes: int) -> int:
        return self.began_ms + minutes * 60_000


def test_the_product_and_a_naive_model_agree(shared_database: SharedDatabase) -> None:
    deployment = OptOutDeployment.on(shared_database)

    @settings(max_examples=EXAMPLES[deployment.database.kind])
    @given(steps=STEPS)
    def agree(steps: list[SentActs | ImportedFile | TakenBack]) -> None:
        async def play() -> None:
            organization = await deployment.new_organization()
            compared = ComparedImports(organization, await organization.new_group("News"))
            for step in steps:
                await compared.step(step)
            await compared.check()

        deployment.run(play())

    agree()

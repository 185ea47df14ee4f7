"""Importing the rows of a file: each is taken exactly once, by the rules for any opt-out, whatever fails when."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest

from stoplist.actor import Actor
from stoplist.db import Unit
from stoplist.errors import Forbidden, Missing, Refused, StoreUnavailable
from stoplist.lists.imports import run as import_run
from stoplist.lists.imports.lifecycle import ImportTaken, discard_import
from stoplist.lists.imports.listing import find_import, list_imports
from stoplist.lists.imports.model import Import, ImportCounts
from stoplist.lists.imports.reversal import count_import_reversal, reverse_import, submissions_of
from stoplist.lists.imports.run import run_import
from stoplist.records.history import show_record
from stoplist.records.reversal import left_out
from stoplist.records.reversal_plan import Reversal
from stoplist.records.submissions import find_submission, records_of_submission
from stoplist.unsubscribes.channel import CHANNELS
from tests.builders import ADMINISTRATOR, STRANGER, audit_rows, opened
from tests.constants import DAY_MS
from tests.db.full_disk import two_free_pages
from tests.deployment import in_loop
from tests.fakes import FakeClock
from tests.lists.imports.importer import Importer, list_of, rows_of
from tests.unsubscribes.agreement import disagreements
from tests.unsubscribes.partner import OptOutDeployment, Organization, back, out
from tests.unsubscribes.people import admin, viewer


def results(counts: ImportCounts) -> tuple[int, int, int, int]:
    return counts.created, counts.updated, counts.unchanged, counts.outranked


async def statuses(organization: Organization) -> dict[str, str]:
    return {record.address or "": record.status for record in await organization.feed()}


async def undone(deployment: OptOutDeployment, imported: Import, **options: Any) -> Reversal:
    *_, total = [each async for each in reverse_import(ADMINISTRATOR, deployment.stores, imported.import_id, **options)]
    return total


@in_loop
async def test_each_part_is_a_submission(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    content = list_of([*rows_of(deployment, 7), ("not an address", deployment.now_ms)])
    imported = await Importer(organization).take(content)
    assert (imported.state, imported.counts.rows, imported.counts.bad) == ("done", 8, {"invalid_address": 1})
    assert results(imported.counts) == (7, 0, 0, 0)
    ids = await submissions_of(deployment.stores, imported)
    found = [await find_submission(ADMINISTRATOR, deployment.database, each) for each in ids]
    assert [(each.received, each.created, each.rejected) for each in found] == [(2, 1, 1), (3, 3, 0), (3, 3, 0)]
    assert {each.actor_id for each in found} == {ADMINISTRATOR.id}
    assert not await disagreements(deployment.database)
    assert await find_import(ADMINISTRATOR, deployment.database, imported.import_id) == imported


@in_loop
async def test_records_have_the_time_of_their_row(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    await organization.submit(
        back("later@example.org", deployment.ago(10)),
        back("earlier@example.org", deployment.ago(3 * DAY_MS)),
        all_groups=True,
    )
    at_ms = deployment.now_ms - DAY_MS
    imported = await Importer(organization).take(
        list_of([(f"{name}@example.org", at_ms) for name in ("later", "earlier", "new", "new")])
    )
    assert results(imported.counts) == (1, 1, 1, 1)
    assert await statuses(organization) == {
        "later@example.org": "resubscribed",
        "earlier@example.org": "unsubscribed",
        "new@example.org": "unsubscribed",
    }


@in_loop
async def test_an_import_is_in_the_audit(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    imported = await Importer(organization).take(list_of(rows_of(deployment, 2)))
    await undone(deployment, imported)
    actions = [row.action for row in await audit_rows(deployment.database) if row.target == imported.import_id]
    assert actions == ["import.begin", "import.end", "import.reverse"]


@in_loop
async def test_a_lost_answer_takes_no_row_twice(deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection breaks once before a commit, and once after it."""
    monkeypatch.setattr(import_run, "_RETRY_PAUSES_S", (0, 0, 0))
    organization = await deployment.new_organization()
    run = await Importer(organization).begin()
    write, failures = deployment.database.write, iter(["before", "after", "before", "before"])

    async def failing(unit: Unit[Any], **options: Any) -> Any:
        failure = next(failures, None)
        if failure == "before":
            raise StoreUnavailable("gone")
        result = await write(unit, **options)
        if failure == "after":
            raise StoreUnavailable("gone", is_uncertain=True)
        return result

    monkeypatch.setattr(deployment.database, "write", failing)
    imported = await run_import(run, await Importer(organization).reader(list_of(rows_of(deployment, 8))))
    assert (imported.state, results(imported.counts)) == ("done", (8, 0, 0, 0))
    assert len(await submissions_of(deployment.stores, imported)) == 3
    assert not await disagreements(deployment.database)


@in_loop
async def test_a_database_that_stays_away_stops_the_import(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_run, "_RETRY_PAUSES_S", (0, 0))
    organization = await deployment.new_organization()
    importer, content = Importer(organization), list_of(rows_of(deployment, 8))
    run = await importer.begin()
    await run.store(await first_part(importer, content))

    reader = await importer.reader(content, run)
    with monkeypatch.context() as patch:
        patch.setattr(deployment.database, "write", AsyncMock(side_effect=StoreUnavailable("away")))
        with pytest.raises(StoreUnavailable):
            await run_import(run, reader)
    resumed = await importer.resume(run.current.import_id)
    imported = await run_import(resumed, await importer.reader(content, resumed))
    assert (imported.state, results(imported.counts)) == ("done", (8, 0, 0, 0))


async def first_part(importer: Importer, content: bytes) -> Any:
    part = await (await importer.reader(content)).next_part()
    assert part is not None
    return part


@in_loop
async def test_who_lost_the_lease_stores_nothing(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    importer, content = Importer(organization), list_of(rows_of(deployment, 8))
    first = await importer.begin()
    await first.store(await first_part(importer, content))
    second = await importer.resume(first.current.import_id)
    before = await organization.stored()
    with pytest.raises(ImportTaken):
        await run_import(first, await importer.reader(content, first))
    assert await organization.stored() == before
    imported = await run_import(second, await importer.reader(content, second))
    assert (imported.state, results(imported.counts)) == ("done", (8, 0, 0, 0))


@in_loop
async def test_a_part_without_changes_moves_on(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    importer, content = Importer(organization), list_of(rows_of(deployment, 4))
    await importer.take(content)
    await importer.take(content)
    imported = await importer.take(content)
    assert (imported.row_count, results(imported.counts)) == (4, (0, 0, 4, 0))
    assert await submissions_of(deployment.stores, imported) == []


@in_loop
async def test_a_stop_comes_after_the_part_in_progress(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    importer, content = Importer(organization), list_of(rows_of(deployment, 8))
    run = await importer.begin()
    stopped = await run_import(run, await importer.reader(content, run), is_stopping=lambda: True)
    assert (stopped.state, stopped.row_count, stopped.lease_id) == ("stopped", 3, None)
    resumed = await importer.resume(stopped.import_id)
    imported = await run_import(resumed, await importer.reader(content, resumed))
    assert (imported.state, imported.counts.rows) == ("done", 8)


@in_loop
async def test_a_row_repeated_by_the_import_is_no_confirmation(deployment: OptOutDeployment) -> None:
    """It may have another time and be in another part."""
    organization = await deployment.new_organization()
    address = "twice@example.org"
    rows = [(address, deployment.now_ms - DAY_MS), *rows_of(deployment, 3), (address, deployment.now_ms - 5)]
    imported = await Importer(organization).take(list_of(rows))
    assert (await undone(deployment, imported)).corrected == 4
    assert set((await statuses(organization)).values()) == {"resubscribed"}


@in_loop
async def test_what_another_import_sends_again_stays(deployment: OptOutDeployment) -> None:
    """The other import may be by the same person, with the same time."""
    organization = await deployment.new_organization()
    importer, rows = Importer(organization), rows_of(deployment, 6)
    first = await importer.take(list_of(rows))
    await importer.take(list_of(rows[:2]))
    total = await undone(deployment, first)
    assert (total.corrected, total.confirmed) == (4, 2)


@in_loop
async def test_a_confirmation_by_an_import_writes_no_record(deployment: OptOutDeployment) -> None:
    """It writes the ranges of their numbers. A later act is written with its record."""
    organization = await deployment.new_organization()
    importer, rows = Importer(organization), rows_of(deployment, 8)
    await importer.take(list_of(rows))
    before = await organization.rows("unsubscribes", "seq")
    later = (rows[6][0], deployment.now_ms)
    await importer.take(list_of([rows[4], rows[0], rows[1], later, rows[5]]))
    after = await organization.rows("unsubscribes", "seq")
    assert [row["seq"] for row, former in zip(after, before, strict=True) if row != former] == [7]
    ranges = await organization.rows("confirmed_ranges", "last_seq")
    assert [(row["first_seq"], row["last_seq"]) for row in ranges] == [(1, 2), (5, 5), (6, 6)]


@in_loop
async def test_every_reader_knows_what_an_import_confirmed(deployment: OptOutDeployment) -> None:
    organization, stores = await deployment.new_organization(), deployment.stores
    importer, rows = Importer(organization), rows_of(deployment, 3)
    first = await importer.take(list_of(rows))
    await importer.take(list_of(rows[:2]))
    (submission_id,) = await submissions_of(stores, first)
    for seq, is_confirmed in ((1, True), (2, True), (3, False)):
        record = await show_record(
            ADMINISTRATOR, deployment.database, org_slug=organization.slug, channel=CHANNELS["email"], seq=seq
        )
        assert record.is_confirmed == is_confirmed
    changes = await records_of_submission(ADMINISTRATOR, deployment.database, submission_id)
    assert [change.is_confirmed for change in changes] == [True, True, False]
    others = await left_out(ADMINISTRATOR, stores, submission_id)
    assert [(one.seq, one.why) for one in others] == [(1, "confirmed"), (2, "confirmed")]
    expected = await count_import_reversal(ADMINISTRATOR, stores, first)
    assert (expected.corrected, expected.confirmed) == (1, 2)
    assert (await undone(deployment, first, expected=expected)).confirmed == 2


@in_loop
async def test_an_import_is_reversed_newest_part_first(deployment: OptOutDeployment) -> None:
    """A record that two parts changed, with a resubscription in between, returns to what it was."""
    organization = await deployment.new_organization()
    importer, address = Importer(organization, rows_per_part=1), "twice@example.org"
    content = list_of([(address, deployment.now_ms - DAY_MS), (address, deployment.now_ms - 5)])
    run = await importer.begin()
    await run.store(await first_part(importer, content))
    await organization.submit(back(address, deployment.ago(DAY_MS // 2)), all_groups=True)
    imported = await run_import(run, await importer.reader(content, run))
    assert results(imported.counts) == (1, 1, 0, 0)
    expected = await count_import_reversal(ADMINISTRATOR, deployment.stores, imported)
    total = await undone(deployment, imported, expected=expected)
    assert (total.restored, total.superseded) == (1, 1)
    assert await statuses(organization) == {address: "resubscribed"}
    assert (await find_import(ADMINISTRATOR, deployment.database, imported.import_id)).state == "reversed"
    assert (await undone(deployment, imported)).changes == 0


@in_loop
async def test_an_interrupted_reversal_goes_on(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    imported = await Importer(organization).take(list_of(rows_of(deployment, 8)))
    async for _ in reverse_import(ADMINISTRATOR, deployment.stores, imported.import_id):
        break
    found = await find_import(ADMINISTRATOR, deployment.database, imported.import_id)
    assert found.state == "reversing"
    with pytest.raises(Refused, match="is reversing"):
        await Importer(organization).resume(imported.import_id)
    assert (await undone(deployment, imported)).changes == 6
    assert set((await statuses(organization)).values()) == {"resubscribed"}


@in_loop
async def test_a_reversal_of_other_counts_is_refused(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    imported = await Importer(organization).take(list_of(rows_of(deployment, 4)))
    expected = await count_import_reversal(ADMINISTRATOR, deployment.stores, imported)
    await organization.submit(out("person-1@example.org"), all_groups=True)
    with pytest.raises(Refused, match="no longer hold"):
        await undone(deployment, imported, expected=expected)
    assert set((await statuses(organization)).values()) == {"unsubscribed"}


@in_loop
async def test_a_running_import_ends_when_discarded(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    importer, content = Importer(organization), list_of(rows_of(deployment, 8))
    run = await importer.begin()
    await run.store(await first_part(importer, content))
    discarded = await discard_import(ADMINISTRATOR, deployment.stores, run.current.import_id)
    assert (discarded.state, discarded.row_count) == ("discarded", 3)
    with pytest.raises(ImportTaken):
        await run_import(run, await importer.reader(content, run))
    assert (await undone(deployment, discarded)).corrected == 3


@in_loop
async def test_a_finished_import_stores_nothing_more(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    importer = Importer(organization)
    imported = await importer.take(list_of(rows_of(deployment, 2)))
    assert (await importer.resume(imported.import_id)).current == imported
    with pytest.raises(Refused, match="is done"):
        await discard_import(ADMINISTRATOR, deployment.stores, imported.import_id)


@pytest.mark.parametrize("change", [discard_import, find_import], ids=["discard", "find"])
@in_loop
async def test_strangers_see_no_import(deployment: OptOutDeployment, change: Callable[..., Awaitable[Any]]) -> None:
    organization = await deployment.new_organization()
    run = await Importer(organization).begin()
    store: Any = deployment.database if change is find_import else deployment.stores
    with pytest.raises(Missing):
        await change(STRANGER, store, run.current.import_id)
    assert run.current.import_id not in [each.import_id for each in await list_imports(STRANGER, deployment.database)]


@in_loop
async def test_viewers_only_see_imports(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    run = await Importer(organization).begin()
    person: Actor = viewer(organization)
    assert (await find_import(person, deployment.database, run.current.import_id)).org_slug == organization.slug
    with pytest.raises(Forbidden):
        await discard_import(person, deployment.stores, run.current.import_id)


@in_loop
async def test_administrators_alone_reverse_an_import(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    imported = await Importer(organization).take(list_of(rows_of(deployment, 2)))
    person = admin(organization)
    with pytest.raises(Forbidden):
        await count_import_reversal(person, deployment.stores, imported)
    with pytest.raises(Forbidden):
        await anext(reverse_import(person, deployment.stores, imported.import_id))
    assert await find_import(person, deployment.database, imported.import_id) == imported


@in_loop
async def test_a_check_counts_what_the_import_then_does(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    await organization.submit(
        back("later@example.org", deployment.ago(10)),
        back("twice@example.org", deployment.ago(3 * DAY_MS)),
        all_groups=True,
    )
    at_ms = deployment.now_ms - DAY_MS
    names = ("later", "twice", "new", "new", "twice", "other", "new")
    content = list_of([*((f"{name}@example.org", at_ms) for name in names), ("bad", at_ms)])
    before = await organization.stored()
    check = await Importer(organization).check(content)
    assert await organization.stored() == before
    assert (check.counts.repeated, [row.line for row in check.first_bad]) == (3, [9])
    imported = await Importer(organization).take(content)
    assert msgspec.structs.replace(check.counts, repeated=None) == imported.counts
    assert check.sha256 == imported.sha256


@in_loop
async def test_two_imports_into_one_feed_at_once_both_count(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    importer, rows = Importer(organization), rows_of(deployment, 9)
    one, other = await importer.begin(), await importer.begin()
    for _ in range(3):
        for run in (one, other):
            part = await (await importer.reader(list_of(rows), run)).next_part()
            assert part is not None
            await run.store(part)
    assert results(one.current.counts) == (9, 0, 0, 0)
    assert results(other.current.counts) == (0, 0, 9, 0)
    assert not await disagreements(deployment.database)


@in_loop
async def test_an_import_and_a_partners_batches_share_a_feed(deployment: OptOutDeployment) -> None:
    """Both run at the same time; each row and each item counts once."""
    organization = await deployment.new_organization()
    importer, rows = Importer(organization, rows_per_part=40), rows_of(deployment, 400)
    run = await importer.begin()

    async def send() -> int:
        created = 0
        for at in range(0, 600, 60):
            items = [out(f"person-{number}@example.org") for number in range(at, at + 60)]
            created += (await organization.submit(*items, all_groups=True)).created
        return created

    imported, sent = await asyncio.gather(run_import(run, await importer.reader(list_of(rows), run)), send())
    assert (imported.state, imported.counts.rows) == ("done", 400)
    assert imported.counts.created + imported.counts.unchanged == 400
    assert imported.counts.created + sent == 600
    assert not await disagreements(deployment.database)


def test_a_full_disk_stops_an_import(sqlite_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of its part is stored; with room again, it goes on."""
    monkeypatch.setattr(import_run, "_RETRY_PAUSES_S", (0,))

    async def fill() -> None:
        async with opened(sqlite_url) as database:
            deployment = OptOutDeployment(database, clock)
            organization = await deployment.new_organization()
            importer, content = Importer(organization, rows_per_part=500), list_of(rows_of(deployment, 1_000))
            run = await importer.begin()
            with two_free_pages(database), pytest.raises(StoreUnavailable):
                await run_import(run, await importer.reader(content, run))
            assert not await disagreements(database)
            resumed = await importer.resume(run.current.import_id)
            imported = await run_import(resumed, await importer.reader(content, resumed))
            assert (imported.state, results(imported.counts)) == ("done", (1_000, 0, 0, 0))

    asyncio.run(fill())

"""Uploaded files are checked, imported and reversed by servers; each row is taken exactly once, whatever dies when."""

import asyncio
import gzip
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace

from stoplist.actor import Actor
from stoplist.errors import Forbidden, Missing, Refused, StoreUnavailable
from stoplist.lists.imports.model import LEASE_MS, REVERSED, RUNNING, STOPPED, ImportCounts
from stoplist.lists.imports.part_reader import RejectedRow
from stoplist.lists.uploads import worker
from stoplist.lists.uploads.model import MAX_UNFINISHED, PIECE_BYTES, UPLOADED, UploadLimits, UploadOptions, WorkResult
from stoplist.lists.uploads.rejects import StoredRejects, forget_rejects, stored_rejects
from stoplist.lists.uploads.requests import (
    request_check,
    request_reversal,
    request_reversal_counts,
    resume_uploaded,
    stop_uploaded,
)
from stoplist.lists.uploads.status import find_status, list_statuses
from stoplist.lists.uploads.upload_end import KEPT_DAYS, delete_old_uploads, discard_upload
from stoplist.lists.uploads.upload_writer import UploadWriter
from stoplist.lists.uploads.uploads import unfinished_upload
from stoplist.lists.uploads.work import claim_next, end_work, renew_work
from stoplist.lists.uploads.worker import ImportWorker
from stoplist.records.reversal_plan import Reversal
from tests.builders import ADMINISTRATOR, STRANGER, audit_rows, execute, value
from tests.constants import DAY_S, PATIENCE_S
from tests.deployment import in_loop
from tests.lists.imports.importer import Importer, list_of, rows_of
from tests.lists.uploads.uploader import Uploader, with_all_rights, without_times
from tests.unsubscribes.partner import OptOutDeployment
from tests.unsubscribes.people import admin, viewer


async def kept(deployment: OptOutDeployment, table: str, import_id: str) -> int:
    query = f"SELECT COUNT(*) AS number FROM {table} WHERE import_id = :import_id"  # noqa: S608
    return int(await value(deployment.database, query, import_id=import_id))


@in_loop
async def test_an_upload_is_imported_as_a_file_is(deployment: OptOutDeployment) -> None:
    """Packed, in several pieces, with bad rows; afterwards the file is gone, and the bad rows are kept."""
    organization, other = await deployment.new_organization(), await deployment.new_organization()
    noise = "".join(f"# {number * 7919 % 1_000_003},1\n" for number in range(1_000))
    content = list_of(rows_of(deployment, 800)) + noise.encode()
    uploader = Uploader(organization)
    imported = await uploader.take(gzip.compress(content))
    by_command = await Importer(other, rows_per_part=10_000).take(content)
    assert without_times(imported) == without_times(by_command)
    assert imported.counts.created == 800
    feed_id, import_id = imported.feed_id, imported.import_id
    rejected = [row async for rows in stored_rejects(deployment.database, feed_id, import_id) for row in rows]
    assert [row.line for row in rejected] == list(range(802, 1_802))
    assert await kept(deployment, "upload_pieces", import_id) == 0
    assert await unfinished_upload(deployment.database, feed_id) is None


@in_loop
async def test_a_file_that_waits_is_shown_to_admins_of_its_organization(deployment: OptOutDeployment) -> None:
    """Viewers learn that it exists, others do not. A list of one organization has no other's files."""
    organization, other = await deployment.new_organization(), await deployment.new_organization()
    database = deployment.database
    upload = await Uploader(organization).upload(list_of(rows_of(deployment, 1)))
    for actor in (ADMINISTRATOR, admin(organization, other)):
        assert (await find_status(actor, database, upload.import_id)).upload == upload
        (listed,) = await list_statuses(actor, database, org_slug=organization.slug)
        assert listed.upload == upload
        assert await list_statuses(actor, database, org_slug=other.slug) == []
    for actor, error in ((viewer(organization), Forbidden), (admin(other), Missing), (STRANGER, Missing)):
        with pytest.raises(error):
            await find_status(actor, database, upload.import_id)
        assert await list_statuses(actor, database) == []


@in_loop
async def test_a_check_stores_nothing(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    uploader = Uploader(organization)
    upload = await uploader.upload(list_of([*rows_of(deployment, 3), ("nobody", 1)]))
    check = (await uploader.check(upload)).result.check
    assert check is not None
    assert check.counts == ImportCounts(rows=4, bad={"invalid_address": 1}, repeated=0, created=3)
    assert [line for line, _ in check.first_bad] == [5]
    assert await organization.feed() == []


@in_loop
async def test_nothing_starts_without_a_check(deployment: OptOutDeployment) -> None:
    """Another statement after a check needs another check."""
    uploader = Uploader(await deployment.new_organization())
    upload = await uploader.upload(list_of(rows_of(deployment, 1)))
    with pytest.raises(Refused, match="Check the file first"):
        await uploader.start(upload)
    await uploader.check(upload)
    upload = await uploader.say(upload, UploadOptions(target="all", reason="bounce"))
    with pytest.raises(Refused, match="Check the file first"):
        await uploader.start(upload)
    await uploader.check(upload)
    await uploader.start(upload)
    with pytest.raises(Refused, match="begun already"):
        await uploader.start(upload)


@in_loop
async def test_the_file_of_a_stopped_import_is_recognised(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    content = list_of(rows_of(deployment, 7))
    run = await Importer(organization).begin()
    part = await (await Importer(organization).reader(content)).next_part()
    assert part is not None
    await run.store(part)
    await run.stop()
    uploader = Uploader(organization)
    upload = await uploader.upload(content)
    check = (await uploader.check(upload)).result.check
    assert check is not None
    assert (check.taken_by, check.taken_rows) == (run.current.import_id, 3)
    with pytest.raises(Refused, match=run.current.import_id):
        await uploader.start(upload)


@in_loop
async def test_another_process_takes_over_after_the_lease(deployment: OptOutDeployment) -> None:
    """One process takes the lease. If it does nothing, it is waited for, and no longer than the lease."""
    uploader = Uploader(await deployment.new_organization())
    upload = await uploader.upload(list_of(rows_of(deployment, 4)))
    await uploader.check(upload)
    await uploader.start(upload)
    claims = await asyncio.gather(*(claim_next(deployment.database, deployment.clock) for _ in range(3)))
    assert [claimed.work.import_id for claimed in claims if claimed is not None] == [upload.import_id]
    assert (await uploader.work(upload)).work == "import"
    assert (await uploader.imported(upload)).row_count == 0
    deployment.clock.advance(LEASE_MS // 1000 + 1)
    assert (await uploader.work(upload)).work is None
    assert (await uploader.imported(upload)).counts.created == 4


@in_loop
async def test_who_lost_the_lease_ends_no_work(deployment: OptOutDeployment) -> None:
    """A process that was slow for so long neither renews nor ends what another one does by now."""
    database, clock = deployment.database, deployment.clock
    uploader = Uploader(await deployment.new_organization())
    upload = await uploader.upload(list_of(rows_of(deployment, 1)))
    await request_check(ADMINISTRATOR, deployment.stores, upload)
    slow = await claim_next(database, clock)
    clock.advance(LEASE_MS // 1000 + 1)
    other = await claim_next(database, clock)
    assert slow is not None
    assert other is not None
    until_ms = deployment.now_ms + LEASE_MS
    assert not await renew_work(database, slow.work, until_ms=until_ms, done=0, total=0)
    await end_work(database, slow.work, WorkResult(error="lost"))
    assert await renew_work(database, other.work, until_ms=until_ms, done=0, total=0)
    await end_work(database, other.work, WorkResult())


@in_loop
async def test_who_lost_the_lease_does_no_more_work(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that cannot renew its lease leaves the work to the process that has it."""
    monkeypatch.setattr(worker, "_RENEW_EVERY_S", 0)
    uploader = Uploader(await deployment.new_organization())
    await ImportWorker(uploader.stores, uploader.limits, with_all_rights).finish()  # what other tests left waiting
    upload = await uploader.upload(list_of(rows_of(deployment, 1)))
    await request_check(ADMINISTRATOR, deployment.stores, upload)

    async def slow(kind: str, actor_id: str) -> Actor:
        taken_over = "UPDATE import_work SET lease_id = 'other' WHERE import_id = :import_id"
        assert await execute(deployment.database, taken_over, import_id=upload.import_id) == 1
        await asyncio.Event().wait()
        raise AssertionError

    unfinished = await asyncio.wait_for(uploader.work(upload, slow), PATIENCE_S)
    assert (unfinished.work, unfinished.lease_id, unfinished.result) == ("check", "other", WorkResult())
    deployment.clock.advance(LEASE_MS // 1000 + 1)
    assert (await uploader.work(upload)).result.check is not None


@in_loop
async def test_nothing_else_is_asked_of_a_file_at_work(deployment: OptOutDeployment) -> None:
    """A person who changes the options meanwhile would import what was not checked."""
    uploader = Uploader(await deployment.new_organization())
    upload = await uploader.upload(list_of(rows_of(deployment, 1)))
    await request_check(ADMINISTRATOR, deployment.stores, upload)
    for meanwhile in (
        request_check(ADMINISTRATOR, deployment.stores, upload),
        uploader.say(upload, UploadOptions(target="all", reason="bounce")),
    ):
        with pytest.raises(Refused, match="is working on it"):
            await meanwhile
    assert (await uploader.now(upload)).options == upload.options
    assert (await uploader.work(upload)).result.check is not None


@in_loop
async def test_work_goes_on_once_the_database_is_back(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while any process tries again; the import is neither stopped nor failed."""
    uploader = Uploader(await deployment.new_organization())
    upload = await uploader.upload(list_of(rows_of(deployment, 4)))
    await uploader.check(upload)
    await uploader.start(upload)

    with monkeypatch.context() as patch:
        patch.setattr(worker, "take_over", AsyncMock(side_effect=StoreUnavailable("away")))
        waiting = await uploader.work(upload)
    assert (waiting.work, waiting.result.error) == ("import", "")
    assert (await uploader.imported(upload)).state == "running"
    deployment.clock.advance(6)
    assert (await uploader.work(upload)).work is None
    assert (await uploader.imported(upload)).state == "done"


@in_loop
async def test_so_many_files_may_wait_and_no_more(deployment: OptOutDeployment) -> None:
    uploader = Uploader(await deployment.new_organization())
    waiting = [await uploader.begin() for _ in range(MAX_UNFINISHED)]
    with pytest.raises(Refused, match="wait already"):
        await uploader.begin()
    await discard_upload(ADMINISTRATOR, deployment.stores, waiting[0].feed_id, waiting[0].import_id)
    await uploader.begin()


@in_loop
async def test_a_stopped_import_goes_on_or_is_discarded(deployment: OptOutDeployment) -> None:
    """Its file is there until then."""
    uploader = Uploader(await deployment.new_organization())
    upload = await uploader.upload(list_of(rows_of(deployment, 3)))
    await uploader.check(upload)
    await stop_uploaded(ADMINISTRATOR, uploader.stores, await uploader.start(upload))
    await uploader.work(upload)
    stopped = await uploader.imported(upload)
    assert (stopped.state, stopped.row_count) == ("stopped", 0)
    await resume_uploaded(ADMINISTRATOR, uploader.stores, stopped, upload)
    await discard_upload(ADMINISTRATOR, uploader.stores, upload.feed_id, upload.import_id)
    await uploader.work(upload)
    discarded = await uploader.imported(upload)
    assert (discarded.state, discarded.row_count) == ("discarded", 0)
    assert await kept(deployment, "upload_pieces", upload.import_id) == 0


@in_loop
async def test_what_the_state_of_an_import_does_not_allow_is_refused(deployment: OptOutDeployment) -> None:
    """It does not matter what a page has shown before: nothing waits for a server then."""
    uploader = Uploader(await deployment.new_organization())
    stores, imported = uploader.stores, await uploader.take(list_of(rows_of(deployment, 1)))
    await request_reversal_counts(ADMINISTRATOR, stores, imported)
    await uploader.work(imported)
    upload, counts = await uploader.now(imported), Reversal(corrected=1)
    for state in (RUNNING, REVERSED):
        found = replace(imported, state=state)
        with pytest.raises(Refused, match=state):
            await request_reversal_counts(ADMINISTRATOR, stores, found)
        with pytest.raises(Refused, match=state):
            await request_reversal(ADMINISTRATOR, stores, found, expected=counts)
    with pytest.raises(Refused, match="no longer there"):
        await resume_uploaded(ADMINISTRATOR, stores, replace(imported, state=STOPPED), upload)
    with pytest.raises(Refused, match="cannot go on"):
        await resume_uploaded(ADMINISTRATOR, stores, imported, replace(upload, state=UPLOADED))
    await request_reversal(ADMINISTRATOR, stores, imported, expected=counts)


@in_loop
async def test_another_file_is_not_continued(deployment: OptOutDeployment) -> None:
    """Its next row could be any: rows would be left out, or taken twice."""
    organization = await deployment.new_organization()
    uploader, importer = Uploader(organization), Importer(organization)
    content = list_of(rows_of(deployment, 4))
    upload = await uploader.upload(content)
    await uploader.check(upload)
    await uploader.start(upload)
    run = await importer.resume(upload.import_id)
    part = await (await importer.reader(content, run)).next_part()
    assert part is not None
    await run.store(part)
    changed = "UPDATE upload_pieces SET content = :content WHERE import_id = :import_id"
    await execute(
        deployment.database, changed, content=content.replace(b"person-0", b"person-9"), import_id=upload.import_id
    )
    assert "differs from the one" in (await uploader.work(upload)).result.error
    stopped = await uploader.imported(upload)
    assert (stopped.state, stopped.row_count, len(await organization.feed())) == ("stopped", 3, 3)


@in_loop
async def test_only_admins_stop_and_resume(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    uploader = Uploader(organization)
    upload = await uploader.upload(list_of(rows_of(deployment, 1)))
    await uploader.check(upload)
    begun = await uploader.start(upload)
    for actor, error in ((viewer(organization), Forbidden), (STRANGER, Missing)):
        with pytest.raises(error):
            await stop_uploaded(actor, uploader.stores, begun)
        with pytest.raises(error):
            await resume_uploaded(actor, uploader.stores, begun, upload)


@in_loop
async def test_work_ends_with_the_right_of_its_requester(deployment: OptOutDeployment) -> None:
    """The import is stopped before its next row, and an admin can go on with it."""
    organization = await deployment.new_organization()
    outcomes = list[str]()
    uploader = Uploader(organization, admin(organization), on_ended=outcomes.append)
    await ImportWorker(uploader.stores, uploader.limits, with_all_rights).finish()  # what other tests left waiting
    upload = await uploader.upload(list_of(rows_of(deployment, 3)))

    async def without_rights(kind: str, actor_id: str) -> Actor:
        return Actor(kind=kind, id=actor_id, roles={organization.slug: "viewer"})

    await request_check(uploader.actor, uploader.stores, upload)
    refused = await uploader.work(upload, without_rights)
    assert (refused.work, refused.result.check) == (None, None)
    assert "no longer has the right" in refused.result.error
    await uploader.check(upload)
    await uploader.start(upload)
    assert "no longer has the right" in (await uploader.work(upload, without_rights)).result.error
    stopped = await uploader.imported(upload)
    assert (stopped.state, stopped.row_count) == ("stopped", 0)
    await resume_uploaded(admin(organization), uploader.stores, stopped, upload)
    await uploader.work(upload)
    done = await uploader.imported(upload)
    assert (done.state, done.counts.created) == ("done", 3)

    another = await uploader.upload(list_of(rows_of(deployment, 1)))
    await request_check(uploader.actor, uploader.stores, another)
    assert "see its log" in (await uploader.work(another, AsyncMock(side_effect=RuntimeError))).result.error
    assert outcomes == ["refused", "done", "refused", "done", "failed"], "which the metrics count"


@in_loop
async def test_reversals_end_with_the_right_of_an_administrator(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    uploader = Uploader(organization)
    imported = await uploader.take(list_of(rows_of(deployment, 2)))

    async def as_admin(kind: str, actor_id: str) -> Actor:
        return Actor(kind=kind, id=actor_id, roles={organization.slug: "admin"})

    await request_reversal_counts(ADMINISTRATOR, uploader.stores, imported)
    assert (await uploader.work(imported, as_admin)).result.reversal is None
    await request_reversal_counts(ADMINISTRATOR, uploader.stores, imported)
    await uploader.work(imported)
    await request_reversal(ADMINISTRATOR, uploader.stores, imported, expected=Reversal(corrected=2))
    await uploader.work(imported, as_admin)
    assert (await uploader.imported(imported)).state == "done"
    assert {record.status for record in await organization.feed()} == {"unsubscribed"}


@in_loop
async def test_the_import_says_that_rejects_were_cut(deployment: OptOutDeployment) -> None:
    """The rows of a part are kept all or not at all, and none after the first part without room."""
    organization = await deployment.new_organization()
    running = await Importer(organization).begin()
    rejects = StoredRejects(running.current, max_bytes=60)
    lengths = [
        await rejects.append([RejectedRow(2, "invalid_address", "Bad.", ("x" * length,))] * count)
        for length, count in ((1, 1), (1, 0), (40, 1), (1, 1), (1, 0))
    ]
    assert lengths[0] == lengths[1] > 0
    assert set(lengths[2:]) == {-1 - lengths[0]}
    resumed = StoredRejects(replace(running.current, rejects_bytes=lengths[-1]), max_bytes=10_000)
    assert await resumed.append([RejectedRow(2, "invalid_address", "Bad.", ("x",))]) == lengths[-1]
    assert not replace(running.current, rejects_bytes=lengths[-1]).has_all_rejects
    assert running.current.has_all_rejects


@in_loop
async def test_sizes_are_bounded(deployment: OptOutDeployment) -> None:
    """Those of the file, and of what it unpacks to."""
    uploader = Uploader(await deployment.new_organization(), limits=UploadLimits(1_000, 100_000, 1_000))
    with pytest.raises(Refused, match="larger than"):
        await uploader.upload(b"a" * 1_001)
    upload = await uploader.upload(gzip.compress(b"address\n" + b"\n" * 200_000))
    work = await uploader.check(upload)
    assert work.work is None
    assert "when it is unpacked" in work.result.error


@in_loop
async def test_reversals_are_counted_and_done_by_servers(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    uploader = Uploader(organization)
    imported = await uploader.take(list_of(rows_of(deployment, 5)))
    with pytest.raises(Forbidden):
        await request_reversal_counts(admin(organization), uploader.stores, imported)
    with pytest.raises(Refused, match="Count again"):
        await request_reversal(ADMINISTRATOR, uploader.stores, imported, expected=Reversal(corrected=5))
    await request_reversal_counts(ADMINISTRATOR, uploader.stores, imported)
    await uploader.work(imported)
    await request_reversal(ADMINISTRATOR, uploader.stores, imported, expected=Reversal(corrected=5))
    work = await uploader.work(imported)
    assert work.result.reversed is not None
    assert work.result.reversed.changes == 5
    assert {record.status for record in await organization.feed()} == {"resubscribed"}


@in_loop
async def test_old_uploads_are_given_up(deployment: OptOutDeployment) -> None:
    """One that was never started, one that never arrived, and the bad rows of one that is done."""
    uploader = Uploader(await deployment.new_organization())
    done = await uploader.take(list_of([("nobody", 1), *rows_of(deployment, 1)]))
    waiting = await uploader.upload(list_of(rows_of(deployment, 1)))
    cut_off = await uploader.begin()
    await UploadWriter(deployment.database, cut_off, max_bytes=PIECE_BYTES * 2).add(b"a" * PIECE_BYTES)
    deployment.clock.advance(DAY_S)
    await delete_old_uploads(deployment.stores)
    assert (await uploader.now(cut_off)).state == "ended"
    assert (await uploader.now(waiting)).state == "uploaded"
    assert await kept(deployment, "import_rejects", done.import_id) == 1
    deployment.clock.advance(KEPT_DAYS * DAY_S)
    await delete_old_uploads(deployment.stores)
    for table in ("upload_pieces", "import_rejects"):
        for each in (done, waiting, cut_off):
            assert await kept(deployment, table, each.import_id) == 0
    assert await kept(deployment, "uploads", done.import_id) == 0
    assert (await uploader.now(waiting)).state == "ended"


@in_loop
async def test_a_discarded_upload_takes_no_more_of_its_file(deployment: OptOutDeployment) -> None:
    """It is discarded while it arrives: nothing of it is kept, or imported."""
    uploader = Uploader(await deployment.new_organization())
    upload = await uploader.begin()
    writer = UploadWriter(deployment.database, upload, max_bytes=PIECE_BYTES * 2)
    await writer.add(b"a" * PIECE_BYTES)
    await discard_upload(ADMINISTRATOR, deployment.stores, upload.feed_id, upload.import_id)
    for going_on in (writer.complete(ADMINISTRATOR, deployment.stores), writer.add(b"a" * PIECE_BYTES)):
        with pytest.raises(Refused, match="discarded meanwhile"):
            await going_on
    assert (await uploader.now(upload)).state == "ended"
    assert await kept(deployment, "upload_pieces", upload.import_id) == 0


@in_loop
async def test_uploads_and_their_discards_are_in_the_audit(deployment: OptOutDeployment) -> None:
    """A discard once, by whoever discarded it. The file of an import that has begun ends with the import."""
    uploader = Uploader(await deployment.new_organization())
    done = await uploader.take(list_of(rows_of(deployment, 1)))
    unwanted, forgotten = [await uploader.upload(list_of(rows_of(deployment, 1))) for _ in range(2)]
    for _ in range(2):
        await discard_upload(ADMINISTRATOR, deployment.stores, unwanted.feed_id, unwanted.import_id)
    deployment.clock.advance((KEPT_DAYS + 1) * DAY_S)
    await delete_old_uploads(deployment.stores)
    entries = [(row.target, row.action, row.actor) for row in await audit_rows(deployment.database)]
    person = f"{ADMINISTRATOR.kind} {ADMINISTRATOR.id}"
    known = {upload.import_id for upload in (done, unwanted, forgotten)}
    assert [entry for entry in entries if entry[0] in known and entry[1].startswith("upload.")] == [
        *((upload.import_id, "upload.complete", person) for upload in (done, unwanted, forgotten)),
        (unwanted.import_id, "upload.discard", person),
        (forgotten.import_id, "upload.discard", "system uploads"),
    ]


@in_loop
async def test_rejected_rows_can_be_forgotten(deployment: OptOutDeployment) -> None:
    """Those with a cell that is the address, whichever column it is in."""
    uploader = Uploader(await deployment.new_organization())
    rows = b"address,note\nnobody,x\nnobody,ann@example.org\n"
    upload = await uploader.upload(rows, UploadOptions(target="all", as_of="2020-01-01"))
    await uploader.check(upload)
    await uploader.start(upload)
    await uploader.work(upload)
    assert await forget_rejects(deployment.database, upload.feed_id, lambda cell: cell == "ann@example.org") == 1
    rejects = stored_rejects(deployment.database, upload.feed_id, upload.import_id)
    assert [row.line async for rows in rejects for row in rows] == [2]


@in_loop
async def test_others_may_not_upload(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    for actor, error in ((viewer(organization), Forbidden), (STRANGER, Missing)):
        with pytest.raises(error):
            await Uploader(organization, actor).begin()
    upload = await Uploader(organization, admin(organization)).upload(list_of(rows_of(deployment, 1)))
    assert await unfinished_upload(deployment.database, upload.feed_id) == upload

"""The rows of erased persons come back by digest into the feed that they came from (docs/interface.md section D12)."""

from typing import Any

import pytest

from stoplist.lists.exports.layouts import CSV, NDJSON
from stoplist.lists.imports import run as import_run
from stoplist.lists.imports.model import Import, ImportCounts
from stoplist.lists.imports.reversal import reverse_import, submissions_of
from stoplist.lists.uploads.preview import preview_upload
from stoplist.records.reversal import left_out
from stoplist.rights.retention import Retention, delete_old
from stoplist.unsubscribes import storing
from tests.builders import ADMINISTRATOR
from tests.constants import DAY_S
from tests.deployment import in_loop
from tests.lists.exports.export_fixture import begin, csv_rows, whole
from tests.lists.imports.importer import Importer, list_of
from tests.lists.uploads.uploader import ALL, LIMITS, Uploader
from tests.rights.eraser import assert_states_are_right, digest_in, erase
from tests.unsubscribes.partner import OptOutDeployment, Organization, back, out, records

ANN, BOB = "ann@example.org", "bob@example.org"


async def erased_and_exported(organization: Organization, layout: str = CSV, **wanted: Any) -> bytes:
    """Store opt-outs of two persons, erase one of them, and return an export."""
    await organization.submit(out(ANN, organization.deployment.ago(50), source="a form"), out(BOB))
    await erase(organization, ANN)
    return await whole(await begin(organization, layout=layout, **wanted))


async def statuses(organization: Organization, address: str = ANN) -> dict[str | None, tuple[str, str | None]]:
    """Return for each group the status of the person's record, and its digest if it is erased."""
    found = records(await organization.look_up(address))
    return {one.group_id: (one.status, one.address_digest or None) for one in found}


def counted(imported: Import) -> dict[str, int]:
    """Return how many rows were taken, and how many were left out as erased."""
    counts = imported.counts
    return {
        name: count
        for name in ("created", "updated", "unchanged", "outranked", "erased", "bad_rows")
        if (count := getattr(counts, name))
    }


@in_loop
async def test_what_an_import_confirmed_stays_confirmed_when_it_is_erased(deployment: OptOutDeployment) -> None:
    """An erasure gives the record another number, and an import confirms numbers."""
    organization, stores = await deployment.new_organization(), deployment.stores
    importer, rows = Importer(organization), [(ANN, deployment.now_ms), (BOB, deployment.now_ms)]
    first = await importer.take(list_of(rows))
    await importer.take(list_of(rows[:1]))
    await erase(organization, ANN)
    (submission_id,) = await submissions_of(stores, first)
    others = await left_out(ADMINISTRATOR, stores, submission_id)
    assert [(one.seq, one.why) for one in others] == [(1, "confirmed")]
    *_, total = [each async for each in reverse_import(ADMINISTRATOR, stores, first.import_id)]
    assert (total.corrected, total.confirmed) == (1, 1)


@pytest.mark.parametrize(("layout", "wanted"), [(CSV, {}), (NDJSON, {}), (CSV, {"has_history": True})])
@in_loop
async def test_an_export_comes_back_whole(deployment: OptOutDeployment, layout: str, wanted: dict[str, Any]) -> None:
    """For the same group nothing changes; for another one the person is barred there, too, and stays erased."""
    organization = await deployment.new_organization()
    file = await erased_and_exported(organization, layout, **wanted)
    digest = await digest_in(organization, ANN)
    same = Importer(organization, group_id=organization.default_group)
    assert counted(await same.take(file)) == {"unchanged": 2}
    other = await organization.new_group("Other")
    importer = Importer(organization, group_id=other)
    checked = await importer.check(file)
    assert (checked.counts.created, checked.counts.erased) == (2, 0)
    assert counted(await importer.take(file)) == {"created": 2}
    barred = ("unsubscribed", digest)
    assert await statuses(organization) == {organization.default_group: barred, other: barred}
    rows = await organization.rows("unsubscribes", "seq")
    assert {row["source"] for row in rows if row["address"].startswith("erased:")} == {None}
    assert counted(await importer.take(file)) == {"unchanged": 2}
    await assert_states_are_right(organization)


@in_loop
async def test_elsewhere_they_are_left_out_and_counted(deployment: OptOutDeployment) -> None:
    """Another feed has another key; so does an export of an earlier release name none."""
    organization, other = await deployment.new_organization(), await deployment.new_organization()
    file = await erased_and_exported(organization)
    await other.submit(out("zoe@example.org"))
    await erase(other, "zoe@example.org")
    importer = Importer(other)
    assert (await importer.check(file)).counts.erased == 1
    assert counted(await importer.take(file)) == {"created": 1, "erased": 1}
    assert await statuses(other) == {}
    (row,) = [row for row in csv_rows(file) if not row["address"]]
    older = file.replace(b"address_digest,key_fingerprint", b"address_digest,note")
    assert len(row["key_fingerprint"]) == 16
    assert counted(await Importer(organization).take(older)) == {"created": 1, "erased": 1}


@in_loop
async def test_a_digest_that_the_feed_does_not_know_is_left_out(deployment: OptOutDeployment) -> None:
    """Only the feed's own erasures tell that nobody has a record under their address beside it."""
    organization = await deployment.new_organization()
    file = await erased_and_exported(organization)
    digest = await digest_in(organization, ANN)
    foreign = file.replace(digest.encode(), b"0" * 64).replace(b"bob@", b"erased:bob@")
    importer = Importer(organization)
    assert (await importer.check(foreign)).counts == ImportCounts(
        rows=2, erased=1, bad={"invalid_address": 1}, repeated=0
    )
    assert counted(await importer.take(foreign)) == {"erased": 1, "bad_rows": 1}


@in_loop
async def test_who_resubscribed_since_stays_so(deployment: OptOutDeployment) -> None:
    """The later act wins in that group; in others the opt-out stands under the address that came back."""
    organization = await deployment.new_organization()
    file = await erased_and_exported(organization)
    await organization.submit(back(ANN, deployment.ago(10)))
    assert counted(await Importer(organization, group_id=organization.default_group).take(file)) == {
        "unchanged": 1,
        "outranked": 1,
    }
    assert counted(await Importer(organization).take(file)) == {"created": 2}
    assert await statuses(organization) == {
        organization.default_group: ("resubscribed", None),
        None: ("unsubscribed", None),
    }
    await assert_states_are_right(organization)


@in_loop
async def test_a_return_whose_state_is_deleted_gets_no_second_record(deployment: OptOutDeployment) -> None:
    """Nothing tells the address of the digest any more: the row is left out, also where another group knows it."""
    organization = await deployment.new_organization()
    await organization.submit(out(ANN, deployment.ago(60)), all_groups=True)
    file = await erased_and_exported(organization, only_group=organization.default_group)
    await organization.submit(back(ANN, deployment.ago(10)))
    deployment.clock.advance(1)
    await organization.submit(out(ANN))
    deployment.clock.advance(1)
    await organization.submit(back(ANN, deployment.ago(0)))
    deployment.clock.advance(11 * DAY_S)
    async for _ in delete_old(deployment.database, Retention(history_days=10), deployment.now_ms):
        pass
    assert counted(await Importer(organization, group_id=organization.default_group).take(file)) == {
        "unchanged": 1,
        "erased": 1,
    }
    found = await statuses(organization)
    assert (len(found), found[organization.default_group]) == (2, ("resubscribed", None))


@in_loop
async def test_a_return_before_the_lock_is_seen_behind_it(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    organization = await deployment.new_organization()
    file = await erased_and_exported(organization)
    store = storing.store_batch

    async def store_later(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(import_run, "store_batch", store)
        await organization.submit(back(ANN, deployment.ago(10)))
        return await store(*arguments, **named)

    monkeypatch.setattr(import_run, "store_batch", store_later)
    assert counted(await Importer(organization).take(file)) == {"created": 2}
    assert len(await organization.rows("unsubscribes", "seq")) == 4
    assert await statuses(organization) == {
        organization.default_group: ("resubscribed", None),
        None: ("unsubscribed", None),
    }
    await assert_states_are_right(organization)


@in_loop
async def test_the_pages_take_them_too(deployment: OptOutDeployment) -> None:
    """The preview shows the digest."""
    organization = await deployment.new_organization()
    file = await erased_and_exported(organization)
    uploader = Uploader(organization)
    upload = await uploader.upload(file)
    preview = await preview_upload(
        deployment.database, uploader.channel, upload, ALL, limits=LIMITS, now_ms=deployment.now_ms
    )
    digest = await digest_in(organization, ANN)
    assert ([row.written for row in preview.rows], preview.erased) == ([BOB, digest], 0)
    await uploader.check(upload)
    await uploader.start(upload)
    await uploader.work(upload)
    assert counted(await uploader.imported(upload)) == {"created": 2}

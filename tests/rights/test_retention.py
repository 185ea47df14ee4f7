"""Old history and audit entries are deleted, and nothing else (docs/interface.md section D13, Retention)."""

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

import asyncpg
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoplist.audit import trail
from stoplist.db import Transaction
from stoplist.db.postgresql import Postgresql
from stoplist.db.query import load_queries
from stoplist.errors import Refused
from stoplist.links.reversal import count_link_key_reversal, reverse_link_key
from stoplist.lists.imports.listing import find_import
from stoplist.lists.imports.reversal import count_import_reversal, reverse_import
from stoplist.lists.uploads.model import COUNT, REVERSE
from stoplist.lists.uploads.requests import request_reversal, request_reversal_counts
from stoplist.lists.uploads.work import find_work
from stoplist.lists.uploads.worker import ImportWorker
from stoplist.proof.feed_states import compare_states
from stoplist.records.reversal import count_reversal, reverse
from stoplist.records.reversal_plan import Reversal
from stoplist.rights import retention
from stoplist.rights.retention import Retention, delete_old
from stoplist.unsubscribes.model import OptOutStores
from tests.builders import ADMINISTRATOR, execute, sql, value
from tests.constants import DAY_MS, DAY_S, HOUR_MS, HOUR_S
from tests.deployment import SharedDatabase, in_loop
from tests.links.link_sender import new_sender
from tests.lists.imports.importer import Importer, list_of
from tests.lists.uploads.uploader import LIMITS, Uploader, with_all_rights
from tests.records.test_reversal import id_of
from tests.rights.eraser import erase
from tests.unsubscribes.partner import OptOutDeployment, Organization, back, opt_out_deployment, out, records

ANN, BOB = "ann@example.org", "bob@example.org"
KEPT = Retention(history_days=10)


async def clean(deployment: OptOutDeployment) -> None:
    """Delete what is old by the deployment's clock."""
    async for _ in delete_old(deployment.database, KEPT, deployment.now_ms):
        pass


def keeping(deployment: OptOutDeployment) -> OptOutStores:
    """Return the stores of a deployment that keeps its history as long as `KEPT`."""
    return msgspec.structs.replace(deployment.stores, history_days=KEPT.history_days)


async def seqs(organization: Organization) -> list[int]:
    return [row["seq"] for row in await organization.rows("unsubscribe_versions", "seq")]


async def submission_ids(organization: Organization) -> set[str]:
    return {row["submission_id"] for row in await organization.rows("submissions", "submission_id")}


@in_loop
async def test_a_version_goes_by_when_it_was_superseded(deployment: OptOutDeployment) -> None:
    """The time of its recording does not count; the present state and the feed stay as they are.

    Until one went, nothing says that history was deleted.
    """
    organization = await deployment.new_organization()
    first = await organization.submit(out(ANN), out(BOB))
    deployment.clock.advance(100 * DAY_S)
    await organization.submit(back(ANN, deployment.ago(0)))
    before = await organization.feed()
    deployment.clock.advance(10 * DAY_S)
    await clean(deployment)
    assert await seqs(organization) == [1]
    (feed,) = await organization.rows("feeds", "feed_id")
    assert feed["history_deleted_ms"] == 0
    deployment.clock.advance(HOUR_S + 1)
    await clean(deployment)
    assert await seqs(organization) == []
    assert await organization.feed() == before
    assert first.submission_id in await submission_ids(organization)
    assert (await compare_states(deployment.database)).differing == []


@in_loop
async def test_a_submission_goes_when_none_of_its_states_stands(deployment: OptOutDeployment) -> None:
    """Its reversal goes once both are gone; a submission that changed nothing goes by its age."""
    organization = await deployment.new_organization()
    first = await organization.submit(out(ANN))
    deployment.clock.advance(1)
    second = await organization.submit(back(ANN, deployment.ago(0)))
    undone = await reverse(ADMINISTRATOR, deployment.stores, id_of(second))
    deployment.clock.advance(1)
    nothing = await organization.submit(out(ANN, deployment.ago(0)))
    deployment.clock.advance(9 * DAY_S)
    young = await organization.submit(out(ANN, deployment.ago(0)))
    await clean(deployment)
    assert len(await submission_ids(organization)) == 5
    deployment.clock.advance(2 * DAY_S)
    await clean(deployment)
    left = await submission_ids(organization)
    assert left == {undone.submission_id, young.submission_id}
    assert not left & {first.submission_id, second.submission_id, nothing.submission_id}
    assert len(await organization.rows("reversals", "reversed_by")) == 1
    await organization.submit(back(ANN, deployment.ago(0)))
    deployment.clock.advance(11 * DAY_S)
    await clean(deployment)
    assert await organization.rows("reversals", "reversed_by") == []


@in_loop
async def test_an_erased_record_keeps_its_sender(deployment: OptOutDeployment) -> None:
    """It stands on the submission from before its erasure, whose own number is gone."""
    organization = await deployment.new_organization()
    first = await organization.submit(out(ANN))
    await erase(organization, ANN)
    deployment.clock.advance(11 * DAY_S)
    await clean(deployment)
    assert await seqs(organization) == []
    assert first.submission_id in await submission_ids(organization)
    assert [one.status for one in records(await organization.look_up(ANN))] == ["unsubscribed"]


@in_loop
async def test_what_was_received_too_long_ago_is_not_reversed(deployment: OptOutDeployment) -> None:
    """The refusal begins to the millisecond, before the deletion has happened, too."""
    organization = await deployment.new_organization()
    mistake = await organization.submit(out(ANN))
    stores = keeping(deployment)
    deployment.clock.advance(10 * DAY_S)
    assert (await count_reversal(ADMINISTRATOR, stores, id_of(mistake))).corrected == 1
    deployment.clock.advance(0.001)
    with pytest.raises(Refused, match="received more than 10 days ago"):
        await count_reversal(ADMINISTRATOR, stores, id_of(mistake))
    with pytest.raises(Refused, match="received more than 10 days ago"):
        await reverse(ADMINISTRATOR, stores, id_of(mistake))
    assert (await reverse(ADMINISTRATOR, deployment.stores, id_of(mistake))).corrected == 1


@in_loop
async def test_an_import_too_old_is_not_reversed(deployment: OptOutDeployment) -> None:
    """The command line and the pages refuse; the import is not marked as being reversed."""
    organization = await deployment.new_organization()
    done = await Importer(organization).take(list_of([(ANN, deployment.now_ms), (BOB, deployment.now_ms)]))
    stores = keeping(deployment)
    deployment.clock.advance(10 * DAY_S + 1)
    with pytest.raises(Refused, match="received more than 10 days ago"):
        await count_import_reversal(ADMINISTRATOR, stores, done)
    with pytest.raises(Refused, match="received more than 10 days ago"):
        await anext(reverse_import(ADMINISTRATOR, stores, done.import_id))
    with pytest.raises(Refused, match="received more than 10 days ago"):
        await request_reversal_counts(ADMINISTRATOR, stores, done)
    with pytest.raises(Refused, match="received more than 10 days ago"):
        await request_reversal(ADMINISTRATOR, stores, done, expected=Reversal())
    assert (await find_import(ADMINISTRATOR, deployment.database, done.import_id)).state == "done"


@pytest.mark.parametrize("work", [COUNT, REVERSE])
@in_loop
async def test_a_server_refuses_an_import_that_became_too_old(deployment: OptOutDeployment, work: str) -> None:
    """The limit is that of the moment at which the work is done, not of the request."""
    organization = await deployment.new_organization()
    uploader = Uploader(organization)
    done = await uploader.take(list_of([(ANN, deployment.now_ms), (BOB, deployment.now_ms)]))
    await request_reversal_counts(ADMINISTRATOR, keeping(deployment), done)
    if work == REVERSE:
        counted = (await uploader.work(done)).result.reversal
        assert counted is not None
        await request_reversal(ADMINISTRATOR, keeping(deployment), done, expected=counted)
    deployment.clock.advance(10 * DAY_S + 1)
    await ImportWorker(keeping(deployment), LIMITS, with_all_rights).finish()
    ended = await find_work(deployment.database, done.feed_id, done.import_id)
    assert ended is not None
    assert "received more than 10 days ago" in (ended.result.error or "")
    assert (await find_import(ADMINISTRATOR, deployment.database, done.import_id)).state == "done"


@in_loop
async def test_clicks_too_old_are_not_reversed(deployment: OptOutDeployment) -> None:
    """A period that begins too early is refused, unless the link key is younger."""
    organization = await deployment.new_organization()
    thief = await new_sender(organization)
    await thief.click(ANN)
    stores = keeping(deployment)
    key_id = thief.key.key_id
    assert (await count_link_key_reversal(ADMINISTRATOR, stores, key_id, since_ms=0)).corrected == 1
    deployment.clock.advance(10 * DAY_S + 1)
    await thief.click(BOB)
    for since_ms in (0, deployment.now_ms - 10 * DAY_MS - 1):
        with pytest.raises(Refused, match="received more than 10 days ago"):
            await anext(reverse_link_key(ADMINISTRATOR, stores, key_id, since_ms=since_ms))
    since_ms = deployment.now_ms - 10 * DAY_MS
    assert (await count_link_key_reversal(ADMINISTRATOR, stores, key_id, since_ms=since_ms)).corrected == 1


@in_loop
async def test_a_reversal_in_time_finds_the_earlier_state(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    await organization.submit(out(ANN))
    deployment.clock.advance(100 * DAY_S)
    mistake = await organization.submit(back(ANN, deployment.ago(0)))
    deployment.clock.advance(10 * DAY_S)
    await clean(deployment)
    done = await reverse(ADMINISTRATOR, keeping(deployment), id_of(mistake))
    assert (done.restored, done.corrected) == (1, 0)


def test_versions_outlive_the_clock_of_propagation() -> None:
    """A version may be the change that a key still lacks."""
    kept = Retention(history_days=1, propagation_hours=72)
    assert kept.history_until_ms(0) == -3 * DAY_MS - HOUR_MS
    assert Retention(history_days=4, propagation_hours=72).history_until_ms(0) == -4 * DAY_MS - HOUR_MS
    assert (Retention().history_until_ms(0), Retention().audit_until_ms(0)) == (None, None)


@in_loop
async def test_positions_are_kept_as_long_as_versions(deployment: OptOutDeployment) -> None:
    """The last one before that time stays: it says what the reader has."""
    organization = await deployment.new_organization()
    await organization.submit(out(ANN))
    values = {"feed_id": organization.feed_id}
    await execute(
        deployment.database,
        "INSERT INTO feed_followers (feed_id, client_id, group_no, generation, position)"
        " VALUES (:feed_id, 'k', 0, '', 4)",
        **values,
    )
    minute = deployment.now_ms // 60_000
    for position, days in enumerate((30, 20, 11, 9)):
        await execute(
            deployment.database,
            "INSERT INTO feed_positions (feed_id, client_id, group_no, minute, position, presented_ms)"
            " VALUES (:feed_id, 'k', 0, :minute, :position, 0)",
            **values,
            minute=minute - days * 1_440,
            position=position + 1,
        )
    await clean(deployment)
    assert [row["position"] for row in await organization.rows("feed_positions", "position")] == [3, 4]


@in_loop
async def test_audit_entries_go_save_those_of_erasures(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go in small steps, with the rows that say which organizations they concern."""
    monkeypatch.setattr(retention, "STEP_ROWS", 2)
    organization = await deployment.new_organization()

    async def record(transaction: Transaction) -> None:
        for number in range(5):
            for action in ("key.create", "person.erase"):
                await trail.record(
                    transaction, ADMINISTRATOR, action, f"t{number}", at_ms=number, organizations=[organization.slug]
                )

    await deployment.database.write(record)
    until = Retention(audit_days=1)
    deleted = [one async for one in delete_old(deployment.database, until, DAY_MS + 3)]
    assert max(deleted) <= 2
    query = sql(
        "SELECT a.action, a.at_ms, o.audit_id FROM audit a LEFT JOIN audit_organizations o ON o.audit_id = a.audit_id"
        " WHERE a.at_ms < 5 ORDER BY a.at_ms, a.action"
    )
    rows = await deployment.database.all(query)
    assert [(row["action"], row["at_ms"]) for row in rows] == [
        ("person.erase", 0),
        ("person.erase", 1),
        ("person.erase", 2),
        ("key.create", 3),
        ("person.erase", 3),
        ("key.create", 4),
        ("person.erase", 4),
    ]
    orphans = "SELECT COUNT(*) FROM audit_organizations WHERE audit_id NOT IN (SELECT audit_id FROM audit)"
    assert await value(deployment.database, orphans) == 0


def test_only_one_process_deletes_at_a_time(postgresql_url: str) -> None:
    """Another one leaves what it found, and waits for nothing. SQLite has one process."""
    asyncio.run(delete_beside_another(postgresql_url))


async def delete_beside_another(url: str) -> None:
    async with opt_out_deployment(url) as deployment:
        organization = await deployment.new_organization()
        await organization.submit(out(ANN))
        deployment.clock.advance(1)
        await organization.submit(back(ANN, deployment.ago(0)))
        deployment.clock.advance(11 * DAY_S)
        other = await asyncpg.connect(url)
        async with other.transaction():
            assert await other.fetchval(load_queries("stoplist.rights")["may_delete_old"].postgresql) == 1
            await clean(deployment)
            assert await seqs(organization) == [1]
        await other.close()
        await clean(deployment)
        assert await seqs(organization) == []


class DatedBatch(NamedTuple):
    """A batch, sent this many days after the one before. `is_cleaned`: the deletion runs then."""

    days: int
    opt_outs: dict[str, bool]
    is_cleaned: bool


HISTORIES = st.lists(
    st.builds(
        DatedBatch,
        days=st.sampled_from([0, 1, 4, 7, 12]),
        opt_outs=st.dictionaries(st.sampled_from([ANN, BOB, "eve@example.org"]), st.booleans(), min_size=1),
        is_cleaned=st.booleans(),
    ),
    min_size=2,
    max_size=7,
)


def naive_rest(
    versions: Iterable[dict[str, Any]],
    records: Iterable[dict[str, Any]],
    submissions: Iterable[dict[str, Any]],
    until_ms: int,
) -> tuple[list[int], set[str]]:
    """Return the versions and submissions that are kept, of all that there ever were, word by word."""
    standing, kept = [record["seq"] for record in records], []
    for version in versions:
        later = [
            state["recorded_ms"]
            for state in [*versions, *records]
            if state["address"] == version["address"] and state["seq"] > version["seq"]
        ]
        if min(later) >= until_ms:
            kept.append(version["seq"])
    ids = {
        one["submission_id"]
        for one in submissions
        if one["received_ms"] >= until_ms
        or any((one["first_seq"] or 0) <= seq <= (one["last_seq"] or -1) for seq in kept + standing)
    }
    return sorted(kept), ids


def test_a_naive_model_keeps_the_same(shared_database: SharedDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any history, with any number of deletions in between, in small steps."""
    monkeypatch.setattr(retention, "STEP_ROWS", 2)
    tries = 10 if isinstance(shared_database.database, Postgresql) else 40

    @settings(max_examples=tries)
    @given(HISTORIES)
    def keeps_the_same(history: list[DatedBatch]) -> None:
        shared_database.run(compare(OptOutDeployment.on(shared_database), history))

    keeps_the_same()


async def compare(deployment: OptOutDeployment, history: list[DatedBatch]) -> None:
    organization = await deployment.new_organization()
    versions: dict[int, dict[str, Any]] = {}
    submissions: dict[str, dict[str, Any]] = {}
    for batch in [*history, DatedBatch(12, {ANN: True}, is_cleaned=True)]:
        deployment.clock.advance(batch.days * DAY_S + 1)
        now = deployment.ago(0)
        items = [out(address, now) if is_out else back(address, now) for address, is_out in batch.opt_outs.items()]
        await organization.submit(*items)
        versions |= {row["seq"]: row for row in await organization.rows("unsubscribe_versions", "seq")}
        submissions |= {row["submission_id"]: row for row in await organization.rows("submissions", "submission_id")}
        if not batch.is_cleaned:
            continue
        await clean(deployment)
        standing = await organization.rows("unsubscribes", "seq")
        until_ms = KEPT.history_until_ms(deployment.now_ms)
        assert until_ms is not None
        expected = naive_rest(list(versions.values()), standing, submissions.values(), until_ms)
        assert (await seqs(organization), await submission_ids(organization)) == expected

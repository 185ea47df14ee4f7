"""An erased person is forgotten, and stays barred (docs/interface.md section D13)."""

import asyncio
import base64
import hashlib
import hmac
from typing import Any

import pytest
from msgspec import UNSET

from stoplist import __version__
from stoplist.actor import ADMIN, VIEWER, Actor
from stoplist.db import Transaction, schema
from stoplist.errors import Forbidden, Missing, Refused
from stoplist.lists.uploads.model import Upload
from stoplist.lists.uploads.rejects import forget_rejects
from stoplist.lists.uploads.upload_end import discard_upload
from stoplist.organizations.target import Target, TargetGroup
from stoplist.records.history import show_record
from stoplist.records.reversal import reverse, undo
from stoplist.records.search import search
from stoplist.records.submissions import ERASE, find_submission
from stoplist.rights import erasure as erasing
from stoplist.unsubscribes import record_reader
from stoplist.unsubscribes.act_groups import ActGroups
from stoplist.unsubscribes.changed_addresses import find_changed_addresses
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import Item
from stoplist.unsubscribes.submit import submit_to
from tests.builders import ADMINISTRATOR, audit_rows, execute, value
from tests.deployment import in_loop
from tests.lists.uploads.uploader import Uploader
from tests.rights.eraser import assert_states_are_right, digest_in, erase
from tests.unsubscribes.partner import OptOutDeployment, back, out, records

ANN, BOB = "ann@example.org", "bob@example.org"


def items(answer: Any) -> list[tuple[Any, ...]]:
    """Return what the answer to a batch says of each item."""
    return [(one.address, one.result, one.status, one.address_digest or None) for one in answer.items]


@in_loop
async def test_an_erased_person_stays_barred(deployment: OptOutDeployment) -> None:
    """A look-up and an item carry the address that was asked for, in canonical form, and the digest."""
    organization = await deployment.new_organization()
    await organization.submit(out(ANN, source="a form"), out(BOB))
    await organization.submit(out(ANN), all_groups=True)
    (done,) = await erase(organization, ANN)
    digest = await digest_in(organization, ANN)
    assert (done.org_slug, done.records) == (organization.slug, 2)
    found = records(await organization.look_up("Ann@EXAMPLE.org", BOB))
    assert [(one.address, one.status, one.address_digest or None) for one in found] == [
        (BOB, "unsubscribed", None),
        (ANN, "unsubscribed", digest),
        (ANN, "unsubscribed", digest),
    ]
    assert [one.address for one in records(await organization.look_up(ANN))] == [ANN, ANN]
    assert items(await organization.submit(out("ANN@example.org"))) == [(ANN, "unchanged", "unsubscribed", digest)]
    assert await erase(organization, ANN) == []
    await assert_states_are_right(organization)


@in_loop
async def test_followers_learn_of_it_with_the_key(deployment: OptOutDeployment) -> None:
    """HMAC-SHA-256 of the canonical address under the feed's key; `source` is null; the same id."""
    organization = await deployment.new_organization()
    await organization.submit(out(ANN, deployment.ago(5), source="a form"), out(BOB))
    before = await organization.follow()
    deployment.clock.advance(60)
    await erase(organization, ANN)
    page = await organization.follow(before.next_cursor)
    (record,) = records(page)
    assert isinstance(page.digest_key, str)
    key = base64.urlsafe_b64decode(page.digest_key + "=")
    assert (record.address, record.source, record.seq) == (None, None, 3)
    assert record.address_digest == hmac.new(key, ANN.encode(), hashlib.sha256).hexdigest()
    first = records(before)[0]
    assert (record.id, record.status, record.occurred_at) == (first.id, first.status, first.occurred_at)
    assert record.recorded_at > first.recorded_at
    assert page.state == (await organization.follow()).state
    assert not (await organization.follow(page.next_cursor)).digest_key
    group = await organization.follow(group_id=organization.default_group)
    assert [one.address for one in records(group)] == [BOB, None]
    assert group.digest_key == page.digest_key


@in_loop
async def test_every_new_opt_out_of_the_person_is_written_by_digest(deployment: OptOutDeployment) -> None:
    """Any group is meant, and the source is left out; another person's opt-out is not affected."""
    organization = await deployment.new_organization()
    other = await organization.new_group("Other")
    await organization.submit(out(ANN))
    await erase(organization, ANN)
    answer = await organization.submit(out(ANN, source="a form"), out(BOB, source="a form"), group_id=other)
    digest = await digest_in(organization, ANN)
    assert items(answer) == [(ANN, "created", "unsubscribed", digest), (BOB, "created", "unsubscribed", None)]
    rows = await organization.rows("unsubscribes", "seq")
    assert [(row["address"], row["source"]) for row in rows] == [
        (f"erased:{digest}", None),
        (f"erased:{digest}", None),
        (BOB, "a form"),
    ]
    await assert_states_are_right(organization)


@pytest.mark.parametrize("few", [1, 2, 3], ids=["more erased than are few", "as many", "fewer"])
@in_loop
async def test_a_big_batch_meets_erased_people(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Few erased forms are read as one set, and more are looked for one by one: the answers are the same."""
    organization = await deployment.new_organization()
    await organization.submit(out(ANN), out(BOB), out("stays@example.org"))
    for address in (ANN, BOB):
        await erase(organization, address)
    monkeypatch.setattr(record_reader, "_FEW_ERASED", few)
    answer = await organization.submit(*map(out, ("new@example.org", ANN, "stays@example.org")), all_groups=True)
    digest = await digest_in(organization, ANN)
    assert [one[3] for one in items(answer)] == [None, digest, None]
    assert [one[1] for one in items(await organization.submit(out(ANN), out(BOB), out("x@example.org")))] == [
        "unchanged",
        "unchanged",
        "created",
    ]
    await assert_states_are_right(organization)


@in_loop
async def test_a_resubscription_brings_its_own_address_back(deployment: OptOutDeployment) -> None:
    """The record and all its versions have it; the others stay erased, and are still shown beside it."""
    organization = await deployment.new_organization()
    await organization.submit(out(ANN, deployment.ago(50), source="a form"))
    await organization.submit(out(ANN, deployment.ago(50)), all_groups=True)
    await erase(organization, ANN)
    digest = await digest_in(organization, ANN)
    late = await organization.submit(back(ANN, deployment.ago(60)))
    assert items(late) == [(ANN, "outranked", "unsubscribed", digest)]
    returned = await organization.submit(back(ANN, deployment.ago(10), source="consent form"))
    assert items(returned) == [(ANN, "updated", "resubscribed", None)]
    found = records(await organization.look_up(ANN))
    assert [(one.group_id, one.status, one.address_digest or None) for one in found] == [
        (None, "unsubscribed", digest),
        (organization.default_group, "resubscribed", None),
    ]
    shown = await show_record(
        ADMINISTRATOR, deployment.database, org_slug=organization.slug, channel=CHANNELS["email"], seq=found[1].seq
    )
    assert [(one.group_id, one.is_barred) for one in shown.group_records] == [
        (None, True),
        (organization.default_group, True),
    ]
    versions = await organization.rows("unsubscribe_versions", "seq")
    assert [(row["address"], row["source"]) for row in versions if row["group_no"]] == [(ANN, None), (ANN, None)]
    assert await organization.submit(out(ANN)) is not None
    await assert_states_are_right(organization)


@in_loop
async def test_reversing_a_return_erases_again(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    await organization.submit(out(ANN, deployment.ago(50)))
    await erase(organization, ANN)
    returned = await organization.submit(back(ANN, deployment.ago(10), source="consent form"))
    done = await reverse(ADMINISTRATOR, deployment.stores, returned.submission_id or "")
    assert (done.restored, done.corrected) == (1, 0)
    digest = await digest_in(organization, ANN)
    stored = await organization.stored()
    for table in ("unsubscribes", "unsubscribe_versions"):
        assert {(row["address"], row["source"]) for row in stored[table]} == {(f"erased:{digest}", None)}
    (record,) = records(await organization.look_up(ANN))
    assert (record.status, record.address_digest) == ("unsubscribed", digest)
    await assert_states_are_right(organization)


@in_loop
async def test_a_reversal_looks_through_an_erasure(deployment: OptOutDeployment) -> None:
    """The record still stands on its submission; taken back, it stays erased. The erasure itself is never reversed."""
    organization = await deployment.new_organization()
    mistake = await organization.submit(out(ANN), out(BOB))
    (done,) = await erase(organization, ANN)
    erasure = await find_submission(ADMINISTRATOR, deployment.database, done.submission_id or "")
    assert (erasure.kind, erasure.updated) == (ERASE, 1)
    with pytest.raises(Refused, match="cannot be taken back"):
        await reverse(ADMINISTRATOR, deployment.stores, erasure.submission_id)
    repeated = await organization.submit(out(ANN, (records(await organization.look_up(ANN))[0]).occurred_at))
    assert repeated.submission_id is None  # it keeps its sender: the same act of the same partner confirms nothing
    reversal = await reverse(ADMINISTRATOR, deployment.stores, mistake.submission_id or "")
    assert (reversal.corrected, reversal.left_out) == (2, 0)
    assert [one.reason for one in records(await organization.look_up(ANN, BOB))] == ["correction", "correction"]
    assert records(await organization.look_up(ANN))[0].address_digest == await digest_in(organization, ANN)
    await assert_states_are_right(organization)


@in_loop
async def test_people_find_the_record_by_the_address_alone(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    await organization.submit(out(ANN))
    await erase(organization, ANN)
    await organization.submit(out(ANN), all_groups=True)
    found = await search(ADMINISTRATOR, deployment.database, ANN)
    mine = [one for one in found.addresses[0].records if one.org_slug == organization.slug]
    assert [(one.group_id, one.is_barred) for one in mine] == [(None, True), (organization.default_group, True)]
    shown = await show_record(
        ADMINISTRATOR, deployment.database, org_slug=organization.slug, channel=CHANNELS["email"], seq=mine[1].seq
    )
    assert (shown.address, shown.address_digest) == (None, await digest_in(organization, ANN))
    assert [version.is_erasure for version in shown.versions] == [True, False]
    assert [version.sender and version.sender.actor_kind for version in shown.versions] == ["command", "client"]
    assert len(shown.group_records) == 2


@in_loop
async def test_the_source_address_of_acts_by_link_is_forgotten(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    link = Actor(kind="link", id="lk_1", source_ip="203.0.113.9")
    group = TargetGroup(1, organization.default_group)
    target = Target(organization.organization_id, organization.slug, group=group, default_group=group)
    for address in (ANN, BOB):
        await submit_to(link, deployment.stores, CHANNELS["email"], target, [Item(address=address)])
    await erase(organization, ANN)
    rows = await organization.rows("submissions", "received_ms, first_seq")
    assert [row["source_ip"] for row in rows if row["actor_kind"] == "link"] == [None, "203.0.113.9"]


@in_loop
async def test_a_click_that_changes_nothing_leaves_no_source_address(deployment: OptOutDeployment) -> None:
    """Its time is that of the latest act, so the record would still tell where the person was."""
    organization = await deployment.new_organization()
    link = Actor(kind="link", id="lk_1", source_ip="203.0.113.9")
    target = Target(organization.organization_id, organization.slug, group=None, default_group=None)
    for _ in range(2):
        await ActGroups(deployment.database, deployment.clock).submit(
            link, CHANNELS["email"], target, Item(address=ANN)
        )
        deployment.clock.advance(2)
    await erase(organization, ANN)
    clicks = [row for row in await organization.rows("submissions", "received_ms") if row["actor_kind"] == "link"]
    assert [(row["created"], row["source_ip"]) for row in clicks] == [(1, None), (0, None)]


@in_loop
async def test_a_click_of_an_erased_person_leaves_no_source_address(deployment: OptOutDeployment) -> None:
    """Nor does its Undo; that of another person is kept."""
    organization = await deployment.new_organization()
    await organization.submit(out(ANN))
    await erase(organization, ANN)
    link = Actor(kind="link", id="lk_1", source_ip="203.0.113.9")
    target = Target(organization.organization_id, organization.slug, group=None, default_group=None)
    acts = ActGroups(deployment.database, deployment.clock)
    clicks = [acts.submit(link, CHANNELS["email"], target, Item(address=address)) for address in (ANN, BOB)]
    for clicked in await asyncio.gather(*clicks):
        submission = await find_submission(ADMINISTRATOR, deployment.database, clicked.submission_id or "")
        await undo(link, deployment.stores, submission)
    rows = await organization.rows("submissions", "received_ms, first_seq")
    assert [row["source_ip"] for row in rows if row["actor_kind"] == "link"] == [None, "203.0.113.9"] * 2


@in_loop
async def test_several_return_in_one_batch(deployment: OptOutDeployment) -> None:
    """Each record and its versions get their own address again, and nobody else's."""
    organization = await deployment.new_organization()
    people = [f"person-{number}@example.org" for number in range(4)]
    for milliseconds in (60, 50):
        await organization.submit(*(out(one, deployment.ago(milliseconds)) for one in people))
    for one in people:
        await erase(organization, one)
    await organization.submit(*(back(one, deployment.ago(10)) for one in people[:3]))
    digest = await digest_in(organization, people[3])
    rows = await organization.rows("unsubscribes", "address")
    assert [row["address"] for row in rows] == [f"erased:{digest}", *people[:3]]
    by_id = {row["address"]: row["submission_id"] for row in await organization.rows("unsubscribe_versions", "seq")}
    assert by_id.keys() == {f"erased:{digest}", *people[:3]}
    await assert_states_are_right(organization)


@pytest.mark.parametrize(
    ("channel", "address", "name"),
    [("email", ANN, "Ann@Example.ORG, opt-out.csv"), ("phone", "+442079460018", "+44 (20) 7946-0018.csv")],
)
@in_loop
async def test_names_of_files_forget_the_person(
    deployment: OptOutDeployment, channel: str, address: str, name: str
) -> None:
    """In any spelling, on any channel of the organization; those of other organizations stay."""
    organization, elsewhere = await deployment.new_organization(channel), await deployment.new_organization()
    named = await Uploader(organization.on("email")).take(b"address,occurred_at\n", name=name)
    other = await Uploader(organization.on("sms")).take(b"address,occurred_at\n", name="opt-out.csv")
    foreign = await Uploader(elsewhere).take(b"address,occurred_at\n", name=name)
    (done,) = await erase(organization, address)
    assert (done.records, done.file_names) == (0, 1)
    for each, kept_name in ((named, "erased"), (other, "opt-out.csv"), (foreign, name)):
        uploader = Uploader(organization)
        assert (await uploader.imported(each)).file_name == (await uploader.now(each)).file_name == kept_name
    assert await erase(organization, address) == []


@in_loop
async def test_an_unfinished_upload_is_in_the_way(deployment: OptOutDeployment) -> None:
    """It is named, and nothing is erased."""
    organization = await deployment.new_organization()
    await organization.submit(out(ANN))
    uploader = Uploader(organization)
    waiting = await uploader.upload(b"address\nann@example.org\n")
    with pytest.raises(Refused, match=waiting.import_id):
        await erase(organization, "not.known.yet@example.org")
    with pytest.raises(Refused, match=waiting.import_id):
        await erase(organization, ANN)
    assert records(await organization.look_up(ANN))[0].address_digest is UNSET
    await discard_upload(ADMINISTRATOR, deployment.stores, organization.feed_id, waiting.import_id)
    assert [one.records for one in await erase(organization, ANN)] == [1]


@in_loop
async def test_an_upload_that_begins_meanwhile_is_in_the_way(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the erasure has looked for one, and before it has the lock of the feed."""
    organization = await deployment.new_organization()
    await organization.submit(out(ANN))

    begun: list[Upload] = []

    async def upload_first(*arguments: Any) -> int:
        begun.append(await Uploader(organization).upload(b"address\nann@example.org\n"))
        return await forget_rejects(*arguments)

    monkeypatch.setattr(erasing, "forget_rejects", upload_first)
    with pytest.raises(Refused, match="is not finished"):
        await erase(organization, ANN)
    assert records(await organization.look_up(ANN))[0].address_digest is UNSET
    await discard_upload(ADMINISTRATOR, deployment.stores, organization.feed_id, begun[0].import_id)


@in_loop
async def test_who_may_erase(deployment: OptOutDeployment) -> None:
    """Organization admins in their own, administrators everywhere."""
    organization, other = await deployment.new_organization(), await deployment.new_organization()
    for one in (organization, other):
        await one.submit(out(ANN))
    admin = Actor(kind="person", id="a@example.org", roles={organization.slug: ADMIN})
    viewer = Actor(kind="person", id="v@example.org", roles={organization.slug: VIEWER})
    with pytest.raises(Forbidden):
        await erase(organization, ANN, by=viewer)
    with pytest.raises(Missing):
        await erase(other, ANN, by=admin)
    with pytest.raises(Forbidden):
        await erase(organization, ANN, by=viewer, org_slug=None)
    assert [one.org_slug for one in await erase(organization, ANN, by=admin, org_slug=None)] == [organization.slug]
    assert await erase(organization, ANN, by=admin) == []
    assert other.slug in [one.org_slug for one in await erase(other, ANN, org_slug=None)]
    row = next(row for row in await audit_rows(deployment.database) if row.action == "person.erase")
    assert ANN not in str(row)


@in_loop
async def test_the_first_erasure_ends_older_programs(deployment: OptOutDeployment) -> None:
    """It must be confirmed, and raises the oldest program allowed in its own transaction."""
    organization = await deployment.new_organization()
    await organization.submit(out(ANN))
    await execute(
        deployment.database, "UPDATE deployment SET first_erasure_ms = NULL, oldest_program = :old", old="0.0.1"
    )
    with pytest.raises(Refused, match="older process"):
        await erase(organization, ANN, is_all_upgraded=False)
    assert await value(deployment.database, "SELECT oldest_program FROM deployment") == "0.0.1"
    await erase(organization, ANN)
    raised = await schema.read(deployment.database)
    assert raised is not None
    assert raised.oldest_program == __version__
    await organization.submit(out(BOB))
    assert len(await erase(organization, BOB, is_all_upgraded=False)) == 1


@in_loop
async def test_changed_addresses_counts_what_it_cannot_judge(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    await organization.submit(out(ANN), out(BOB))
    await erase(organization, ANN)
    examined = [part async for part in find_changed_addresses(ADMINISTRATOR, deployment.database)]
    assert sum(part.erased for part in examined) >= 1
    assert not any(part.changed for part in examined)


class Crash(Exception):
    """The process ends here."""


class CrashingTransaction:
    """A transaction that ends before its statement of this number."""

    def __init__(self, transaction: Transaction, statements: int) -> None:
        self._transaction, self._left = transaction, statements
        self.pause = transaction.pause
        self.outbox_feed_id = transaction.outbox_feed_id

    async def _count(self) -> None:
        if not self._left:
            raise Crash
        self._left -= 1

    async def one(self, *query: Any, **values: Any) -> Any:
        await self._count()
        return await self._transaction.one(*query, **values)

    async def all(self, *query: Any, **values: Any) -> Any:
        await self._count()
        return await self._transaction.all(*query, **values)

    async def run(self, *query: Any, **values: Any) -> Any:
        await self._count()
        return await self._transaction.run(*query, **values)


@in_loop
async def test_a_crash_at_any_statement_leaves_it_whole_or_not_begun(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    organization = await deployment.new_organization()
    await organization.submit(out(ANN, source="a form"), out(BOB))
    await organization.submit(out(ANN), all_groups=True)
    before, write = await organization.stored(), deployment.database.write
    statements = 0
    while True:

        async def crashing(unit: Any, at: int = statements, **options: Any) -> Any:
            return await write(lambda transaction: unit(CrashingTransaction(transaction, at)), **options)

        monkeypatch.setattr(deployment.database, "write", crashing)
        try:
            await erase(organization, ANN)
        except Crash:
            assert await organization.stored() == before
            statements += 1
        else:
            break
    assert statements > 10
    addresses = {
        row["address"]
        for table in ("unsubscribes", "unsubscribe_versions")
        for row in await organization.rows(table, "seq")
    }
    assert addresses == {BOB, f"erased:{await digest_in(organization, ANN)}"}

"""A person can see what is stored about them, and each read is noted (docs/interface.md section D13, Access)."""

import pytest

from stoplist import rfc3339
from stoplist.actor import VIEWER, Actor
from stoplist.errors import Missing
from stoplist.proof.positions import Positions
from stoplist.records import history as records_history
from stoplist.records import search as records_search
from stoplist.rights.access import PersonFile, file_content, show_person
from stoplist.rights.reads import READ_ACTION, note_read
from stoplist.rights.retention import Retention, delete_old
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.feed import find_feed_by_id
from tests.builders import ADMINISTRATOR, audit_rows, execute
from tests.constants import HOUR_S
from tests.deployment import in_loop
from tests.lists.imports.importer import Importer, list_of
from tests.rights.eraser import digest_in, erase
from tests.unsubscribes.partner import OptOutDeployment, Organization, back, out

ANN = "ann@example.org"


async def shown(organization: Organization, by: Actor = ADMINISTRATOR, at_ms: int | None = None) -> PersonFile:
    stores = organization.deployment.stores
    return await show_person(by, stores, CHANNELS["email"], ANN, org_slug=organization.slug, at_ms=at_ms)


@in_loop
async def test_the_file_has_every_version_and_its_sender(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    sent = await organization.submit(out(ANN, deployment.ago(9), source="a form"))
    before_ms = deployment.now_ms
    deployment.clock.advance(60)
    await organization.submit(back(ANN, deployment.ago(5)))
    await Importer(organization).take(list_of([(ANN, deployment.now_ms)]))
    person = await shown(organization)
    by_group = {record.group_id: record for record in person.records}
    versions = by_group[organization.default_group].versions
    assert [(one.status, one.source, one.actor_id, one.source_ip) for one in versions] == [
        ("resubscribed", None, organization.partner.id, "192.0.2.1"),
        ("unsubscribed", "a form", organization.partner.id, "192.0.2.1"),
    ]
    assert versions[1].submission_id == sent.submission_id
    assert by_group[None].versions[0].import_id is not None
    assert b'"a form"' in file_content(person)
    (then,) = (await shown(organization, at_ms=before_ms)).records
    assert (then.status, len(then.versions)) == ("unsubscribed", 1)
    now = next(record for record in person.records if record.group_id == then.group_id)
    assert (now.latest_act_at is None, now.is_confirmed) == (False, False)
    assert (then.latest_act_at, then.is_confirmed) == (None, None)


@in_loop
async def test_an_erased_person_can_ask_too(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    await organization.submit(out(ANN))
    await erase(organization, ANN)
    (record,) = (await shown(organization)).records
    assert record.address_digest == await digest_in(organization, ANN)
    assert [one.is_erasure for one in record.versions] == [True, False]


@in_loop
async def test_the_file_says_which_keys_have_the_record(deployment: OptOutDeployment) -> None:
    """Since when each key has the newest version shown; as of a moment, what was known then."""
    organization = await deployment.new_organization()
    await organization.submit(out(ANN))
    feed, positions = await find_feed_by_id(deployment.database, organization.feed_id), Positions()
    assert feed is not None

    async def since(at_ms: int | None = None) -> str | None:
        (record,) = (await shown(organization, at_ms=at_ms)).records
        (one,) = [reader for reader in record.readers if reader.client_id == organization.partner.id]
        return one.since

    assert await since() is None
    before_ms = deployment.now_ms
    deployment.clock.advance(60)
    positions.note(feed, (organization.partner.id, 0), 1, now_ms=deployment.now_ms)
    await positions.flush(deployment.database)
    assert await since() == rfc3339.format_ms(deployment.now_ms)
    assert await since(before_ms) is None
    await erase(organization, ANN)
    assert await since() is None


@in_loop
async def test_the_file_says_that_older_versions_were_deleted(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By retention: yes, no, or unknown where one submission both created and updated records.

    It is unknown, too, where the oldest version is not shown. What was recorded since the deletion has lost nothing.
    """
    organization = await deployment.new_organization()
    await organization.submit(out(ANN))
    before_ms = deployment.now_ms
    deployment.clock.advance(1)
    other = organization.default_group
    await organization.submit(back(ANN, deployment.ago(0)), all_groups=True)
    await organization.submit(back(ANN, deployment.ago(0)), group_id=other)
    deployment.clock.advance(11 * 86_400)

    async def deleted() -> tuple[bool | None, dict[str | None, bool | None]]:
        person = await shown(organization)
        return person.older_versions_deleted, {one.group_id: one.older_versions_deleted for one in person.records}

    assert await deleted() == (False, {None: False, other: False})
    with monkeypatch.context() as patch:
        patch.setattr(records_history, "MAX_VERSIONS", 1)
        assert await deleted() == (None, {None: False, other: None})
    async for _ in delete_old(deployment.database, Retention(history_days=10), deployment.now_ms):
        pass
    assert await deleted() == (True, {None: False, other: True})
    then = await shown(organization, at_ms=before_ms)
    assert (then.records, then.older_versions_deleted) == ([], True)
    await organization.submit(out(ANN), out("bob@example.org"), group_id=other)
    deployment.clock.advance(1)
    await organization.submit(back(ANN, deployment.ago(0)), group_id=other)
    deployment.clock.advance(1)
    await organization.submit(out(ANN), group_id=other)
    assert await deleted() == (True, {None: False, other: True})
    deployment.clock.advance(11 * 86_400)
    await organization.submit(out(ANN))
    async for _ in delete_old(deployment.database, Retention(history_days=10), deployment.now_ms):
        pass
    assert await deleted() == (True, {None: False, other: True})
    third = await organization.new_group("Third")
    await organization.submit(out("bob@example.org"), group_id=third)
    deployment.clock.advance(1)
    await organization.submit(back("bob@example.org", deployment.ago(0)), out(ANN), group_id=third)
    assert await deleted() == (True, {None: False, other: True, third: False})


@in_loop
async def test_nobody_sees_other_organizations(deployment: OptOutDeployment) -> None:
    organization, other = await deployment.new_organization(), await deployment.new_organization()
    for one in (organization, other):
        await one.submit(out(ANN))
    viewer = Actor(kind="person", id="v@example.org", roles={organization.slug: VIEWER})
    with pytest.raises(Missing):
        await shown(other, viewer)
    found = await show_person(viewer, deployment.stores, CHANNELS["email"], ANN)
    assert {record.org_slug for record in found.records} == {organization.slug}


@in_loop
async def test_an_organization_is_shown_whoever_else_knows_the_person(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each organization can be asked about by itself, even if more records are found than are shown."""
    monkeypatch.setattr(records_search, "MAX_FOUND", 1)
    organizations = [await deployment.new_organization() for _ in range(3)]
    for one in organizations:
        await one.submit(out(ANN))
    assert (await show_person(ADMINISTRATOR, deployment.stores, CHANNELS["email"], ANN)).is_cut
    for one in organizations:
        person = await shown(one)
        assert ([record.org_slug for record in person.records], person.is_cut) == ([one.slug], False)


@in_loop
async def test_a_read_is_noted_once_an_hour_without_the_address(deployment: OptOutDeployment) -> None:
    """Reads of people and of commands are; a partner reads all day long."""
    reader = Actor(kind="person", id="reader@example.org")
    for _ in range(2):
        await note_read(reader, deployment.stores, ANN, organizations=())
    await note_read(reader, deployment.stores, "bob@example.org", organizations=())
    deployment.clock.advance(HOUR_S)
    await note_read(reader, deployment.stores, ANN, organizations=())
    await note_read(Actor(kind="client", id="reader@example.org"), deployment.stores, ANN, organizations=())
    noted = [row for row in await audit_rows(deployment.database) if row.action == READ_ACTION]
    mine = [row for row in noted if "reader@example.org" in str(row)]
    assert len(mine) == 3
    assert len({row.target for row in mine}) == 2
    assert ANN not in str(mine)


@in_loop
async def test_nobody_can_tell_the_address_of_a_read_without_the_key(deployment: OptOutDeployment) -> None:
    """Another deployment, which has another key, notes the same address differently."""
    readers = [Actor(kind="person", id=f"{name}@example.org") for name in ("one", "other")]
    for reader in readers:
        await note_read(reader, deployment.stores, ANN, organizations=())
        await execute(deployment.database, "UPDATE deployment SET reading_key = NULL")
    noted = [row for row in await audit_rows(deployment.database) if row.action == READ_ACTION]
    one, other = ([row.target for row in noted if reader.id in row.actor] for reader in readers)
    assert (len(one), len(other), one != other) == (1, 1, True)

"""Everything that is stored about a person: their records with every version, who sent each, and which keys have it.

Source: docs/interface.md section D13, Access.
"""

from typing import Any

import msgspec

from stoplist import rfc3339
from stoplist.actor import Actor
from stoplist.db import Database
from stoplist.db.query import load_queries
from stoplist.organizations.store import find_organization, require_visible
from stoplist.proof.propagation import since_when
from stoplist.records.history import RecordDetails, Version, show_record
from stoplist.records.search import search
from stoplist.rights.reads import note_read
from stoplist.slicing import yield_to_loop
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.model import OptOutStores

_DELETED_HISTORY = load_queries(__package__)["deleted_history"]
_IMPORT = load_queries("stoplist.lists.imports")["import_of_submission"]


class KnownVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A state of a record, who sent it, and with which submission or import. `is_erasure`: only the address went."""

    seq: int
    status: str
    reason: str
    source: str | None
    occurred_at: str
    recorded_at: str
    submission_id: str
    import_id: str | None
    actor_kind: str | None
    actor_id: str | None
    key_label: str | None
    source_ip: str | None
    request_id: str | None
    is_erasure: bool


class FollowingKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key, and since when at the latest it has the newest listed version; `since` is None if nothing shows it."""

    client_id: str
    label: str
    since: str | None


class KnownRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record of the person, the newest version first. With `is_cut` there are older versions than those listed.

    `latest_act_at` and `is_confirmed` are kept for now alone: as of a moment they are None. `older_versions_deleted`:
    whether retention has deleted older ones; None if that cannot be told. `readers` are the active keys that read the
    organization's feed.
    """

    id: str
    org_slug: str
    group_id: str | None
    group_name: str | None
    address_digest: str | None
    status: str
    reason: str
    latest_act_at: str | None
    is_confirmed: bool | None
    versions: list[KnownVersion]
    is_cut: bool
    older_versions_deleted: bool | None
    readers: list[FollowingKey]


class PersonFile(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the actor may see of what is stored about an address on a channel, now or `at` a moment.

    With `is_cut` there are more records. `older_versions_deleted`: whether it is so of any record, also of one whose
    only versions known then are deleted.
    """

    channel: str
    address: str
    at: str | None
    records: list[KnownRecord]
    is_cut: bool
    older_versions_deleted: bool | None


async def show_person(
    actor: Actor,
    stores: OptOutStores,
    channel: Channel,
    address: str,
    *,
    org_slug: str | None = None,
    at_ms: int | None = None,
) -> PersonFile:
    """Return what is stored about this canonical address: in one organization, or in all that the actor sees.

    With `at_ms`, what was known at that moment. The read leaves an entry in the audit, without the address.
    """
    if org_slug is not None:
        require_visible(actor, org_slug)
        await find_organization(stores.database, org_slug)
    found = await search(actor, stores.database, address, org_slug=org_slug)
    wanted = [one for one in found.addresses[0].records if one.channel == channel.name]
    records: list[KnownRecord] = []
    is_deleted: set[bool | None] = set()
    for one in wanted:
        details = await show_record(actor, stores.database, org_slug=one.org_slug, channel=channel, seq=one.seq)
        organization = await find_organization(stores.database, details.org_slug)
        number = feed_id(organization.organization_id, channel)
        older_versions_deleted = await _are_older_versions_deleted(stores.database, number, details)
        is_deleted.add(older_versions_deleted)
        record = await _record(actor, stores, channel, details, number, at_ms, older_versions_deleted)
        if record is not None:
            records.append(record)
        await yield_to_loop()
    await note_read(actor, stores, address, organizations=sorted({one.org_slug for one in wanted}))
    return PersonFile(
        channel=channel.name,
        address=address,
        at=None if at_ms is None else rfc3339.format_ms(at_ms),
        records=records,
        is_cut=found.is_cut,
        older_versions_deleted=True if True in is_deleted else None if None in is_deleted else False,
    )


def file_content(person: PersonFile) -> bytes:
    """Return the file that is handed to the person: JSON, with line breaks."""
    return msgspec.json.format(msgspec.json.encode(person), indent=2) + b"\n"


async def _record(
    actor: Actor,
    stores: OptOutStores,
    channel: Channel,
    details: RecordDetails,
    number: int,
    at_ms: int | None,
    older_versions_deleted: bool | None,
) -> KnownRecord | None:
    versions = [each for each in details.versions if at_ms is None or each.recorded_ms <= at_ms]
    if not versions:
        return None
    imports: dict[str, str | None] = {}
    for submission_id in {each.submission_id for each in versions}:
        row = await stores.database.one(_IMPORT, feed_id=number, submission_id=submission_id)
        imports[submission_id] = None if row is None else row["import_id"]
    latest_ms = details.latest_act_ms if at_ms is None else None
    return KnownRecord(
        id=details.id,
        org_slug=details.org_slug,
        group_id=details.group_id,
        group_name=details.group_name,
        address_digest=details.address_digest,
        status=versions[0].status,
        reason=versions[0].reason,
        latest_act_at=None if latest_ms is None else rfc3339.format_ms(latest_ms),
        is_confirmed=details.is_confirmed if at_ms is None else None,
        versions=[_version(each, imports) for each in versions],
        is_cut=details.is_cut,
        older_versions_deleted=older_versions_deleted,
        readers=await _readers(actor, stores, channel, details, seq=versions[0].seq, at_ms=at_ms),
    )


async def _are_older_versions_deleted(database: Database, number: int, details: RecordDetails) -> bool | None:
    """Return whether versions before the oldest one were deleted; None if nothing tells.

    A version is deleted for the time of the next one, which therefore lies before the time up to which the feed's were.
    """
    oldest = details.versions[-1]
    row = await database.one(_DELETED_HISTORY, feed_id=number, submission_id=oldest.submission_id)
    if row is None or details.is_cut:
        return None
    if oldest.recorded_ms >= row["history_deleted_ms"] or not row["updated"]:
        return False
    return None if row["created"] else True


async def _readers(
    actor: Actor, stores: OptOutStores, channel: Channel, details: RecordDetails, *, seq: int, at_ms: int | None
) -> list[FollowingKey]:
    """Return since when each key has this version; as of a moment, what was known of it then."""
    found = await since_when(
        actor, stores, org_slug=details.org_slug, channel=channel, group_id=details.group_id, seq=seq
    )
    return [
        FollowingKey(
            client_id=one.client_id,
            label=one.label,
            since=None
            if one.since_ms is None or (at_ms is not None and one.since_ms > at_ms)
            else rfc3339.format_ms(one.since_ms),
        )
        for one in found
    ]


def _version(version: Version, imports: dict[str, str | None]) -> KnownVersion:
    sender: Any = version.sender
    return KnownVersion(
        seq=version.seq,
        status=version.status,
        reason=version.reason,
        source=version.source,
        occurred_at=rfc3339.format_ms(version.occurred_ms),
        recorded_at=rfc3339.format_ms(version.recorded_ms),
        submission_id=version.submission_id,
        import_id=imports[version.submission_id],
        actor_kind=sender and sender.actor_kind,
        actor_id=sender and sender.actor_id,
        key_label=sender and sender.label,
        source_ip=sender and sender.source_ip,
        request_id=sender and sender.request_id,
        is_erasure=version.is_erasure,
    )

"""One record with its whole history, and what its address bars: evidence why a person was not written to.

Source: docs/interface.md sections D5, D6 and D11.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from operator import itemgetter

import msgspec

from stoplist.actor import Actor
from stoplist.db import Database, Row
from stoplist.db.query import json_text, load_queries
from stoplist.errors import Missing
from stoplist.organizations.organizations import show_organization
from stoplist.organizations.target import ALL_GROUPS, GroupName, group_names, group_of
from stoplist.records.model import RecordState, state_fields
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.erased import digest_of, erased_form
from stoplist.unsubscribes.feed import find_feed_by_id
from stoplist.unsubscribes.model import UNSUBSCRIBED, Status

_QUERIES = load_queries(__package__)
_ADDRESS_AT = _QUERIES["address_at"]
_ERASURES_AT = _QUERIES["erasures_at"]
_RETURNS = _QUERIES["returns_of"]
_LABELS = _QUERIES["labels_of_clients"]
_OF_ADDRESS = _QUERIES["records_of_address"]
_SENDERS = _QUERIES["senders_of_submissions"]
_VERSIONS = _QUERIES["versions_of_record"]

MAX_VERSIONS = 1_000
_MAX_SEQ = 2**63 - 1


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of a submission, with its source address and request id.

    `label` is the label of the key, if a key sent it and the actor sees that key. `reverses` is the submission that
    this was a reversal of, if any.
    """

    actor_kind: str
    actor_id: str
    label: str | None
    source_ip: str | None
    request_id: str | None
    reverses: str | None


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A state of the record, from the change `seq` on. Times are milliseconds since 1970 UTC.

    `is_erasure`: only the address was erased; what else the state says is that of the one before.
    """

    seq: int
    status: Status
    reason: str
    source: str | None
    occurred_ms: int
    recorded_ms: int
    submission_id: str
    sender: Sender | None
    is_erasure: bool


class GroupRecord(RecordState, frozen=True, kw_only=True):
    """The present state of the address for one group, or for all groups.

    `is_barred`: nothing may be sent, because of this record or the all-groups record.
    """

    is_barred: bool


class RecordDetails(RecordState, frozen=True, kw_only=True):
    """A record as it is now, the other records of its address, and its history.

    `group_records` are all records of the address on this channel, this one included, the all-groups record first. A
    group without a record of its own is barred if `all_groups_barred`. `versions` begin with the present state; with
    `is_cut` there are older ones than the MAX_VERSIONS shown. `latest_act_ms`: the last known act of the person, None
    if no act counts. `is_confirmed`: the record was sent again since its last change. `address` is None, and
    `address_digest` is not, if the person was erased.
    """

    id: str
    org_slug: str
    org_name: str
    is_closed: bool
    channel: str
    address: str | None
    address_digest: str | None
    latest_act_ms: int | None
    is_confirmed: bool
    is_barred: bool
    all_groups_barred: bool
    group_records: list[GroupRecord]
    versions: list[Version]
    is_cut: bool


async def show_record(actor: Actor, database: Database, *, org_slug: str, channel: Channel, seq: int) -> RecordDetails:
    """Return the record that the change `seq` made or changed, as it is now, with its whole history.

    Raise Missing if the actor may not see the organization, or if it has no such change on this channel.
    """
    organization = await show_organization(actor, database, org_slug)
    number = feed_id(organization.organization_id, channel)
    row = None
    if 0 < seq <= _MAX_SEQ:
        row = await database.one(_ADDRESS_AT, feed_id=number, seq=seq)
    if row is None:
        raise Missing("There is no record of this number.")
    address, group_no = row["address"], row["group_no"]
    rows_by_form = [
        await database.all(_OF_ADDRESS, feed_id=number, address=form)
        for form in (address, *await _other_forms(database, number, address))
    ]
    (current,) = [row for row in rows_by_form[0] if row["group_no"] == group_no]
    address_rows = sorted(chain.from_iterable(rows_by_form), key=itemgetter("group_no"))
    all_groups_barred = any(row["group_no"] == ALL_GROUPS and row["status"] == UNSUBSCRIBED for row in address_rows)
    names = await group_names(database, [organization.organization_id])
    groups = {row["group_no"]: group_of(names, organization.organization_id, row["group_no"]) for row in address_rows}
    # Only versions before the current one: a change since the last query would otherwise appear twice.
    earlier = await database.all(
        _VERSIONS, feed_id=number, address=address, group_no=group_no, before=current["seq"], most=MAX_VERSIONS
    )
    states = [current, *earlier][:MAX_VERSIONS]
    erasures = await _erasures(database, number, [state["seq"] for state in states])
    submissions = {state["submission_id"] for state in states} | set(erasures.values())
    senders = await _senders(actor, database, number, submissions)
    return RecordDetails(
        id=current["id"],
        org_slug=organization.slug,
        org_name=organization.name,
        is_closed=organization.is_closed,
        channel=channel.name,
        address=address if digest_of(address) is None else None,
        address_digest=digest_of(address),
        latest_act_ms=current["latest_act_ms"],
        is_confirmed=bool(current["is_confirmed"]),
        is_barred=current["status"] == UNSUBSCRIBED or all_groups_barred,
        all_groups_barred=all_groups_barred,
        group_records=[_group_record(row, groups, all_groups_barred=all_groups_barred) for row in address_rows],
        versions=[_version(state, senders, erasures) for state in states],
        is_cut=len(earlier) + 1 > MAX_VERSIONS,
        **state_fields(current, groups[group_no]),
    )


async def labels_of_keys(actor: Actor, database: Database, client_ids: Iterable[str]) -> dict[str, str]:
    """Return the labels of those of these keys that the actor sees, by `client_id`."""
    rows = await database.all(
        _LABELS,
        clients=json_text(sorted(client_ids)),
        sees_all=int(actor.is_administrator),
        slugs=json_text(sorted(actor.roles)),
    )
    return {row["client_id"]: row["label"] for row in rows}


async def _other_forms(database: Database, number: int, address: str) -> list[str]:
    """Return the other forms under which the feed may hold records of the same person."""
    feed = await find_feed_by_id(database, number)
    key = None if feed is None else feed.erasing_key
    if key is None:
        return []
    digest = digest_of(address)
    if digest is None:
        return [erased_form(key, address)]
    forms: set[str] = set()
    for change in await database.all(_RETURNS, feed_id=number, digest=digest):
        row = await database.one(_ADDRESS_AT, feed_id=number, seq=change["seq"])
        if row is not None and erased_form(key, row["address"]) == address:
            forms.add(row["address"])
    return list(forms)


async def _erasures(database: Database, number: int, seqs: list[int]) -> dict[int, str]:
    """Return the submission of each of these changes that is an erasure."""
    rows = await database.all(_ERASURES_AT, feed_id=number, seqs=json_text(seqs))
    return {row["seq"]: row["submission_id"] for row in rows}


async def _senders(actor: Actor, database: Database, number: int, submission_ids: Iterable[str]) -> dict[str, Sender]:
    """Return the senders of these submissions; labels are those of keys that the actor sees."""
    rows = await database.all(_SENDERS, feed_id=number, submissions=json_text(sorted(submission_ids)))
    clients = {row["actor_id"] for row in rows if row["actor_kind"] == "client"}
    labels = await labels_of_keys(actor, database, clients)
    return {
        row["submission_id"]: Sender(
            actor_kind=row["actor_kind"],
            actor_id=row["actor_id"],
            label=labels.get(row["actor_id"]) if row["actor_kind"] == "client" else None,
            source_ip=row["source_ip"],
            request_id=row["request_id"],
            reverses=row["reverses"],
        )
        for row in rows
    }


def _group_record(row: Row, groups: Mapping[int, GroupName | None], *, all_groups_barred: bool) -> GroupRecord:
    is_barred = row["status"] == UNSUBSCRIBED or all_groups_barred
    return GroupRecord(is_barred=is_barred, **state_fields(row, groups[row["group_no"]]))


def _version(row: Row, senders: Mapping[str, Sender], erasures: Mapping[int, str]) -> Version:
    submission_id = erasures.get(row["seq"], row["submission_id"])
    return Version(
        seq=row["seq"],
        status=row["status"],
        reason=row["reason"],
        source=row["source"],
        occurred_ms=row["occurred_ms"],
        recorded_ms=row["recorded_ms"],
        submission_id=submission_id,
        sender=senders.get(submission_id),
        is_erasure=row["seq"] in erasures,
    )

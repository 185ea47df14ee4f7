"""One record with its whole history, and what its address bars: evidence why a person was not written to.

Source: docs/interface.md sections D5, D6 and D11.
"""

from collections.abc import Iterable, Mapping

import msgspec

from stoplist.actor import Actor
from stoplist.db import Database, Row
from stoplist.db.query import json_text, load_queries
from stoplist.errors import Missing
from stoplist.organizations.organizations import show_organization
from stoplist.organizations.target import GroupName, group_names
from stoplist.records.model import RecordState, state_fields
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.model import ALL_GROUPS, UNSUBSCRIBED, Status

_QUERIES = load_queries(__package__)
_ADDRESS_AT = _QUERIES["address_at"]
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
    """A state of the record, from the change `seq` on. Times are milliseconds since 1970 UTC."""

    seq: int
    status: Status
    reason: str
    source: str | None
    occurred_ms: int
    recorded_ms: int
    submission_id: str
    sender: Sender | None


class GroupStanding(RecordState, frozen=True, kw_only=True):
    """The present state of the address for one group, or for all groups.

    `is_barred`: nothing may be sent, because of this record or the all-groups record.
    """

    is_barred: bool


class RecordDetails(RecordState, frozen=True, kw_only=True):
    """A record as it is now, the other records of its address, and its history.

    `standings` are all records of the address on this channel, this one included, the all-groups record first. A group
    without a record of its own is barred if `all_groups_barred`. `versions` begin with the present state; with `is_cut`
    there are older ones than the MAX_VERSIONS shown. `latest_act_ms`: the last known act of the person, None if no act
    counts. `is_confirmed`: the record was sent again since its last change.
    """

    id: str
    org_slug: str
    org_name: str
    is_closed: bool
    channel: str
    address: str
    latest_act_ms: int | None
    is_confirmed: bool
    is_barred: bool
    all_groups_barred: bool
    standings: list[GroupStanding]
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
    address_rows = await database.all(_OF_ADDRESS, feed_id=number, address=address)
    (current,) = [row for row in address_rows if row["group_no"] == group_no]
    all_groups_barred = any(row["group_no"] == ALL_GROUPS and row["status"] == UNSUBSCRIBED for row in address_rows)
    names = {group: name for (_, group), name in (await group_names(database, [organization.organization_id])).items()}
    # Only versions before the current one: a change since the last query would otherwise appear twice.
    earlier = await database.all(
        _VERSIONS, feed_id=number, address=address, group_no=group_no, before=current["seq"], most=MAX_VERSIONS
    )
    states = [current, *earlier][:MAX_VERSIONS]
    senders = await _senders(actor, database, number, {state["submission_id"] for state in states})
    return RecordDetails(
        id=current["id"],
        org_slug=organization.slug,
        org_name=organization.name,
        is_closed=organization.is_closed,
        channel=channel.name,
        address=address,
        latest_act_ms=current["latest_act_ms"],
        is_confirmed=bool(current["is_confirmed"]),
        is_barred=current["status"] == UNSUBSCRIBED or all_groups_barred,
        all_groups_barred=all_groups_barred,
        standings=[_group_standing(row, names, all_groups_barred=all_groups_barred) for row in address_rows],
        versions=[_version(state, senders) for state in states],
        is_cut=len(earlier) + 1 > MAX_VERSIONS,
        **state_fields(current, names.get(group_no)),
    )


async def _senders(actor: Actor, database: Database, number: int, submission_ids: Iterable[str]) -> dict[str, Sender]:
    """Return the senders of these submissions; labels are those of keys that the actor sees."""
    rows = await database.all(_SENDERS, feed_id=number, submissions=json_text(sorted(submission_ids)))
    clients = sorted({row["actor_id"] for row in rows if row["actor_kind"] == "client"})
    keys = await database.all(
        _LABELS, clients=json_text(clients), sees_all=int(actor.is_administrator), slugs=json_text(sorted(actor.roles))
    )
    labels = {row["client_id"]: row["label"] for row in keys}
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


def _group_standing(row: Row, names: Mapping[int, GroupName], *, all_groups_barred: bool) -> GroupStanding:
    is_barred = row["status"] == UNSUBSCRIBED or all_groups_barred
    return GroupStanding(is_barred=is_barred, **state_fields(row, names.get(row["group_no"])))


def _version(row: Row, senders: Mapping[str, Sender]) -> Version:
    return Version(
        seq=row["seq"],
        status=row["status"],
        reason=row["reason"],
        source=row["source"],
        occurred_ms=row["occurred_ms"],
        recorded_ms=row["recorded_ms"],
        submission_id=row["submission_id"],
        sender=senders.get(row["submission_id"]),
    )

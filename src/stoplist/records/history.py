"""One record with all that it ever was, and what its address bars: why somebody was not written to.

Source: docs/interface.md sections D5, D6 and D11.
"""

from collections.abc import Iterable, Mapping

import msgspec

from stoplist.actor import Actor
from stoplist.db import Database, Row
from stoplist.db.query import load_queries
from stoplist.errors import Missing
from stoplist.organizations.organizations import show_organization
from stoplist.organizations.target import GroupName, group_names
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.model import ALL_GROUPS, UNSUBSCRIBED, Status

_QUERIES = load_queries(__package__)
_ADDRESS_AT = _QUERIES["address_at"]
_LABELS = _QUERIES["labels_of_clients"]
_OF_ADDRESS = _QUERIES["records_of_address"]
_SENDERS = _QUERIES["senders_of_submissions"]
_VERSIONS = _QUERIES["versions_of_record"]

MAX_VERSIONS = 1_000
_MOST_NUMBERS = 2**63 - 1


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent a submission, from where and with which request; `label` is that of the key, if it was one that is seen.

    `reverses` is the submission that this one took back, if it was a reversal.
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


class GroupStanding(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for the address and one group; without a group, for all of them.

    `bars`: it says that nothing may be sent. `is_barred`: nothing may, be it for the record of all groups.
    """

    group_id: str | None
    group_name: str | None
    status: Status
    reason: str
    occurred_ms: int
    seq: int
    bars: bool
    is_barred: bool


class RecordDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A record as it is now, what stands beside it, and its history.

    `standings` are all of the address on this channel, this record among them, that of all groups first; what is no
    group among them is barred if `all_groups_barred`. `versions` begin with the present state; with `is_cut` there are
    older ones than the MAX_VERSIONS shown. `latest_act_ms`: the last known act of the person, None where none counts.
    `is_confirmed`: it was sent again since its last change. Times are milliseconds since 1970 UTC.
    """

    id: str
    org_slug: str
    org_name: str
    is_closed: bool
    channel: str
    address: str
    group_id: str | None
    group_name: str | None
    status: Status
    reason: str
    source: str | None
    occurred_ms: int
    recorded_ms: int
    seq: int
    latest_act_ms: int | None
    is_confirmed: bool
    bars: bool
    is_barred: bool
    all_groups_barred: bool
    standings: list[GroupStanding]
    versions: list[Version]
    is_cut: bool


async def show_record(actor: Actor, database: Database, *, org_slug: str, channel: Channel, seq: int) -> RecordDetails:
    """The record that the change `seq` made or changed, as it is now, with its whole history.

    Missing where the actor may not see the organization, and where it has no such change on this channel.
    """
    organization = await show_organization(actor, database, org_slug)
    number = feed_id(organization.organization_id, channel)
    row = None
    if 0 < seq <= _MOST_NUMBERS:
        row = await database.one(_ADDRESS_AT, feed_id=number, seq=seq)
    if row is None:
        raise Missing("There is no record of this number.")
    address, group_no = row["address"], row["group_no"]
    beside = await database.all(_OF_ADDRESS, feed_id=number, address=address)
    (now,) = [one for one in beside if one["group_no"] == group_no]
    all_groups_barred = any(one["group_no"] == ALL_GROUPS and one["status"] == UNSUBSCRIBED for one in beside)
    names = {group: name for (_, group), name in (await group_names(database, [organization.organization_id])).items()}
    # What it was, up to now: a change that has come since the question before would otherwise stand in both.
    past = await database.all(
        _VERSIONS, feed_id=number, address=address, group_no=group_no, before=now["seq"], most=MAX_VERSIONS
    )
    states = [now, *past][:MAX_VERSIONS]
    senders = await _senders(actor, database, number, {one["submission_id"] for one in states})
    group = names.get(group_no)
    return RecordDetails(
        id=now["id"],
        org_slug=organization.slug,
        org_name=organization.name,
        is_closed=organization.is_closed,
        channel=channel.name,
        address=address,
        group_id=None if group is None else group.group_id,
        group_name=None if group is None else group.name,
        status=now["status"],
        reason=now["reason"],
        source=now["source"],
        occurred_ms=now["occurred_ms"],
        recorded_ms=now["recorded_ms"],
        seq=now["seq"],
        latest_act_ms=now["latest_act_ms"],
        is_confirmed=bool(now["is_confirmed"]),
        bars=now["status"] == UNSUBSCRIBED,
        is_barred=now["status"] == UNSUBSCRIBED or all_groups_barred,
        all_groups_barred=all_groups_barred,
        standings=[_standing(one, names, all_groups_barred=all_groups_barred) for one in beside],
        versions=[_version(one, senders) for one in states],
        is_cut=len(past) + 1 > MAX_VERSIONS,
    )


async def _senders(actor: Actor, database: Database, number: int, submission_ids: Iterable[str]) -> dict[str, Sender]:
    """Who sent each of these submissions; the labels are those of keys that the actor sees."""
    rows = await database.all(_SENDERS, feed_id=number, submissions=_json(sorted(submission_ids)))
    clients = sorted({row["actor_id"] for row in rows if row["actor_kind"] == "client"})
    keys = await database.all(
        _LABELS, clients=_json(clients), sees_all=int(actor.is_administrator), slugs=_json(sorted(actor.roles))
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


def _standing(row: Row, names: Mapping[int, GroupName], *, all_groups_barred: bool) -> GroupStanding:
    group = names.get(row["group_no"])
    return GroupStanding(
        group_id=None if group is None else group.group_id,
        group_name=None if group is None else group.name,
        status=row["status"],
        reason=row["reason"],
        occurred_ms=row["occurred_ms"],
        seq=row["seq"],
        bars=row["status"] == UNSUBSCRIBED,
        is_barred=row["status"] == UNSUBSCRIBED or all_groups_barred,
    )


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


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()

"""The submissions of the organizations that a person sees, newest first: what one key sent on one day, say.

Source: docs/interface.md sections D6, D9 and D11.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from stoplist import ids
from stoplist.actor import Actor
from stoplist.db import Database
from stoplist.db.query import json_text, load_queries
from stoplist.db.split import foreign_feeds_of
from stoplist.errors import Refused
from stoplist.organizations.model import Organization
from stoplist.organizations.organizations import list_organizations, show_organization
from stoplist.organizations.target import group_label, group_names
from stoplist.records.history import labels_of_keys
from stoplist.records.submissions import SubmissionSummary
from stoplist.unsubscribes.channel import CHANNELS, Channel, feed_id

_QUERIES = load_queries(__package__)
_BEFORE = _QUERIES["submissions_before"]
_OF_SENDER_BEFORE = _QUERIES["submissions_of_sender_before"]

DEFAULT_SUBMISSIONS = 50
_END_OF_TIME_MS = 2**62


class ListedSubmission(SubmissionSummary, frozen=True, kw_only=True):
    """A submission in a list.

    `label` is the label of the key, if a key sent it and the actor sees that key. `reversed_by` is the submission that
    took it back, if any. An import has one line, which has its `import_id` and the counts of all of it, and otherwise
    what its first submission has; so has its reversal, with `reversed_import_id`.
    """

    label: str | None
    reversed_by: str | None
    import_id: str | None = None
    reversed_import_id: str | None = None


class Position(NamedTuple):
    """The position of a submission in the list."""

    received_ms: int
    submission_id: str


class SubmissionPage(msgspec.Struct, frozen=True):
    """A page of submissions. `older` is the `before` of the next page, None on the last page."""

    submissions: list[ListedSubmission]
    older: Position | None


class _Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    feed_id: int
    submission_id: str
    group_no: int
    actor_kind: str
    actor_id: str
    source_ip: str | None
    received_ms: int
    received: int
    created: int
    updated: int
    unchanged: int
    outranked: int
    rejected: int
    reversed_by: str | None
    import_id: str | None
    import_counts: str | None
    reversed_import_id: str | None
    taken_back: int | None


class _ImportCounts(msgspec.Struct):
    rows: int = 0
    bad: dict[str, int] = {}
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    outranked: int = 0


_ROWS = msgspec.json.Decoder(list[_Row])
_COUNTS = msgspec.json.Decoder(_ImportCounts)


async def list_submissions(
    actor: Actor,
    database: Database,
    *,
    org_slug: str | None = None,
    channel: Channel | None = None,
    client_id: str | None = None,
    from_ms: int | None = None,
    until_ms: int | None = None,
    before: Position | None = None,
    limit: int = DEFAULT_SUBMISSIONS,
) -> SubmissionPage:
    """Return the newest submissions before that position, of all organizations that the actor may see or of one.

    A filter that is None matches everything; `client_id` is the key that sent them, or the link key. Acts by links, of
    which each click is one, are listed with their link key alone. Of the two times (ms UTC) the first
    is inclusive. Raise Missing for an organization that the actor may not see, Refused (`key`) for a malformed client
    id.
    """
    if client_id is not None and not (ids.could_be_id(client_id, ids.CLIENT_ID) or ids.could_be_link_key_id(client_id)):
        raise Refused(
            "There is no such key. A client ID is `svc_ci_` and 22 letters and digits, the ID of a link key "
            "`lnk_` and 16 hexadecimal digits.",
            field="key",
        )
    organizations = [await show_organization(actor, database, org_slug)] if org_slug else None
    feeds = _feeds(organizations or await list_organizations(actor, database), [channel] if channel else None)
    if organizations is None:
        for number in foreign_feeds_of(database):
            feeds.pop(number, None)
    end = min(before or Position(_END_OF_TIME_MS, ""), Position(_END_OF_TIME_MS if until_ms is None else until_ms, ""))
    values = {
        "feed_ids": json_text(sorted(feeds)),
        "from_ms": -_END_OF_TIME_MS if from_ms is None else from_ms,
        "before_ms": end.received_ms,
        "before_id": end.submission_id,
        "most": limit + 1,
    }
    if client_id is None:
        row = await database.one_large(_BEFORE, **values)
    else:
        row = await database.one_large(_OF_SENDER_BEFORE, **values, actor_id=client_id)
    rows = _ROWS.decode(row["submissions"]) if row is not None and row["submissions"] is not None else []
    rows.sort(key=lambda one: (one.received_ms, one.submission_id), reverse=True)
    shown = rows[:limit]
    older = Position(shown[-1].received_ms, shown[-1].submission_id) if len(rows) > limit else None
    return SubmissionPage(await _listed(actor, database, feeds, shown), older)


def _line_of(row: _Row) -> _Row:
    """Return the line of a submission; of an import, or its reversal, with the counts of all of it."""
    if row.taken_back is not None:
        return msgspec.structs.replace(row, received=row.taken_back, updated=row.taken_back)
    if row.import_counts is None:
        return row
    counts = _COUNTS.decode(row.import_counts)
    return msgspec.structs.replace(
        row,
        received=counts.rows,
        created=counts.created,
        updated=counts.updated,
        unchanged=counts.unchanged,
        outranked=counts.outranked,
        rejected=sum(counts.bad.values()),
    )


def _feeds(
    organizations: Iterable[Organization], channels: Sequence[Channel] | None
) -> dict[int, tuple[Organization, Channel]]:
    """Return organization and channel of each feed, by its number."""
    return {
        feed_id(organization.organization_id, channel): (organization, channel)
        for organization in organizations
        for channel in channels or CHANNELS.values()
    }


async def _listed(
    actor: Actor, database: Database, feeds: dict[int, tuple[Organization, Channel]], rows: Sequence[_Row]
) -> list[ListedSubmission]:
    names = await group_names(database, (feeds[row.feed_id][0].organization_id for row in rows))
    labels = await labels_of_keys(actor, database, {row.actor_id for row in rows if row.actor_kind == "client"})
    listed = []
    for one in rows:
        row = _line_of(one)
        organization, channel = feeds[row.feed_id]
        group_id, group_name = group_label(names, organization.organization_id, row.group_no)
        listed.append(
            ListedSubmission(
                submission_id=row.submission_id,
                org_slug=organization.slug,
                channel=channel.name,
                group_id=group_id,
                group_name=group_name,
                actor_kind=row.actor_kind,
                actor_id=row.actor_id,
                label=labels.get(row.actor_id) if row.actor_kind == "client" else None,
                source_ip=row.source_ip,
                received_ms=row.received_ms,
                received=row.received,
                created=row.created,
                updated=row.updated,
                unchanged=row.unchanged,
                outranked=row.outranked,
                rejected=row.rejected,
                reversed_by=row.reversed_by,
                import_id=row.import_id,
                reversed_import_id=row.reversed_import_id,
            )
        )
    return listed

"""Answers whether an address is barred. A single SELECT reads feed, group and address from one snapshot.

Another process may replace the copy of the feed at any time. Source: docs/interface.md section D5.
"""

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from stoplist_client.errors import ConfigurationError, MirrorDiverged, MirrorTooOld, NotMirrored
from stoplist_client.mirror.divergence import Divergence
from stoplist_client.mirror.erased import erased_form
from stoplist_client.mirror.feeds import find_feed, several_organizations_error
from stoplist_client.mirror.file import MirrorConnection
from stoplist_client.mirror.group import AnyGroup, Group

# Clocks are corrected in small steps now and then. A time that is further ahead was written by a wrong clock.
_MAX_AHEAD_S = 60.0

# The row of the feed, and whether one address is barred, or the indexes of the barred ones of a list (twice if two
# records bar an address). Uses the primary keys of `feeds` and `states`. For a list, a join is 10% faster than EXISTS.
_ONE = """
SELECT feeds.synced_s, feeds.copy_no, feeds.is_only, feeds.diverged, EXISTS (SELECT 1 FROM states
  WHERE {copies} AND states.address = ? AND {group} AND states.is_barred), feeds.digest_key
FROM feeds WHERE feeds.feed_no = ?
"""
_MANY = """
SELECT feeds.synced_s, feeds.copy_no, feeds.is_only, feeds.diverged, (SELECT json_group_array(given.key)
  FROM json_each(?) AS given CROSS JOIN states
  WHERE {copies} AND states.address = given.value AND {group} AND states.is_barred), feeds.digest_key
FROM feeds WHERE feeds.feed_no = ?
"""
# Each takes one parameter. A group without a number may get one, and a record, before the query runs.
# The + keeps SQLite from looking up the address once for each side of the OR, which takes a third longer.
_KNOWN_GROUP = "(+states.group_no = 0 OR +states.group_no = ?)"
_UNKNOWN_GROUP = "(+states.group_no = 0 OR +states.group_no = (SELECT group_no FROM groups WHERE group_id = ?))"
_EVERY_GROUP = "states.group_no >= ?"
_NO_GROUP_NO = -1
_ANSWERING_COPY = "states.copy_no = feeds.copy_no"
_EITHER_COPY = "states.copy_no IN (feeds.copy_no, feeds.building_no)"

_INDEXES = msgspec.json.Decoder(set[int])


class Statements(msgspec.Struct, frozen=True):
    """The statements of a feed and group for one address and for many, with their other parameters.

    Those of either copy are for a feed whose copy differs from the service while it is read anew.
    """

    one: str
    many: str
    one_of_either: str
    many_of_either: str
    group: int | str
    feed_no: int
    channel: str
    names_organization: bool


def statements_for(connection: MirrorConnection, channel: str, org_slug: str | None, group_id: Group) -> Statements:
    """Return the statements of a query, cached. Raises ConfigurationError for a group of another organization."""
    key = (channel, org_slug, group_id)
    cached: Statements | None = connection.statements.get(key)
    if cached is not None:
        return cached
    feed = find_feed(connection, channel, org_slug)
    text, group, is_lasting = _group_condition(connection, feed.org_slug, group_id)
    statements = Statements(
        one=_ONE.format(group=text, copies=_ANSWERING_COPY),
        many=_MANY.format(group=text, copies=_ANSWERING_COPY),
        one_of_either=_ONE.format(group=text, copies=_EITHER_COPY),
        many_of_either=_MANY.format(group=text, copies=_EITHER_COPY),
        group=group,
        feed_no=feed.feed_no,
        channel=channel,
        names_organization=org_slug is not None,
    )
    if is_lasting:
        connection.statements[key] = statements
    return statements


def is_barred(
    connection: MirrorConnection, statements: Statements, canonical: str, max_age_s: float, now_s: float
) -> bool:
    """Return whether one canonical address is barred; MirrorDiverged if the feed is being read anew, and it is not."""
    parameters = (canonical, statements.group, statements.feed_no)
    row = connection.single_cursor.execute(statements.one, parameters).fetchone()
    if row is not None and row[5] is not None and not row[4]:
        return _is_barred_in_either_form(connection, statements, canonical, row[5], max_age_s, now_s)
    if row is not None and row[3] == Divergence.REREADING and not row[4]:
        row = connection.single_cursor.execute(statements.one_of_either, parameters).fetchone()
    if row is None:
        raise _unfollowed_error(connection, statements)
    synced_s, copy_no, is_only, diverged, is_barred, _ = row
    # This runs for every message, so the reason is determined only if the answer is refused.
    if copy_no is None or not is_only or not -_MAX_AHEAD_S <= now_s - synced_s <= max_age_s:
        require_current(row, statements, max_age_s, now_s)
    if diverged == Divergence.REREADING and not is_barred:
        raise diverged_error(statements.channel)
    return bool(is_barred)


def barred_indexes(
    connection: MirrorConnection,
    statements: Statements,
    canonical: Sequence[str | None],
    *,
    max_age_s: float,
    now_s: float,
) -> set[int]:
    """Return the indexes of the barred addresses in the list.

    Raises MirrorDiverged if the feed is being read anew, and an address of the list is not barred.
    """
    parameters = (_json(canonical), statements.group, statements.feed_no)
    row = connection.execute(statements.many, parameters).fetchone()
    if row is not None and row[5] is not None:  # some persons were erased: asked again for both forms at once
        forms = [None if address is None else erased_form(row[5], address) for address in canonical]
        parameters = (_json([*canonical, *forms]), statements.group, statements.feed_no)
        row = connection.execute(statements.many, parameters).fetchone()
    found, is_rereading = _found(connection, statements, parameters, row, max_age_s, now_s)
    barred = {index % len(canonical) for index in found}
    if is_rereading and len(barred) < sum(form is not None for form in canonical):
        raise diverged_error(statements.channel)
    return barred


def _is_barred_in_either_form(
    connection: MirrorConnection,
    statements: Statements,
    canonical: str,
    digest_key: str,
    max_age_s: float,
    now_s: float,
) -> bool:
    """Return what `is_barred` does where persons of the feed were erased: both forms are asked about at once."""
    parameters = (_json([canonical, erased_form(digest_key, canonical)]), statements.group, statements.feed_no)
    row = connection.execute(statements.many, parameters).fetchone()
    found, is_rereading = _found(connection, statements, parameters, row, max_age_s, now_s)
    if is_rereading and not found:
        raise diverged_error(statements.channel)
    return bool(found)


def _found(
    connection: MirrorConnection,
    statements: Statements,
    parameters: tuple[Any, ...],
    row: Sequence[Any] | None,
    max_age_s: float,
    now_s: float,
) -> tuple[set[int], bool]:
    """Return the indexes of what `row` says is barred, and whether the feed is being read again.

    Then both copies are asked. Raises if the feed cannot answer.
    """
    if row is not None and row[3] == Divergence.REREADING:
        row = connection.execute(statements.many_of_either, parameters).fetchone()
    if row is None:
        raise _unfollowed_error(connection, statements)
    require_current(row, statements, max_age_s, now_s)
    return _INDEXES.decode(row[4]), bool(row[3] == Divergence.REREADING)


def _json(addresses: Sequence[str | None]) -> str:
    return msgspec.json.encode(addresses).decode()


def require_current(row: Sequence[Any], statements: Statements, max_age_s: float, now_s: float) -> None:
    """Raise if the feed cannot answer: it was not read to its end, is ambiguous, or is too old."""
    synced_s, copy_no, is_only = row[0], row[1], row[2]
    if copy_no is None:
        raise NotMirrored("The mirror has not been read to its end yet: synchronise it.")
    if not (statements.names_organization or is_only):
        raise several_organizations_error(statements.channel)
    age_s = now_s - synced_s
    if not -_MAX_AHEAD_S <= age_s <= max_age_s and max_age_s != math.inf:
        raise _too_old_error(age_s, max_age_s)


def diverged_error(channel: str) -> MirrorDiverged:
    """Return the error for a question that cannot be answered until the feed has been read anew."""
    return MirrorDiverged(
        f"The mirror's copy of the channel {channel} differs from the service and must be read anew: synchronise it. "
        "Until that is done, it only bars and allows nobody."
    )


def _unfollowed_error(connection: MirrorConnection, statements: Statements) -> NotMirrored:
    """Return the error for a feed that was unfollowed meanwhile, and outdate the cached feed number."""
    connection.is_outdated = True
    return NotMirrored(f"The mirror no longer follows the channel {statements.channel}.")


def _group_condition(connection: MirrorConnection, org_slug: str, group_id: Group) -> tuple[str, int | str, bool]:
    """Return the condition, its parameter, and whether it may be cached: an unknown group may become known."""
    if group_id is None:
        return _KNOWN_GROUP, _NO_GROUP_NO, True
    if isinstance(group_id, AnyGroup):
        return _EVERY_GROUP, 0, True
    row = connection.execute("SELECT group_no, org_slug FROM groups WHERE group_id = ?", (group_id,)).fetchone()
    if row is None:
        return _UNKNOWN_GROUP, group_id, False
    group_no, owner = row
    if owner != org_slug:
        raise ConfigurationError(f"This group_id is a group of {owner}, but the query is about {org_slug}.")
    return _KNOWN_GROUP, group_no, True


def _too_old_error(age_s: float, max_age_s: float) -> MirrorTooOld:
    if age_s < 0:
        text = "The mirror was last synchronised in the future, so a clock was or is wrong: synchronise again"
    else:
        text = f"The mirror is {age_s:.0f} s old, but only {max_age_s:.0f} s are allowed: synchronise"
    return MirrorTooOld(f"{text}, or allow any age with max_age_s=math.inf.", age_s=age_s)

"""The question before a message: is this address barred? One SELECT answers, from one moment of the mirror.

Feed, group and address are looked at in the same snapshot, since another process may put a new copy in the place of
the old one at any time. Source: docs/interface.md section D5.
"""

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from stoplist_client.errors import ConfigurationError, MirrorTooOld, NotMirrored
from stoplist_client.mirror.feeds import find, several
from stoplist_client.mirror.file import Opened
from stoplist_client.mirror.group import AnyGroup, Group

# A host's clock is put right by steps now and then. What lies further ahead was written by a clock that was wrong.
_AHEAD_S = 60.0

# The row of the feed; then whether one address is barred, or which of a list are, by their place in it: twice where two
# records bar it. By the primary keys of `feeds` and `states`; a join is a tenth quicker than EXISTS for each of a list.
_ONE = """
SELECT feeds.synced_s, feeds.copy_no, feeds.is_only, EXISTS (SELECT 1 FROM states
  WHERE states.copy_no = feeds.copy_no AND states.address = ? AND {group} AND states.is_barred)
FROM feeds WHERE feeds.feed_no = ?
"""
_MANY = """
SELECT feeds.synced_s, feeds.copy_no, feeds.is_only, (SELECT json_group_array(given.key)
  FROM json_each(?) AS given CROSS JOIN states
  WHERE states.copy_no = feeds.copy_no AND states.address = given.value AND {group} AND states.is_barred)
FROM feeds WHERE feeds.feed_no = ?
"""
# Each takes one value. A group that has no number yet may get one, and a record, before the question is answered.
# The + keeps SQLite from looking the address up once for each side of the OR, which takes a third longer.
_KNOWN = "(+states.group_no = 0 OR +states.group_no = ?)"
_UNKNOWN = "(+states.group_no = 0 OR +states.group_no = (SELECT group_no FROM groups WHERE group_id = ?))"
_ANY = "states.group_no >= ?"
_NO_GROUP_NO = -1

_PLACES = msgspec.json.Decoder(set[int])


class Statements(msgspec.Struct, frozen=True):
    """Those for one address and for many of a feed and group, and what they take beside the addresses."""

    one: str
    many: str
    group: int | str
    feed_no: int
    channel: str
    names_organization: bool


def prepared(connection: Opened, channel: str, org_slug: str | None, group_id: Group) -> Statements:
    """What to ask this connection with. Refused is a group that is known as another organization's."""
    key = (channel, org_slug, group_id)
    known: Statements | None = connection.prepared.get(key)
    if known is not None:
        return known
    feed = find(connection, channel, org_slug)
    text, group, is_lasting = _condition(connection, feed.org_slug, group_id)
    statements = Statements(
        one=_ONE.format(group=text),
        many=_MANY.format(group=text),
        group=group,
        feed_no=feed.feed_no,
        channel=channel,
        names_organization=org_slug is not None,
    )
    if is_lasting:
        connection.prepared[key] = statements
    return statements


def is_barred(connection: Opened, statements: Statements, canonical: str, max_age_s: float, now_s: float) -> bool:
    """The answer on one address."""
    row = connection.single.execute(statements.one, (canonical, statements.group, statements.feed_no)).fetchone()
    if row is None:
        raise _unfollowed(connection, statements)
    synced_s, copy_no, is_only, is_barred = row
    # Every message asks this: what is wrong is looked into only once something is.
    if copy_no is None or not is_only or not -_AHEAD_S <= now_s - synced_s <= max_age_s:
        check(row, statements, max_age_s, now_s)
    return bool(is_barred)


def barred_places(
    connection: Opened, statements: Statements, canonical: Sequence[str | None], *, max_age_s: float, now_s: float
) -> set[int]:
    """Where in the list the barred ones stand."""
    given = msgspec.json.encode(canonical).decode()
    row = connection.execute(statements.many, (given, statements.group, statements.feed_no)).fetchone()
    if row is None:
        raise _unfollowed(connection, statements)
    check(row, statements, max_age_s, now_s)
    return _PLACES.decode(row[3])


def check(row: Sequence[Any], statements: Statements, max_age_s: float, now_s: float) -> None:
    """Raises where nothing may be answered: what the row says is not known to the end, or is too old."""
    synced_s, copy_no, is_only = row[0], row[1], row[2]
    if copy_no is None:
        raise NotMirrored("The mirror was not yet read to its end: synchronise until it is.")
    if not (statements.names_organization or is_only):
        raise several(statements.channel)
    age_s = now_s - synced_s
    if not -_AHEAD_S <= age_s <= max_age_s and max_age_s != math.inf:
        raise _too_old(age_s, max_age_s)


def _unfollowed(connection: Opened, statements: Statements) -> NotMirrored:
    """Somebody else stopped following it; perhaps it is followed again by now, with another number."""
    connection.is_outdated = True
    return NotMirrored(f"The mirror does not follow the channel {statements.channel} any more.")


def _condition(connection: Opened, org_slug: str, group_id: Group) -> tuple[str, int | str, bool]:
    """The text, what it takes, and whether it holds for good: a group that is unknown may become known."""
    if group_id is None:
        return _KNOWN, _NO_GROUP_NO, True
    if isinstance(group_id, AnyGroup):
        return _ANY, 0, True
    row = connection.execute("SELECT group_no, org_slug FROM groups WHERE group_id = ?", (group_id,)).fetchone()
    if row is None:
        return _UNKNOWN, group_id, False
    group_no, owner = row
    if owner != org_slug:
        raise ConfigurationError(f"This group_id is one of {owner}, and the question is about {org_slug}.")
    return _KNOWN, group_no, True


def _too_old(age_s: float, max_age_s: float) -> MirrorTooOld:
    if age_s < 0:
        text = "The mirror was brought up to date in the future: one of the clocks was or is wrong. Synchronise again"
    else:
        text = f"The mirror is {age_s:.0f} s old, and {max_age_s:.0f} s are allowed: synchronise"
    return MirrorTooOld(f"{text}, or allow any age with max_age_s=math.inf.", age_s=age_s)

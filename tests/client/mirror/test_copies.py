"""A page is applied once, and a page that overlaps earlier ones changes nothing."""

import sqlite3
from collections.abc import Iterator

import msgspec
import pytest
from stoplist_client import Mirror
from stoplist_client.mirror import copies
from stoplist_client.mirror.copies import Groups
from stoplist_client.mirror.feeds import Feed, all_feeds
from stoplist_client.mirror.file import transaction
from stoplist_client.mirror.reading import Change, Position

from tests.client.partners import Partner


@pytest.fixture
def connection(mirror: Mirror) -> Iterator[sqlite3.Connection]:
    """A connection to the mirror's file."""
    with mirror._file.own_connection() as connection:
        yield connection


@pytest.fixture
def feed(connection: sqlite3.Connection) -> Feed:
    """The feed that the mirror follows."""
    (feed,) = all_feeds(connection)
    return feed


def _change(partner: Partner, *, seq: int, status: str, number: int = 1) -> Change:
    given = {
        "seq": seq, "address": f"p{number}@example.org", "group_id": partner.group_id, "id": f"uns_{number}",
        "status": status, "reason": "unsubscribe", "source": None,
        "occurred_at": f"2026-01-01T00:00:00.{seq:03}Z", "recorded_at": "2026-01-01T00:00:00.000Z",
    }  # fmt: skip
    return msgspec.convert(given, Change)


def _apply(connection: sqlite3.Connection, position: Position, changes: list[Change], *, is_last: bool) -> bool:
    with transaction(connection):
        return copies.apply(
            connection, Groups(connection), position, changes, next_cursor="next", synced_s=1e10 if is_last else None
        )


def test_only_the_first_page_after_a_cursor_is_applied(
    partner: Partner, mirror: Mirror, connection: sqlite3.Connection, feed: Feed
) -> None:
    """The second one has no effect, and its reader continues at the new position."""
    position = copies.position_of(connection, feed)
    assert _apply(connection, position, [_change(partner, seq=1, status="unsubscribed")], is_last=False)
    assert not _apply(connection, position, [_change(partner, seq=2, status="unsubscribed", number=2)], is_last=True)
    assert [followed.records for followed in mirror.feeds()] == [1]


def test_completed_copy_is_not_appended_to(
    partner: Partner, mirror: Mirror, connection: sqlite3.Connection, feed: Feed
) -> None:
    """The cursor may be the same: the rows would be listed, but bar nobody."""
    assert _apply(connection, copies.position_of(connection, feed), [], is_last=True)
    now = copies.position_of(connection, feed)
    late = msgspec.structs.replace(now, is_building=True)
    assert not _apply(connection, late, [_change(partner, seq=1, status="unsubscribed")], is_last=False)
    assert _apply(connection, now, [_change(partner, seq=1, status="unsubscribed")], is_last=False)
    assert mirror.is_barred("email", "p1@example.org", group_id=partner.group_id, max_age_s=float("inf"))


def test_deleted_copy_is_not_appended_to(
    partner: Partner, mirror: Mirror, connection: sqlite3.Connection, feed: Feed
) -> None:
    """Its reader notices, and continues with the new copy."""
    position = copies.position_of(connection, feed)
    copies.restart(connection, feed, position)
    copies.restart(connection, feed, position)
    assert copies.position_of(connection, feed).copy_no == position.copy_no + 1, "begun anew once, by whoever was first"
    assert not _apply(connection, position, [_change(partner, seq=1, status="unsubscribed")], is_last=True)


def test_overlapping_page_changes_nothing(
    partner: Partner, mirror: Mirror, connection: sqlite3.Connection, feed: Feed
) -> None:
    """An older version of a record neither bars nor allows, and is not listed again."""
    pages = [
        [_change(partner, seq=1, status="unsubscribed"), _change(partner, seq=2, status="unsubscribed", number=2)],
        [_change(partner, seq=3, status="resubscribed"), _change(partner, seq=4, status="unsubscribed", number=3)],
    ]
    for page in (pages[0], pages[1], pages[0], pages[1], pages[0]):
        assert _apply(connection, copies.position_of(connection, feed), page, is_last=True)
    assert [record.seq for record in mirror.records("email")] == [2, 3, 4]
    assert [followed.records for followed in mirror.feeds()] == [3]
    barred = [
        mirror.is_barred("email", f"p{number}@example.org", group_id=partner.group_id, max_age_s=float("inf"))
        for number in (1, 2, 3)
    ]
    assert barred == [False, True, True]

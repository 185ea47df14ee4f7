"""After a restore of the service, the mirror reads everything again, and never stops barring anybody meanwhile.

Source: docs/interface.md sections D1 (After a restore) and D6; docs/partner-guide.md, section 6.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from stoplist_client import Client, Item, Mirror, MirrorError, Record
from stoplist_client.mirror import FeedSynced

from tests.client.mirror.restorable import Restorable
from tests.client.partners import Partner

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def partner(restorable: Restorable) -> Partner:
    """A partner of the restorable service."""
    return restorable.new_partner()


def test_restore_without_losses_changes_nothing(restorable: Restorable, client: Client, mirror: Mirror) -> None:
    """Everything is read again, nothing is missing, and the old copy is deleted."""
    client.unsubscribe("email", [_of(number) for number in range(10)])
    mirror.sync()
    restorable.restore()
    client.unsubscribe("email", [_of(10)])
    (feed,) = mirror.sync().feeds
    assert (feed.records, feed.was_rebuilt, feed.missing) == (11, True, 0)
    assert list(mirror.records("email")) == list(client.changes("email"))
    assert not list(mirror.missing("email"))
    (feed,) = mirror.sync().feeds
    assert (feed.records, feed.was_rebuilt) == (0, False)


def test_old_copy_answers_until_the_new_one_is_complete(
    restorable: Restorable, partner: Partner, client: Client, mirror: Mirror, new_mirror: Callable[..., Mirror]
) -> None:
    """Other processes see the old copy at any time; an interrupted rebuild continues."""
    client.unsubscribe("email", [_of(number) for number in range(10)])
    mirror.sync()
    restorable.restore()
    client.unsubscribe("email", [_of(10)])
    reader = new_mirror()
    old = list(reader.records("email"))

    def look(progress: FeedSynced) -> None:
        if progress.pages < 4:
            assert list(reader.records("email")) == old
            assert [feed.is_rebuilding for feed in reader.feeds()] == [True]
            assert _barred(reader, range(11), partner) == set(range(10))
        if progress.pages == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mirror.sync(look)
    assert _barred(reader, range(11), partner) == set(range(10))
    (feed,) = mirror.sync().feeds
    assert (feed.pages, feed.was_rebuilt) == (2, True)
    assert _barred(reader, range(11), partner) == set(range(11))
    assert [feed.is_rebuilding for feed in reader.feeds()] == [False]
    assert list(reader.records("email")) == list(client.changes("email"))


def test_lost_opt_outs_are_reported_and_go_on_barring(
    restorable: Restorable, partner: Partner, client: Client, mirror: Mirror
) -> None:
    """They bar until they are submitted again with all their fields; later acts of the person are respected."""
    client.unsubscribe("email", [Item(_of(number), LONG_AGO) for number in range(5)])
    client.resubscribe("email", [Item(_of(number), _day(1)) for number in (2, 3)])
    client.unsubscribe("email", [Item(_of(4), LONG_AGO)], all_groups=True)
    backup = restorable.backup()
    client.unsubscribe("email", [Item(_of(5), _day(2), reason="stop_keyword", source="shop"), Item(_of(2), _day(2))])
    client.unsubscribe("email", [Item(_of(3), _day(2))])
    client.unsubscribe("email", [Item(_of(6), _day(2))], all_groups=True)
    client.unsubscribe("email", [Item(_of(7), _day(2))])
    client.resubscribe("email", [Item(_of(0), _day(2))])
    mirror.sync()
    lost = {(one.address, one.group_id, one.occurred_at, one.reason, one.source) for one in mirror.records("email")}
    barred_before = _barred(mirror, range(8), partner)

    restorable.restore(backup)
    client.unsubscribe("email", [Item(_of(3), _day(3))])
    client.resubscribe("email", [Item(_of(3), _day(4))])  # later than the opt-out that was lost
    assert mirror.sync().missing == 4
    missing = list(mirror.missing("email"))
    assert {one.address for one in missing} == {_of(2), _of(5), _of(6), _of(7)}
    assert {(one.address, one.group_id, one.occurred_at, one.reason, one.source) for one in missing} < lost
    assert all(one.status == "unsubscribed" for one in missing)
    # Not 3, which has a later act of its own; and 0 again, since the service lost its consent.
    assert _barred(mirror, range(8), partner) == (barred_before | {0}) - {3}
    assert list(mirror.records("email")) == list(client.changes("email"))
    assert not mirror.is_barred("email", _of(5), group_id=None)
    assert mirror.is_barred("email", _of(6), group_id=None)

    client.resubscribe("email", [Item(_of(7), _day(1))])  # earlier than what the mirror knows
    assert mirror.sync().missing == 4
    assert 7 in _barred(mirror, range(8), partner)
    _submit_again(client, missing)
    assert mirror.sync().missing == 0
    assert _barred(mirror, range(8), partner) == (barred_before | {0}) - {3}
    assert list(mirror.records("email")) == list(client.changes("email"))
    client.resubscribe("email", [Item(_of(5), _day(9))])
    mirror.sync()
    assert 5 not in _barred(mirror, range(8), partner)


def test_service_decides_about_settled_opt_outs(
    restorable: Restorable, partner: Partner, client: Client, mirror: Mirror
) -> None:
    """A later act that the service knows does not appear in the feed again."""
    client.resubscribe("email", [Item(_of(0), _day(1))])
    backup = restorable.backup()
    client.unsubscribe("email", [Item(_of(number), _day(2)) for number in range(3)], group_id=partner.group_id)
    client.unsubscribe("email", [Item(_of(3), _day(2))], all_groups=True)
    mirror.sync()
    restorable.restore(backup)
    client.resubscribe("email", [Item(_of(0), _day(3))])  # the record keeps its time: it had that status
    assert mirror.sync().missing == 4
    missing = {one.address: one for one in mirror.missing("email")}
    _submit_again(client, [missing[_of(0)], missing[_of(1)]])
    mirror.settle("email", [missing[_of(number)] for number in (0, 1, 3)])
    assert _barred(mirror, range(4), partner) == {0, 1, 2, 3}, "until the service was asked"
    assert mirror.sync().missing == 1
    assert _barred(mirror, range(4), partner) == {1, 2}
    assert list(mirror.records("email")) == list(client.changes("email"))


def test_second_restore_makes_settled_opt_outs_missing(
    restorable: Restorable, partner: Partner, client: Client, mirror: Mirror
) -> None:
    """They were submitted and settled, and lost again before the next synchronisation."""
    backup = restorable.backup()
    client.unsubscribe("email", [Item(_of(number), LONG_AGO) for number in range(2)])
    mirror.sync()
    restorable.restore(backup)
    assert mirror.sync().missing == 2
    missing = list(mirror.missing("email"))
    _submit_again(client, missing)
    mirror.settle("email", missing)
    restorable.restore(backup)
    _submit_again(client, missing[:1])
    assert mirror.sync().missing == 1
    assert list(mirror.missing("email")) == missing[1:]
    assert mirror.sync().missing == 1
    assert _barred(mirror, range(2), partner) == {0, 1}
    _submit_again(client, missing)
    mirror.settle("email", missing)
    assert mirror.sync().missing == 0
    assert _barred(mirror, range(2), partner) == {0, 1}


def test_unfollow_refuses_missing_opt_outs(
    restorable: Restorable, partner: Partner, client: Client, mirror: Mirror
) -> None:
    """Only this mirror has them. Once they are settled, nothing of the feed is left."""
    backup = restorable.backup()
    client.unsubscribe("email", [Item(_of(0), LONG_AGO)])
    mirror.sync()
    restorable.restore(backup)
    mirror.follow("sms")
    mirror.sync()
    with pytest.raises(MirrorError, match=r"lost .* 1 in all: .*settle"):
        mirror.unfollow("sms", "email")
    assert _barred(mirror, range(1), partner) == {0}
    assert len(mirror.feeds()) == 2
    mirror.settle("email", mirror.missing("email"))
    mirror.unfollow("sms", "email")
    mirror.follow("email")
    mirror.sync()
    assert [feed.missing for feed in mirror.feeds()] == [0]
    assert _barred(mirror, range(1), partner) == set()


def test_restore_during_a_rebuild_restarts_it(
    restorable: Restorable, partner: Partner, client: Client, mirror: Mirror
) -> None:
    """Opt-outs missing after the first restore are missing after the second."""
    client.unsubscribe("email", [Item(_of(number), LONG_AGO) for number in range(10)])
    backup = restorable.backup()
    client.unsubscribe("email", [Item(_of(10), LONG_AGO)])
    mirror.sync()
    restorable.restore(backup)
    times = []

    def restore_again(progress: FeedSynced) -> None:
        times.append(progress.pages)
        if len(times) == 2:
            restorable.restore()

    assert mirror.sync(restore_again).missing == 1
    assert len(times) > 4
    assert _barred(mirror, range(11), partner) == set(range(11))
    restorable.restore(backup)
    assert mirror.sync().missing == 1
    assert [one.address for one in mirror.missing("email")] == [_of(10)]
    assert _barred(mirror, range(11), partner) == set(range(11))
    assert list(mirror.records("email")) == list(client.changes("email"))


def test_restore_during_the_first_read_restarts_it(restorable: Restorable, client: Client, mirror: Mirror) -> None:
    """The mirror did not answer before, so nothing is missing."""
    client.unsubscribe("email", [_of(number) for number in range(10)])

    def restore(progress: FeedSynced) -> None:
        if (progress.pages, progress.records) == (1, 3):
            restorable.restore()

    assert mirror.sync(restore).missing == 0
    assert list(mirror.records("email")) == list(client.changes("email"))


def test_old_copies_are_deleted(restorable: Restorable, client: Client, mirror: Mirror, tmp_path: Path) -> None:
    """They are deleted in several slices, and so are those of killed processes."""
    people = [_of(number) for number in range(10_500)]
    client.unsubscribe("email", people)
    quick = Mirror(tmp_path / "mirror.db", client)
    quick.sync()
    restorable.restore()
    quick.sync()
    quick.close()
    with closing(sqlite3.connect(tmp_path / "mirror.db")) as connection:
        for table in ("records", "states"):
            counted = connection.execute(f"SELECT copy_no, count(*) FROM {table} GROUP BY copy_no").fetchall()  # noqa: S608
            assert [count for _, count in counted] == [len(people)], table
        assert connection.execute("SELECT count(*) FROM copies").fetchall() == [(1,)]


def _submit_again(client: Client, missing: list[Record]) -> None:
    for one in missing:
        item = Item(one.address or "", one.occurred_at, one.reason, one.source)
        client.unsubscribe("email", [item], group_id=one.group_id, all_groups=one.group_id is None)


def _barred(mirror: Mirror, numbers: Any, partner: Partner) -> set[int]:
    return {number for number in numbers if mirror.is_barred("email", _of(number), group_id=partner.group_id)}


def _day(number: int) -> datetime:
    return LONG_AGO + timedelta(days=number)


def _of(number: int) -> str:
    return f"p{number}@example.org"

"""A mirror that differs from the service finds out, and allows nobody meanwhile (docs/interface.md section D14)."""

import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from stoplist_client import Client, Item, Mirror, MirrorDiverged, MirrorError
from stoplist_client.mirror import FeedSynced, copies, on_disk

from tests.client.mirror.restorable import Restorable, give_out_digest
from tests.client.partners import Partner
from tests.constants import HOUR_S

NOBODY = "nobody@example.org"
# What may happen to the rows of a copy. Each takes the seq of a record; the copy is the only one of the file.
DAMAGES = {
    "a record is dropped": ("DELETE FROM records WHERE seq = ?1", "DELETE FROM states WHERE seq = ?1"),
    "only queries miss a record": ("DELETE FROM states WHERE seq = ?1",),
    "a record is doubled": (
        "INSERT INTO records SELECT copy_no, seq + 1000000, 'x' || address, group_no, id, is_barred, reason, source,"
        " occurred_at, recorded_at FROM records WHERE seq = ?1",
        "INSERT INTO states SELECT copy_no, 'x' || address, group_no, seq + 1000000, is_barred FROM states"
        " WHERE seq = ?1",
    ),
    "an address is altered": (
        "UPDATE records SET address = 'x' || address WHERE seq = ?1",
        "UPDATE states SET address = 'x' || address WHERE seq = ?1",
    ),
    "a status is altered": (
        "UPDATE records SET is_barred = 0 WHERE seq = ?1",
        "UPDATE states SET is_barred = 0 WHERE seq = ?1",
    ),
    "only queries know another status": ("UPDATE states SET is_barred = 0 WHERE seq = ?1",),
    "a group is altered": (
        "UPDATE records SET group_no = 0 WHERE seq = ?1",
        "UPDATE states SET group_no = 0 WHERE seq = ?1",
    ),
}


@pytest.fixture
def partner(restorable: Restorable) -> Partner:
    """A partner of the restorable service."""
    return restorable.new_partner()


@pytest.fixture
def wrong_state(restorable: Restorable, partner: Partner) -> Callable[[str], None]:
    """Sets the digest that the service gives out for the partner's e-mail list."""
    return partial(give_out_digest, restorable.service, partner.org_slug)


def _of(number: int) -> str:
    return f"p{number}@example.org"


def damage_copy(path: Path, damage: str, seq: int) -> None:
    with closing(sqlite3.connect(path, timeout=60)) as connection:
        for statement in DAMAGES[damage]:
            assert connection.execute(statement, (seq,)).rowcount == 1
        connection.commit()


def _require_equal(mirror: Mirror, client: Client) -> None:
    there = list(client.changes("email"))
    assert list(mirror.records("email")) == there
    assert mirror.verify()[0].records == len(there)


def test_mirror_keeps_the_state_of_the_service(
    restorable: Restorable, partner: Partner, client: Client, mirror: Mirror
) -> None:
    """First reads, changes, and changes of the same record within a page keep it."""
    for number in range(8):
        client.unsubscribe("email", [_of(one) for one in range(number, number + 4)])
        client.resubscribe("email", [Item(_of(number + 1), datetime.now(UTC))])
        client.unsubscribe("email", [_of(number)], all_groups=True)
        assert not mirror.sync().was_rebuilt
        (verified,) = mirror.verify()
        with closing(sqlite3.connect(restorable.service.installation.data_dir / "stoplist.db")) as database:
            (expected,) = database.execute(
                "SELECT state_records, state_digest FROM feeds JOIN organizations USING (organization_id)"
                " WHERE slug = ? AND channel = 'email'",
                (partner.org_slug,),
            ).fetchall()
        assert (verified.records, verified.digest) == expected


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_copy_is_found_by_the_next_synchronisation(
    client: Client, mirror: Mirror, tmp_path: Path, damage: str
) -> None:
    """It is found without a change of the feed, and each time; what the damaged copy alone has is not offered again."""
    client.unsubscribe("email", [_of(number) for number in range(10)])
    mirror.sync()
    for seq in (1, 5, 10):
        damage_copy(tmp_path / "mirror.db", damage, seq)
        (feed,) = mirror.sync().feeds
        assert (feed.was_diverged, feed.is_diverged, feed.missing) == (True, False, 0)
        _require_equal(mirror, client)
        (feed,) = mirror.sync().feeds
        assert (feed.was_diverged, feed.records) == (False, 0)


@pytest.mark.slow
def test_one_record_of_100_000_is_found_each_time(
    client: Client, new_mirror: Callable[..., Mirror], tmp_path: Path
) -> None:
    """It is found also in the copy that is then read anew. Every kind of damage is tried on ten records."""
    client.unsubscribe("email", [_of(number) for number in range(100_000)])
    mirror = new_mirror(client)
    mirror.follow("email")
    mirror.sync()
    damages = {"a record is dropped": 1, "a record is doubled": 77_777, "an address is altered": 100_000}
    for damage, seq in damages.items():
        damage_copy(tmp_path / "mirror.db", damage, seq)
        assert mirror.sync().feeds[0].was_diverged, damage
    _require_equal(mirror, client)


@pytest.mark.parametrize("is_first_read", [True, False])
@pytest.mark.parametrize("fault", ["drops", "doubles", "alters"])
def test_page_that_is_stored_wrongly_is_found_at_once(
    client: Client, mirror: Mirror, monkeypatch: pytest.MonkeyPatch, fault: str, is_first_read: bool
) -> None:
    """The synchronisation that stores it finds it, and then reads the feed again."""
    if not is_first_read:
        client.unsubscribe("email", [_of(number) for number in range(5)])
        mirror.sync()
    client.unsubscribe("email", [_of(number) for number in range(5, 12)])
    rows_of, faults = copies._rows, [fault]

    def rows(*arguments: Any) -> list[Any]:
        made = rows_of(*arguments)
        if not faults:
            return made
        faults.clear()
        copy_no, seq, address, *rest = made[0]
        altered = (copy_no, seq, f"x{address}", *rest)
        wrong: dict[str, list[Any]] = {
            "drops": made[1:],
            "doubles": [altered, *made],
            "alters": [altered, *made[1:]],
        }
        return wrong[fault]

    monkeypatch.setattr(copies, "_rows", rows)
    (feed,) = mirror.sync().feeds
    assert (feed.was_diverged, feed.is_diverged) == (True, False)
    _require_equal(mirror, client)


def test_either_copy_bars_until_the_new_one_is_complete(
    partner: Partner, client: Client, mirror: Mirror, new_mirror: Callable[..., Mirror], tmp_path: Path
) -> None:
    """Until then, no query of any process allows anybody else. An interruption changes nothing."""
    client.unsubscribe("email", [_of(number) for number in range(10)])
    mirror.sync()
    damage_copy(tmp_path / "mirror.db", "an address is altered", 1)
    damage_copy(tmp_path / "mirror.db", "only queries miss a record", 9)
    reader = new_mirror()
    assert not reader.is_barred("email", _of(0), group_id=partner.group_id), "not found out yet"
    group: dict[str, Any] = {"group_id": partner.group_id}
    views: list[list[int]] = []

    def look(progress: FeedSynced) -> None:
        if not progress.was_diverged:
            return
        barred = []
        for number in range(10):
            try:
                assert reader.is_barred("email", _of(number), **group)
                barred.append(number)
            except MirrorDiverged:
                with pytest.raises(MirrorDiverged):
                    list(reader.filter_allowed("email", [_of(number)], **group))
        views.append(barred)
        if reader.feeds()[0].is_rebuilding:
            assert reader.is_barred("email", f"x{_of(0)}", **group)
            with pytest.raises(MirrorDiverged):
                reader.is_barred("email", NOBODY, **group)
            with pytest.raises(MirrorDiverged):
                list(reader.check("email", [_of(1), NOBODY], **group))
            with pytest.raises(MirrorDiverged):
                list(reader.records("email"))
            assert [one.verdict for one in reader.check("email", [_of(1), "?"], **group)] == ["barred", "invalid"]
        if len(views) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mirror.sync(look)
    mirror.sync(look)
    assert views[:2] == [[1, 2, 3, 4, 5, 6, 7, 9], [*range(8), 9]]
    assert views[-1] == list(range(10))
    assert not reader.is_barred("email", NOBODY, **group)
    assert not reader.is_barred("email", f"x{_of(0)}", **group)
    _require_equal(mirror, client)


def test_fresh_copy_that_differs_again_answers(
    partner: Partner, client: Client, new_mirror: Callable[..., Mirror], wrong_state: Callable[[str], None]
) -> None:
    """`sync` raises each time, goes on applying changes, and reads anew once an hour; until the states agree."""
    now_s = [1_900_000_000.0]
    mirror = new_mirror(client, page_records=3, clock=lambda: now_s[0])
    mirror.follow("email")
    client.unsubscribe("email", [_of(number) for number in range(4)])
    wrong_state("0" * 64)
    pages: list[int] = []

    def sync() -> list[bool]:
        pages.clear()
        with pytest.raises(MirrorDiverged, match=r"email of .*although it was read anew"):
            mirror.sync(lambda feed: pages.append(feed.records))
        return [mirror.is_barred("email", one, group_id=partner.group_id) for one in (_of(0), _of(4), NOBODY)]

    assert sync() == [True, False, False]
    assert pages == [3, 4, 7, 8]
    assert mirror.feeds()[0].is_diverged
    client.unsubscribe("email", [_of(4)])
    wrong_state("1" * 64)
    assert sync() == [True, True, False]
    assert pages == [1]
    now_s[0] += HOUR_S - 1
    sync()
    assert pages == [0]
    now_s[0] += 1
    sync()
    assert pages == [0, 3, 5]
    wrong_state(mirror.verify()[0].digest)
    assert not mirror.sync().was_rebuilt
    assert not mirror.feeds()[0].is_diverged


def test_other_feeds_are_read_before_a_difference_is_raised(
    client: Client, mirror: Mirror, wrong_state: Callable[[str], None]
) -> None:
    mirror.follow("sms")
    client.unsubscribe("sms", ["+12125550123"], all_groups=True)
    client.unsubscribe("email", [_of(1)])
    wrong_state("0" * 64)
    with pytest.raises(MirrorDiverged):
        mirror.sync()
    assert mirror.is_barred("sms", "+12125550123", group_id=None)
    wrong_state("1" * 64)
    client.unsubscribe("email", [_of(2)])
    with pytest.raises(MirrorDiverged) as raised:
        _wait_for_error(mirror)
    assert raised.value.pause_s > 0


def _wait_for_error(mirror: Mirror) -> None:
    while True:
        mirror.sync(wait=1)


@pytest.mark.parametrize("damage", ["a record is dropped", "only queries know another status"])
def test_verify_finds_rows_that_were_not_stored(
    partner: Partner, client: Client, mirror: Mirror, new_mirror: Callable[..., Mirror], tmp_path: Path, damage: str
) -> None:
    """It needs no client; from then on nobody is allowed until the feed has been read again."""
    client.unsubscribe("email", [_of(number) for number in range(5)])
    mirror.sync()
    reader = new_mirror(max_age_s=math.inf)
    assert [one.records for one in reader.verify()] == [5]
    damage_copy(tmp_path / "mirror.db", damage, 2)
    for _ in range(2):
        with pytest.raises(MirrorDiverged, match="synchronise"):
            reader.verify()
    with pytest.raises(MirrorDiverged):
        reader.is_barred("email", _of(1), group_id=partner.group_id)
    assert reader.is_barred("email", _of(2), group_id=partner.group_id)
    assert mirror.sync().feeds[0].was_diverged
    assert [one.records for one in reader.verify()] == [5]
    assert reader.is_barred("email", _of(1), group_id=partner.group_id)


def test_what_a_restore_lost_is_offered_while_the_copy_differs(
    restorable: Restorable, partner: Partner, client: Client, mirror: Mirror, tmp_path: Path
) -> None:
    """An opt-out that only the mirror has must not be lost because another row was damaged."""
    client.unsubscribe("email", [_of(number) for number in range(5)])
    backup = restorable.backup()
    client.unsubscribe("email", [_of(5)])
    mirror.sync()
    damage_copy(tmp_path / "mirror.db", "a record is dropped", 2)
    with pytest.raises(MirrorDiverged):
        mirror.verify()
    restorable.restore(backup)
    assert mirror.sync().missing == 1
    assert mirror.is_barred("email", _of(5), group_id=partner.group_id)


def test_file_of_an_earlier_version_is_upgraded(
    partner: Partner, client: Client, mirror: Mirror, new_mirror: Callable[..., Mirror], tmp_path: Path
) -> None:
    """Opening it upgrades it; it answers at once, and its figures are computed by the next synchronisation."""
    client.unsubscribe("email", [_of(number) for number in range(5)])
    mirror.sync()
    mirror.close()
    path = tmp_path / "mirror.db"
    with closing(sqlite3.connect(path)) as connection:
        new = _columns(connection)
        for column in (
            "feeds DROP COLUMN diverged",
            "feeds DROP COLUMN reread_s",
            "feeds DROP COLUMN digest_key",
            "copies DROP COLUMN digest",
            "copies DROP COLUMN verified_s",
            "copies DROP COLUMN is_reread",
        ):
            connection.execute(f"ALTER TABLE {column}")
        connection.execute("PRAGMA user_version = 1")
        connection.commit()
    assert new_mirror().is_barred("email", _of(4), group_id=partner.group_id)
    later = new_mirror(client)
    client.unsubscribe("email", [_of(5)])
    (feed,) = later.sync().feeds
    assert (feed.records, feed.was_rebuilt) == (1, False)
    _require_equal(later, client)
    with closing(sqlite3.connect(path)) as connection:
        assert _columns(connection) == new
        assert connection.execute("PRAGMA user_version").fetchone() == (on_disk.SCHEMA_VERSION,)
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(MirrorError, match="version 99"):
        new_mirror()


def _columns(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    return set(
        connection.execute(
            "SELECT tables.name, columns.name FROM sqlite_master AS tables"
            " JOIN pragma_table_info(tables.name) AS columns WHERE tables.type = 'table'"
        )
    )

"""Parsing of days and times in forms. docs/interface.md section D10."""

import pytest

from stoplist.errors import Refused
from stoplist.web.admin.times import read_day_ms, read_moment
from tests.constants import DAY_MS


def test_a_day_begins_at_midnight_utc() -> None:
    assert read_day_ms("1970-01-02", field="from") == DAY_MS
    assert read_day_ms("", field="from") is None


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("2047-01-15T08:00", "2047-01-15T08:00:00.000Z"),
        ("2047-01-15 08:00", "2047-01-15T08:00:00.000Z"),
        ("2047-01-15T08:00:15", "2047-01-15T08:00:15.000Z"),
        ("2047-01-15T08:00:15.25", "2047-01-15T08:00:15.250Z"),
        ("", None),
    ],
)
def test_times_are_read_as_browsers_send_them(typed: str, read: str | None) -> None:
    """Seconds may be missing; the times are in UTC."""
    assert read_moment(typed, field="occurred_at") == read


@pytest.mark.parametrize(
    "typed",
    ["today", "20470115", "2047-02-29", "0000-01-01", "2047-1-1", "2047-W01-1", "\u0662047-01-01", "2047-01-01Z"],
)
def test_an_invalid_day_is_refused(typed: str) -> None:
    with pytest.raises(Refused) as refusal:
        read_day_ms(typed, field="from")
    assert refusal.value.field == "from"


@pytest.mark.parametrize(
    "typed", ["now", "2047-01-15", "2047-01-15T24:00", "2047-01-15T08:60", "2047-01-15T08:00+01:00", "2047-02-29T08:00"]
)
def test_an_invalid_time_is_refused(typed: str) -> None:
    """A time with an offset too: the field is UTC."""
    with pytest.raises(Refused) as refusal:
        read_moment(typed, field="occurred_at")
    assert refusal.value.field == "occurred_at"

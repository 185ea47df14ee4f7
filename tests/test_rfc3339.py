"""Times as text: read RFC 3339 `date-time`, write UTC with milliseconds (docs/interface.md section D6)."""

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoplist.rfc3339 import format_ms, parse_ms

pytestmark = pytest.mark.interpreter

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TIMES = st.datetimes(
    min_value=datetime(1, 1, 2),  # noqa: DTZ001
    max_value=datetime(9999, 12, 30),  # noqa: DTZ001
    timezones=OFFSETS,
)


@given(TIMES, st.sampled_from("Tt"), st.sampled_from(["auto", "seconds", "milliseconds", "microseconds"]))
def test_any_time_of_the_standard_library_is_read(at: datetime, between: str, timespec: str) -> None:
    """It may have any offset and any number of digits; it is truncated to the millisecond."""
    text = at.isoformat(between, timespec)
    meant = datetime.fromisoformat(text.upper())
    assert parse_ms(text) == (meant - EPOCH) // timedelta(milliseconds=1)


@given(TIMES.map(lambda at: at.astimezone(UTC)), st.sampled_from("Zz"), st.text("0123456789", max_size=20))
def test_any_number_of_digits_is_accepted(at: datetime, z: str, digits: str) -> None:
    """RFC 3339 section 5.6, with Z in either case; anything below a millisecond is cut off."""
    whole = at.replace(microsecond=0)
    text = whole.replace(tzinfo=None).isoformat() + (f".{digits}" if digits else "") + z
    assert parse_ms(text) == (whole - EPOCH) // timedelta(milliseconds=1) + int(digits[:3].ljust(3, "0"))


@given(st.integers(FIRST_MS, LAST_MS))
def test_formatted_times_are_parsed_back(at_ms: int) -> None:
    """Every millisecond has the one form of section D6."""
    text = format_ms(at_ms)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
    assert text == (EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert parse_ms(text) == at_ms


@given(st.lists(st.integers(FIRST_MS, LAST_MS), min_size=2, max_size=2))
def test_texts_sort_like_times(pair: list[int]) -> None:
    """So a partner may compare them as text."""
    assert sorted(map(format_ms, pair)) == list(map(format_ms, sorted(pair)))


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.0009Z", 0),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:30:00-00:30", 0),
        ("1970-01-01T00:00:00-00:00", 0),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000),
        ("0001-01-01T00:00:00Z", FIRST_MS),
        ("9999-12-31T23:59:59.999Z", LAST_MS),
        ("9999-12-31T23:59:59.9999999Z", LAST_MS),
        ("0001-01-01T23:59:00+23:59", FIRST_MS),
        ("9999-12-31T00:00:59-23:59", LAST_MS - 999),
    ],
)
def test_times_at_the_limits(text: str, at_ms: int) -> None:
    """Each as its instant in UTC."""
    assert parse_ms(text) == at_ms


@pytest.mark.parametrize(
    "text",
    ["", "2026-03-01", "09:30:00Z", "2026-03-01T09:30:00", "2026-03-01 09:30:00Z", "2026-03-01T09:30Z",
     "2026-03-01T09:30:60Z", "2016-12-31T23:59:60Z", "2026-03-01T24:00:00Z", "2026-03-01T09:60:00Z",
     "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-01-00T00:00:00Z",
     "0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "-001-01-01T00:00:00Z", "+2026-01-01T00:00:00Z",
     "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "2026-03-01T09:30:00.Z", "2026-03-01T09:30:00,5Z",
     "2026-03-01T09:30:00+24:00", "2026-03-01T09:30:00+0100", "2026-03-01T09:30:00+01", "2026-03-01T09:30:00+01:60",
     "2026-03-01T09:30:00ZZ", "2026-03-01T09:30:00 Z", " 2026-03-01T09:30:00Z", "2026-03-01T09:30:00Z\n",
     "2026-03-01T09:30:00Z\0", "20260301T093000Z", "2026-W09-7T09:30:00Z", "2026-060T09:30:00Z",
     "\u0662026-03-01T09:30:00Z", "2026-03-01T09:30:00\u2212 01:00", "now", "1772357400"],
)  # fmt: skip
def test_other_forms_are_refused(text: str) -> None:
    """No leap second, no year 0000 in any offset, and none of ISO 8601's other forms."""
    assert parse_ms(text) is None


@given(st.text() | st.from_regex(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[Z+-].{0,6}\Z"))
def test_any_text_is_a_time_or_none(text: str) -> None:
    """Parsing never fails, and its result can be formatted."""
    at_ms = parse_ms(text)
    assert at_ms is None or parse_ms(format_ms(at_ms)) == at_ms

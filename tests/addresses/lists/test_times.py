"""When people opted out: what is read as a time, and what becomes of rows without one."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stoplist_addresses.lists import ListError, ListOptions, open_list

from tests.addresses.lists.reading import AS_OF_MS, NOW_MS, Pipe, only_part, opened

AT_MS = 1_709_199_000_000  # 2024-02-29T09:30:00Z


def _times(*texts: str, **options: Any) -> list[int]:
    rows = "".join(f'a{number}@example.com,"{text}"\n' for number, text in enumerate(texts))
    part = only_part(f"email,occurred_at\n{rows}", **options)
    assert part.bad == []
    return [each[2] for each in part.opt_outs]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-29T09:30:00Z", AT_MS),
        ("2024-02-29t09:30:00.1259z", AT_MS + 125),
        ("2024-02-29 10:30:00+01:00", AT_MS),
        ("2024-02-29 10:30:00 +0100", AT_MS),
        ("2024-02-29 09:30:00 UTC", AT_MS),
        ("2024-02-29T04:30:00,5-05", AT_MS + 500),
        (" 2024-02-29T09:30:00Z ", AT_MS),
        ("Thu, 29 Feb 2024 09:30:00 +0000", AT_MS),
        ("29 feb 2024 09:30 GMT", AT_MS),
        ("1709199000", AT_MS),
        ("1709199000.125", AT_MS + 125),
        ("1709199000125", AT_MS + 125),
        ("99999999999", 99_999_999_999_000),
        ("5", 5000),
        ("-1", -1000),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000),
    ],
)
def test_times_with_an_offset(text: str, expected: int) -> None:
    assert _times(text) == [min(expected, NOW_MS)]
    # The same beside a time that is written otherwise.
    assert _times(text, "2020-01-01T00:00:00.5+00:00", "1600000000")[0] == min(expected, NOW_MS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-29 10:30:00", AT_MS),
        ("2024-02-29T10:30", AT_MS),
        ("2024/02/29 10:30:00.125", AT_MS + 125),
        ("20240229103000", AT_MS),
        ("Thu, 29 Feb 2024 10:30:00", AT_MS),
        ("2024-02-29", 1_709_247_599_999),
        ("20240229", 1_709_247_599_999),
        ("2024-10-27 02:30:00", 1_729_992_600_000),  # occurs twice: the later
        ("2024-03-31 02:30:00", 1_711_848_600_000),  # occurs never: the later
        ("2024-03-31", 1_711_922_399_999),  # a day of 23 hours
    ],
)
def test_times_of_a_zone(text: str, expected: int) -> None:
    assert _times(text, time_zone="Europe/Berlin") == [expected]
    assert _times(text, "2020-01-01 00:00:00", time_zone="Europe/Berlin")[0] == expected


def test_an_hour_may_have_half_an_hour_twice() -> None:
    """A time in it is the later of the two."""
    assert _times("2024-04-07 01:45:00", time_zone="Australia/Lord_Howe") == [1_712_416_500_000]


@pytest.mark.parametrize(
    "text",
    [
        *("soon", "2024-02-30T00:00:00Z", "2024-02-29T24:00:00Z", "2024-02-29T09:30:60Z", "0000-00-00 00:00:00"),
        *("0000-01-01T00:00:00Z", "2024-02-29T09:30:00+24:00", "2024-02-29T09:30:00+01:60", "02/29/2024", "29.02.2024"),
        *("١٧٠٩١٩٩٠٠٠", "1_709_199_000", "1e9", "9" * 40, "2024-W09-4", "9999999999999999"),
    ],
)
def test_unreadable_times_take_the_moment_of_the_list(text: str) -> None:
    content = f"email,occurred_at\na@example.com,{text}\nb@example.com,\nc@example.com,1709199000\n"
    part = only_part(content, as_of_ms=AS_OF_MS, time_zone="UTC")
    assert [each[2] for each in part.opt_outs] == [AS_OF_MS, AS_OF_MS, AT_MS]
    assert (part.redated, part.bad) == (2, [])
    without = only_part(content, time_zone="UTC")
    assert [(each.line, each.error) for each in without.bad] == [(2, "unreadable_time"), (3, "missing_time")]
    assert [each[0] for each in without.opt_outs] == [4]
    assert without.redated == 0
    alone = only_part(f"email,occurred_at\na@example.com,{text}\n", time_zone="UTC")
    assert [(each.line, each.error) for each in alone.bad] == [(2, "unreadable_time")]


def test_future_becomes_now_and_later_than_the_list_stays() -> None:
    after_ms = AS_OF_MS + 1000
    rows = f"a@example.com,{NOW_MS + 1}\nb@example.com,{NOW_MS}\nc@example.com,{after_ms}\nd@example.com,{AS_OF_MS}\n"
    part = only_part(f"email,occurred_at\n{rows}", as_of_ms=AS_OF_MS)
    assert [each[2] for each in part.opt_outs] == [NOW_MS, NOW_MS, after_ms, AS_OF_MS]
    assert (part.redated, part.dated_after_as_of) == (1, 2)


def test_today_means_now_and_tomorrow_is_the_future() -> None:
    today = datetime.fromtimestamp(NOW_MS / 1000, UTC).date()
    rows = f"a@example.com,{today}\nb@example.com,{today + timedelta(1)}\n"
    part = only_part(f"email,occurred_at\n{rows}", time_zone="UTC")
    assert [each[2] for each in part.opt_outs] == [NOW_MS, NOW_MS]
    assert part.redated == 1


@pytest.mark.parametrize("text", ["2024-02-29 10:30:00", "2024-02-29", "20240229"])
def test_time_without_zone_is_wrong_usage(text: str) -> None:
    content = f"email,occurred_at\na@example.com,2024-02-29T09:30:00Z\nb@example.com,{text}\n"
    with pytest.raises(ListError, match="time on line 3 has no offset") as refusal:
        opened(content, as_of_ms=AS_OF_MS)
    assert (refusal.value.is_usage, refusal.value.option) == (True, "time_zone")


def test_a_time_without_zone_is_found_before_the_first_row_is_taken() -> None:
    """Also in a pipe, which is larger than what is kept in memory."""
    rows = "".join(f"a{number}@example.com,1700000000\n" for number in range(60_000))
    content = f"email,occurred_at\n{rows}z@example.com,2024-02-29\n"
    with pytest.raises(ListError, match="line 60002 has no offset"):
        opened(content)
    with pytest.raises(ListError, match="line 60002 has no offset"):
        open_list(Pipe(content.encode(), 10_000), ListOptions("email", NOW_MS))
    pipe = open_list(Pipe(content.encode(), 10_000), ListOptions("email", NOW_MS, time_zone="UTC"))
    assert [part.rows for part in pipe.parts(rows=50_000)] == [50_000, 10_001]


def test_a_wrong_encoding_is_found_before_the_first_row_is_taken() -> None:
    rows = "".join(f"a{number}@example.com,1700000000\n" for number in range(30_000))
    with pytest.raises(ListError, match="Line 30002 is not UTF-8"):
        opened(f"email,occurred_at\n{rows}".encode() + b"\xff@example.com,1700000000\n")


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc/passwd", "America"])
def test_unknown_time_zone_is_wrong_usage(name: str) -> None:
    with pytest.raises(ListError, match="Europe/Berlin") as refusal:
        opened("ann@example.com\n", as_of_ms=AS_OF_MS, time_zone=name or "no zone")
    assert (refusal.value.is_usage, refusal.value.option) == (True, "time_zone")


def test_moment_of_the_list_cannot_be_in_the_future() -> None:
    with pytest.raises(ListError, match="in the future"):
        opened("ann@example.com\n", as_of_ms=NOW_MS + 1)


@settings(deadline=None)
@given(
    st.lists(st.datetimes(datetime(1960, 1, 1), datetime(2025, 1, 1)), min_size=2, max_size=20),  # noqa: DTZ001
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "UTC"]),
    st.sampled_from(["", "Z", "+05:30"]),
)
def test_a_time_means_the_same_in_any_column(moments: list[datetime], zone: str, offset: str) -> None:
    """A column of times that are written alike is read in another way than one time by itself."""
    texts = [moment.isoformat(sep=" ", timespec="seconds") + offset for moment in moments]
    assert _times(*texts, time_zone=zone) == [_times(text, "5", time_zone=zone)[0] for text in texts]

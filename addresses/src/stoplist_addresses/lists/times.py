"""Reads the times of rows: RFC 3339, dates and times of a time zone, RFC 5322, and epochs.

Columns are read as a whole, since the times of a file are written alike. Source: docs/interface.md section D12, When.
"""

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from stoplist_addresses.lists.model import ListError

# Epochs below are seconds, others milliseconds.
_FIRST_MS_EPOCH = 10**11
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_FIRST_MS = -62_135_596_800_000  # 0001-01-01T00:00:00.000Z
_LAST_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
_DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
_MAX_CACHED = 100_000

_NUMBER = re.compile(r"(-?)(\d{1,15})(?:\.(\d{1,9}))?", re.ASCII)
_COMPACT = re.compile(r"((?:19|20)\d\d)(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d))?", re.ASCII)
_OFFSET = r"Z|UTC|GMT|[+-]\d\d(?::?\d\d)?"
_TIME = r"(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?"
_ISO = re.compile(rf"(\d{{4}})([-/])(\d\d)\2(\d\d)(?:[T ]{_TIME}\s?({_OFFSET})?)?", re.ASCII | re.IGNORECASE)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MAIL = re.compile(
    rf"(?:(?:mon|tue|wed|thu|fri|sat|sun), )?(\d\d?) ({'|'.join(_MONTHS)}) (\d{{4}}) {_TIME}\s?({_OFFSET})?",
    re.ASCII | re.IGNORECASE,
)
_SUFFIX = re.compile(rf"(?:[.,](\d{{1,9}}))?\s?({_OFFSET})?", re.ASCII | re.IGNORECASE)
_HOUR = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d)", re.ASCII | re.IGNORECASE)
_MINUTE_AND_SECOND_MS = {
    f":{minute:02d}:{second:02d}": (minute * 60 + second) * 1000 for minute in range(60) for second in range(60)
}


class NoTimeZone(Exception):
    """A time has no offset, and no time zone is in force."""


def time_zone(name: str) -> tzinfo:
    """Return a time zone of the IANA database. Raise ListError if there is none of this name."""
    if name.upper() in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ListError(
            "The time zone is not known: use a name of the IANA database, such as Europe/Berlin.",
            is_usage=True,
            option="time_zone",
        ) from None


class TimeReader:
    """Reads times as ms since 1970 UTC. Those without offset are of `zone`, if there is one."""

    def __init__(self, zone: tzinfo | None, now_ms: int) -> None:
        self._zone, self._now_ms = zone, now_ms
        self._hours_ms = _Hours()
        self._local_hours_ms = _Hours(zone)
        self._suffixes_ms = _Suffixes(has_offset=True)
        self._local_suffixes_ms = _Suffixes(has_offset=False)

    def read_column(self, texts: list[str]) -> list[int] | list[int | None]:
        """Return the time of each text; None for those that are empty or unreadable. Raise NoTimeZone.

        A date means its last millisecond, but at most now. Times in the future are returned as they are.
        """
        return self._epochs(texts) or self._uniform_times(texts) or [self.read(text) for text in texts]

    def read(self, text: str) -> int | None:
        """Return one time, as `read_column` does."""
        text = text.strip()
        if number := _NUMBER.fullmatch(text):
            if compact := _COMPACT.fullmatch(text):
                return self._moment(*compact.groups(), fraction=None, offset=None)
            return _epoch_ms(*number.groups())
        if match := _ISO.fullmatch(text):
            year, _, month, day, hour, minute, second, fraction, offset = match.groups()
        elif match := _MAIL.fullmatch(text):
            day, name, year, hour, minute, second, fraction, offset = match.groups()
            month = str(_MONTHS.index(name.lower()) + 1)
        else:
            return None
        return self._moment(year, month, day, hour, minute, second, fraction=fraction, offset=offset)

    def _epochs(self, texts: list[str]) -> list[int] | None:
        digits = "".join(texts)
        if not (digits.isascii() and digits.isdigit()):
            return None
        try:
            numbers = list(map(int, texts))
        except ValueError:  # one is empty, or far too long
            return None
        least, greatest = min(numbers), max(numbers)
        # Of fewer or more digits, a number may also be a date such as 20240229.
        if least >= 10**8 and greatest < _FIRST_MS_EPOCH:
            return [number * 1000 for number in numbers]
        return numbers if least >= _FIRST_MS_EPOCH and greatest < 10**13 else None

    def _uniform_times(self, texts: list[str]) -> list[int] | None:
        """Return times like 2024-02-29T09:30:00Z, or None if one is written otherwise: twice as fast as one by one."""
        if not texts:
            return []
        try:
            return _sums(texts, self._hours_ms, self._suffixes_ms)
        except KeyError:
            pass
        if self._zone is None:
            return None
        try:
            return _sums(texts, self._local_hours_ms, self._local_suffixes_ms)
        except KeyError:
            return None

    def _moment(
        self,
        year: str,
        month: str,
        day: str,
        hour: str | None,
        minute: str | None,
        second: str | None,
        *,
        fraction: str | None,
        offset: str | None,
    ) -> int | None:
        try:
            if hour is None:
                return self._end_of(date(int(year), int(month), int(day)))
            zone = _zone_of(offset)
            moment = datetime(
                int(year), int(month), int(day), int(hour), int(minute or 0), int(second or 0), tzinfo=zone
            )
            at_ms = self._local_ms(moment) if zone is None else _ms(moment)
        except (ValueError, OverflowError):
            return None
        return _within_years(at_ms + _fraction_ms(fraction))

    def _end_of(self, day: date) -> int:
        begins_ms = self._local_ms(datetime(day.year, day.month, day.day))  # noqa: DTZ001
        ends_ms = self._local_ms(datetime(day.year, day.month, day.day, 23, 59, 59)) + 999  # noqa: DTZ001
        return ends_ms if begins_ms > self._now_ms else min(ends_ms, self._now_ms)

    def _local_ms(self, moment: datetime) -> int:
        if self._zone is None:
            raise NoTimeZone
        return _later_ms(moment, self._zone)


def _sums(texts: list[str], hours_ms: dict[str, int], suffixes_ms: dict[str, int]) -> list[int]:
    minutes_ms = _MINUTE_AND_SECOND_MS
    return [hours_ms[text[:13]] + minutes_ms[text[13:19]] + suffixes_ms[text[19:]] for text in texts]


class _Hours(dict[str, int]):
    """Begins of hours such as `2024-02-29T09` of a zone, without those in which its offset changes."""

    def __init__(self, zone: tzinfo | None = UTC) -> None:
        self._zone = zone
        self._days_ms: dict[str, int | None] = {}

    def __missing__(self, text: str) -> int:
        match = _HOUR.fullmatch(text)
        if match is None or self._zone is None or match[2] > "23":
            raise KeyError
        try:
            day_ms = self._day_ms(match[1], self._zone)
            begin_ms = self._hour_ms(match, self._zone) if day_ms is None else day_ms + int(match[2]) * _HOUR_MS
        except (ValueError, OverflowError):
            raise KeyError from None
        if len(self) >= _MAX_CACHED:
            self.clear()
            self._days_ms.clear()
        self[text] = begin_ms
        return begin_ms

    def _day_ms(self, text: str, zone: tzinfo) -> int | None:
        """Return when a day begins; None if the offset changes in it."""
        if text not in self._days_ms:
            day = date.fromisoformat(text)
            begin_ms = _later_ms(datetime(day.year, day.month, day.day), zone)  # noqa: DTZ001
            end_ms = _later_ms(datetime(day.year, day.month, day.day, 23, 59, 59), zone)  # noqa: DTZ001
            if not _FIRST_MS + _DAY_MS < begin_ms < _LAST_MS - 2 * _DAY_MS:
                raise ValueError
            self._days_ms[text] = begin_ms if end_ms - begin_ms == _DAY_MS - 1000 else None
        return self._days_ms[text]

    def _hour_ms(self, match: re.Match[str], zone: tzinfo) -> int:
        """Return when an hour begins. Raise ValueError if the offset changes in it."""
        hour = datetime.combine(date.fromisoformat(match[1]), datetime.min.time().replace(int(match[2])))
        begin_ms = _later_ms(hour, zone)
        if _later_ms(hour.replace(minute=59, second=59), zone) - begin_ms != _HOUR_MS - 1000:
            raise ValueError
        return begin_ms


class _Suffixes(dict[str, int]):
    """Read the text after the seconds, such as `.125+02:00`; return how much later than in UTC that is."""

    def __init__(self, *, has_offset: bool) -> None:
        self._has_offset = has_offset

    def __missing__(self, text: str) -> int:
        match = _SUFFIX.fullmatch(text)
        if match is None or (match[2] is not None) != self._has_offset:
            raise KeyError
        try:
            zone = _zone_of(match[2])
        except ValueError:
            raise KeyError from None
        offset = timedelta() if zone is None else zone.utcoffset(None)
        if len(self) >= _MAX_CACHED:
            self.clear()
        self[text] = _fraction_ms(match[1]) - (offset or timedelta()) // _MILLISECOND
        return self[text]


def _zone_of(offset: str | None) -> timezone | None:
    if offset is None:
        return None
    if offset.upper() in ("Z", "UTC", "GMT"):
        return UTC
    hours, minutes = int(offset[1:3]), int(offset[-2:]) if len(offset) > 3 else 0
    if minutes > 59:
        raise ValueError
    of_offset = timedelta(hours=hours, minutes=minutes)  # timezone() refuses 24 hours and more
    return timezone(-of_offset if offset[0] == "-" else of_offset)


def _later_ms(moment: datetime, zone: tzinfo) -> int:
    """Return the moment of a local time; of one that occurs twice, or never, the later one."""
    if zone is UTC:
        return _ms(moment.replace(tzinfo=UTC))
    return max(_ms(moment.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))


def _ms(moment: datetime) -> int:
    offset = moment.utcoffset() or timedelta()
    return (moment.replace(tzinfo=UTC) - _EPOCH - offset) // _MILLISECOND


def _fraction_ms(fraction: str | None) -> int:
    return 0 if fraction is None else int(fraction[:3].ljust(3, "0"))


def _epoch_ms(sign: str, digits: str, fraction: str | None) -> int | None:
    number = int(digits)
    at_ms = number if number >= _FIRST_MS_EPOCH else number * 1000 + _fraction_ms(fraction)
    return _within_years(-at_ms if sign else at_ms)


def _within_years(at_ms: int) -> int | None:
    return at_ms if _FIRST_MS <= at_ms <= _LAST_MS else None

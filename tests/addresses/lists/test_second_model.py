"""Random files, read by the reader and by a model that takes the whole file at once and looks at each row by itself.

Source: docs/interface.md section D12.
"""

import contextlib
import csv
import hashlib
import io
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st
from stoplist_addresses.lists import ListError, Part
from stoplist_addresses.lists.model import OPT_OUT_REASONS

from tests.addresses.lists.reading import AS_OF_MS, NOW_MS, opened

ZONE = "America/New_York"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

moments = st.datetimes(datetime(1971, 1, 1), datetime(2030, 1, 1))  # noqa: DTZ001
times = st.one_of(
    st.integers(10**8, 2 * 10**9).map(str),
    st.integers(10**11, 2 * 10**12).map(str),
    moments.map(lambda each: each.isoformat(timespec="milliseconds") + "Z"),
    moments.map(lambda each: each.isoformat(timespec="seconds") + "+02:00"),
    moments.map(lambda each: each.isoformat(sep=" ", timespec="seconds")),
    st.sampled_from(["", " ", "never", "2024-11-03 01:30:00", "2024-03-10 02:30:00"]),
)
cells = st.text(st.sampled_from('ab@.,;"\n\t é\u2028\u202e\x85'), max_size=12)
rows = st.lists(
    st.tuples(cells, times, st.sampled_from(["", "bounce", "BOUNCE ", "odd"]), cells, st.sampled_from(["out", "in"])),
    max_size=40,
)
DIRECTIONS_AND_SEPARATORS = "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
HEADER = ["email", "occurred_at", "reason", "source", "status"]


def _model(lines: list[list[str]], numbers: list[int], options: dict[str, Any]) -> dict[str, Any]:
    """Return what a list says, by the rules of section D12 one by one."""
    as_of = options.get("as_of_ms")
    said: dict[str, Any] = {"opt_outs": [], "bad": [], "not_opted_out": 0, "redated": 0, "after": 0, "s": 0, "r": 0}
    for number, (address, time, reason, source, status) in zip(numbers, lines, strict=True):
        if status != "out":
            said["not_opted_out"] += 1
            continue
        at = _time(time.strip())
        if at is None and as_of is None:
            said["bad"].append((number, "unreadable_time" if time.strip() else "missing_time"))
            continue
        if at is None or at > NOW_MS:
            said["redated"] += 1
            at = as_of if at is None else NOW_MS
        elif as_of is not None and at > as_of:
            said["after"] += 1
        known = reason.strip().lower()
        said["r"] += bool(known) and known not in OPT_OUT_REASONS
        said["s"] += _cleaned(source) != source.strip()
        said["opt_outs"].append(
            (number, address, at, known if known in OPT_OUT_REASONS else "import", _cleaned(source) or None)
        )
    return said


def _cleaned(source: str) -> str:
    text = ""
    for each in source.strip():
        is_control = ord(each) < 32 or 127 <= ord(each) < 160 or each in DIRECTIONS_AND_SEPARATORS
        if not is_control:
            text += each
        elif not text.endswith("\0"):
            text += "\0"
    return text.replace("\0", " ")[:200].rstrip()


def _time(text: str) -> int | None:
    if text.isdigit():
        return int(text) if int(text) >= 10**11 else int(text) * 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        both = [moment.replace(tzinfo=ZoneInfo(ZONE), fold=fold).astimezone(UTC) for fold in (0, 1)]
        moment = max(both)
    return round((moment - _EPOCH).total_seconds() * 1000)


@settings(deadline=None)
@given(
    rows=rows,
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    separator=st.sampled_from(",;\t|"),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    as_of_ms=st.sampled_from([None, AS_OF_MS]),
    part_rows=st.sampled_from([1, 3, 10_000]),
    has_last_end=st.booleans(),
)
def test_random_files_say_what_the_model_says(
    rows: list[tuple[str, ...]],
    quoting: Any,
    separator: str,
    line_end: str,
    encoding: str,
    as_of_ms: int | None,
    part_rows: int,
    has_last_end: bool,
) -> None:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=separator, quoting=quoting, lineterminator="\n")
    writer.writerow(HEADER)
    numbers = []
    for row in rows:
        numbers.append(out.getvalue().count("\n") + 1)
        writer.writerow(row)
    text = out.getvalue().replace("\n", line_end)
    content = (text if has_last_end else text.removesuffix(line_end)).encode(encoding)
    options: dict[str, Any] = {"as_of_ms": as_of_ms, "time_zone": ZONE, "opted_out_when": (("status", "out"),)}
    parts = list(opened(content, **options).parts(rows=part_rows))
    said = _model([list(row) for row in rows], numbers, options)
    assert [each for part in parts for each in part.opt_outs] == said["opt_outs"]
    assert [(bad.line, bad.error) for part in parts for bad in part.bad] == said["bad"]
    assert [bad.cells for part in parts for bad in part.bad] == [rows[numbers.index(line)] for line, _ in said["bad"]]
    assert _sums(parts) == [len(rows), *(said[each] for each in ("not_opted_out", "redated", "after", "s", "r"))]
    assert parts[-1].sha256 == hashlib.sha256(content).hexdigest()
    found = opened(content, **options)
    found.skip(len(rows) // 2)
    rest = [each for part in found.parts() for each in part.opt_outs]
    first = numbers[len(rows) // 2] if rows else 0
    assert rest == [each for each in said["opt_outs"] if each[0] >= first]


def _sums(parts: list[Part]) -> list[int]:
    names = ("rows", "not_opted_out", "redated", "dated_after_as_of", "sources_changed", "reasons_replaced")
    return [sum(getattr(part, name) for part in parts) for name in names]


@settings(deadline=None)
@given(
    st.binary(max_size=300), st.sampled_from([b"", b"email,occurred_at\n", b"\xff\xfe", b"\x1f\x8b\x08", b"PK\x03\x04"])
)
def test_any_bytes_are_read_or_refused(data: bytes, beginning: bytes) -> None:
    options: dict[str, Any] = {"as_of_ms": AS_OF_MS, "time_zone": ZONE}
    with contextlib.suppress(ListError):
        assert all(part.rows <= 2 for part in opened(beginning + data, **options).parts(rows=2))

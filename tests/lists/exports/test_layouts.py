"""Lines of CSV and NDJSON. docs/interface.md section D12."""

import msgspec
import pytest

from stoplist.lists.exports.layouts import COLUMNS, CSV, HISTORY_COLUMNS, LAYOUTS, NDJSON
from stoplist.lists.exports.snapshot import State
from tests.lists.exports.export_fixture import csv_rows, ndjson_rows

STATE = State(7, "uns_1", "ann@x.org", 1, "unsubscribed", "bounce", None, 0, 1)


@pytest.mark.parametrize("text", ['a,"b"', "a\r\nb", 'say "hi"', "a;b", " a ", ""])
def test_csv_reads_back_as_it_was(text: str) -> None:
    """An address and a source may hold any characters."""
    layout = LAYOUTS[CSV]("acme", {1: "grp_1"}, has_history=False)
    state = msgspec.structs.replace(STATE, address=text, source=text)
    (row,) = csv_rows(layout.head() + layout.lines([state], {}))
    assert (row["address"], row["source"], row["group_id"], row["seq"]) == (text, text, "grp_1", "7")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", "x;=1"])
def test_csv_guards_every_cell_that_people_typed(text: str) -> None:
    layout = LAYOUTS[CSV]("acme", {1: "grp_1"}, has_history=True)
    state = msgspec.structs.replace(STATE, source=text, actor_kind="client", actor_id=text)
    (row,) = csv_rows(layout.head() + layout.lines([state], {text: text}))
    guarded = {row["source"], row["actor_id"], row["actor_label"]}
    assert len(guarded) == 1
    assert guarded.pop().replace("'", "") == text
    assert row["source"] != text


def test_each_line_has_its_own_times() -> None:
    """Records of one batch share the time of recording, and others do not."""
    later = msgspec.structs.replace(STATE, seq=8, recorded_ms=2, occurred_ms=3)
    for name, read in ((CSV, csv_rows), (NDJSON, ndjson_rows)):
        layout = LAYOUTS[name]("acme", {1: "grp_1"}, has_history=False)
        rows = read(layout.head() + layout.lines([STATE, later, STATE], {}))
        assert [(row["occurred_at"][-4:], row["recorded_at"][-4:]) for row in rows] == [
            ("000Z", "001Z"),
            ("003Z", "002Z"),
            ("000Z", "001Z"),
        ]


def test_all_groups_are_an_empty_cell_and_null() -> None:
    state = msgspec.structs.replace(STATE, group_no=0)
    for has_history, columns in ((False, COLUMNS), (True, HISTORY_COLUMNS)):
        for name, read, empty in ((CSV, csv_rows, ""), (NDJSON, ndjson_rows, None)):
            layout = LAYOUTS[name]("acme", {1: "grp_1"}, has_history=has_history)
            (row,) = read(layout.head() + layout.lines([state], {}))
            assert list(row) == list(columns)
            assert (row["group_id"], row["address_digest"], row["source"]) == (empty, empty, empty)

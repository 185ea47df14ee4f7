"""Output of commands, for people and for programs."""

import json

import pytest

from stoplist.cli.printing import print_json, print_record, print_records, rfc3339

pytestmark = pytest.mark.interpreter


def test_a_record_has_a_line_per_field(capsys: pytest.CaptureFixture[str]) -> None:
    """The names are in one column, and None is a hyphen."""
    print_record({"a": 1, "long_name": None, "b": ["x", "y"], "c": True, "d": False}, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "a          1",
        "long_name  -",
        "b          x y",
        "c          yes",
        "d          no",
    ]


def test_json_records_have_all_fields(capsys: pytest.CaptureFixture[str]) -> None:
    """The fields are not only those of the columns; the array may be empty."""
    print_records([{"a": 1, "b": None}], columns=["a"], as_json=True, if_empty="none")
    assert json.loads(capsys.readouterr().out) == [{"a": 1, "b": None}]
    print_records([], columns=["a"], as_json=True, if_empty="none")
    assert json.loads(capsys.readouterr().out) == []


def test_records_are_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns are as wide as their widest cell; lines have no trailing space."""
    print_records([{"a": "long value", "b": 1}, {"a": "", "b": None}], columns=["a", "b"], as_json=False, if_empty="")
    assert capsys.readouterr().out == "a           b\nlong value  1\n            -\n"


def test_json_is_readable_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """One line per field, text unescaped."""
    print_json({"name": "Café", "n": 1})
    assert capsys.readouterr().out == '{\n  "name": "Café",\n  "n": 1\n}\n'


def test_times_are_rfc_3339() -> None:
    """They are in UTC with milliseconds; None stays None."""
    assert rfc3339(1_772_357_400_007) == "2026-03-01T09:30:00.007Z"
    assert rfc3339(None) is None


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """Others wrote names and labels: neither a terminal nor the table may act on them."""
    row = {"label": "a\x1b[2J\n\u202eb"}
    print_record(row, as_json=False)
    print_records([row], columns=["label"], as_json=False, if_empty="")
    print_json({"label": "a\x9b2J\u202eb"})
    escaped = "a\\x1b[2J\\x0a\\u202eb"
    assert capsys.readouterr().out == (
        f"label  {escaped}\nlabel\n{escaped}\n" + '{\n  "label": "a\\u009b2J\\u202eb"\n}\n'
    )

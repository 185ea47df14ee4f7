"""How commands print what they have."""

import json

import pytest

from stoplist.cli.printing import print_json, print_record, print_records, rfc3339


def test_a_record_for_people_is_a_line_a_field(capsys: pytest.CaptureFixture[str]) -> None:
    """Names in one column; no value is a hyphen."""
    print_record({"a": 1, "long_name": None, "b": ["x", "y"], "c": True, "d": False}, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "a          1",
        "long_name  -",
        "b          x y",
        "c          yes",
        "d          no",
    ]


def test_records_for_programs_are_an_array_of_everything(capsys: pytest.CaptureFixture[str]) -> None:
    """Not only of the columns; an empty one too."""
    print_records([{"a": 1, "b": None}], columns=["a"], as_json=True, none="none")
    assert json.loads(capsys.readouterr().out) == [{"a": 1, "b": None}]
    print_records([], columns=["a"], as_json=True, none="none")
    assert json.loads(capsys.readouterr().out) == []


def test_records_for_people_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """As wide as its widest cell, without white space at the ends of lines."""
    print_records([{"a": "long value", "b": 1}, {"a": "", "b": None}], columns=["a", "b"], as_json=False, none="")
    assert capsys.readouterr().out == "a           b\nlong value  1\n            -\n"


def test_json_is_written_for_eyes_too(capsys: pytest.CaptureFixture[str]) -> None:
    """A field a line, text as it is."""
    print_json({"name": "Café", "n": 1})
    assert capsys.readouterr().out == '{\n  "name": "Café",\n  "n": 1\n}\n'


def test_times_are_rfc_3339() -> None:
    """UTC with milliseconds; none stays none."""
    assert rfc3339(1_772_357_400_007) == "2026-03-01T09:30:00.007Z"
    assert rfc3339(None) is None

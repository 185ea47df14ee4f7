"""The options of imports and uploads in their stored form: an import goes on with those that another release stored."""

from typing import Any

import msgspec
import pytest

from stoplist.lists.imports.model import FileStatements, ImportOptions
from stoplist.lists.uploads.model import UploadOptions

STATEMENTS = (
    '"format":"mailchimp","time_zone":"Europe/Berlin","columns":{"address":"E-Mail"},"opted_out_when":[["State","no"]],'
    '"encoding":"cp1252","reason":"bounce","source":"the old system"'
)
VALUES: dict[str, Any] = {
    "format": "mailchimp",
    "time_zone": "Europe/Berlin",
    "columns": {"address": "E-Mail"},
    "opted_out_when": (("State", "no"),),
    "encoding": "cp1252",
    "reason": "bounce",
    "source": "the old system",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f'{{"now_ms":2,"as_of_ms":1,{STATEMENTS}}}', ImportOptions(now_ms=2, as_of_ms=1, **VALUES)),
        ('{"now_ms":2}', ImportOptions(now_ms=2)),
        (
            f'{{"target":"all","as_of":"2026-03-01",{STATEMENTS},"is_strict":true}}',
            UploadOptions(target="all", as_of="2026-03-01", is_strict=True, **VALUES),
        ),
        ("{}", UploadOptions()),
    ],
    ids=["import", "import without statements", "upload", "upload without statements"],
)
def test_stored_options_mean_what_they_meant(text: str, expected: FileStatements) -> None:
    assert msgspec.json.decode(text, type=type(expected)) == expected
    given, stored = msgspec.json.decode(text), msgspec.json.decode(msgspec.json.encode(expected))
    assert {name: stored[name] for name in given} == given


def test_an_import_takes_every_statement_of_its_upload() -> None:
    """An import that begins from an upload reads the file as the preview has shown it."""
    assert UploadOptions(target="all", **VALUES).for_import(5) == ImportOptions(now_ms=5, **VALUES)

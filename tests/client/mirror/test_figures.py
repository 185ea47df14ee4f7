"""The digest that SQLite computes for a mirror is that of the service (docs/interface.md section D14)."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from importlib import resources
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stoplist_client.mirror.figures import Figures, figures_of_copy

from tests.unsubscribes.test_feed_state import vectors

_RECORD = """
INSERT INTO records (copy_no, seq, address, group_no, id, is_barred, reason, source, occurred_at, recorded_at)
VALUES (1, ?, ?, coalesce((SELECT group_no FROM groups WHERE group_id IS ?), 0), ?, ?, '', NULL, '', '')
"""


@pytest.fixture(scope="module")
def copy() -> Iterator[sqlite3.Connection]:
    """The tables of a mirror."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(resources.files("stoplist_client.mirror").joinpath("schema.sql").read_text("utf-8"))
        yield connection


def figures_of(copy: sqlite3.Connection, *records: list[Any]) -> Figures:
    """Return the figures of a copy with exactly these records, each as the digest covers it."""
    copy.execute("BEGIN")
    try:
        for id_, group_id, address, status, seq in records:
            if group_id is not None:
                copy.execute("INSERT OR IGNORE INTO groups (group_id, org_slug) VALUES (?, 'acme')", (group_id,))
            copy.execute(_RECORD, (seq, address, group_id, id_, status == "unsubscribed"))
        return figures_of_copy(copy, 1)
    finally:
        copy.execute("ROLLBACK")


def test_the_published_vectors_hold(copy: sqlite3.Connection) -> None:
    """They contain `&`, `/`, `'` and `ü`, which some writers of JSON escape."""
    published = vectors()
    for count, vector in enumerate(published, 1):
        records = [one["record"] for one in published[:count]]
        assert figures_of(copy, *records) == Figures(count, int(vector["digest"], 16))


def assert_is_hashed_in_the_form_of_rfc_8785(copy: sqlite3.Connection, address: str) -> None:
    record = ["uns_1", "grp_1", address, "resubscribed", 1]
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
    assert figures_of(copy, record).text == sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("sign", [*map(chr, range(1, 32)), '"', "\\", "\x7f", "\u2028", "&", "/", "'", "ü", "😀"])
def test_signs_that_writers_of_json_escape_are_hashed_alike(copy: sqlite3.Connection, sign: str) -> None:
    """Control characters, too, though no canonical address has any."""
    assert_is_hashed_in_the_form_of_rfc_8785(copy, f"a{sign}b@x.org")


@settings(max_examples=30)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))  # NUL would end a text of SQLite
def test_any_address_is_hashed_alike(copy: sqlite3.Connection, address: str) -> None:
    assert_is_hashed_in_the_form_of_rfc_8785(copy, address)

"""The state of a feed: its vectors, and what a change does to it (docs/interface.md section D14, State of a feed)."""

import asyncio
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoplist.slicing import yield_to_loop
from stoplist.unsubscribes.feed_state import (
    EMPTY,
    FeedState,
    StateRecord,
    changed_state,
    extended_state,
    stored_state,
)
from stoplist.unsubscribes.model import Record
from tests.constants import ROOT
from tests.unsubscribes.naive import naive_state

INTERFACE = ROOT / "docs" / "interface.md"


def vectors() -> list[dict[str, Any]]:
    """Return the published vectors: records, and the digest of the first of them, of the first two, and so on."""
    (text,) = re.findall(r"```json\n(\{\"state_vectors\".*?)\n```", INTERFACE.read_text("utf-8"), re.DOTALL)
    found: list[dict[str, Any]] = json.loads(text)["state_vectors"]
    return found


def test_the_published_vectors_hold() -> None:
    state, signs = EMPTY, set("&/'ü")
    for vector in vectors():
        record: StateRecord = tuple(vector["record"])
        state = extended_state(state, record[-1], [record])
        assert state.text == vector["digest"]
        signs -= set(record[2])
    assert not signs, "a vector has each of these signs"


@given(st.text(), st.text(), st.none() | st.text(), st.integers(1, 2**53 - 1))
def test_any_text_is_hashed_in_the_form_of_rfc_8785(address: str, id_: str, group_id: str | None, seq: int) -> None:
    """The model does the same with the standard library."""
    record = Record(id_, "acme", group_id, address, "unsubscribed", "manual", None, "", "", seq)
    state = extended_state(EMPTY, seq, [(id_, group_id, address, "unsubscribed", seq)])
    assert state.text == naive_state([record], seq).digest


def record(number: int, seq: int, status: str = "unsubscribed") -> StateRecord:
    return f"uns_{number}", None, f"p{number}@x.org", status, seq


def state_of(*records: StateRecord, seq: int) -> FeedState:
    return extended_state(EMPTY, seq, records)


def changed(state: FeedState, *, head_seq: int, replaced: list[StateRecord], added: list[StateRecord]) -> FeedState:
    return asyncio.run(
        changed_state(
            state,
            head_seq=head_seq,
            new_head_seq=head_seq + len(added),
            replaced=replaced,
            added=added,
            pause=yield_to_loop,
        )
    )


def test_a_complete_state_stays_complete() -> None:
    """Records that were replaced are taken out, and new ones are taken in."""
    before = state_of(record(1, 1), record(2, 2), seq=2)
    after = changed(before, head_seq=2, replaced=[record(1, 1)], added=[record(1, 3, "resubscribed"), record(3, 4)])
    assert after == state_of(record(2, 2), record(1, 3, "resubscribed"), record(3, 4), seq=4)


def test_an_incomplete_state_loses_only_what_it_counted() -> None:
    """It covers the numbers up to 2; what is new lies beyond, and is counted when the state gets there."""
    before = state_of(record(1, 1), record(2, 2), seq=2)
    after = changed(before, head_seq=3, replaced=[record(1, 1), record(3, 3)], added=[record(1, 4), record(3, 5)])
    assert after == state_of(record(2, 2), seq=2)


def test_the_order_of_records_does_not_matter() -> None:
    assert state_of(record(1, 1), record(2, 2), seq=2) == state_of(record(2, 2), record(1, 1), seq=2)


@pytest.mark.parametrize(
    ("state_seq", "state_writes", "is_kept"),
    [
        (7, 5, True),  # complete, whoever wrote since
        (7, 3, True),
        (4, 5, True),  # incomplete, and no older program wrote since
        (4, 4, False),
    ],
)
def test_a_state_that_an_older_program_left_behind_begins_anew(
    state_seq: int, state_writes: int, is_kept: bool
) -> None:
    """A record that it changed may have been counted."""
    row = {
        "writes": 5,
        "state_seq": state_seq,
        "state_writes": state_writes,
        "state_records": 2,
        "state_digest": f"{10:064x}",
    }
    assert stored_state(row, head_seq=7) == (FeedState(state_seq, 2, 10) if is_kept else EMPTY)

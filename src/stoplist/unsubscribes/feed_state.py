"""The state of a feed: how many records it has, and their digest. Each change carries it on; no I/O here.

The state counts the records whose number is at most `seq`. It is complete where `seq` is the head of the feed. An
incomplete one is carried on, too: what leaves that range is taken out, and what is new lies beyond it. So a feed that
has records already is completed in short steps, while it changes.
Source: docs/interface.md section D14, State of a feed. Reasons: docs/decisions/0024-state-of-a-feed.md.
"""

from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Final, NamedTuple, TypeAlias

import msgspec

from stoplist.db import Row
from stoplist.slicing import in_slices

_MODULUS = 1 << 256
# Of an array of texts, null and whole numbers, this is the form of RFC 8785.
_ENCODE = msgspec.json.Encoder().encode


StateRecord: TypeAlias = tuple[str, str | None, str, str, int]
"""The fields of a record that the digest covers: `id`, `group_id`, `address` (of an erased record, `address_digest`),
`status` and `seq`. A plain tuple, which takes a fifth of the time of a named one."""
_SEQ: Final = 4
# About half a millisecond of work.
_RECORDS_PER_SLICE = 500


class FeedState(NamedTuple):
    """The number of records up to `seq`, and the sum of their hashes."""

    seq: int
    records: int
    digest: int

    @property
    def text(self) -> str:
        """Return the digest as 64 lower-case hexadecimal digits."""
        return f"{self.digest:064x}"


EMPTY = FeedState(0, 0, 0)


def stored_state(row: Row, *, head_seq: int) -> FeedState:
    """Return the state of a row of `feeds` whose head was `head_seq`; the empty one if an older program wrote since.

    The row's `writes` and `state_writes` are of one moment.
    """
    if row["state_seq"] != head_seq and row["state_writes"] != row["writes"]:
        return EMPTY
    return FeedState(row["state_seq"], row["state_records"], int(row["state_digest"], 16))


async def changed_state(
    state: FeedState,
    *,
    head_seq: int,
    new_head_seq: int,
    replaced: Sequence[StateRecord],
    added: Sequence[StateRecord],
    pause: Callable[[], Awaitable[None]],
) -> FeedState:
    """Return the state after a change that took the head from `head_seq` to `new_head_seq`.

    `replaced` are the records that the change found and `added` those that it left, each as it was then.
    """
    records, digest = state.records, state.digest
    async for part in in_slices(replaced, pause, check_every=_RECORDS_PER_SLICE):
        counted = [record for record in part if record[_SEQ] <= state.seq]
        records, digest = records - len(counted), digest - sum_of_hashes(counted)
    if state.seq != head_seq:
        return FeedState(state.seq, records, digest % _MODULUS)
    async for part in in_slices(added, pause, check_every=_RECORDS_PER_SLICE):
        records, digest = records + len(part), digest + sum_of_hashes(part)
    return FeedState(new_head_seq, records, digest % _MODULUS)


def extended_state(state: FeedState, seq: int, records: Sequence[StateRecord]) -> FeedState:
    """Return the state up to `seq`, given all records between the two."""
    return FeedState(seq, state.records + len(records), (state.digest + sum_of_hashes(records)) % _MODULUS)


def sum_of_hashes(records: Sequence[StateRecord]) -> int:
    """Return the sum of the hashes of these records, not yet reduced modulo 2^256."""
    return sum([int.from_bytes(sha256(_ENCODE(record)).digest(), "big") for record in records])

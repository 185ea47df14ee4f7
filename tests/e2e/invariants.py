"""Invariants of the tables, which hold whatever happened while partners were at work.

Source: docs/interface.md sections 3.1, D2 (Rotation, Reuse) and D6.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, NamedTuple

from stoplist.db import Database
from tests.builders import sql, value
from tests.constants import DAY_MS
from tests.e2e.partners import PairHashes, Writer

_ORGANIZATION = "SELECT organization_id FROM organizations WHERE slug = :slug"
_FEED = "SELECT feed_id FROM feeds WHERE organization_id = :organization_id"
_HEAD = "SELECT head_seq FROM feeds WHERE feed_id = :feed_id"
# A run may have made millions of changes, so the database counts them.
_CHANGES = """
    (SELECT seq, source, submission_id, recorded_ms, status, reason FROM unsubscribes WHERE feed_id = :feed_id
    UNION ALL
    SELECT seq, source, submission_id, recorded_ms, status, reason FROM unsubscribe_versions WHERE feed_id = :feed_id)
    AS changes"""
_NUMBERS = f"SELECT COUNT(*), COUNT(DISTINCT seq), MIN(seq), MAX(seq) FROM {_CHANGES}"  # noqa: S608
_BATCHES = f"""
    SELECT source, submission_id, COUNT(*), MIN(seq), MAX(seq) FROM {_CHANGES}
    GROUP BY source, submission_id"""  # noqa: S608
_SUBMISSIONS = """
    SELECT submission_id, received, created + updated, first_seq, last_seq FROM submissions WHERE feed_id = :feed_id"""
_CHANGES_BY_DAY = f"""
    SELECT recorded_ms / {DAY_MS}, status, reason, COUNT(*) FROM {_CHANGES}
    GROUP BY recorded_ms / {DAY_MS}, status, reason"""  # noqa: S608
_COUNTED_BY_DAY = "SELECT day, status, reason, changes FROM feed_days WHERE feed_id = :feed_id AND changes > 0"
_RECORDS_BY_STATUS = """
    SELECT status, reason, COUNT(*) FROM unsubscribes WHERE feed_id = :feed_id GROUP BY status, reason"""
_COUNTED_BY_STATUS = """
    SELECT status, reason, CAST(SUM(standing) AS BIGINT) FROM feed_days WHERE feed_id = :feed_id
    GROUP BY status, reason HAVING SUM(standing) <> 0"""

_PAIRS = """
    SELECT pair_id, access_hash, refresh_hash, rotated_from, epoch FROM token_pairs
    WHERE client_id = :client_id AND pair_id > :after ORDER BY pair_id LIMIT 10000"""
_EPOCH = "SELECT epoch FROM clients WHERE client_id = :client_id"
_ALARMS = "SELECT COUNT(*) FROM audit WHERE action = 'client.reuse_alarm'"


class StoredPair(NamedTuple):
    """A row of token_pairs, whose refresh hash is known."""

    pair_id: int
    access: bytes
    rotated_from: int | None
    epoch: int


async def check_records(database: Database, writers: Iterable[Writer], *, organization: str) -> None:
    """Assert that batches are complete, changes numbered without a gap, and counts consistent.

    Only `writers` wrote, to one feed of the organization, and all their batches were answered.
    """
    organization_id = await value(database, _ORGANIZATION, slug=organization)
    feed_id = await value(database, _FEED, organization_id=organization_id)

    async def rows(text: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in await database.all(sql(text), feed_id=feed_id))

    head = await value(database, _HEAD, feed_id=feed_id)
    assert await rows(_NUMBERS) == [(head, head, 1, head)]
    batches = await rows(_BATCHES)
    answered = sorted(item for writer in writers for item in writer.answered.items())
    assert [(source, changes) for source, _, changes, _, _ in batches] == answered
    assert sorted((id_, changes, changes, first, last) for _, id_, changes, first, last in batches) == await rows(
        _SUBMISSIONS
    )
    assert await rows(_COUNTED_BY_DAY) == await rows(_CHANGES_BY_DAY)
    assert await rows(_COUNTED_BY_STATUS) == await rows(_RECORDS_BY_STATUS)


async def check_tokens(
    database: Database,
    client_id: str,
    *,
    issued: Iterable[PairHashes],
    rotations: Mapping[bytes, PairHashes | None],
) -> None:
    """Assert that every answered pair is stored and valid, and that a token is rotated if its successors were answered.

    `rotations` has the successors by the hash of the presented token, and None if the outcome is unknown. No reuse
    alarm was raised.
    """
    stored = {hash_: pair async for hash_, pair in _stored_pairs(database, client_id)}
    for pair in (*issued, *filter(None, rotations.values())):
        assert stored[pair.refresh].access == pair.access
    successors = {pair.rotated_from: hash_ for hash_, pair in stored.items() if pair.rotated_from is not None}
    presented = {stored[hash_].pair_id: pair for hash_, pair in rotations.items()}
    assert successors.keys() <= presented.keys()
    for pair_id, answered in presented.items():
        assert answered is None or successors[pair_id] == answered.refresh
    assert {pair.epoch for pair in stored.values()} == {await value(database, _EPOCH, client_id=client_id)}
    assert await value(database, _ALARMS) == 0


async def _stored_pairs(database: Database, client_id: str) -> AsyncIterator[tuple[bytes, StoredPair]]:
    """Yield the pairs of a client with the hashes of their refresh tokens."""
    after = 0
    while rows := await database.all(sql(_PAIRS), client_id=client_id, after=after):
        for row in rows:
            pair = StoredPair(row["pair_id"], bytes(row["access_hash"]), row["rotated_from"], row["epoch"])
            yield bytes(row["refresh_hash"]), pair
        after = rows[-1]["pair_id"]

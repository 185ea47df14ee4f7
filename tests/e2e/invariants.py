"""Invariants of the tables, which hold whatever happened while partners were at work.

Source: docs/interface.md sections 3.1, D2 (Rotation, Reuse) and D6.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from stoplist.db import Database
from stoplist.ids import hash_secret
from tests.builders import sql, value
from tests.constants import DAY_MS
from tests.e2e.partners import Writer

_ORGANIZATION = "SELECT organization_id FROM organizations WHERE slug = :slug"
_FEED = "SELECT feed_id FROM feeds WHERE organization_id = :organization_id"
_HEAD = "SELECT head_seq FROM feeds WHERE feed_id = :feed_id"
_RECORDS = "SELECT seq, status, reason, source, recorded_ms, submission_id FROM unsubscribes WHERE feed_id = :feed_id"
_VERSIONS = _RECORDS.replace("unsubscribes", "unsubscribe_versions")
_SUBMISSIONS = """
    SELECT submission_id, received, created + updated AS changes, first_seq, last_seq FROM submissions
    WHERE feed_id = :feed_id"""
_DAILY_CHANGES = "SELECT day, status, reason, changes FROM feed_days WHERE feed_id = :feed_id AND changes > 0"
_STANDING = """
    SELECT status, reason, CAST(SUM(standing) AS BIGINT) AS standing FROM feed_days WHERE feed_id = :feed_id
    GROUP BY status, reason"""


_PAIRS = """
    SELECT pair_id, access_hash, refresh_hash, rotated_from, epoch FROM token_pairs WHERE client_id = :client_id"""
_EPOCH = "SELECT epoch FROM clients WHERE client_id = :client_id"
_ALARMS = "SELECT COUNT(*) FROM audit WHERE action = 'client.reuse_alarm'"

Pair = dict[str, str]


class Change(NamedTuple):
    """A current or superseded version of a record."""

    seq: int
    status: str
    reason: str
    source: str
    recorded_ms: int
    submission_id: str


async def check_records(database: Database, writers: Iterable[Writer], *, organization: str) -> None:
    """Assert that batches are complete, changes numbered without a gap, and counts consistent.

    Only `writers` wrote, to one feed of the organization, and all their batches were answered.
    """
    organization_id = await value(database, _ORGANIZATION, slug=organization)
    feed_id = await value(database, _FEED, organization_id=organization_id)

    async def rows(text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await database.all(sql(text), feed_id=feed_id)]

    records = [Change(*row) for row in await rows(_RECORDS)]
    changes = records + [Change(*row) for row in await rows(_VERSIONS)]
    assert sorted(change.seq for change in changes) == list(range(1, await value(database, _HEAD, feed_id=feed_id) + 1))
    answered = {source: size for writer in writers for source, size in writer.answered.items()}
    assert Counter(change.source for change in changes) == answered
    seqs: dict[str, list[int]] = {}
    for change in changes:
        seqs.setdefault(change.submission_id, []).append(change.seq)
    assert len(seqs) == len(answered)
    assert sorted(await rows(_SUBMISSIONS)) == sorted(
        (id_, len(of), len(of), min(of), max(of)) for id_, of in seqs.items()
    )
    assert {(day, status, reason): count for day, status, reason, count in await rows(_DAILY_CHANGES)} == Counter(
        (change.recorded_ms // DAY_MS, change.status, change.reason) for change in changes
    )
    assert {(status, reason): count for status, reason, count in await rows(_STANDING)} == Counter(
        (record.status, record.reason) for record in records
    )


async def check_tokens(
    database: Database, client_id: str, *, issued: Iterable[Pair], rotations: Mapping[str, Pair | None]
) -> None:
    """Assert that every answered pair is stored and valid, and that a token is rotated if its successors were answered.

    `rotations` has the successors by presented token, and None if the server said that the outcome is unknown. No reuse
    alarm was raised.
    """
    rows = await database.all(sql(_PAIRS), client_id=client_id)
    stored = {bytes(row["refresh_hash"]): row for row in rows}
    for pair in (*issued, *filter(None, rotations.values())):
        assert stored[hash_secret(pair["refresh_token"])]["access_hash"] == hash_secret(pair["access_token"])
    successors = {row["rotated_from"]: bytes(row["refresh_hash"]) for row in rows if row["rotated_from"] is not None}
    presented = {stored[hash_secret(token)]["pair_id"]: pair for token, pair in rotations.items()}
    assert successors.keys() <= presented.keys()
    for pair_id, answered in presented.items():
        assert answered is None or successors[pair_id] == hash_secret(answered["refresh_token"])
    assert {row["epoch"] for row in rows} == {await value(database, _EPOCH, client_id=client_id)}
    assert await value(database, _ALARMS) == 0

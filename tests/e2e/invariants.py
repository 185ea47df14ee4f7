"""Invariants of the tables, which hold whatever happened while partners were at work.

Source: docs/interface.md sections 3.1, D2 (Rotation, Reuse) and D6.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from stoplist.db import Database
from stoplist.ids import hash_secret
from tests.builders import sql, value
from tests.e2e.partners import Writer
from tests.unsubscribes.agreement import disagreements

_ORGANIZATION = "SELECT organization_id FROM organizations WHERE slug = :slug"
_FEED = "SELECT feed_id FROM feeds WHERE organization_id = :organization_id"
_HEAD = "SELECT head_seq FROM feeds WHERE feed_id = :feed_id"
_CHANGES = """
    SELECT seq, source, submission_id FROM unsubscribes WHERE feed_id = :feed_id
    UNION ALL SELECT seq, source, submission_id FROM unsubscribe_versions WHERE feed_id = :feed_id"""
_PAIRS = """
    SELECT pair_id, access_hash, refresh_hash, rotated_from, epoch FROM token_pairs WHERE client_id = :client_id"""
_EPOCH = "SELECT epoch FROM clients WHERE client_id = :client_id"
_ALARMS = "SELECT COUNT(*) FROM audit WHERE action = 'client.reuse_alarm'"

Pair = dict[str, str]


async def check_records(database: Database, writers: Iterable[Writer], *, organization: str) -> None:
    """Assert that batches are complete, changes numbered without a gap, and counts consistent.

    Only `writers` wrote, to one feed of the organization, and all their batches were answered.
    """
    organization_id = await value(database, _ORGANIZATION, slug=organization)
    feed_id = await value(database, _FEED, organization_id=organization_id)

    changes = await database.all(sql(_CHANGES), feed_id=feed_id)
    assert sorted(row["seq"] for row in changes) == list(range(1, await value(database, _HEAD, feed_id=feed_id) + 1))
    answered = {source: size for writer in writers for source, size in writer.answered.items()}
    assert Counter(row["source"] for row in changes) == answered
    assert len({row["submission_id"] for row in changes}) == len(answered)
    wrong = await disagreements(database, feed_id)
    assert not wrong, wrong


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

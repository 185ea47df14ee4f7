"""Checks that the tables of the feeds agree with one another."""

from stoplist.db import ALL_FEEDS, Database, Row, Transaction
from tests.builders import sql

_CHANGES = """changes AS (
    SELECT feed_id, address, group_no, seq, status, reason, recorded_ms, submission_id, 1 AS stands FROM unsubscribes
    UNION ALL
    SELECT feed_id, address, group_no, seq, status, reason, recorded_ms, submission_id, 0 FROM unsubscribe_versions
)"""

# Each query finds rows that are wrong.
_WRONG = {
    "a number given to two changes": "SELECT feed_id, seq FROM changes GROUP BY feed_id, seq HAVING COUNT(*) > 1",
    "a number that the feed has not given": """
        SELECT changes.feed_id, seq FROM changes LEFT JOIN feeds ON feeds.feed_id = changes.feed_id
        WHERE head_seq IS NULL OR seq > head_seq OR seq < 1""",
    "a change outside its submission": """
        SELECT changes.feed_id, seq FROM changes LEFT JOIN submissions s
        ON s.feed_id = changes.feed_id AND s.submission_id = changes.submission_id
        WHERE s.first_seq IS NULL OR seq < s.first_seq OR seq > s.last_seq""",
    "a submission that is half there": """
        SELECT s.feed_id, s.submission_id FROM submissions s LEFT JOIN (
            SELECT feed_id, submission_id, COUNT(*) AS number FROM changes GROUP BY feed_id, submission_id
        ) stored ON stored.feed_id = s.feed_id AND stored.submission_id = s.submission_id
        WHERE COALESCE(number, 0) <> created + updated OR COALESCE(last_seq - first_seq + 1, 0) <> created + updated""",
    "a submission whose items do not add up": """
        SELECT feed_id, submission_id FROM submissions
        WHERE received <> created + updated + unchanged + outranked + rejected""",
    "a version without a later record": """
        SELECT v.feed_id, v.seq FROM unsubscribe_versions v LEFT JOIN unsubscribes u
        ON u.feed_id = v.feed_id AND u.address = v.address AND u.group_no = v.group_no AND u.seq > v.seq
        WHERE u.seq IS NULL""",
    # Except for reversals, whose new state may have the status of the reversed one.
    "a change that changed nothing": """
        SELECT feed_id, seq FROM (
            SELECT feed_id, seq, status, submission_id,
                   LAG(status) OVER (PARTITION BY feed_id, address, group_no ORDER BY seq) AS before
            FROM changes
        ) following WHERE status = before
        AND submission_id NOT IN (SELECT reversed_by FROM reversals)""",
    "changes that no day counts": """
        SELECT feed_id, recorded_ms / 86400000 AS day, status, reason, COUNT(*) AS number FROM changes
        GROUP BY feed_id, recorded_ms / 86400000, status, reason
        EXCEPT SELECT feed_id, day, status, reason, changes FROM feed_days""",
    "a day that counts what is not there": """
        SELECT feed_id, day, status, reason, changes FROM feed_days WHERE changes <> 0
        EXCEPT SELECT feed_id, recorded_ms / 86400000, status, reason, COUNT(*) FROM changes
        GROUP BY feed_id, recorded_ms / 86400000, status, reason""",
    "standing records that the days count otherwise": """
        SELECT feed_id, status, reason, SUM(stands) AS number FROM changes GROUP BY feed_id, status, reason
        EXCEPT SELECT feed_id, status, reason, SUM(standing) FROM feed_days GROUP BY feed_id, status, reason""",
}
# On a database that was emptied and filled again, PostgreSQL may take the tables for tiny, and compare each of 10 000
# records with each of 10 000 versions.
_ESTIMATE = sql("""
ANALYZE feeds, unsubscribes, unsubscribe_versions, submissions, reversals, feed_days  -- only: postgresql
SELECT 1  -- only: sqlite
""")
_QUERIES = {name: sql(f"WITH {_CHANGES} {text} LIMIT 5") for name, text in _WRONG.items()}


async def disagreements(database: Database) -> dict[str, list[tuple[object, ...]]]:
    """Return what is wrong in the tables, with examples; empty if all tables agree. Nobody may be writing.

    Records, earlier versions, submissions, daily counts and the heads of the feeds must agree: every submission is
    complete, and every number was assigned once.
    """

    async def look(transaction: Transaction) -> dict[str, list[Row]]:
        await transaction.all(_ESTIMATE)
        return {name: await transaction.all(query) for name, query in _QUERIES.items()}

    found = await database.write(look, feed_id=ALL_FEEDS)
    return {name: [tuple(row) for row in rows] for name, rows in found.items() if rows}

-- What is asked of the feeds for those who wait for a change, and how far each key has followed them.

-- name: heads
-- Primary key, once per feed. One row with one text, whatever the number of feeds.
SELECT CAST(json_group_array(json_array(f.feed_id, f.head_seq)) AS TEXT) AS heads  -- only: sqlite
SELECT CAST(json_agg(json_build_array(f.feed_id, f.head_seq)) AS TEXT) AS heads  -- only: postgresql
FROM json_each(:feed_ids) j CROSS JOIN feeds f WHERE f.feed_id = j.value  -- only: sqlite
FROM feeds f  -- only: postgresql
WHERE f.feed_id = ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(:feed_ids)))  -- only: postgresql

-- name: add_followers
-- Primary key. Rows to lock; the feed's row comes first, so that Citus sends the statement whole to its node.
INSERT INTO feed_followers (feed_id, client_id, group_no, generation, position)
SELECT f.feed_id, value->>0, CAST(value->>1 AS INTEGER), '', 0
FROM feeds f CROSS JOIN json_each(:followers) noted  -- only: sqlite
FROM feeds f CROSS JOIN LATERAL jsonb_each(:followers) noted  -- only: postgresql
WHERE f.feed_id = :feed_id
ON CONFLICT (feed_id, client_id, group_no) DO NOTHING

-- name: lock_follower
-- Primary key.
SELECT generation, position, presented_ms, current_ms, anew_ms, anew_last_ms, asked_ms FROM feed_followers
WHERE feed_id = :feed_id AND client_id = :client_id AND group_no = :group_no
FOR UPDATE  -- only: postgresql

-- name: put_followers
-- Primary key; the rows are locked.
INSERT INTO feed_followers (feed_id, client_id, group_no, generation, position, presented_ms, current_ms, anew_ms,
                            anew_last_ms, asked_ms)
SELECT f.feed_id, value->>0, CAST(value->>1 AS INTEGER), value->>2, CAST(value->>3 AS BIGINT), CAST(value->>4 AS BIGINT),
       CAST(value->>5 AS BIGINT), CAST(value->>6 AS BIGINT), CAST(value->>7 AS BIGINT), CAST(value->>8 AS BIGINT)
FROM feeds f CROSS JOIN json_each(:followers) noted  -- only: sqlite
FROM feeds f CROSS JOIN LATERAL jsonb_each(:followers) noted  -- only: postgresql
WHERE f.feed_id = :feed_id
ON CONFLICT (feed_id, client_id, group_no) DO UPDATE SET
    generation = excluded.generation, position = excluded.position, presented_ms = excluded.presented_ms,
    current_ms = excluded.current_ms, anew_ms = excluded.anew_ms, anew_last_ms = excluded.anew_last_ms,
    asked_ms = excluded.asked_ms

-- name: mark_follower
-- Primary key.
INSERT INTO feed_followers (feed_id, client_id, group_no, generation, position, mark, marked_ms)
VALUES (:feed_id, :client_id, :group_no, '', 0, :mark, :marked_ms)
ON CONFLICT (feed_id, client_id, group_no) DO UPDATE SET mark = excluded.mark, marked_ms = excluded.marked_ms

-- name: add_position
-- Primary key, and feed_positions_position: nothing is added that an earlier row with at least this position says already.
-- Of one minute the highest position stays, so that later processes can come in any order.
INSERT INTO feed_positions (feed_id, client_id, group_no, minute, position, presented_ms)
SELECT f.feed_id, CAST(:client_id AS TEXT), CAST(:group_no AS INTEGER), CAST(:minute AS BIGINT),
       CAST(:position AS BIGINT), CAST(:presented_ms AS BIGINT)
FROM feeds f WHERE f.feed_id = :feed_id AND NOT EXISTS (
    SELECT 1 FROM feed_positions known WHERE known.feed_id = f.feed_id AND known.client_id = :client_id
        AND known.group_no = :group_no AND known.position >= :position AND known.presented_ms <= :presented_ms
)
ON CONFLICT (feed_id, client_id, group_no, minute) DO UPDATE SET
    position = excluded.position, presented_ms = excluded.presented_ms
WHERE excluded.position > feed_positions.position
    OR (excluded.position = feed_positions.position AND excluded.presented_ms < feed_positions.presented_ms)

-- name: drop_outrun_positions
-- Later rows that say no more; used only where another process has already written them. One reader's list, by either index.
DELETE FROM feed_positions WHERE feed_id = :feed_id AND client_id = :client_id AND group_no = :group_no
    AND minute > :minute AND position <= :position

-- name: heads_and_generations
-- Primary key, once per feed. An array, so that PostgreSQL uses the key and can query shards separately.
SELECT feed_id, generation, head_seq FROM feeds
WHERE feed_id IN (SELECT value FROM json_each(:feed_ids))  -- only: sqlite
WHERE feed_id = ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(:feed_ids)))  -- only: postgresql

-- name: followers_of_feeds
-- Primary key, once per feed.
SELECT feed_id, client_id, group_no, generation, position, presented_ms, current_ms, anew_ms, anew_last_ms, asked_ms, mark,
       marked_ms
FROM feed_followers
WHERE feed_id IN (SELECT value FROM json_each(:feed_ids))  -- only: sqlite
WHERE feed_id = ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(:feed_ids)))  -- only: postgresql

-- name: oldest_after
-- unsubscribes_seq and unsubscribe_versions_seq, once per position: when the first change after it was recorded. That change may
-- have been superseded since.
SELECT CAST(j.value AS BIGINT) AS position, (
    SELECT u.recorded_ms FROM unsubscribes u WHERE u.feed_id = :feed_id AND u.seq > CAST(j.value AS BIGINT)
    ORDER BY u.seq LIMIT 1
) AS record_ms, (
    SELECT v.recorded_ms FROM unsubscribe_versions v WHERE v.feed_id = :feed_id AND v.seq > CAST(j.value AS BIGINT)
    ORDER BY v.seq LIMIT 1
) AS version_ms
FROM json_each(:positions) j  -- only: sqlite
FROM json_array_elements_text(:positions) j  -- only: postgresql

-- name: since_when
-- feed_positions_position, once per reader: when it first presented this number or more.
SELECT value->>0 AS client_id, CAST(value->>1 AS INTEGER) AS group_no, (
    SELECT p.presented_ms FROM feed_positions p WHERE p.feed_id = :feed_id AND p.client_id = value->>0
        AND p.group_no = CAST(value->>1 AS INTEGER) AND p.position >= :seq ORDER BY p.position LIMIT 1
) AS since_ms
FROM json_each(:readers) j  -- only: sqlite
FROM jsonb_each(:readers) j  -- only: postgresql

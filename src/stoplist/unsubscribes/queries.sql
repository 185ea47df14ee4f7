-- Opt-outs. Every statement but `feeds` starts with feed_id; tests check each plan on tables without statistics.
-- A whole batch is one parameter, a JSON text: never one statement per row. (PostgreSQL parses a json row once per
-- field, a jsonb row only once.)
-- LATERAL and OFFSET 0 make PostgreSQL find the records of each address separately. Given a join to plan without
-- statistics, PostgreSQL reads the whole feed into a hash table instead.
-- A page within a page: PostgreSQL sorts the rest of a feed if it expects the page to take most of it, which it
-- expects of every page of 10 000 when there are no statistics. It cannot know the outer LIMIT (SELECT …) beforehand
-- and expects it to end the inner one early, so it uses the index, with statistics and without.

-- name: feed
-- Primary key.
SELECT generation, head_seq, writes FROM feeds WHERE feed_id = :feed_id

-- name: open_feed
-- If several transactions open the same feed, one inserts, and the others find its row.
INSERT INTO feeds (feed_id, organization_id, channel, generation, head_seq, writes)
VALUES (:feed_id, :organization_id, :channel, :generation, 0, 0)
ON CONFLICT (feed_id) DO NOTHING

-- name: lock_feed
-- The lock is a separate statement: a statement that both locked and read returned the new head with the old record.
-- The row stays locked until the commit, so numbers are assigned in commit order, and a reader that has seen one number
-- can never miss a smaller one. If another batch was written since :seen, the number of changes is not known yet: the
-- greatest possible number of numbers is reserved, and the last of them are used.
UPDATE feeds SET writes = writes + 1,
    head_seq = head_seq + CASE WHEN writes = :seen THEN CAST(:changes AS BIGINT) ELSE CAST(:most AS BIGINT) END
WHERE feed_id = :feed_id
RETURNING head_seq, writes

-- name: give_back_numbers
-- Used if nothing is left to change behind the lock: a head without a record would promise a page that never comes.
-- Primary key; the row is locked, and nobody has seen the numbers.
UPDATE feeds SET head_seq = head_seq - :numbers WHERE feed_id = :feed_id

-- name: current_records
-- Primary key of unsubscribes, once per address. CROSS JOIN, because SQLite without statistics would start with the
-- wrong table. One row with one text, so that a thread reads it in one C call.
SELECT CAST(json_group_array(json_array(  -- only: sqlite
SELECT CAST(json_agg(json_build_array(  -- only: postgresql
    u.address, u.id, u.status, u.reason, u.occurred_ms, u.latest_act_ms, u.is_confirmed, u.submission_id
)) AS TEXT) AS records
FROM json_each(:addresses) j CROSS JOIN unsubscribes u  -- only: sqlite
FROM json_array_elements_text(:addresses) j CROSS JOIN LATERAL (SELECT u.* FROM unsubscribes u  -- only: postgresql
WHERE u.feed_id = :feed_id AND u.address = j.value AND u.group_no = :group_no
OFFSET 0) u  -- only: postgresql

-- name: keep_versions
-- Primary key, once per address. Keeps the former states of the records, and the states that one batch both made and
-- superseded.
INSERT INTO unsubscribe_versions (feed_id, address, group_no, seq, status, reason, source, occurred_ms, recorded_ms,
                                  submission_id, latest_act_ms)
SELECT u.feed_id, u.address, u.group_no, u.seq, u.status, u.reason, u.source, u.occurred_ms, u.recorded_ms,
       u.submission_id, u.latest_act_ms
FROM json_each(:addresses) j CROSS JOIN unsubscribes u  -- only: sqlite
FROM json_array_elements_text(:addresses) j CROSS JOIN LATERAL (SELECT u.* FROM unsubscribes u  -- only: postgresql
WHERE u.feed_id = :feed_id AND u.address = j.value AND u.group_no = :group_no
OFFSET 0) u  -- only: postgresql
UNION ALL
SELECT CAST(:feed_id AS BIGINT), value->>0, CAST(:group_no AS INTEGER), CAST(key AS BIGINT), value->>2, value->>3,
       value->>4, CAST(value->>5 AS BIGINT), CAST(:recorded_ms AS BIGINT), :submission_id, CAST(value->>6 AS BIGINT)
FROM json_each(:superseded) changed  -- only: sqlite
FROM jsonb_each(:superseded) changed  -- only: postgresql

-- name: add_records
-- Used if every record is new, which the lock guarantees: a third faster on PostgreSQL than a check for conflicts.
-- key: the number of the change.
INSERT INTO unsubscribes (feed_id, address, group_no, id, seq, status, reason, source, occurred_ms, recorded_ms,
                          submission_id, latest_act_ms, is_confirmed)
SELECT CAST(:feed_id AS BIGINT), value->>0, CAST(:group_no AS INTEGER), value->>1, CAST(key AS BIGINT), value->>2,
       value->>3, value->>4, CAST(value->>5 AS BIGINT), CAST(:recorded_ms AS BIGINT), :submission_id,
       CAST(value->>6 AS BIGINT), CAST(value->>7 AS SMALLINT)
FROM json_each(:records) changed  -- only: sqlite
FROM jsonb_each(:records) changed  -- only: postgresql

-- name: put_records
-- Primary key, once per record. `id` stays the same through every change. key: the number of the change.
INSERT INTO unsubscribes (feed_id, address, group_no, id, seq, status, reason, source, occurred_ms, recorded_ms,
                          submission_id, latest_act_ms, is_confirmed)
SELECT CAST(:feed_id AS BIGINT), value->>0, CAST(:group_no AS INTEGER), value->>1, CAST(key AS BIGINT), value->>2,
       value->>3, value->>4, CAST(value->>5 AS BIGINT), CAST(:recorded_ms AS BIGINT), :submission_id,
       CAST(value->>6 AS BIGINT), CAST(value->>7 AS SMALLINT)
FROM json_each(:records) changed  -- only: sqlite
FROM jsonb_each(:records) changed  -- only: postgresql
WHERE true ON CONFLICT (feed_id, address, group_no) DO UPDATE SET
    seq = excluded.seq, status = excluded.status, reason = excluded.reason, source = excluded.source,
    occurred_ms = excluded.occurred_ms, recorded_ms = excluded.recorded_ms, submission_id = excluded.submission_id,
    latest_act_ms = excluded.latest_act_ms, is_confirmed = excluded.is_confirmed

-- name: touch_records
-- Primary key, once per record: an upsert that only ever updates, because it starts from the batch on both databases.
-- Nothing that partners can see of the records changes.
INSERT INTO unsubscribes (feed_id, address, group_no, id, seq, status, reason, source, occurred_ms, recorded_ms,
                          submission_id, latest_act_ms, is_confirmed)
SELECT u.feed_id, u.address, u.group_no, u.id, u.seq, u.status, u.reason, u.source, u.occurred_ms, u.recorded_ms,
       u.submission_id, CAST(touched.value->>1 AS BIGINT), CAST(touched.value->>2 AS SMALLINT)
FROM json_each(:touched) touched CROSS JOIN unsubscribes u  -- only: sqlite
FROM jsonb_each(:touched) touched CROSS JOIN LATERAL (SELECT u.* FROM unsubscribes u  -- only: postgresql
WHERE u.feed_id = :feed_id AND u.address = touched.value->>0 AND u.group_no = :group_no
OFFSET 0) u  -- only: postgresql
ON CONFLICT (feed_id, address, group_no) DO UPDATE SET
    latest_act_ms = excluded.latest_act_ms, is_confirmed = excluded.is_confirmed

-- name: record_submission
-- One row per batch, behind the feed's lock; its id is new.
INSERT INTO submissions (feed_id, submission_id, group_no, actor_kind, actor_id, request_id, source_ip, received_ms,
                         received, created, updated, unchanged, outranked, rejected, first_seq, last_seq)
VALUES (:feed_id, :submission_id, :group_no, :actor_kind, :actor_id, :request_id, :source_ip, :received_ms,
        :received, :created, :updated, :unchanged, :outranked, :rejected, :first_seq, :last_seq)

-- name: count_changes
-- Primary key. One row per status and reason of the batch.
INSERT INTO feed_days (feed_id, day, status, reason, changes, standing)
SELECT CAST(:feed_id AS BIGINT), CAST(:day AS INTEGER), value->>0, value->>1, CAST(value->>2 AS BIGINT),
       CAST(value->>3 AS BIGINT)
FROM json_each(:counts) counted WHERE true
ON CONFLICT (feed_id, day, status, reason) DO UPDATE SET
    changes = feed_days.changes + excluded.changes, standing = feed_days.standing + excluded.standing

-- name: records_after
-- unsubscribes_seq, after :after.
SELECT * FROM (  -- only: postgresql
SELECT id, group_no, address, status, reason, source, occurred_ms, recorded_ms, seq FROM unsubscribes
WHERE feed_id = :feed_id AND seq > :after ORDER BY seq LIMIT :most
) page ORDER BY seq LIMIT (SELECT CAST(:most AS BIGINT))  -- only: postgresql

-- name: seq_after
-- unsubscribes_seq only: the number of the :examined-th record after :after, no row if there are fewer.
SELECT seq FROM (  -- only: postgresql
SELECT seq FROM unsubscribes WHERE feed_id = :feed_id AND seq > :after ORDER BY seq
LIMIT 1 OFFSET :examined - 1  -- only: sqlite
LIMIT :examined) page ORDER BY seq LIMIT 1 OFFSET (SELECT CAST(:examined AS BIGINT) - 1)  -- only: postgresql

-- name: records_of_group
-- unsubscribes_seq, between two numbers that bound how many records are examined.
SELECT id, group_no, address, status, reason, source, occurred_ms, recorded_ms, seq FROM unsubscribes
WHERE feed_id = :feed_id AND seq > :after AND seq <= :until AND group_no IN (0, :group_no) ORDER BY seq LIMIT :most

-- name: records_of_addresses
-- Primary key of unsubscribes, once per address; in no order.
SELECT u.id, u.group_no, u.address, u.status, u.reason, u.source, u.occurred_ms, u.recorded_ms, u.seq
FROM json_each(:addresses) j CROSS JOIN unsubscribes u  -- only: sqlite
FROM json_array_elements_text(:addresses) j CROSS JOIN LATERAL (SELECT u.* FROM unsubscribes u  -- only: postgresql
WHERE u.feed_id = :feed_id AND u.address = j.value
OFFSET 0) u  -- only: postgresql

-- name: feeds
-- Every feed: used after a restore, and to find addresses that would change.
SELECT feed_id, organization_id, channel FROM feeds ORDER BY feed_id

-- name: addresses_after
-- Primary key of unsubscribes only. An address appears once for each of its groups.
SELECT * FROM (  -- only: postgresql
SELECT address FROM unsubscribes WHERE feed_id = :feed_id AND address > :after_address ORDER BY address LIMIT :most
) page ORDER BY address LIMIT (SELECT CAST(:most AS BIGINT))  -- only: postgresql

-- name: renew_generation
-- Primary key.
UPDATE feeds SET generation = :generation WHERE feed_id = :feed_id

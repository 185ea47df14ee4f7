-- Opt-outs. Every statement but `feeds` starts with feed_id; tests check each plan on tables without statistics.
-- A whole batch is one parameter, a JSON text: never one statement per row. (PostgreSQL parses a json row once per
-- field, a jsonb row only once.)
-- LATERAL and OFFSET 0 make PostgreSQL find the records of each address separately. Given a join to plan without
-- statistics, PostgreSQL reads the whole feed into a hash table instead.
-- (address, group_no) >= …, which follows from the conditions before it, lets PostgreSQL choose the index of the whole key
-- with statistics of a table of one row, too: see of_record in db/fragments.sql.
-- A page within a page: PostgreSQL sorts the rest of a feed if it expects the page to take most of it, which it
-- expects of every page of 10 000 when there are no statistics. It cannot know the outer LIMIT (SELECT …) beforehand
-- and expects it to end the inner one early, so it uses the index, with statistics and without.

-- name: feed
-- Primary key.
SELECT generation, head_seq, writes, state_seq, state_records, state_digest, state_writes, digest_key, has_erased
FROM feeds WHERE feed_id = :feed_id

-- name: feed_and_records_of_address
-- Primary keys. The feed, and the records of one address, under both forms, in all groups, of one snapshot; one row if there is no record.
-- (Planned for a handful of records, PostgreSQL would read the whole feed for both forms at once, and keep that plan.)
SELECT f.generation, f.head_seq, f.writes, f.state_seq, f.state_records, f.state_digest, f.state_writes, f.digest_key,
       f.has_erased, u.group_no, u.address, u.id, u.status, u.reason, u.occurred_ms, u.latest_act_ms,
-- include: is_confirmed record=u
AS is_confirmed, u.submission_id, u.seq
FROM feeds f LEFT JOIN unsubscribes u ON u.feed_id = f.feed_id AND u.address IN (:address, :erased)  -- only: sqlite
FROM feeds f LEFT JOIN LATERAL (SELECT u.*  -- only: postgresql
FROM unnest(ARRAY[CAST(:address AS TEXT), CAST(:erased AS TEXT)]) j (address)  -- only: postgresql
CROSS JOIN LATERAL (SELECT u.* FROM unsubscribes u WHERE u.feed_id = :feed_id AND u.address = j.address  -- only: postgresql
AND (u.address, u.group_no) >= (j.address, 0) OFFSET 0) u) u ON TRUE  -- only: postgresql
WHERE f.feed_id = :feed_id

-- name: open_feed
-- If several transactions open the same feed, one inserts, and the others find its row.
INSERT INTO feeds (feed_id, organization_id, organization_uid, channel, generation, head_seq, writes, digest_key)
VALUES (:feed_id, :organization_id, :organization_uid, :channel, :generation, 0, 0, :digest_key)
ON CONFLICT (feed_id) DO NOTHING

-- name: owner_of_feed
-- Primary key.
SELECT organization_uid FROM feeds WHERE feed_id = :feed_id

-- name: lock_feed
-- The lock is a separate statement: a statement that both locked and read returned the new head with the old record.
-- The row stays locked until the commit, so numbers are assigned in commit order, and a reader that has seen one number
-- can never miss a smaller one. If another batch was written since :seen, the number of changes is not known yet: the
-- greatest possible number of numbers is reserved, and the last of them are used. The state of the feed was computed for
-- :changes as well; otherwise `set_state` follows. state_writes shows that no older program wrote in between.
UPDATE feeds SET writes = writes + 1,
    head_seq = head_seq + CASE WHEN writes = :seen THEN CAST(:changes AS BIGINT) ELSE CAST(:most AS BIGINT) END,
    state_seq = CASE WHEN writes = :seen THEN CAST(:state_seq AS BIGINT) ELSE state_seq END,
    state_records = CASE WHEN writes = :seen THEN CAST(:state_records AS BIGINT) ELSE state_records END,
    state_digest = CASE WHEN writes = :seen THEN CAST(:state_digest AS TEXT) ELSE state_digest END,
    state_writes = CASE WHEN writes = :seen OR writes = state_writes THEN writes + 1 ELSE state_writes END,
    last_recorded_ms = CASE WHEN last_recorded_ms < :now_ms THEN CAST(:now_ms AS BIGINT) ELSE last_recorded_ms END
WHERE feed_id = :feed_id
RETURNING head_seq, writes, state_seq, state_records, state_digest, state_writes, last_recorded_ms, digest_key,
          has_erased

-- name: set_last_recorded
-- Primary key; the row is locked.
UPDATE feeds SET last_recorded_ms = :recorded_ms WHERE feed_id = :feed_id

-- name: set_state
-- Primary key; the row is locked, and its state is of this moment.
UPDATE feeds SET state_seq = :state_seq, state_records = :state_records, state_digest = :state_digest,
    state_writes = writes
WHERE feed_id = :feed_id

-- name: incomplete_feeds
-- Every feed whose state an older program has left behind, or that has had records since before there were states. Read by a
-- chore; a feed's row is short.
SELECT feed_id, organization_id, head_seq FROM feeds WHERE state_seq <> head_seq ORDER BY feed_id

-- name: state_records_after
-- unsubscribes_seq, after :after.
SELECT * FROM (  -- only: postgresql
SELECT id, group_no, address, status, seq FROM unsubscribes
WHERE feed_id = :feed_id AND seq > :after ORDER BY seq LIMIT :most
) page ORDER BY seq LIMIT (SELECT CAST(:most AS BIGINT))  -- only: postgresql

-- name: give_back_numbers
-- Used if nothing is left to change behind the lock: a head without a record would promise a page that never comes.
-- Primary key; the row is locked, and nobody has seen the numbers.
UPDATE feeds SET head_seq = head_seq - :numbers WHERE feed_id = :feed_id

-- name: current_records
-- Primary key of unsubscribes, once per address. CROSS JOIN, because SQLite without statistics would start with the
-- wrong table. One row with one text, so that a thread reads it in one C call.
SELECT CAST(json_group_array(json_array(  -- only: sqlite
SELECT CAST(json_agg(json_build_array(  -- only: postgresql
    u.address, u.id, u.status, u.reason, u.occurred_ms, u.latest_act_ms,
    -- include: is_confirmed record=u
    , u.submission_id, u.seq
)) AS TEXT) AS records
FROM json_each(:addresses) j CROSS JOIN unsubscribes u  -- only: sqlite
FROM json_array_elements_text(:addresses) j CROSS JOIN LATERAL (SELECT u.* FROM unsubscribes u  -- only: postgresql
-- include: of_record row=u address=j.value group_no=:group_no
OFFSET 0) u  -- only: postgresql

-- name: erased_forms_of_feed
-- Primary key of unsubscribes, where erased forms lie side by side: at most :most records' addresses.
SELECT CAST(json_group_array(address) AS TEXT) AS forms  -- only: sqlite
SELECT CAST(json_agg(address) AS TEXT) AS forms  -- only: postgresql
FROM (
    SELECT address FROM unsubscribes WHERE feed_id = :feed_id AND address >= 'erased:' AND address < 'erased;'
    LIMIT :most
) u

-- fragment: records_of_each_address
FROM json_each(:addresses) j CROSS JOIN unsubscribes u  -- only: sqlite
FROM json_array_elements_text(:addresses) j CROSS JOIN LATERAL (SELECT u.* FROM unsubscribes u  -- only: postgresql
WHERE u.feed_id = :feed_id AND u.address = j.value
AND (u.address, u.group_no) >= (j.value, 0)  -- only: postgresql
OFFSET 0) u  -- only: postgresql

-- name: erased_records
-- Primary key of unsubscribes, once per erased form: the records of these persons for every group.
SELECT CAST(json_group_array(json_array(  -- only: sqlite
SELECT CAST(json_agg(json_build_array(  -- only: postgresql
    u.group_no, json_array(  -- only: sqlite
    u.group_no, json_build_array(  -- only: postgresql
        u.address, u.id, u.status, u.reason, u.occurred_ms, u.latest_act_ms,
        -- include: is_confirmed record=u
        , u.submission_id, u.seq)
)) AS TEXT) AS records
-- include: records_of_each_address

-- name: erasures_of_digests
-- erasures_of_person, once per digest; then unsubscribes_seq and unsubscribe_versions_seq, once per change: the address of the
-- state that it made, as it is stored now.
SELECT CAST(json_group_array(json_array(  -- only: sqlite
SELECT CAST(json_agg(json_build_array(  -- only: postgresql
    e.seq, e.kind, e.record_id, e.digest, COALESCE(
        (SELECT u.address FROM unsubscribes u WHERE u.feed_id = :feed_id AND u.seq = e.seq),
        (SELECT v.address FROM unsubscribe_versions v WHERE v.feed_id = :feed_id AND v.seq = e.seq))
)) AS TEXT) AS notes
FROM json_each(:digests) j CROSS JOIN erasures e  -- only: sqlite
WHERE e.feed_id = :feed_id AND e.digest = j.value  -- only: sqlite
FROM json_array_elements_text(:digests) j CROSS JOIN LATERAL (SELECT e.* FROM erasures e  -- only: postgresql
WHERE e.feed_id = :feed_id AND e.digest = j.value  -- only: postgresql
OFFSET 0) e  -- only: postgresql

-- fragment: renamed_addresses
WHERE feed_id = :feed_id AND group_no = :group_no
  AND address IN (SELECT key FROM json_each(:renamed))  -- only: sqlite
  AND address = ANY (ARRAY(SELECT json_object_keys(:renamed)))  -- only: postgresql

-- name: rename_records
-- Primary key, once per address; :renamed has the new address of each. Behind the feed's lock.
UPDATE unsubscribes SET address = :renamed->>address  -- only: sqlite
UPDATE unsubscribes SET address = CAST(:renamed AS JSON)->>address  -- only: postgresql
-- include: renamed_addresses

-- name: rename_versions
-- Primary key, once per address. Behind the feed's lock.
UPDATE unsubscribe_versions SET address = :renamed->>address  -- only: sqlite
UPDATE unsubscribe_versions SET address = CAST(:renamed AS JSON)->>address  -- only: postgresql
-- include: renamed_addresses

-- name: note_erasures
-- The numbers are new, behind the feed's lock.
INSERT INTO erasures (feed_id, seq, kind, record_id, digest, stands_seq, submission_id, at_ms)
SELECT f.feed_id, CAST(key AS BIGINT), CAST(:kind AS TEXT), value->>0, value->>1, CAST(value->>2 AS BIGINT), :submission_id,
       CAST(:at_ms AS BIGINT)
FROM feeds f CROSS JOIN json_each(:noted) noted  -- only: sqlite
FROM feeds f CROSS JOIN LATERAL jsonb_each(:noted) noted  -- only: postgresql
WHERE f.feed_id = :feed_id

-- name: keep_versions
-- Primary key, once per address. Keeps the former states of the records, and the states that one batch both made and
-- superseded.
INSERT INTO unsubscribe_versions (feed_id, address, group_no, seq, status, reason, source, occurred_ms, recorded_ms,
                                  submission_id, latest_act_ms)
SELECT u.feed_id, u.address, u.group_no, u.seq, u.status, u.reason, u.source, u.occurred_ms, u.recorded_ms,
       u.submission_id, u.latest_act_ms
FROM json_each(:addresses) j CROSS JOIN unsubscribes u  -- only: sqlite
FROM json_array_elements_text(:addresses) j CROSS JOIN LATERAL (SELECT u.* FROM unsubscribes u  -- only: postgresql
-- include: of_record row=u address=j.value group_no=:group_no
OFFSET 0) u  -- only: postgresql
UNION ALL
SELECT CAST(:feed_id AS BIGINT), value->>0, CAST(:group_no AS INTEGER), CAST(key AS BIGINT), value->>2, value->>3,
       value->>4, CAST(value->>5 AS BIGINT), CAST(:recorded_ms AS BIGINT), :submission_id, CAST(value->>6 AS BIGINT)
FROM json_each(:superseded) changed  -- only: sqlite
FROM jsonb_each(:superseded) changed  -- only: postgresql

-- fragment: insert_records
-- key: the number of the change. `submission` is its id. The feed's row comes first, so that Citus sends the statement whole to the feed's node;
-- without it, Citus copies the rows there through the coordinator and commits in two phases.
INSERT INTO unsubscribes (feed_id, address, group_no, id, seq, status, reason, source, occurred_ms, recorded_ms,
                          submission_id, latest_act_ms, is_confirmed)
SELECT f.feed_id, value->>0, CAST(:group_no AS INTEGER), value->>1, CAST(key AS BIGINT), value->>2, value->>3,
       value->>4, CAST(value->>5 AS BIGINT), CAST(:recorded_ms AS BIGINT), {submission}, CAST(value->>6 AS BIGINT),
       CAST(value->>7 AS SMALLINT)
FROM feeds f CROSS JOIN json_each(:records) changed  -- only: sqlite
FROM feeds f CROSS JOIN LATERAL jsonb_each(:records) changed  -- only: postgresql
WHERE f.feed_id = :feed_id

-- name: add_records
-- Primary key of feeds. Used if every record is new, which the lock guarantees: a third faster on PostgreSQL than a check
-- for conflicts.
-- include: insert_records submission=:submission_id

-- fragment: on_conflict_put
ON CONFLICT (feed_id, address, group_no) DO UPDATE SET
    seq = excluded.seq, status = excluded.status, reason = excluded.reason, source = excluded.source,
    occurred_ms = excluded.occurred_ms, recorded_ms = excluded.recorded_ms, submission_id = excluded.submission_id,
    latest_act_ms = excluded.latest_act_ms, is_confirmed = excluded.is_confirmed

-- name: put_records
-- Primary keys of feeds and, once per record, of unsubscribes. `id` stays the same through every change.
-- include: insert_records submission=:submission_id
-- include: on_conflict_put

-- name: put_records_of_acts
-- put_records, where each record has a submission of its own.
-- include: insert_records submission=value->>8
-- include: on_conflict_put

-- name: put_records_with_audit
-- put_records in a transaction that writes an audit row, too, which Citus keeps on the coordinator: without the feed's
-- row, Citus commits in two phases, so that a crash leaves no change without its audit.
INSERT INTO unsubscribes (feed_id, address, group_no, id, seq, status, reason, source, occurred_ms, recorded_ms,
                          submission_id, latest_act_ms, is_confirmed)
SELECT CAST(:feed_id AS BIGINT), value->>0, CAST(:group_no AS INTEGER), value->>1, CAST(key AS BIGINT), value->>2,
       value->>3, value->>4, CAST(value->>5 AS BIGINT), CAST(:recorded_ms AS BIGINT), :submission_id,
       CAST(value->>6 AS BIGINT), CAST(value->>7 AS SMALLINT)
FROM json_each(:records) changed WHERE true  -- only: sqlite
FROM jsonb_each(:records) changed  -- only: postgresql
-- include: on_conflict_put

-- name: touch_records
-- Primary key, once per record: an upsert that only ever updates, because it starts from the batch on both databases.
-- Nothing that partners can see of the records changes.
INSERT INTO unsubscribes (feed_id, address, group_no, id, seq, status, reason, source, occurred_ms, recorded_ms,
                          submission_id, latest_act_ms, is_confirmed)
SELECT u.feed_id, u.address, u.group_no, u.id, u.seq, u.status, u.reason, u.source, u.occurred_ms, u.recorded_ms,
       u.submission_id, CAST(touched.value->>1 AS BIGINT), CAST(touched.value->>2 AS SMALLINT)
FROM (SELECT value->>0 AS address, value FROM json_each(:touched)) touched CROSS JOIN unsubscribes u  -- only: sqlite
FROM (SELECT value->>0 AS address, value FROM jsonb_each(:touched) OFFSET 0) touched  -- only: postgresql
CROSS JOIN LATERAL (SELECT u.* FROM unsubscribes u  -- only: postgresql
-- include: of_record row=u address=touched.address group_no=:group_no
OFFSET 0) u  -- only: postgresql
ON CONFLICT (feed_id, address, group_no) DO UPDATE SET
    latest_act_ms = excluded.latest_act_ms, is_confirmed = excluded.is_confirmed

-- name: confirm_records
-- unsubscribes_seq, once per record: touch_records for records whose latest act stays. The records of a list that is sent
-- again have adjacent numbers, so this reads fewer pages than their addresses would. (For an UPDATE, PostgreSQL would
-- read the whole feed, if it had few records when the plan was made.)
UPDATE unsubscribes SET is_confirmed = 1  -- only: sqlite
WHERE feed_id = :feed_id AND seq IN (SELECT value FROM json_each(:seqs))  -- only: sqlite
INSERT INTO unsubscribes (feed_id, address, group_no, id, seq, status, reason, source, occurred_ms, recorded_ms,  -- only: postgresql
                          submission_id, latest_act_ms, is_confirmed)  -- only: postgresql
SELECT u.feed_id, u.address, u.group_no, u.id, u.seq, u.status, u.reason, u.source, u.occurred_ms, u.recorded_ms,  -- only: postgresql
       u.submission_id, u.latest_act_ms, 1  -- only: postgresql
FROM (SELECT CAST(value AS BIGINT) AS seq FROM json_array_elements_text(:seqs) OFFSET 0) j  -- only: postgresql
CROSS JOIN LATERAL (SELECT u.* FROM unsubscribes u  -- only: postgresql
WHERE u.feed_id = :feed_id AND u.seq = j.seq AND (u.feed_id, u.seq) >= (:feed_id, j.seq)  -- only: postgresql
OFFSET 0) u  -- only: postgresql
ON CONFLICT (feed_id, address, group_no) DO UPDATE SET is_confirmed = 1  -- only: postgresql

-- name: confirm_ranges
-- Primary key of feeds. Behind the feed's lock, for numbers that are in no range yet.
INSERT INTO confirmed_ranges (feed_id, first_seq, last_seq)
SELECT f.feed_id, CAST(value->>0 AS BIGINT), CAST(value->>1 AS BIGINT)
FROM feeds f CROSS JOIN json_each(:ranges) confirmed  -- only: sqlite
FROM feeds f CROSS JOIN LATERAL json_array_elements(:ranges) confirmed  -- only: postgresql
WHERE f.feed_id = :feed_id

-- name: record_submission
-- One row per batch, behind the feed's lock; its id is new.
INSERT INTO submissions (feed_id, submission_id, group_no, actor_kind, actor_id, request_id, source_ip, received_ms,
                         received, created, updated, unchanged, outranked, rejected, first_seq, last_seq)
VALUES (:feed_id, :submission_id, :group_no, :actor_kind, :actor_id, :request_id, :source_ip, :received_ms,
        :received, :created, :updated, :unchanged, :outranked, :rejected, :first_seq, :last_seq)

-- name: record_submissions
-- record_submission for several at once, each with one act of the same actor. Primary key of feeds.
INSERT INTO submissions (feed_id, submission_id, group_no, actor_kind, actor_id, request_id, source_ip, received_ms,
                         received, created, updated, unchanged, outranked, rejected, first_seq, last_seq)
SELECT f.feed_id, value->>0, CAST(:group_no AS INTEGER), CAST(:actor_kind AS TEXT), CAST(:actor_id AS TEXT), value->>1,
       value->>2, CAST(:received_ms AS BIGINT), 1, CAST(value->>3 AS INTEGER), CAST(value->>4 AS INTEGER),
       CAST(value->>5 AS INTEGER), 0, 0, CAST(value->>6 AS BIGINT), CAST(value->>6 AS BIGINT)
FROM feeds f CROSS JOIN json_each(:submissions) submitted  -- only: sqlite
FROM feeds f CROSS JOIN LATERAL jsonb_each(:submissions) submitted  -- only: postgresql
WHERE f.feed_id = :feed_id

-- name: count_changes
-- Primary keys. One row per status and reason of the batch.
INSERT INTO feed_days (feed_id, day, status, reason, changes, standing)
SELECT f.feed_id, CAST(:day AS INTEGER), value->>0, value->>1, CAST(value->>2 AS BIGINT), CAST(value->>3 AS BIGINT)
FROM feeds f CROSS JOIN json_each(:counts) counted  -- only: sqlite
FROM feeds f CROSS JOIN LATERAL json_each(:counts) counted  -- only: postgresql
WHERE f.feed_id = :feed_id
ON CONFLICT (feed_id, day, status, reason) DO UPDATE SET
    changes = feed_days.changes + excluded.changes, standing = feed_days.standing + excluded.standing

-- name: records_after
-- unsubscribes_seq, after :after; and the primary key of feeds: its row, whose id is empty, has the state and the head of the
-- same snapshot. SQLite would copy each row of a subquery, so there the whole is in the order of the index.
SELECT '' AS id, f.head_seq AS group_no, f.state_digest AS address, '' AS status, '' AS reason, NULL AS source,
       f.state_seq AS occurred_ms, f.state_records AS recorded_ms, CAST(-1 AS BIGINT) AS seq
FROM feeds f WHERE f.feed_id = :feed_id
UNION ALL
SELECT id, group_no, address, status, reason, source, occurred_ms, recorded_ms, seq FROM unsubscribes  -- only: sqlite
WHERE feed_id = :feed_id AND seq > :after ORDER BY seq LIMIT :most + 1  -- only: sqlite
SELECT * FROM (SELECT * FROM (  -- only: postgresql
SELECT id, group_no, address, status, reason, source, occurred_ms, recorded_ms, seq FROM unsubscribes  -- only: postgresql
WHERE feed_id = :feed_id AND seq > :after ORDER BY seq LIMIT :most  -- only: postgresql
) page ORDER BY seq LIMIT (SELECT CAST(:most AS BIGINT))) records  -- only: postgresql

-- name: seq_after
-- unsubscribes_seq only: the number of the :examined-th record after :after, no row if there are fewer.
SELECT seq FROM (  -- only: postgresql
SELECT seq FROM unsubscribes WHERE feed_id = :feed_id AND seq > :after ORDER BY seq
LIMIT 1 OFFSET :examined - 1  -- only: sqlite
LIMIT :examined) page ORDER BY seq LIMIT 1 OFFSET (SELECT CAST(:examined AS BIGINT) - 1)  -- only: postgresql

-- name: records_of_group
-- unsubscribes_seq, between two numbers that bound how many records are examined; and the primary key of feeds: its row, whose
-- id is empty, has the head of the same snapshot.
SELECT '' AS id, f.head_seq AS group_no, '' AS address, '' AS status, '' AS reason, NULL AS source,
       CAST(0 AS BIGINT) AS occurred_ms, CAST(0 AS BIGINT) AS recorded_ms, CAST(-1 AS BIGINT) AS seq
FROM feeds f WHERE f.feed_id = :feed_id
UNION ALL
SELECT id, group_no, address, status, reason, source, occurred_ms, recorded_ms, seq FROM unsubscribes  -- only: sqlite
SELECT * FROM (  -- only: postgresql
SELECT id, group_no, address, status, reason, source, occurred_ms, recorded_ms, seq FROM unsubscribes  -- only: postgresql
WHERE feed_id = :feed_id AND seq > :after AND seq <= :until AND group_no IN (0, :group_no) ORDER BY seq LIMIT :most
    + 1  -- only: sqlite
) records  -- only: postgresql

-- fragment: digest_key_row
-- A row with the digest key, whose id is empty, if the feed has had erased records.
SELECT '' AS id, 0 AS group_no, f.digest_key AS address, '' AS status, '' AS reason, NULL AS source,
       CAST(0 AS BIGINT) AS occurred_ms, CAST(0 AS BIGINT) AS recorded_ms, CAST(0 AS BIGINT) AS seq
FROM feeds f WHERE f.feed_id = :feed_id AND f.has_erased <> 0

-- name: look_up
-- Primary keys of unsubscribes and feeds. :erased: the form that the address has if its person was erased; empty while the
-- process does not know the feed's digest key.
SELECT id, group_no, address, status, reason, source, occurred_ms, recorded_ms, seq FROM unsubscribes
WHERE feed_id = :feed_id AND address = :address
UNION ALL
SELECT id, group_no, address, status, reason, source, occurred_ms, recorded_ms, seq FROM unsubscribes
WHERE feed_id = :feed_id AND address = :erased
UNION ALL
-- include: digest_key_row

-- name: records_of_addresses
-- Primary key of unsubscribes, once per address; in no order. Primary key of feeds.
-- include: digest_key_row
UNION ALL
SELECT u.id, u.group_no, u.address, u.status, u.reason, u.source, u.occurred_ms, u.recorded_ms, u.seq
-- include: records_of_each_address

-- name: feeds_without_digest_key
-- Every feed; its row is short.
SELECT feed_id FROM feeds WHERE digest_key IS NULL ORDER BY feed_id

-- name: set_digest_key
-- Primary key. The first one stays.
UPDATE feeds SET digest_key = :digest_key WHERE feed_id = :feed_id AND digest_key IS NULL

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

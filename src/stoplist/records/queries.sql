-- Records as staff see them. Each statement starts with feed_id; unsubscribes/queries.sql explains the form of these
-- statements. Tests check each plan on tables without statistics.

-- name: records_everywhere
-- Primary key of unsubscribes, once per feed. Over many feeds, for staff only. An array instead of a join, so that
-- PostgreSQL uses the key and can query shards separately. ARRAY(SELECT …) is evaluated once, a cast of the text once
-- per row.
SELECT feed_id, group_no, status, reason, source, occurred_ms, recorded_ms, seq FROM unsubscribes
WHERE feed_id IN (SELECT value FROM json_each(:feed_ids)) AND address = :address  -- only: sqlite
WHERE feed_id = ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(:feed_ids)))  -- only: postgresql
  AND address = :address  -- only: postgresql

-- name: digest_keys_of
-- Primary key of feeds, once per feed: those that have had erased records.
SELECT feed_id, digest_key FROM feeds
WHERE feed_id IN (SELECT value FROM json_each(:feed_ids)) AND has_erased <> 0  -- only: sqlite
WHERE feed_id = ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(:feed_ids)))  -- only: postgresql
  AND has_erased <> 0  -- only: postgresql

-- name: erased_everywhere
-- Primary key of unsubscribes, once per feed: what `records_everywhere` reads, each under the form of its own feed.
SELECT u.feed_id, u.group_no, u.status, u.reason, u.source, u.occurred_ms, u.recorded_ms, u.seq
FROM json_each(:forms) j CROSS JOIN unsubscribes u  -- only: sqlite
WHERE u.feed_id = CAST(j.value->>0 AS BIGINT) AND u.address = j.value->>1  -- only: sqlite
FROM json_array_elements(:forms) j CROSS JOIN LATERAL (SELECT u.* FROM unsubscribes u  -- only: postgresql
WHERE u.feed_id = CAST(j.value->>0 AS BIGINT) AND u.address = j.value->>1  -- only: postgresql
OFFSET 0) u  -- only: postgresql

-- name: returns_of
-- erasures_of_person: the changes by which a resubscription brought the address of this digest back.
SELECT seq FROM erasures WHERE feed_id = :feed_id AND digest = :digest AND kind = 'returned'

-- name: seq_at
-- A binary search, one use of unsubscribes_seq per step: at most 64 steps, whatever the size of the feed. The records
-- examined from `high` on were recorded at :at_ms or later, the one at `low` earlier; there is none between. No row
-- without the feed. before: the first record of the upper half, if it was recorded earlier. (The first row spans twice
-- the feed, so that its upper half is empty: SQLite accepts the name of a recursive table in one place only.)
WITH RECURSIVE halving (low, high, before) AS (
    SELECT CAST(0 AS BIGINT), 2 * (head_seq + 1), CAST(NULL AS BIGINT) FROM feeds WHERE feed_id = :feed_id
    UNION ALL
    SELECT COALESCE(before, low), CASE WHEN before IS NULL THEN (low + high) / 2 ELSE high END, (
        SELECT CASE WHEN u.recorded_ms < :at_ms THEN u.seq END FROM unsubscribes u
        WHERE u.feed_id = :feed_id
          AND u.seq >= (COALESCE(before, low) + CASE WHEN before IS NULL THEN (low + high) / 2 ELSE high END) / 2
          AND u.seq < CASE WHEN before IS NULL THEN (low + high) / 2 ELSE high END
        ORDER BY u.seq LIMIT 1
    )
    FROM halving WHERE high - low > 1
)
SELECT low, high FROM halving WHERE high - low <= 1

-- name: seq_before
-- unsubscribes_seq only: the number of the :examined-th record before :before, or of the last one from :from_seq on,
-- and the number of records between.
SELECT MIN(seq) AS seq, COUNT(*) AS examined FROM (
SELECT seq FROM (  -- only: postgresql
SELECT seq FROM unsubscribes WHERE feed_id = :feed_id AND seq < :before AND seq >= :from_seq ORDER BY seq DESC
LIMIT :examined
) page ORDER BY seq DESC LIMIT (SELECT CAST(:examined AS BIGINT))  -- only: postgresql
) stretch

-- name: records_before
-- unsubscribes_seq, between two numbers that bound how many records are examined. (SQLite reads upwards and then sorts,
-- which takes half the time: the next record is adjacent.)
SELECT id, group_no, address, status, reason, source, occurred_ms, recorded_ms, seq FROM unsubscribes
WHERE feed_id = :feed_id AND seq < :before AND seq >= :from_seq
  AND recorded_ms >= :recorded_from_ms AND recorded_ms < :recorded_until_ms
  AND (CAST(:group_no AS INTEGER) IS NULL OR group_no = :group_no)
  AND (CAST(:status AS TEXT) IS NULL OR status = :status) AND (CAST(:reason AS TEXT) IS NULL OR reason = :reason)
ORDER BY +seq DESC LIMIT :most  -- only: sqlite
ORDER BY seq DESC LIMIT :most  -- only: postgresql

-- name: count_between
-- unsubscribes_seq only, between two numbers that bound it.
SELECT COUNT(*) AS records FROM unsubscribes WHERE feed_id = :feed_id AND seq < :before AND seq >= :from_seq

-- name: last_recorded
-- unsubscribes_seq, its last entry between two numbers.
SELECT recorded_ms FROM unsubscribes WHERE feed_id = :feed_id AND seq < :before AND seq >= :from_seq
ORDER BY seq DESC LIMIT 1

-- name: address_at
-- unsubscribes_seq, then unsubscribe_versions_seq: the record that this change belongs to.
SELECT address, group_no FROM unsubscribes WHERE feed_id = :feed_id AND seq = :seq
UNION ALL
SELECT address, group_no FROM unsubscribe_versions WHERE feed_id = :feed_id AND seq = :seq

-- name: records_of_address
-- Primary key of unsubscribes: its records for every group.
SELECT group_no, id, seq, status, reason, source, occurred_ms, recorded_ms, submission_id, latest_act_ms,
-- include: is_confirmed record=u
AS is_confirmed
FROM unsubscribes u WHERE feed_id = :feed_id AND address = :address ORDER BY group_no

-- name: versions_of_record
-- Primary key of unsubscribe_versions. PostgreSQL must find the versions first and sort them then: in the order of the
-- other index it would read the versions of the whole feed.
SELECT seq, status, reason, source, occurred_ms, recorded_ms, submission_id FROM (
SELECT * FROM unsubscribe_versions WHERE feed_id = :feed_id AND address = :address AND group_no = :group_no
OFFSET 0  -- only: postgresql
) version WHERE seq < :before ORDER BY seq DESC LIMIT :most

-- name: senders_of_submissions
-- Primary key of submissions, once per submission; then reversals_by: the submission that it reversed, if any.
SELECT s.submission_id, s.actor_kind, s.actor_id, s.source_ip, s.request_id, (
    SELECT MIN(r.submission_id) FROM reversals r WHERE r.feed_id = :feed_id AND r.reversed_by = s.submission_id
) AS reverses
FROM json_each(:submissions) j CROSS JOIN submissions s  -- only: sqlite
FROM json_array_elements_text(:submissions) j CROSS JOIN LATERAL (SELECT s.* FROM submissions s  -- only: postgresql
WHERE s.feed_id = :feed_id AND s.submission_id = j.value
OFFSET 0) s  -- only: postgresql

-- name: labels_of_clients
-- Primary key of clients, once per client. No row for a key that the actor does not see, such as one that has left the
-- organization.
SELECT c.client_id, c.label
FROM json_each(:clients) j CROSS JOIN clients c  -- only: sqlite
FROM json_array_elements_text(:clients) j CROSS JOIN LATERAL (SELECT c.* FROM clients c  -- only: postgresql
WHERE c.client_id = j.value AND (CAST(:sees_all AS integer) = 1 OR EXISTS (
    SELECT 1 FROM client_organizations co JOIN organizations o ON o.organization_id = co.organization_id
    WHERE co.client_id = c.client_id
      AND o.slug IN (SELECT value FROM json_each(:slugs))  -- only: sqlite
      AND o.slug IN (SELECT value FROM json_array_elements_text(:slugs))  -- only: postgresql
))
OFFSET 0) c  -- only: postgresql

-- name: changes_by_day
-- Primary key of feed_days, once per feed, from a day on. 16: feed ids reserve room for 16 channels. One row with one
-- text, so that a thread reads it in one C call.
SELECT CAST(json_group_array(json_array(channel, day, status, reason, changes)) AS TEXT) AS counts FROM (  -- only: sqlite
SELECT CAST(json_agg(json_build_array(channel, day, status, reason, changes)) AS TEXT) AS counts FROM (  -- only: postgresql
    SELECT feed_id % 16 AS channel, day, status, reason, CAST(SUM(changes) AS BIGINT) AS changes FROM feed_days
    WHERE feed_id IN (SELECT value FROM json_each(:feed_ids)) AND day >= :from_day  -- only: sqlite
    WHERE feed_id = ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(:feed_ids)))  -- only: postgresql
      AND day >= :from_day  -- only: postgresql
    GROUP BY feed_id % 16, day, status, reason
) counted

-- name: standing_now
-- The same over all days: the number of records that show each status. One row per feed, because the key groups by
-- feed; by channel and status SQLite would sort all days of all feeds.
SELECT CAST(json_group_array(json_array(channel, unsubscribed, resubscribed)) AS TEXT) AS counts FROM (  -- only: sqlite
SELECT CAST(json_agg(json_build_array(channel, unsubscribed, resubscribed)) AS TEXT) AS counts FROM (  -- only: postgresql
    SELECT feed_id % 16 AS channel,
           CAST(SUM(CASE status WHEN 'unsubscribed' THEN standing ELSE 0 END) AS BIGINT) AS unsubscribed,
           CAST(SUM(CASE status WHEN 'resubscribed' THEN standing ELSE 0 END) AS BIGINT) AS resubscribed
    FROM feed_days
    WHERE feed_id IN (SELECT value FROM json_each(:feed_ids))  -- only: sqlite
    WHERE feed_id = ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(:feed_ids)))  -- only: postgresql
    GROUP BY feed_id
) counted

-- A submission, and its reversal. A submission's changes are exactly the numbers from its first_seq to its last_seq, so
-- they are found by number, without an index on submission_id.
-- seq + 0: keeps PostgreSQL from using the index on (feed_id, seq) to find the last version of one record, which would
-- read the versions of the whole feed.

-- name: find_submission
-- Primary key of submissions, once per feed, because the id does not name the feed; that of erasures. For staff only; an organization
-- has three feeds. Each shard looks for its own feeds.
SELECT f.organization_id, f.channel, s.feed_id, s.submission_id, s.group_no, s.actor_kind, s.actor_id, s.request_id,
       s.source_ip, s.received_ms, s.received, s.created, s.updated, s.unchanged, s.outranked, s.rejected, s.first_seq,
       s.last_seq, (
    SELECT p.import_id FROM import_parts p WHERE p.feed_id = s.feed_id AND p.submission_id = s.submission_id
) AS import_id, CASE WHEN EXISTS (
    SELECT 1 FROM erasures e WHERE e.feed_id = s.feed_id AND e.seq = s.first_seq AND e.kind = 'erased'
) THEN 'erase' ELSE 'batch' END AS kind
FROM feeds f CROSS JOIN submissions s  -- only: sqlite
FROM feeds f CROSS JOIN LATERAL (SELECT s.* FROM submissions s  -- only: postgresql
WHERE s.feed_id = f.feed_id AND s.submission_id = :submission_id
OFFSET 0) s  -- only: postgresql

-- fragment: listed_submissions
SELECT CAST(json_group_array(json_array(  -- only: sqlite
SELECT CAST(json_agg(json_build_array(  -- only: postgresql
    feed_id, submission_id, group_no, actor_kind, actor_id, source_ip, received_ms, received, created, updated,
    unchanged, outranked, rejected, reversed_by, import_id, import_counts, reversed_import_id, taken_back
)) AS TEXT) AS submissions FROM (
SELECT s.feed_id, s.submission_id, s.group_no, s.actor_kind, s.actor_id, s.source_ip, s.received_ms, s.received,
       s.created, s.updated, s.unchanged, s.outranked, s.rejected, (
    SELECT MAX(COALESCE(r.part_of, r.reversed_by)) FROM reversals r
    WHERE r.feed_id = s.feed_id AND r.submission_id = s.submission_id
) AS reversed_by, (
    SELECT p.import_id FROM import_parts p WHERE p.feed_id = s.feed_id AND p.submission_id = s.submission_id
) AS import_id, (
    SELECT m.counts FROM import_parts p CROSS JOIN imports m
    WHERE p.feed_id = s.feed_id AND p.submission_id = s.submission_id AND m.feed_id = s.feed_id AND m.import_id = p.import_id
) AS import_counts, (
    SELECT MAX(r.import_id) FROM reversals r WHERE r.feed_id = s.feed_id AND r.reversed_by = s.submission_id
) AS reversed_import_id, (
    SELECT SUM(m.updated) FROM reversals r CROSS JOIN submissions m
    WHERE r.feed_id = s.feed_id AND r.part_of = s.submission_id AND m.feed_id = s.feed_id AND m.submission_id = r.reversed_by
) AS taken_back
FROM feeds f CROSS JOIN submissions s  -- only: sqlite
WHERE f.feed_id IN (SELECT value FROM json_each(:feed_ids)) AND s.feed_id = f.feed_id  -- only: sqlite
  AND s.submission_id IN (SELECT i.submission_id FROM submissions i WHERE i.feed_id = f.feed_id  -- only: sqlite
-- The order makes PostgreSQL use the key even while the table seems to have a few pages only.
FROM (SELECT k.feed_id FROM feeds k  -- only: postgresql
    WHERE k.feed_id = ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(:feed_ids)))  -- only: postgresql
    ORDER BY k.feed_id) f  -- only: postgresql
CROSS JOIN LATERAL (SELECT i.* FROM submissions i  -- only: postgresql
WHERE i.feed_id = f.feed_id  -- only: postgresql
  AND i.received_ms >= :from_ms AND i.received_ms <= :before_ms
  AND (i.received_ms, i.submission_id) < (:before_ms, :before_id)
  AND NOT EXISTS (
    SELECT 1 FROM import_parts p CROSS JOIN import_parts e
    WHERE p.feed_id = i.feed_id AND p.submission_id = i.submission_id
      AND e.feed_id = i.feed_id AND e.import_id = p.import_id AND e.first_row < p.first_row
  )
  AND NOT EXISTS (
    SELECT 1 FROM reversals r CROSS JOIN submissions h
    WHERE r.feed_id = i.feed_id AND r.reversed_by = i.submission_id AND r.part_of <> i.submission_id
      AND h.feed_id = i.feed_id AND h.submission_id = r.part_of
  )

-- fragment: newest_of_submissions
ORDER BY i.received_ms DESC, i.submission_id DESC LIMIT :most)
s  -- only: postgresql
ORDER BY s.received_ms DESC, s.submission_id DESC LIMIT :most
) page

-- name: submissions_before
-- submissions_listed, once per feed and no more than a page of each; the newest of all of them, without acts by links. Of an
-- import its first part stands for all, by import_parts_submission and its primary key, and of its reversal the first submission, by
-- reversals_by and reversals_part_of. One row with one text, so that a thread reads it in one C call.
-- include: listed_submissions
  AND i.actor_kind <> 'link'
-- include: newest_of_submissions

-- name: submissions_of_sender_before
-- submissions_sent_by in the same way.
-- include: listed_submissions
  AND i.actor_id = :actor_id
-- include: newest_of_submissions

-- name: names_of_target
-- Primary key of organizations, and the unique number of the group in it; 0, all groups, has none.
SELECT o.slug, g.group_id, g.name FROM organizations o
LEFT JOIN groups g ON g.organization_id = o.organization_id AND g.group_no = :group_no
WHERE o.organization_id = :organization_id

-- name: reversals_of
-- Primary key, and reversals_by: its reversals, and what it reversed itself.
SELECT submission_id, reversed_by, reversed_ms FROM reversals
WHERE feed_id = :feed_id AND submission_id = :submission_id
UNION ALL
SELECT submission_id, reversed_by, reversed_ms FROM reversals
WHERE feed_id = :feed_id AND reversed_by = :submission_id

-- name: records_of_submission
-- unsubscribes_seq and unsubscribe_versions_seq between two numbers that enclose one batch; then, once per row of the
-- page, the primary key of unsubscribe_versions.
SELECT page.*, CASE WHEN EXISTS (
    SELECT 1 FROM unsubscribe_versions b
    -- include: of_record row=b address=page.address group_no=page.group_no
      AND b.seq + 0 < page.seq
) THEN 1 ELSE 0 END AS has_earlier
FROM (
    SELECT * FROM (
        SELECT seq, address, group_no, status, reason, source, occurred_ms, recorded_ms,
        -- include: is_confirmed record=u
        AS is_confirmed, 1 AS is_current
        FROM unsubscribes u WHERE feed_id = :feed_id AND seq > :after AND seq <= :last_seq ORDER BY seq LIMIT :most
    ) standing
    UNION ALL
    SELECT * FROM (
        SELECT seq, address, group_no, status, reason, source, occurred_ms, recorded_ms, 0 AS is_confirmed,
               0 AS is_current
        FROM unsubscribe_versions WHERE feed_id = :feed_id AND seq > :after AND seq <= :last_seq
        ORDER BY seq LIMIT :most
    ) superseded
    ORDER BY seq LIMIT :most
) page ORDER BY page.seq

-- fragment: later_changes
-- The records that the submission changed and that have a later change, and how many of these changes are the
-- submission's own reversal.
(
    SELECT COUNT(DISTINCT w.address) FROM unsubscribe_versions w
    CROSS JOIN unsubscribes n  -- only: sqlite
    CROSS JOIN LATERAL (SELECT n.* FROM unsubscribes n  -- only: postgresql
    -- include: of_record row=n address=w.address group_no=w.group_no
    OFFSET 0) n WHERE w.feed_id = :feed_id  -- only: postgresql
    AND w.feed_id = :feed_id AND w.seq >= :first_seq AND w.seq <= :last_seq AND n.seq > :last_seq
) AS superseded,
(
    SELECT COALESCE(SUM(s.updated), 0) FROM reversals r
    CROSS JOIN submissions s  -- only: sqlite
    CROSS JOIN LATERAL (SELECT s.* FROM submissions s  -- only: postgresql
    WHERE s.feed_id = :feed_id AND s.submission_id = r.reversed_by
    OFFSET 0) s WHERE r.feed_id = :feed_id  -- only: postgresql
    AND r.feed_id = :feed_id AND r.submission_id = :submission_id
) AS taken_back

-- fragment: standing_states
SELECT CAST(json_group_array(json_array(  -- only: sqlite
SELECT CAST(json_agg(json_build_array(  -- only: postgresql
    u.seq, u.address, u.id, u.status, u.reason,
    -- include: is_confirmed record=u
    , v.status, v.reason, v.source, v.occurred_ms, v.latest_act_ms
)) AS TEXT) AS standing,

-- fragment: former_states
LEFT JOIN unsubscribe_versions v  -- only: sqlite
    ON v.feed_id = :feed_id AND v.address = u.address AND v.group_no = u.group_no AND v.seq = (  -- only: sqlite
        SELECT MAX(b.seq) FROM unsubscribe_versions b  -- only: sqlite
        WHERE b.feed_id = :feed_id AND b.address = u.address AND b.group_no = u.group_no  -- only: sqlite
          AND b.seq < :first_seq)  -- only: sqlite
LEFT JOIN LATERAL (SELECT v.* FROM unsubscribe_versions v  -- only: postgresql
    WHERE v.feed_id = :feed_id AND v.address = u.address AND v.group_no = u.group_no  -- only: postgresql
      AND (v.address, v.group_no) >= (u.address, u.group_no)  -- only: postgresql
      AND v.seq + 0 < :first_seq ORDER BY v.seq + 0 DESC LIMIT 1) v ON true  -- only: postgresql

-- name: reversible
-- unsubscribes_seq between the numbers of one batch, then once per record the primary key of unsubscribe_versions: the
-- records whose present state comes from the submission, each with its former state. Also two counts of the same
-- moment: the records with a later change, and how many of these changes are the submission's own reversal.
-- include: standing_states
-- include: later_changes
FROM unsubscribes u
-- include: former_states
WHERE u.feed_id = :feed_id AND u.seq >= :first_seq AND u.seq <= :last_seq

-- name: reversible_erased
-- erasures_standing between the numbers of one batch, then once per erasure unsubscribes_seq and the primary key of
-- unsubscribe_versions: the records of `reversible` that were erased since, which is their only later change. Also the records
-- whose address the submission brought back.
-- include: standing_states
(
    SELECT CAST(json_group_array(r.record_id) AS TEXT) FROM erasures r  -- only: sqlite
    SELECT CAST(json_agg(r.record_id) AS TEXT) FROM erasures r  -- only: postgresql
    WHERE r.feed_id = :feed_id AND r.stands_seq >= :first_seq AND r.stands_seq <= :last_seq AND r.kind = 'returned'
) AS returned
FROM erasures e
CROSS JOIN unsubscribes u  -- only: sqlite
CROSS JOIN LATERAL (SELECT u.* FROM unsubscribes u  -- only: postgresql
    WHERE u.feed_id = :feed_id AND u.seq = e.seq OFFSET 0) u  -- only: postgresql
-- include: former_states
WHERE e.feed_id = :feed_id AND e.stands_seq >= :first_seq AND e.stands_seq <= :last_seq AND e.kind = 'erased'
  AND u.feed_id = :feed_id AND u.seq = e.seq  -- only: sqlite

-- name: erase_record_again
-- Primary key. Behind the feed's lock.
UPDATE unsubscribes SET address = :erased, source = NULL
WHERE feed_id = :feed_id AND address = :address AND group_no = :group_no

-- name: erase_versions_again
-- Primary key. Behind the feed's lock.
UPDATE unsubscribe_versions SET address = :erased, source = NULL
WHERE feed_id = :feed_id AND address = :address AND group_no = :group_no

-- name: erasures_at
-- Primary key, once per number: which of these changes are erasures.
SELECT e.seq, e.submission_id
FROM json_each(:seqs) j CROSS JOIN erasures e  -- only: sqlite
WHERE e.feed_id = :feed_id AND e.seq = j.value AND e.kind = 'erased'  -- only: sqlite
FROM json_array_elements_text(:seqs) j CROSS JOIN LATERAL (SELECT e.* FROM erasures e  -- only: postgresql
WHERE e.feed_id = :feed_id AND e.seq = CAST(j.value AS BIGINT) AND e.kind = 'erased'  -- only: postgresql
OFFSET 0) e  -- only: postgresql

-- name: count_reversible
-- Only the counts of `reversible`: the same indexes, without the records. If the submission only created records, none
-- existed before; if it only updated, all did. Only if it did both, each record is looked up, between two positions of
-- the key. (With equality and a number, PostgreSQL reads the versions of the whole feed.)
SELECT COUNT(*) AS standing,
COUNT(CASE WHEN
    -- include: is_confirmed record=u
    IN (1, CAST(:also_confirmed AS INTEGER)) THEN 1 END) AS confirmed,
COUNT(CASE WHEN CAST(:updated AS INTEGER) = 0 OR
      -- include: is_confirmed record=u
      IN (1, CAST(:also_confirmed AS INTEGER)) THEN NULL
      WHEN CAST(:created AS INTEGER) = 0 THEN 1 ELSE (
    SELECT 1 FROM unsubscribe_versions b
    WHERE b.feed_id = :feed_id
      AND b.address = u.address AND b.group_no = u.group_no AND b.seq < :first_seq  -- only: sqlite
      AND (b.address, b.group_no, b.seq) >= (u.address, u.group_no, 0)  -- only: postgresql
      AND (b.address, b.group_no, b.seq) < (u.address, u.group_no, :first_seq)  -- only: postgresql
    ORDER BY b.address, b.group_no, b.seq  -- only: postgresql
    LIMIT 1
) END) AS restored,
-- include: later_changes
FROM unsubscribes u WHERE u.feed_id = :feed_id AND u.seq >= :first_seq AND u.seq <= :last_seq

-- name: record_reversal
-- Behind the feed's lock: of two concurrent reversals of one submission the second finds nothing to reverse.
INSERT INTO reversals (feed_id, submission_id, reversed_by, reversed_ms, import_id, part_of, corrected)
VALUES (:feed_id, :submission_id, :reversed_by, :reversed_ms, :import_id, :part_of, :corrected)

-- name: left_out_of_reversal
-- unsubscribes_seq and unsubscribe_versions_seq between two numbers that enclose one batch, then primary keys once per
-- record: the records sent again, and the last state that the submission gave each record with a later change, unless
-- that change was its own reversal. Erasures are no such changes. Scalar subqueries, because PostgreSQL does not turn them into hash joins.
SELECT * FROM (
    SELECT * FROM (
        SELECT u.seq, u.address, u.group_no, 1 AS is_confirmed, u.seq AS now_seq, u.status AS now_status,
               u.reason AS now_reason
        FROM unsubscribes u
        WHERE u.feed_id = :feed_id AND u.seq > :after AND u.seq <= :last_seq AND
        -- include: is_confirmed record=u
        <> 0
        ORDER BY u.seq LIMIT :most
    ) confirmed
    UNION ALL
    SELECT * FROM (
        SELECT e.stands_seq AS seq, u.address, u.group_no, 1 AS is_confirmed, u.seq AS now_seq, u.status AS now_status,
               u.reason AS now_reason
        FROM erasures e
        CROSS JOIN unsubscribes u  -- only: sqlite
        WHERE u.feed_id = :feed_id AND u.seq = e.seq  -- only: sqlite
        CROSS JOIN LATERAL (SELECT u.* FROM unsubscribes u  -- only: postgresql
        WHERE u.feed_id = :feed_id AND u.seq = e.seq OFFSET 0) u  -- only: postgresql
        WHERE  -- only: postgresql
        AND  -- only: sqlite
        -- include: is_confirmed record=u
        <> 0 AND e.feed_id = :feed_id AND e.stands_seq > :after AND e.stands_seq <= :last_seq AND e.kind = 'erased'
        ORDER BY e.stands_seq LIMIT :most
    ) confirmed_and_erased
    UNION ALL
    SELECT * FROM (
        SELECT w.seq, w.address, w.group_no, 0 AS is_confirmed, n.seq AS now_seq, n.status AS now_status,
               n.reason AS now_reason
        FROM unsubscribe_versions w
        CROSS JOIN unsubscribes n  -- only: sqlite
        CROSS JOIN LATERAL (SELECT n.* FROM unsubscribes n  -- only: postgresql
        -- include: of_record row=n address=w.address group_no=w.group_no
        OFFSET 0) n WHERE w.feed_id = :feed_id  -- only: postgresql
          AND w.feed_id = :feed_id AND w.seq > :after AND w.seq <= :last_seq AND n.seq > :last_seq
          AND w.seq = (SELECT MAX(b.seq + 0) FROM unsubscribe_versions b
                       -- include: of_record row=b address=w.address group_no=w.group_no
                         AND b.seq + 0 <= :last_seq)
          AND 0 = (SELECT COUNT(*) FROM erasures e WHERE e.feed_id = :feed_id AND e.seq = n.seq AND e.kind = 'erased'
                   AND e.stands_seq + 0 <= :last_seq)
          AND COALESCE((SELECT b.submission_id FROM unsubscribe_versions b
                        -- include: of_record row=b address=w.address group_no=w.group_no
                          AND b.seq + 0 > :last_seq
                          AND 0 = (SELECT COUNT(*) FROM erasures e
                                   WHERE e.feed_id = :feed_id AND e.seq = b.seq AND e.kind = 'erased')
                        ORDER BY b.seq + 0 LIMIT 1), n.submission_id)
              NOT IN (SELECT r.reversed_by FROM reversals r
                      WHERE r.feed_id = :feed_id AND r.submission_id = :submission_id)
        ORDER BY w.seq LIMIT :most
    ) superseded
    ORDER BY seq LIMIT :most
) page ORDER BY seq

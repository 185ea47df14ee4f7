-- Erasing persons. Every statement but those of `deployment` starts with feed_id; unsubscribes/queries.sql explains the form of
-- these statements.

-- name: feeds_that_know
-- Primary keys of feeds and unsubscribes, once per feed: how many records each has under this address.
SELECT f.feed_id, (
    SELECT COUNT(*) FROM unsubscribes u WHERE u.feed_id = f.feed_id AND u.address = :address
) AS records
FROM feeds f
WHERE f.feed_id IN (SELECT value FROM json_each(:feed_ids))  -- only: sqlite
WHERE f.feed_id = ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(:feed_ids)))  -- only: postgresql
ORDER BY f.feed_id

-- name: records_to_erase
-- Primary key of unsubscribes: its records for every group. Behind the feed's lock.
SELECT group_no, id, seq, status FROM unsubscribes
WHERE feed_id = :feed_id AND address = :address

-- name: take_erasing_numbers
-- Primary key; the row is locked. A feed that an older program opened gets its digest key now.
UPDATE feeds SET head_seq = head_seq + :numbers, has_erased = 1, digest_key = COALESCE(digest_key, :new_key)
WHERE feed_id = :feed_id RETURNING head_seq, digest_key

-- name: erase_versions
-- Primary key of unsubscribe_versions.
UPDATE unsubscribe_versions SET address = :erased, source = NULL WHERE feed_id = :feed_id AND address = :address

-- name: keep_erased_states
-- Primary key of unsubscribes: the states before the erasure become versions, under the erased form.
INSERT INTO unsubscribe_versions (feed_id, address, group_no, seq, status, reason, source, occurred_ms, recorded_ms,
                                  submission_id, latest_act_ms)
SELECT feed_id, CAST(:erased AS TEXT), group_no, seq, status, reason, NULL, occurred_ms, recorded_ms, submission_id,
       latest_act_ms
FROM unsubscribes WHERE feed_id = :feed_id AND address = :address

-- name: erase_record
-- Primary key. The record keeps what it stands on: its submission, its latest act, and whether it was sent again.
UPDATE unsubscribes SET address = :erased, source = NULL, seq = :seq, recorded_ms = :at_ms, is_confirmed =
-- include: is_confirmed record=unsubscribes
WHERE feed_id = :feed_id AND address = :address AND group_no = :group_no

-- name: forget_sources_of_links
-- Primary keys: the acts by link that made a state of the person's records.
UPDATE submissions SET source_ip = NULL WHERE feed_id = :feed_id AND actor_kind = 'link'
  AND submission_id IN (  -- only: sqlite
  AND submission_id = ANY (ARRAY(  -- only: postgresql
    SELECT submission_id FROM unsubscribe_versions WHERE feed_id = :feed_id AND address = :erased
    UNION
    SELECT submission_id FROM unsubscribes WHERE feed_id = :feed_id AND address = :erased
))  -- only: postgresql
)  -- only: sqlite

-- name: record_erasure
-- One row per feed and erasure; its id is new. Its kind is known by its first number, which is in `erasures`.
INSERT INTO submissions (feed_id, submission_id, group_no, actor_kind, actor_id, request_id, source_ip, received_ms,
                         received, created, updated, unchanged, outranked, rejected, first_seq, last_seq)
VALUES (:feed_id, :submission_id, 0, :actor_kind, :actor_id, :request_id, :source_ip, :received_ms,
        :received, 0, :received, 0, 0, 0, :first_seq, :last_seq)

-- name: first_erasure
-- The only row.
SELECT first_erasure_ms, oldest_program FROM deployment WHERE one_row = 1

-- name: begin_erasing
-- The only row. Takes effect once.
UPDATE deployment SET first_erasure_ms = :at_ms, oldest_program = :oldest_program
WHERE one_row = 1 AND first_erasure_ms IS NULL

-- name: erasures
-- erasures_of_person: every digest of a feed that was erased, and when that was last done.
SELECT digest, MAX(at_ms) AS erased_ms FROM erasures
WHERE feed_id = :feed_id AND kind <> 'returned' AND digest > :after
GROUP BY digest ORDER BY digest LIMIT :most

-- name: returns
-- erasures_of_person: the digests whose address a resubscription brought back, and when, the latest last.
SELECT digest, at_ms FROM erasures WHERE feed_id = :feed_id AND digest > '' AND kind = 'returned' ORDER BY digest, at_ms

-- name: feeds_with_digest_keys
-- Every feed; its row is short.
SELECT feed_id, organization_id, channel, digest_key, has_erased FROM feeds ORDER BY feed_id

-- name: reading_key
-- The only row.
SELECT reading_key FROM deployment WHERE one_row = 1

-- name: make_reading_key
-- The only row. The first one stays.
UPDATE deployment SET reading_key = :reading_key WHERE one_row = 1 AND reading_key IS NULL

-- name: was_read
-- Primary key.
SELECT hour FROM person_reads WHERE actor_id = :actor_id AND digest = :digest AND hour = :hour

-- name: add_read
-- Of two requests at once, one adds it.
INSERT INTO person_reads (actor_id, digest, hour) VALUES (:actor_id, :digest, :hour)
ON CONFLICT (actor_id, digest, hour) DO NOTHING

-- name: forget_reads
-- Every row of the hours before: there is one a person, address and hour.
DELETE FROM person_reads WHERE hour < :hour

-- name: may_delete_old
-- Only one process deletes at a time, as for expired tokens. The number is "STOT".
SELECT CASE WHEN pg_try_advisory_xact_lock(1398034260) THEN 1 ELSE 0 END AS may  -- only: postgresql
SELECT 1 AS may  -- only: sqlite

-- name: feeds_to_clean
-- Primary key.
SELECT feed_id FROM feeds WHERE feed_id > :after ORDER BY feed_id LIMIT :most

-- name: superseded_versions
-- unsubscribe_versions_seq for a step of versions, then the primary keys once per version: when each was superseded, which is when
-- the next state of the record was recorded.
SELECT v.seq, v.recorded_ms, COALESCE((
    SELECT n.recorded_ms FROM unsubscribe_versions n
    -- include: of_record row=n address=v.address group_no=v.group_no
      AND n.seq + 0 > v.seq
    ORDER BY n.seq + 0 LIMIT 1
), (
    SELECT u.recorded_ms FROM unsubscribes u
    -- include: of_record row=u address=v.address group_no=v.group_no
)) AS superseded_ms
FROM unsubscribe_versions v WHERE v.feed_id = :feed_id AND v.seq > :after ORDER BY v.seq LIMIT :most

-- name: delete_versions
-- unsubscribe_versions_seq, once per version. A superseded version stays one, so it needs no lock of the feed.
DELETE FROM unsubscribe_versions WHERE feed_id = :feed_id
  AND seq IN (SELECT value FROM json_each(:seqs))  -- only: sqlite
  AND seq = ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(:seqs)))  -- only: postgresql

-- name: note_deleted_history
-- Primary key. Takes effect once in a run over the feed.
UPDATE feeds SET history_deleted_ms = :until_ms WHERE feed_id = :feed_id AND history_deleted_ms < :until_ms

-- name: deleted_history
-- Primary keys: how far the history of the feed was deleted, and whether a submission created or updated records.
SELECT f.history_deleted_ms, s.created, s.updated
FROM feeds f LEFT JOIN submissions s ON s.feed_id = f.feed_id AND s.submission_id = :submission_id
WHERE f.feed_id = :feed_id

-- name: old_submissions
-- Primary key of submissions for a step of them, then unsubscribes_seq, unsubscribe_versions_seq and erasures_standing once per
-- submission: whether a state of it stands. An erased record stands on the submission from before its erasure.
SELECT s.submission_id, s.received_ms, COALESCE((
    SELECT u.seq FROM unsubscribes u WHERE u.feed_id = :feed_id AND u.seq >= s.first_seq AND u.seq <= s.last_seq
    ORDER BY u.seq LIMIT 1
), (
    SELECT v.seq FROM unsubscribe_versions v WHERE v.feed_id = :feed_id AND v.seq >= s.first_seq AND v.seq <= s.last_seq
    ORDER BY v.seq LIMIT 1
), (
    SELECT e.stands_seq FROM erasures e
    WHERE e.feed_id = :feed_id AND e.stands_seq >= s.first_seq AND e.stands_seq <= s.last_seq AND e.kind = 'erased'
      AND COALESCE(
          (SELECT u.seq FROM unsubscribes u WHERE u.feed_id = :feed_id AND u.seq = e.seq),
          (SELECT v.seq FROM unsubscribe_versions v WHERE v.feed_id = :feed_id AND v.seq = e.seq)) IS NOT NULL
    ORDER BY e.stands_seq LIMIT 1
)) AS standing_seq
FROM submissions s WHERE s.feed_id = :feed_id AND s.submission_id > :after ORDER BY s.submission_id LIMIT :most

-- fragment: these_submissions
IN (SELECT value FROM json_each(:submissions))  -- only: sqlite
= ANY (ARRAY(SELECT value FROM json_array_elements_text(:submissions)))  -- only: postgresql

-- name: delete_submissions
-- Primary key, once per submission.
DELETE FROM submissions WHERE feed_id = :feed_id AND submission_id
-- include: these_submissions

-- name: delete_import_parts
-- import_parts_submission, once per submission. Of an import the first part that is left stands for all in lists.
DELETE FROM import_parts WHERE feed_id = :feed_id AND submission_id
-- include: these_submissions

-- name: delete_reversals
-- Primary key, once per submission: its reversal, unless the submission that reversed it is still there.
DELETE FROM reversals
WHERE feed_id = :feed_id AND (
    SELECT s.submission_id FROM submissions s WHERE s.feed_id = :feed_id AND s.submission_id = reversals.reversed_by LIMIT 1
) IS NULL AND submission_id
-- include: these_submissions

-- name: delete_reversals_by
-- reversals_by, once per submission: what it reversed, unless that is still there.
DELETE FROM reversals INDEXED BY reversals_by  -- only: sqlite
DELETE FROM reversals  -- only: postgresql
WHERE feed_id = :feed_id AND (
    SELECT s.submission_id FROM submissions s WHERE s.feed_id = :feed_id AND s.submission_id = reversals.submission_id LIMIT 1
) IS NULL AND reversed_by
-- include: these_submissions

-- name: readers_to_clean
-- Primary key: a step of the readers of a feed.
SELECT client_id, group_no FROM feed_followers
WHERE feed_id = :feed_id AND (client_id, group_no) > (:after_client, CAST(:after_group AS INTEGER))
ORDER BY client_id, group_no LIMIT :most

-- name: delete_positions
-- Primary key, one reader's list: the oldest positions, save the last one before :before.
DELETE FROM feed_positions
WHERE feed_id = :feed_id AND client_id = :client_id AND group_no = :group_no AND minute IN (
    SELECT p.minute FROM feed_positions p
    WHERE p.feed_id = :feed_id AND p.client_id = :client_id AND p.group_no = :group_no AND p.minute < (
        SELECT MAX(q.minute) FROM feed_positions q
        WHERE q.feed_id = :feed_id AND q.client_id = :client_id AND q.group_no = :group_no AND q.minute < :before
    ) ORDER BY p.minute LIMIT :most
)

-- name: old_audit_entries
-- audit_time: a step of the oldest entries.
SELECT audit_id, at_ms, action FROM audit
WHERE at_ms < :until_ms AND (at_ms, audit_id) > (:after_ms, :after_id)
ORDER BY at_ms, audit_id LIMIT :most

-- fragment: these_entries
IN (SELECT value FROM json_each(:entries))  -- only: sqlite
= ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(:entries)))  -- only: postgresql

-- name: delete_audit_organizations
-- audit_organizations_audit, once per entry.
DELETE FROM audit_organizations WHERE audit_id
-- include: these_entries

-- name: delete_audit_entries
-- Primary key, once per entry.
DELETE FROM audit WHERE audit_id
-- include: these_entries

-- name: delete_moved_entries
-- moved_entries_added, then audit_time and notices_created once per row: a step of the oldest. An entry that a restore of
-- the feeds brings back must be known for as long as what it said is kept: in the audit, or as a notice.
DELETE FROM moved_entries WHERE entry_id
IN (  -- only: sqlite
= ANY (ARRAY(  -- only: postgresql
    SELECT m.entry_id FROM moved_entries m
    WHERE m.added_ms < :until_ms
      AND (SELECT 1 FROM audit WHERE at_ms = m.added_ms LIMIT 1) IS NULL
      AND (SELECT 1 FROM notices WHERE created_ms = m.added_ms LIMIT 1) IS NULL
    ORDER BY m.added_ms LIMIT :most
)
)  -- only: postgresql

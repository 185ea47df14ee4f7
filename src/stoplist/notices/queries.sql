-- Notices, kept until delivered: a few a day, deleted after 30 days.

-- name: add_notice
-- Its id is new.
INSERT INTO notices (notice_id, kind, subject, body, created_ms) VALUES (:notice_id, :kind, :subject, :body, :created_ms)

-- name: add_deliveries
-- Reads some hundred people, and their roles by primary key.
INSERT INTO notice_deliveries (notice_id, via, attempts, next_ms, until_ms, is_delivered)
SELECT CAST(:notice_id AS text), 'webhook', 0, CAST(:next_ms AS bigint), CAST(:until_ms AS bigint), 0
UNION ALL
SELECT CAST(:notice_id AS text), 'mail:' || CAST(p.person_id AS text), 0, CAST(:next_ms AS bigint), CAST(:until_ms AS bigint), 0
FROM people p WHERE p.is_disabled = 0 AND (p.is_administrator = 1 OR EXISTS (
    SELECT 1 FROM person_organizations r JOIN organizations o ON o.organization_id = r.organization_id
    WHERE r.person_id = p.person_id AND r.role = 'admin'
      AND o.slug IN (SELECT value FROM json_each(:slugs))))  -- only: sqlite
      AND o.slug IN (SELECT value FROM json_array_elements_text(:slugs))))  -- only: postgresql

-- name: set_notice_state
-- Primary key. Compare-and-set: of several processes that see the change, one changes a row.
INSERT INTO notice_states (kind, subject, state, since_ms) VALUES (:kind, :subject, :state, :since_ms)
ON CONFLICT (kind, subject) DO UPDATE SET state = excluded.state, since_ms = excluded.since_ms
WHERE notice_states.state <> excluded.state

-- name: end_state
-- Primary key. Of several processes that see the change, one deletes a row.
DELETE FROM notice_states WHERE kind = :kind AND subject = :subject

-- name: noted_subjects
-- Primary key.
SELECT subject FROM notice_states WHERE kind = :kind ORDER BY subject

-- name: end_all_deliveries
-- After a restore: all rows. They may have been delivered since the backup.
UPDATE notice_deliveries SET ended_ms = :ended_ms, lease_id = NULL, sealed = NULL WHERE ended_ms IS NULL

-- name: due_deliveries
-- notice_deliveries_next, then the primary key of the notice. The oldest first.
SELECT d.notice_id, d.via, d.sealed, d.attempts, d.lease_id, d.until_ms, n.kind, n.body
FROM notice_deliveries d JOIN notices n ON n.notice_id = d.notice_id
WHERE d.ended_ms IS NULL AND d.next_ms <= :now_ms AND d.until_ms > :now_ms
  AND CASE WHEN d.via = 'webhook' THEN 'webhook' ELSE 'mail' END = CAST(:via AS text)
ORDER BY d.next_ms, d.notice_id LIMIT 10

-- name: claim_delivery
-- Primary key. Of two processes that found it due, the second finds another lease, or another attempt.
UPDATE notice_deliveries SET lease_id = :lease_id, next_ms = :lease_until_ms
WHERE notice_id = :notice_id AND via = :via AND attempts = :attempts AND COALESCE(lease_id, '') = :seen_lease_id

-- name: release_delivery
-- Primary key. Takes effect only for the process that holds the lease.
UPDATE notice_deliveries SET lease_id = NULL, next_ms = :next_ms
WHERE notice_id = :notice_id AND via = :via AND lease_id = :lease_id

-- name: end_delivery
-- Primary key. Takes effect only for the process that holds the lease. What was sealed is needed no more.
UPDATE notice_deliveries SET attempts = attempts + 1, ended_ms = :ended_ms, is_delivered = :is_delivered,
    last_error = :last_error, lease_id = NULL, sealed = NULL
WHERE notice_id = :notice_id AND via = :via AND lease_id = :lease_id

-- name: postpone_delivery
-- Primary key. Takes effect only for the process that holds the lease.
UPDATE notice_deliveries SET attempts = attempts + 1, next_ms = :next_ms, last_error = :last_error, lease_id = NULL
WHERE notice_id = :notice_id AND via = :via AND lease_id = :lease_id

-- name: end_expired_deliveries
-- notice_deliveries_next: those that are open, a few. One that is under way is left to its process.
UPDATE notice_deliveries SET ended_ms = :now_ms, lease_id = NULL, sealed = NULL
WHERE ended_ms IS NULL AND until_ms <= :now_ms AND next_ms <= :now_ms
RETURNING via, attempts

-- name: recipient
-- Primary keys. No row if the person has lost the right since. A link is for its person, whatever rights they have.
SELECT p.email FROM people p WHERE p.person_id = :person_id AND p.is_disabled = 0
  AND (:is_link = 1 OR p.is_administrator = 1 OR EXISTS (
    SELECT 1 FROM person_organizations r JOIN organizations o ON o.organization_id = r.organization_id
    WHERE r.person_id = p.person_id AND r.role = 'admin'
      AND o.slug IN (SELECT value FROM json_each(:slugs))))  -- only: sqlite
      AND o.slug IN (SELECT value FROM json_array_elements_text(:slugs))))  -- only: postgresql

-- name: invitation
-- By the unique link_hash. No row if the invitation was withdrawn, replaced or answered.
SELECT email FROM invitations WHERE link_hash = :link_hash

-- name: old_notices
-- notices_created.
SELECT notice_id FROM notices WHERE created_ms < :before_ms ORDER BY created_ms LIMIT :most

-- name: delete_deliveries
-- Primary key.
DELETE FROM notice_deliveries WHERE notice_id = :notice_id

-- name: delete_notice
-- Primary key.
DELETE FROM notices WHERE notice_id = :notice_id

-- name: add_sealed_delivery
-- Its id is new.
INSERT INTO notice_deliveries (notice_id, via, sealed, attempts, next_ms, until_ms, is_delivered)
VALUES (:notice_id, :via, :sealed, 0, :next_ms, :until_ms, 0)

-- name: end_sealed_deliveries
-- notice_deliveries_next: those that are open, a few.
UPDATE notice_deliveries SET ended_ms = :ended_ms, lease_id = NULL, sealed = NULL
WHERE ended_ms IS NULL AND sealed IS NOT NULL AND via = :via

-- name: sealed_after
-- At the start: through all deliveries, by primary key.
SELECT notice_id, sealed FROM notice_deliveries
WHERE sealed IS NOT NULL AND notice_id > :after ORDER BY notice_id LIMIT :max_rows

-- name: replace_sealed
-- Primary key. Compare-and-set: does not bring back a link that was sent or ended meanwhile.
UPDATE notice_deliveries SET sealed = :sealed WHERE notice_id = :notice_id AND sealed = :was

-- name: probe_read
-- Primary key.
SELECT since_ms FROM notice_states WHERE kind = 'store.probe' AND subject = ''

-- name: probe_write
-- Primary key. One row, written only while the database is suspected to fail.
INSERT INTO notice_states (kind, subject, state, since_ms) VALUES ('store.probe', '', 'written', :now_ms)
ON CONFLICT (kind, subject) DO UPDATE SET since_ms = excluded.since_ms

-- name: probe_read_of_feeds
-- The only row, of which each node of a Citus has a copy.
SELECT schema_version FROM deployment WHERE one_row = 1

-- name: probe_write_of_feeds
-- Primary key; :feed_id stands for no feed.
INSERT INTO feed_outbox (feed_id, entry_id, kind, body, added_ms) VALUES (:feed_id, 'probe', 'probe', '', :now_ms)
ON CONFLICT (feed_id, entry_id) DO NOTHING

-- name: undo_probe_write_of_feeds
-- Primary key.
DELETE FROM feed_outbox WHERE feed_id = :feed_id AND entry_id = 'probe'

-- Uploads, and the work of servers on imports. Statements begin with feed_id, except the few that look through all of either table:
-- they have a row per upload or request of the last days.

-- name: begin_upload
-- Its id is new.
INSERT INTO uploads (feed_id, import_id, state, file_name, file_bytes, piece_count, header, options, actor_kind, actor_id,
                     created_ms, ended_ms)
VALUES (:feed_id, :import_id, :state, :file_name, 0, 0, '[]', :options, :actor_kind, :actor_id, :created_ms, NULL)

-- name: add_piece
-- Primary key.
INSERT INTO upload_pieces (feed_id, import_id, piece_no, content) VALUES (:feed_id, :import_id, :piece_no, :content)

-- name: extend_upload
-- Primary key. Takes effect only while the file is being sent.
UPDATE uploads SET file_bytes = :file_bytes, piece_count = :piece_count
WHERE feed_id = :feed_id AND import_id = :import_id AND state = 'uploading'

-- name: complete_upload
-- Primary key. Takes effect only once.
UPDATE uploads SET state = 'uploaded' WHERE feed_id = :feed_id AND import_id = :import_id AND state = 'uploading'

-- name: set_upload_options
-- Primary key. Takes effect only until the upload has ended.
UPDATE uploads SET options = :options, header = :header
WHERE feed_id = :feed_id AND import_id = :import_id AND state = 'uploaded'

-- name: end_upload
-- Primary key. Takes effect only once.
UPDATE uploads SET state = 'ended', ended_ms = :ended_ms
WHERE feed_id = :feed_id AND import_id = :import_id AND state <> 'ended'

-- name: forget_upload
-- Primary key.
DELETE FROM uploads WHERE feed_id = :feed_id AND import_id = :import_id

-- name: find_upload
-- Primary key.
SELECT feed_id, import_id, state, file_name, file_bytes, piece_count, header, options, actor_kind, actor_id, created_ms, ended_ms
FROM uploads WHERE feed_id = :feed_id AND import_id = :import_id

-- name: find_upload_anywhere
-- Primary key, once per feed, because the id does not name the feed.
SELECT f.organization_id, f.channel, u.feed_id, u.state
FROM feeds f CROSS JOIN uploads u  -- only: sqlite
FROM feeds f CROSS JOIN LATERAL (SELECT u.* FROM uploads u  -- only: postgresql
WHERE u.feed_id = f.feed_id AND u.import_id = :import_id
OFFSET 0) u  -- only: postgresql

-- name: place_of_feed
-- Primary key.
SELECT organization_id, channel FROM feeds WHERE feed_id = :feed_id

-- name: uploads_of_feed
-- Primary key. The newest first.
SELECT feed_id, import_id, state, file_name, file_bytes, piece_count, header, options, actor_kind, actor_id, created_ms, ended_ms
FROM uploads WHERE feed_id = :feed_id ORDER BY created_ms DESC, import_id LIMIT :most

-- name: unfinished_uploads
-- All uploads: those of the last days.
SELECT u.feed_id, u.import_id, u.state, u.file_name, u.file_bytes, u.piece_count, u.header, u.options, u.actor_kind, u.actor_id,
    u.created_ms, u.ended_ms, f.channel, f.organization_id
FROM uploads u JOIN feeds f ON f.feed_id = u.feed_id
WHERE u.state <> 'ended' ORDER BY u.created_ms DESC, u.import_id

-- name: old_uploads
-- All uploads: those of the last days. Those that were not finished in time, and those that ended, whose pieces and rejects may be
-- left.
SELECT feed_id, import_id, state, ended_ms FROM uploads
WHERE state = 'uploading' AND created_ms < :cut_off_before_ms OR state <> 'ended' AND created_ms < :old_before_ms
   OR state = 'ended'

-- name: piece
-- Primary key.
SELECT content FROM upload_pieces WHERE feed_id = :feed_id AND import_id = :import_id AND piece_no = :piece_no

-- name: delete_pieces
-- Primary key. A few at a time, so that others can write in between.
DELETE FROM upload_pieces WHERE feed_id = :feed_id AND import_id = :import_id AND piece_no IN (
    SELECT piece_no FROM upload_pieces WHERE feed_id = :feed_id AND import_id = :import_id ORDER BY piece_no LIMIT :most)

-- name: add_rejects
-- Primary key: with the part that the rows belong to.
INSERT INTO import_rejects (feed_id, import_id, first_row, rejected)
VALUES (:feed_id, :import_id, :first_row, :rejected)

-- name: rejects_after
-- Primary key.
SELECT import_id, first_row, rejected FROM import_rejects
WHERE feed_id = :feed_id AND import_id = :import_id AND first_row > :first_row ORDER BY first_row LIMIT 1

-- name: rejects_of_feed_after
-- Primary key.
SELECT import_id, first_row, rejected FROM import_rejects
WHERE feed_id = :feed_id AND (import_id, first_row) > (:import_id, :first_row)
ORDER BY import_id, first_row LIMIT 1

-- name: replace_rejects
-- Primary key.
UPDATE import_rejects SET rejected = :rejected
WHERE feed_id = :feed_id AND import_id = :import_id AND first_row = :first_row

-- fragment: of_these_feeds
WHERE f.feed_id IN (SELECT value FROM json_each(:feed_ids))  -- only: sqlite
WHERE f.feed_id = ANY (ARRAY(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(:feed_ids)))  -- only: postgresql

-- name: file_names
-- Primary keys of feeds, imports and uploads, once per feed.
SELECT f.feed_id, i.import_id, i.file_name
FROM feeds f CROSS JOIN imports i  -- only: sqlite
FROM feeds f CROSS JOIN LATERAL (SELECT i.* FROM imports i WHERE i.feed_id = f.feed_id OFFSET 0) i  -- only: postgresql
-- include: of_these_feeds
AND i.feed_id = f.feed_id  -- only: sqlite
UNION ALL
SELECT f.feed_id, u.import_id, u.file_name
FROM feeds f CROSS JOIN uploads u  -- only: sqlite
FROM feeds f CROSS JOIN LATERAL (SELECT u.* FROM uploads u WHERE u.feed_id = f.feed_id OFFSET 0) u  -- only: postgresql
-- include: of_these_feeds
AND u.feed_id = f.feed_id  -- only: sqlite

-- name: forget_name_of_import
-- Primary key.
UPDATE imports SET file_name = 'erased' WHERE feed_id = :feed_id AND import_id = :import_id

-- name: forget_name_of_upload
-- Primary key.
UPDATE uploads SET file_name = 'erased' WHERE feed_id = :feed_id AND import_id = :import_id

-- name: delete_rejects
-- Primary key. A few at a time.
DELETE FROM import_rejects WHERE feed_id = :feed_id AND import_id = :import_id AND first_row IN (
    SELECT first_row FROM import_rejects WHERE feed_id = :feed_id AND import_id = :import_id ORDER BY first_row LIMIT :most)

-- name: request_work
-- Primary key. Takes effect only if nothing else is being done about the import. NULL leaves the result as it is.
INSERT INTO import_work (feed_id, import_id, work, actor_kind, actor_id, requested_ms, lease_id, lease_until_ms, done, total, result)
VALUES (:feed_id, :import_id, :work, :actor_kind, :actor_id, :requested_ms, NULL, 0, 0, :total, :result)
ON CONFLICT (feed_id, import_id) DO UPDATE SET work = excluded.work, actor_kind = excluded.actor_kind,
    actor_id = excluded.actor_id, requested_ms = excluded.requested_ms, lease_id = NULL, lease_until_ms = 0, done = 0,
    total = excluded.total, result = excluded.result
WHERE import_work.work IS NULL

-- name: find_work
-- Primary key.
SELECT feed_id, import_id, work, actor_kind, actor_id, requested_ms, lease_id, lease_until_ms, done, total, result
FROM import_work WHERE feed_id = :feed_id AND import_id = :import_id

-- name: waiting_work
-- All work: that of the last days. What nobody does, or nobody does any longer, the oldest first.
SELECT f.organization_id, f.channel, w.feed_id, w.import_id, w.work, w.actor_kind, w.actor_id, w.requested_ms, w.lease_id,
    w.lease_until_ms, w.done, w.total, w.result
FROM import_work w JOIN feeds f ON f.feed_id = w.feed_id
WHERE w.work IS NOT NULL AND w.lease_until_ms <= :now_ms ORDER BY w.requested_ms, w.import_id LIMIT 10

-- name: claim_work
-- Primary key. Of two processes, one finds another lease.
UPDATE import_work SET lease_id = :lease_id, lease_until_ms = :lease_until_ms
WHERE feed_id = :feed_id AND import_id = :import_id AND work = :work AND COALESCE(lease_id, '') = :seen_lease_id

-- name: renew_work
-- Primary key. Takes effect only for the process that holds the lease.
UPDATE import_work SET lease_until_ms = :lease_until_ms, done = :done, total = :total
WHERE feed_id = :feed_id AND import_id = :import_id AND lease_id = :lease_id

-- name: end_work
-- Primary key. Takes effect only for the process that holds the lease.
UPDATE import_work SET work = NULL, lease_id = NULL, lease_until_ms = 0, result = :result
WHERE feed_id = :feed_id AND import_id = :import_id AND lease_id = :lease_id

-- name: cancel_work
-- Primary key. The process that does it notices at its next step.
UPDATE import_work SET work = NULL, lease_id = NULL, lease_until_ms = 0 WHERE feed_id = :feed_id AND import_id = :import_id

-- name: set_result
-- Primary key. Takes effect only while nothing is being done.
UPDATE import_work SET result = :result WHERE feed_id = :feed_id AND import_id = :import_id AND work IS NULL

-- name: old_work
-- All work: that of the last days.
SELECT feed_id, import_id FROM import_work WHERE work IS NULL AND requested_ms < :before_ms

-- name: forget_work
-- Primary key.
DELETE FROM import_work WHERE feed_id = :feed_id AND import_id = :import_id AND work IS NULL

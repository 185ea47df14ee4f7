-- Imports. Statements begin with feed_id, except those that look an import up by its id or list all of them.

-- fragment: import_columns
f.organization_id, f.channel, i.feed_id, i.import_id, i.group_no, i.state, i.file_name, i.options, i.actor_kind,
i.actor_id, i.started_ms, i.ended_ms, i.row_count, i.sha256, i.rejects_bytes, i.counts, i.lease_id, i.lease_until_ms

-- name: begin_import
-- Its id is new.
INSERT INTO imports (feed_id, import_id, group_no, state, file_name, options, actor_kind, actor_id, started_ms, ended_ms,
                     row_count, sha256, rejects_bytes, counts, lease_id, lease_until_ms)
VALUES (:feed_id, :import_id, :group_no, :state, :file_name, :options, :actor_kind, :actor_id, :started_ms, NULL,
        0, :file_hash, :rejects_bytes, :counts, :lease_id, :lease_until_ms)

-- name: find_import
-- Primary key of imports, once per feed, because the id does not name the feed. Each shard looks for its own feeds.
SELECT
-- include: import_columns
FROM feeds f CROSS JOIN imports i  -- only: sqlite
FROM feeds f CROSS JOIN LATERAL (SELECT i.* FROM imports i  -- only: postgresql
WHERE i.feed_id = f.feed_id AND i.import_id = :import_id
OFFSET 0) i  -- only: postgresql

-- name: imports_of
-- Primary key of imports, once per feed of the organizations; NULL: all organizations. The newest first.
SELECT
-- include: import_columns
FROM feeds f CROSS JOIN imports i  -- only: sqlite
FROM feeds f CROSS JOIN LATERAL (SELECT i.* FROM imports i  -- only: postgresql
WHERE i.feed_id = f.feed_id
OFFSET 0) i WHERE true  -- only: postgresql
AND (CAST(:organization_id AS BIGINT) IS NULL OR f.organization_id = :organization_id)
ORDER BY i.started_ms DESC, i.import_id LIMIT :most

-- name: imports_into
-- Primary key of imports, those of one feed. The newest first.
SELECT
-- include: import_columns
FROM feeds f CROSS JOIN imports i WHERE f.feed_id = :feed_id AND i.feed_id = :feed_id AND i.group_no = :group_no
ORDER BY i.started_ms DESC, i.import_id

-- name: advance_import
-- Primary key. Takes effect only for the process that holds the lease, and only once for each row of the file.
UPDATE imports SET row_count = :row_count, sha256 = :file_hash, rejects_bytes = :rejects_bytes, counts = :counts,
    lease_until_ms = :lease_until_ms
WHERE feed_id = :feed_id AND import_id = :import_id AND row_count = :from_row AND lease_id = :lease_id

-- name: add_import_part
-- Primary key: no row of the file is in two submissions.
INSERT INTO import_parts (feed_id, import_id, first_row, submission_id)
VALUES (:feed_id, :import_id, :first_row, :submission_id)

-- name: change_import_state
-- Primary key. Of two processes that change the state at once, one finds it changed, or another lease.
UPDATE imports SET state = :state, lease_id = :new_lease_id, lease_until_ms = :lease_until_ms, ended_ms = :ended_ms
WHERE feed_id = :feed_id AND import_id = :import_id AND state = :from_state
  AND COALESCE(lease_id, '') = :lease_id

-- name: submissions_of_import
-- Primary key of import_parts, the newest first.
SELECT submission_id FROM import_parts WHERE feed_id = :feed_id AND import_id = :import_id ORDER BY first_row DESC

-- name: interrupted_reversal
-- Primary keys of import_parts and, once per part, of reversals: the latest reversal of the import.
SELECT r.part_of FROM import_parts p CROSS JOIN reversals r
WHERE p.feed_id = :feed_id AND p.import_id = :import_id AND r.feed_id = :feed_id AND r.submission_id = p.submission_id
  AND COALESCE(r.part_of, '') <> ''
ORDER BY r.reversed_ms DESC LIMIT 1

-- name: taken_back_of_import
-- Primary keys of import_parts and, once per part, of reversals and submissions: the records that all reversals of the import changed.
SELECT COALESCE(SUM(s.updated - COALESCE(r.corrected, 0)), 0) AS restored, COALESCE(SUM(r.corrected), 0) AS corrected
FROM import_parts p CROSS JOIN reversals r
CROSS JOIN submissions s  -- only: sqlite
CROSS JOIN LATERAL (SELECT s.* FROM submissions s  -- only: postgresql
WHERE s.feed_id = :feed_id AND s.submission_id = r.reversed_by  -- only: postgresql
OFFSET 0) s  -- only: postgresql
WHERE p.feed_id = :feed_id AND p.import_id = :import_id AND r.feed_id = :feed_id AND r.submission_id = p.submission_id
  AND r.import_id = :import_id
  AND s.feed_id = :feed_id AND s.submission_id = r.reversed_by  -- only: sqlite

-- name: import_of_submission
-- import_parts_submission.
SELECT import_id FROM import_parts WHERE feed_id = :feed_id AND submission_id = :submission_id

-- The statements of `stoplist doctor`. All are reads; on PostgreSQL any account may run them.

-- name: server_facts
-- PostgreSQL only: durability settings, role, and the number of connections for ordinary accounts. started_at, in
-- microseconds, tells whether two databases are of one server.
SELECT current_setting('synchronous_commit') AS synchronous_commit,  -- only: postgresql
       current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,  -- only: postgresql
       CAST(current_setting('max_connections') AS INTEGER)  -- only: postgresql
       - CAST(current_setting('superuser_reserved_connections') AS INTEGER)  -- only: postgresql
       - COALESCE(CAST(current_setting('reserved_connections', true) AS INTEGER), 0) AS connections,  -- only: postgresql
       pg_is_in_recovery() AS is_standby, pg_postmaster_start_time() AS started_at,  -- only: postgresql
       current_setting('transaction_read_only') = 'on' AS is_read_only  -- only: postgresql
SELECT 1 AS nothing  -- only: sqlite

-- name: holds_feeds
-- The first row by primary key. If there is a feed, cursors authenticated by the secret key may exist.
SELECT feed_id FROM feeds ORDER BY feed_id LIMIT 1

-- name: slugs
-- Every organization; a row is short.
SELECT organization_id, slug FROM organizations

-- name: account_counts
-- Scans some hundred people.
SELECT COUNT(*) AS people, COUNT(totp_secret) AS people_with_two_step,
       COALESCE(SUM(is_administrator), 0) AS administrators,
       COUNT(CASE WHEN is_administrator = 1 THEN totp_secret END) AS administrators_with_two_step
FROM people WHERE is_disabled = 0

-- name: notice_failures
-- Scans the deliveries of a month. By each way, what failed: notices that have waited since :before_ms, and those that were given up.
SELECT CASE WHEN d.via = 'webhook' THEN 'webhook' ELSE 'mail' END AS way,
       SUM(CASE WHEN d.ended_ms IS NULL THEN 1 ELSE 0 END) AS waiting,
       SUM(CASE WHEN d.ended_ms IS NULL THEN 0 ELSE 1 END) AS given_up, MAX(d.last_error) AS error
FROM notice_deliveries d JOIN notices n ON n.notice_id = d.notice_id
WHERE d.is_delivered = 0 AND d.last_error IS NOT NULL AND d.last_error <> 'nobody to tell' AND n.created_ms >= :since_ms
  AND (d.ended_ms IS NOT NULL OR n.created_ms < :before_ms)
GROUP BY 1 ORDER BY 1

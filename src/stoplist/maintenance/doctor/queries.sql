-- The statements of `stoplist doctor`. All are reads; on PostgreSQL any account may run them.

-- name: server_facts
-- PostgreSQL only: durability settings, role, and the number of connections for ordinary accounts.
SELECT current_setting('synchronous_commit') AS synchronous_commit,  -- only: postgresql
       current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,  -- only: postgresql
       CAST(current_setting('max_connections') AS INTEGER)  -- only: postgresql
       - CAST(current_setting('superuser_reserved_connections') AS INTEGER)  -- only: postgresql
       - COALESCE(CAST(current_setting('reserved_connections', true) AS INTEGER), 0) AS connections,  -- only: postgresql
       pg_is_in_recovery() AS is_standby,  -- only: postgresql
       current_setting('transaction_read_only') = 'on' AS is_read_only  -- only: postgresql
SELECT 1 AS nothing  -- only: sqlite

-- name: holds_feeds
-- The first row by primary key. If there is a feed, cursors authenticated by the secret key may exist.
SELECT feed_id FROM feeds ORDER BY feed_id LIMIT 1

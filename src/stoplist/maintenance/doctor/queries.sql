-- What the doctor asks a database. All reads; on PostgreSQL any account may ask them.

-- name: server_facts
-- PostgreSQL alone: its settings for durability, its role, and how many connections ordinary accounts may have.
SELECT current_setting('synchronous_commit') AS synchronous_commit,  -- only: postgresql
       current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,  -- only: postgresql
       CAST(current_setting('max_connections') AS INTEGER)  -- only: postgresql
       - CAST(current_setting('superuser_reserved_connections') AS INTEGER)  -- only: postgresql
       - COALESCE(CAST(current_setting('reserved_connections', true) AS INTEGER), 0) AS connections,  -- only: postgresql
       pg_is_in_recovery() AS is_standby,  -- only: postgresql
       current_setting('transaction_read_only') = 'on' AS is_read_only  -- only: postgresql
SELECT 1 AS nothing  -- only: sqlite

-- name: holds_feeds
-- The first row by primary key. Whether anybody holds a cursor that the secret key authenticates.
SELECT feed_id FROM feeds ORDER BY feed_id LIMIT 1

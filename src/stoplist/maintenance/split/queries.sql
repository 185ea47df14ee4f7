-- The fixed statements of `stoplist feeds`; it generates the others from the catalogue. For PostgreSQL only.

-- name: try_lock
-- Of two runs, and of a migration and a run, one goes on.
SELECT pg_try_advisory_xact_lock(CAST(:number AS BIGINT)) AS is_locked  -- only: postgresql

-- name: forget_snapshot
-- Otherwise a transaction sees the connections of its first look again.
SELECT pg_stat_clear_snapshot()  -- only: postgresql

-- name: other_connections
-- Processes of the server itself have no account; those of a Citus have its name.
SELECT count(*) AS number, string_agg(DISTINCT CAST(usename AS TEXT), ', ') AS accounts  -- only: postgresql
FROM pg_stat_activity  -- only: postgresql
WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename IS NOT NULL  -- only: postgresql
    AND COALESCE(application_name, '') NOT ILIKE 'citus%'  -- only: postgresql

-- name: any_entry
SELECT feed_id FROM feed_outbox LIMIT 1

-- name: forget_reading_key
-- The only row. The key is kept with the accounts.
UPDATE deployment SET reading_key = NULL WHERE one_row = 1

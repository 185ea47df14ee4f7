-- The deployment row, which identifies a database, and the checks before a migration.

-- name: has_deployment
-- Tested by one of our columns, because other products may have a table of this name.
SELECT name AS found FROM pragma_table_info('deployment') WHERE name = 'oldest_program'  -- only: sqlite
SELECT column_name AS found FROM information_schema.columns  -- only: postgresql
WHERE table_schema = current_schema() AND table_name = 'deployment' AND column_name = 'oldest_program'  -- only: postgresql

-- name: any_table
SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~' LIMIT 1  -- only: sqlite
SELECT tablename AS name FROM pg_tables WHERE schemaname = current_schema() LIMIT 1  -- only: postgresql

-- name: deployment
SELECT environment, schema_version, oldest_program FROM deployment WHERE one_row = 1

-- name: first_erasure_known
-- The only row. Fails on a schema from before there were erasures.
SELECT first_erasure_ms FROM deployment WHERE one_row = 1

-- name: create_deployment
INSERT INTO deployment (one_row, environment, schema_version, oldest_program, created_ms)
VALUES (1, :environment, 0, '0.0.0', :created_ms)

-- name: record_migration
UPDATE deployment SET schema_version = :schema_version, oldest_program = :oldest_program WHERE one_row = 1

-- name: copy_under_way
-- Since schema 3. The table has a row per copied table; any row means that a copy is under way.
SELECT table_name FROM copy_progress LIMIT 1

-- name: probe_feed
-- Primary key. Whether the node of a feed answers. The probes are used on PostgreSQL only.
SELECT 1 AS answer FROM feeds WHERE feed_id = :feed_id

-- name: probe_all_feeds
-- Primary key, its last entry. Whether every node answers.
SELECT MAX(feed_id) AS answer FROM feeds

-- name: probe_lock
-- Primary key. Whether the feed can be locked. The lock ends with the statement.
SELECT 1 AS answer FROM feeds WHERE feed_id = :feed_id
FOR UPDATE  -- only: postgresql

-- name: add_entry
INSERT INTO feed_outbox (feed_id, entry_id, kind, body, added_ms) VALUES (:feed_id, :entry_id, :kind, :body, :added_ms)

-- What a database remembers of itself.

-- name: has_deployment
SELECT name AS found FROM sqlite_master WHERE type = 'table' AND name = 'deployment'  -- only: sqlite
SELECT CAST(to_regclass('deployment') AS text) AS found  -- only: postgresql

-- name: deployment
SELECT environment, schema_version, oldest_program FROM deployment WHERE one_row = 1

-- name: create_deployment
INSERT INTO deployment (one_row, environment, schema_version, oldest_program, created_ms)
VALUES (1, :environment, 0, '0.0.0', :created_ms)

-- name: record_migration
UPDATE deployment SET schema_version = :schema_version, oldest_program = :oldest_program WHERE one_row = 1

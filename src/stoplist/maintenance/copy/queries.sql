-- The fixed statements of `stoplist copy`; it generates the others from the catalogues. Each runs on one of the two
-- databases only.

-- name: tables_of_source
SELECT t.name AS table_name, c.name AS column_name FROM sqlite_master t, pragma_table_info(t.name) c  -- only: sqlite
WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite~_%' ESCAPE '~'  -- only: sqlite

-- name: columns_of_target
SELECT c.relname AS table_name, a.attname AS column_name, format_type(a.atttypid, NULL) AS kind,  -- only: postgresql
    NOT a.attnotnull AS may_be_null, a.attidentity <> '' AS is_identity  -- only: postgresql
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid  -- only: postgresql
WHERE c.relnamespace = CAST(current_schema() AS regnamespace) AND c.relkind IN ('r', 'p')  -- only: postgresql
    AND a.attnum > 0 AND NOT a.attisdropped  -- only: postgresql
ORDER BY c.relname, a.attnum  -- only: postgresql

-- name: references_of_target
SELECT c.relname AS table_name, r.relname AS refers_to  -- only: postgresql
FROM pg_constraint f JOIN pg_class c ON c.oid = f.conrelid JOIN pg_class r ON r.oid = f.confrelid  -- only: postgresql
WHERE f.contype = 'f' AND f.connamespace = CAST(current_schema() AS regnamespace)  -- only: postgresql

-- name: progress
-- The lock waits for the transaction of a killed copy, which the server may not have noticed yet.
SELECT table_name, last_rowid, copied_rows, digest FROM copy_progress FOR UPDATE  -- only: postgresql

-- name: begin_table
-- Of two copies that begin at once, the primary key lets one go on.
INSERT INTO copy_progress (table_name, last_rowid, copied_rows, digest)  -- only: postgresql
VALUES (:table_name, :last_rowid, 0, 0)  -- only: postgresql

-- name: claim_table
-- The first statement of a transaction that adds rows: of two copies, the second one finds no such row.
SELECT table_name FROM copy_progress  -- only: postgresql
WHERE table_name = :table_name AND last_rowid = :last_rowid FOR UPDATE  -- only: postgresql

-- name: advance_table
-- In the same transaction as the rows.
UPDATE copy_progress SET last_rowid = :last_rowid, copied_rows = :copied_rows, digest = :digest  -- only: postgresql
WHERE table_name = :table_name  -- only: postgresql

-- name: oldest_program_of_target
SELECT oldest_program FROM deployment WHERE one_row = 1  -- only: postgresql

-- name: copy_lasting_facts
UPDATE deployment SET created_ms = :created_ms,  -- only: postgresql
    first_erasure_ms = CAST(:first_erasure_ms AS BIGINT), reading_key = CAST(:reading_key AS TEXT),  -- only: postgresql
    oldest_program = :oldest_program WHERE one_row = 1  -- only: postgresql

-- name: forget_progress
DELETE FROM copy_progress  -- only: postgresql

-- oldest program: 0.1.0
-- The progress of `stoplist copy` in filling this database. While the table has rows, no other program uses the database.

-- last_rowid: the last source row copied. digest: of the copied_rows rows up to last_rowid, computed from the source.
CREATE TABLE copy_progress (
    table_name TEXT NOT NULL PRIMARY KEY,
    last_rowid BIGINT NOT NULL,
    copied_rows BIGINT NOT NULL,
    digest BIGINT NOT NULL
);

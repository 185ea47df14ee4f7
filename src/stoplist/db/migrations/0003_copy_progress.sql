-- oldest program: 0.1.0
-- How far `stoplist copy` has come in filling this database. While there are rows no other program works on it.

-- last_rowid: the last row of the source that is here. digest: of the copied_rows rows up to it, as the source has them.
CREATE TABLE copy_progress (
    table_name TEXT NOT NULL PRIMARY KEY,
    last_rowid BIGINT NOT NULL,
    copied_rows BIGINT NOT NULL,
    digest BIGINT NOT NULL
);

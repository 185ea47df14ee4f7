-- oldest program: 0.1.0
-- Imports of files of opt-outs. Progress moves on in the transaction of each part, so both tables lie with the feeds.

-- row_count: the rows of the file that were taken so far. sha256: of the decompressed bytes up to there, in hexadecimal.
-- options and counts: JSON. lease_id: a random name of the process that works on it; NULL if none does.
CREATE TABLE imports (
    feed_id BIGINT NOT NULL,
    import_id TEXT NOT NULL,
    group_no INTEGER NOT NULL,
    state TEXT NOT NULL,
    file_name TEXT NOT NULL,
    options TEXT NOT NULL,
    actor_kind TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    started_ms BIGINT NOT NULL,
    ended_ms BIGINT,
    row_count BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    rejects_bytes BIGINT NOT NULL,
    counts TEXT NOT NULL,
    lease_id TEXT,
    lease_until_ms BIGINT NOT NULL,
    PRIMARY KEY (feed_id, import_id)
);

-- The submissions of an import. first_row: the number of rows before the part.
CREATE TABLE import_parts (
    feed_id BIGINT NOT NULL,
    import_id TEXT NOT NULL,
    first_row BIGINT NOT NULL,
    submission_id TEXT NOT NULL,
    PRIMARY KEY (feed_id, import_id, first_row)
);
CREATE UNIQUE INDEX import_parts_submission ON import_parts (feed_id, submission_id);

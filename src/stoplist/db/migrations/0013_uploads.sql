-- oldest program: 0.1.0
-- Files of opt-outs that were uploaded on the pages, and the work that servers do on imports. All of it lies with the feeds.

-- import_id: also that of the import, once it begins. state: uploading, uploaded or ended. options: JSON, as chosen on the page.
-- header: the names of the columns as JSON, once known.
CREATE TABLE uploads (
    feed_id BIGINT NOT NULL,
    import_id TEXT NOT NULL,
    state TEXT NOT NULL,
    file_name TEXT NOT NULL,
    file_bytes BIGINT NOT NULL,
    piece_count INTEGER NOT NULL,
    header TEXT NOT NULL,
    options TEXT NOT NULL,
    actor_kind TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    ended_ms BIGINT,
    PRIMARY KEY (feed_id, import_id)
);

-- The file, as it was sent, in pieces of equal size but for the last.
CREATE TABLE upload_pieces (
    feed_id BIGINT NOT NULL,
    import_id TEXT NOT NULL,
    piece_no INTEGER NOT NULL,
    content BYTEA NOT NULL,
    PRIMARY KEY (feed_id, import_id, piece_no)
);

-- The rows that an uploaded import left out. first_row: the number of rows before the part. rejected: JSON.
CREATE TABLE import_rejects (
    feed_id BIGINT NOT NULL,
    import_id TEXT NOT NULL,
    first_row BIGINT NOT NULL,
    rejected TEXT NOT NULL,
    PRIMARY KEY (feed_id, import_id, first_row)
);

-- What a server is to do about an import: check, import, count or reverse; NULL: nothing more. lease_id: a random name of the process
-- that does it. done and total: its progress. result: JSON, of this work and of earlier work.
CREATE TABLE import_work (
    feed_id BIGINT NOT NULL,
    import_id TEXT NOT NULL,
    work TEXT,
    actor_kind TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    requested_ms BIGINT NOT NULL,
    lease_id TEXT,
    lease_until_ms BIGINT NOT NULL,
    done BIGINT NOT NULL,
    total BIGINT NOT NULL,
    result TEXT NOT NULL,
    PRIMARY KEY (feed_id, import_id)
);

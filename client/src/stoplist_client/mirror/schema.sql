-- One row: the service that the mirror belongs to; NULL until a client was used with it.
CREATE TABLE about (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), base_url TEXT);
INSERT INTO about VALUES (1, NULL);

-- The followed feeds. copy_no is used for answers; it is NULL until the first read is complete. building_no is the copy
-- that is being read: the first one, or the one that will replace copy_no. Numbers are never reused, since connections
-- cache them for as long as the file is open.
CREATE TABLE feeds (
    feed_no INTEGER PRIMARY KEY AUTOINCREMENT,
    org_slug TEXT NOT NULL,
    channel TEXT NOT NULL,
    is_only INTEGER NOT NULL, -- whether no other organization is followed on this channel
    copy_no INTEGER,
    building_no INTEGER,
    synced_s REAL, -- seconds since 1970, just before the last page was requested
    diverged INTEGER NOT NULL DEFAULT 0, -- whether copy_no differs from the service: see divergence.py
    reread_s REAL, -- when the feed was last begun to be read anew because it differed
    digest_key TEXT, -- of erased persons, in base64url; NULL until there is one
    UNIQUE (org_slug, channel)
);

-- The position of each copy. A copy that no feed refers to is unused. Numbers are never reused, so that a process that
-- still works on a deleted copy notices that.
CREATE TABLE copies (
    copy_no INTEGER PRIMARY KEY AUTOINCREMENT,
    feed_no INTEGER NOT NULL,
    cursor TEXT,
    records INTEGER NOT NULL DEFAULT 0,
    digest TEXT, -- of the records, as the service's state has it; NULL while it is not known
    verified_s REAL, -- when both were last computed from the records
    is_reread INTEGER NOT NULL DEFAULT 0 -- whether it is read because the copy before it differs from the service
);

-- The groups of all records. 0 stands for all groups and has no row. A group never changes its organization.
CREATE TABLE groups (group_no INTEGER PRIMARY KEY CHECK (group_no > 0), group_id TEXT NOT NULL UNIQUE, org_slug TEXT NOT NULL);

-- The records as the service sent them, in the order of seq: pages are appended, which makes the first read fast.
-- A copy that is being read contains earlier versions too; a complete one does not.
CREATE TABLE records (
    copy_no INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    address TEXT NOT NULL, -- of an erased person: `erased:` and the digest
    group_no INTEGER NOT NULL,
    id TEXT NOT NULL,
    is_barred INTEGER NOT NULL,
    reason TEXT NOT NULL,
    source TEXT,
    occurred_at TEXT NOT NULL, -- RFC 3339, UTC, always with milliseconds, so that texts sort by time
    recorded_at TEXT NOT NULL,
    PRIMARY KEY (copy_no, seq, address, group_no)
) WITHOUT ROWID;

-- The table for queries, by its primary key only. Filled in one sorted pass when a copy is complete, and page by page
-- where the copy before it differs from the service, since both answer then.
-- seq is 0 for an opt-out that the service lost and that goes on barring.
CREATE TABLE states (
    copy_no INTEGER NOT NULL,
    address TEXT NOT NULL,
    group_no INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    is_barred INTEGER NOT NULL,
    PRIMARY KEY (copy_no, address, group_no)
) WITHOUT ROWID;

-- Opt-outs that an earlier copy had and the service lost. settled_s is the time from which the service decides about them.
CREATE TABLE missing (
    feed_no INTEGER NOT NULL,
    address TEXT NOT NULL,
    group_no INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    reason TEXT NOT NULL,
    source TEXT,
    occurred_at TEXT NOT NULL,
    recorded_at TEXT NOT NULL,
    settled_s REAL,
    PRIMARY KEY (feed_no, address, group_no)
) WITHOUT ROWID;

-- One row: what the mirror is a mirror of; NULL until a client was used with it.
CREATE TABLE about (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), base_url TEXT);
INSERT INTO about VALUES (1, NULL);

-- What is followed. copy_no answers; it is NULL until the first read has come to its end. building_no is the copy that is
-- being read: the first one, or one that is to take the place of the other. Numbers are never given twice: whoever learnt
-- one asks with it for as long as the file is open.
CREATE TABLE feeds (
    feed_no INTEGER PRIMARY KEY AUTOINCREMENT,
    org_slug TEXT NOT NULL,
    channel TEXT NOT NULL,
    is_only INTEGER NOT NULL, -- whether no other organization is followed on this channel
    copy_no INTEGER,
    building_no INTEGER,
    synced_s REAL, -- seconds since 1970: just before the last page was asked for
    UNIQUE (org_slug, channel)
);

-- How far each copy was read. One that no feed names is rubbish. Numbers are never given twice, so that whoever still
-- works on a copy that was thrown away finds out.
CREATE TABLE copies (
    copy_no INTEGER PRIMARY KEY AUTOINCREMENT,
    feed_no INTEGER NOT NULL,
    cursor TEXT,
    records INTEGER NOT NULL DEFAULT 0
);

-- Groups that were seen in records. 0 stands for all groups, and is not here. A group is of one organization for good.
CREATE TABLE groups (group_no INTEGER PRIMARY KEY CHECK (group_no > 0), group_id TEXT NOT NULL UNIQUE, org_slug TEXT NOT NULL);

-- As the service sent them, in the order of its numbers: a page is put at the end, which is what makes the first read quick.
-- A copy that is being read holds earlier versions too; one that answers does not.
CREATE TABLE records (
    copy_no INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    address TEXT NOT NULL,
    group_no INTEGER NOT NULL,
    id TEXT NOT NULL,
    is_barred INTEGER NOT NULL,
    reason TEXT NOT NULL,
    source TEXT,
    occurred_at TEXT NOT NULL, -- RFC 3339, UTC, always with milliseconds: their order as text is that of time
    recorded_at TEXT NOT NULL,
    PRIMARY KEY (copy_no, seq, address, group_no)
) WITHOUT ROWID;

-- What is asked, and by nothing but its key. Made in one go, sorted, when a copy was read to its end.
-- seq is 0 for an opt-out that is missing at the service and goes on barring.
CREATE TABLE states (
    copy_no INTEGER NOT NULL,
    address TEXT NOT NULL,
    group_no INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    is_barred INTEGER NOT NULL,
    PRIMARY KEY (copy_no, address, group_no)
) WITHOUT ROWID;

-- Opt-outs that an earlier copy had and the service lost. settled_s is when somebody said that the service alone decides.
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

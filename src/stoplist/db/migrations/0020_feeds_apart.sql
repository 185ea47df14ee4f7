-- oldest program: 0.1.0
-- Feeds in a database of their own (docs/interface.md section D1, Feeds apart). Both databases have all tables, and each uses its own.

-- pair_id: a random id that the two databases of a deployment share. pair_part: accounts or feeds. NULL: one database holds both.
ALTER TABLE deployment ADD COLUMN pair_id TEXT;
ALTER TABLE deployment ADD COLUMN pair_part TEXT;

-- uid: a random id, because organization_id is assigned a second time after a restore. organization_uid: that of the organization
-- which opened the feed; NULL where one database holds both, until a program looks.
ALTER TABLE organizations ADD COLUMN uid TEXT;  -- only: sqlite
UPDATE organizations SET uid = lower(hex(randomblob(16)));  -- only: sqlite
ALTER TABLE organizations ADD COLUMN uid TEXT DEFAULT md5(CAST(gen_random_uuid() AS TEXT));  -- only: postgresql
ALTER TABLE feeds ADD COLUMN organization_uid TEXT;

-- What a transaction of a feed has to say to the accounts: entries of the audit and notices, until they are moved there.
-- kind: audit or notice. body: JSON.
CREATE TABLE feed_outbox (
    feed_id BIGINT NOT NULL,
    entry_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    added_ms BIGINT NOT NULL,
    PRIMARY KEY (feed_id, entry_id)
);

-- The entries that the accounts have taken from outboxes, so that each is taken once.
CREATE TABLE moved_entries (
    entry_id TEXT NOT NULL PRIMARY KEY,
    added_ms BIGINT NOT NULL
);

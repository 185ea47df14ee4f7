-- oldest program: 0.1.0
-- The feeds of opt-outs. Every table leads its primary key with feed_id, one number for an organization and a channel,
-- and every statement names it: they can be distributed by it. Why one number: docs/decisions/0009-feeds.md.

-- head_seq: the last number given to a change. writes: how often the feed was locked for a write. generation: a restore
-- changes it.
CREATE TABLE feeds (
    feed_id BIGINT NOT NULL PRIMARY KEY,
    organization_id BIGINT NOT NULL,
    channel TEXT NOT NULL,
    generation TEXT NOT NULL,
    head_seq BIGINT NOT NULL,
    writes BIGINT NOT NULL
);

-- The current record of an address and group; group_no 0 stands for all groups. latest_act_ms is NULL if no act is
-- known (any opt-out then wins). is_confirmed: the record was sent again since its last change.
CREATE TABLE unsubscribes (
    feed_id BIGINT NOT NULL,
    address TEXT NOT NULL,  -- only: sqlite
    address TEXT COLLATE "C" NOT NULL,  -- only: postgresql
    group_no INTEGER NOT NULL,
    id TEXT NOT NULL,
    seq BIGINT NOT NULL,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    source TEXT,
    occurred_ms BIGINT NOT NULL,
    recorded_ms BIGINT NOT NULL,
    submission_id TEXT NOT NULL,
    latest_act_ms BIGINT,
    is_confirmed SMALLINT NOT NULL,
    PRIMARY KEY (feed_id, address, group_no)
);
CREATE UNIQUE INDEX unsubscribes_seq ON unsubscribes (feed_id, seq);

-- The superseded versions of records, kept for ever.
CREATE TABLE unsubscribe_versions (
    feed_id BIGINT NOT NULL,
    address TEXT NOT NULL,  -- only: sqlite
    address TEXT COLLATE "C" NOT NULL,  -- only: postgresql
    group_no INTEGER NOT NULL,
    seq BIGINT NOT NULL,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    source TEXT,
    occurred_ms BIGINT NOT NULL,
    recorded_ms BIGINT NOT NULL,
    submission_id TEXT NOT NULL,
    PRIMARY KEY (feed_id, address, group_no, seq)
);
CREATE UNIQUE INDEX unsubscribe_versions_seq ON unsubscribe_versions (feed_id, seq);

-- Who sent which batch, when and from where. first_seq and last_seq are NULL if the batch changed no record.
CREATE TABLE submissions (
    feed_id BIGINT NOT NULL,
    submission_id TEXT NOT NULL,
    group_no INTEGER NOT NULL,
    actor_kind TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    request_id TEXT,
    source_ip TEXT,
    received_ms BIGINT NOT NULL,
    received INTEGER NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    unchanged INTEGER NOT NULL,
    outranked INTEGER NOT NULL,
    rejected INTEGER NOT NULL,
    first_seq BIGINT,
    last_seq BIGINT,
    PRIMARY KEY (feed_id, submission_id)
);

-- day: days since 1970 UTC. changes: how many records took this status for this reason on that day. standing: the net
-- change on that day in the number of records with this status and reason; its sum over all days is the current number.
CREATE TABLE feed_days (
    feed_id BIGINT NOT NULL,
    day INTEGER NOT NULL,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    changes BIGINT NOT NULL,
    standing BIGINT NOT NULL,
    PRIMARY KEY (feed_id, day, status, reason)
);

-- oldest program: 0.1.0
-- When the last change of a feed was recorded. Behind the feed's lock it is raised to the time of the next change, so that the
-- times of a feed never fall, although the clocks of hosts differ (docs/interface.md section D6).
ALTER TABLE feeds ADD COLUMN last_recorded_ms BIGINT NOT NULL DEFAULT 0;
UPDATE feeds SET last_recorded_ms = COALESCE((
    SELECT u.recorded_ms FROM unsubscribes u WHERE u.feed_id = feeds.feed_id AND u.seq = feeds.head_seq
), 0);

-- How far each key has followed a feed, for one group or (0) the whole feed (docs/interface.md section D14, Propagation).
-- generation: that of the feed to which the rest belongs; empty: the key never followed it. position: the highest presented;
-- presented_ms: first; current_ms: last, or last in an earlier generation. anew_ms, anew_last_ms: the first and the last request
-- without a cursor since then. mark: must_follow or stopped.
CREATE TABLE feed_followers (
    feed_id BIGINT NOT NULL,
    client_id TEXT NOT NULL,
    group_no INTEGER NOT NULL,
    generation TEXT NOT NULL,
    position BIGINT NOT NULL,
    presented_ms BIGINT,
    current_ms BIGINT,
    anew_ms BIGINT,
    anew_last_ms BIGINT,
    asked_ms BIGINT,
    mark TEXT,
    marked_ms BIGINT,
    PRIMARY KEY (feed_id, client_id, group_no)
);

-- When a position was first presented; at most one row a minute, the highest of that minute. A row has a higher position than
-- every row of an earlier minute.
CREATE TABLE feed_positions (
    feed_id BIGINT NOT NULL,
    client_id TEXT NOT NULL,
    group_no INTEGER NOT NULL,
    minute BIGINT NOT NULL,
    position BIGINT NOT NULL,
    presented_ms BIGINT NOT NULL,
    PRIMARY KEY (feed_id, client_id, group_no, minute)
);
CREATE INDEX feed_positions_position ON feed_positions (feed_id, client_id, group_no, position);

-- oldest program: 0.1.0
-- Notices to operators and people, and how far their delivery has got.

-- subject: the id of what it is about. body: JSON, without addresses or secrets.
CREATE TABLE notices (
    notice_id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    body TEXT NOT NULL,
    created_ms BIGINT NOT NULL
);
CREATE INDEX notices_created ON notices (created_ms);

-- via: webhook, or mail: and a person_id. sealed: what must not be stored in clear, encrypted under the secret key.
-- next_ms: the next attempt is due; while one is under way, the end of its lease. lease_id: a random name of the process that makes it.
-- until_ms: no attempt is made from then on. last_error: a status, a code or the class of an error, never text of a receiver.
CREATE TABLE notice_deliveries (
    notice_id TEXT NOT NULL,
    via TEXT NOT NULL,
    sealed TEXT,
    attempts INTEGER NOT NULL,
    next_ms BIGINT NOT NULL,
    until_ms BIGINT NOT NULL,
    lease_id TEXT,
    ended_ms BIGINT,
    is_delivered SMALLINT NOT NULL,
    last_error TEXT,
    PRIMARY KEY (notice_id, via)
);
CREATE INDEX notice_deliveries_next ON notice_deliveries (next_ms) WHERE ended_ms IS NULL;

-- The states that are not the normal ones of their subjects, so that each change makes one notice.
CREATE TABLE notice_states (
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    state TEXT NOT NULL,
    since_ms BIGINT NOT NULL,
    PRIMARY KEY (kind, subject)
);

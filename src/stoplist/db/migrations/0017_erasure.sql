-- oldest program: 0.1.0
-- Erased persons (docs/interface.md section D13): `erased:` and a digest stand where the address stood.

-- digest_key: 32 random bytes as base64url; NULL where an older program opened the feed, until `migrate` or the first erasure.
-- has_erased: 1 from the first erasure on; only then is the digest of an address looked for, too.
ALTER TABLE feeds ADD COLUMN digest_key TEXT;
ALTER TABLE feeds ADD COLUMN has_erased SMALLINT NOT NULL DEFAULT 0;

-- The changes that erased an address, and those by which a resubscription brought one back; seq: their number. kind: erased,
-- returned, or again, where a reversal took that resubscription back. stands_seq: the number of the state that the erasure left as it was.
CREATE TABLE erasures (
    feed_id BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    kind TEXT NOT NULL,
    record_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    stands_seq BIGINT NOT NULL,
    submission_id TEXT NOT NULL,
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (feed_id, seq)
);
CREATE INDEX erasures_standing ON erasures (feed_id, stands_seq);
CREATE INDEX erasures_of_person ON erasures (feed_id, digest);

-- first_erasure_ms: when a person was first erased, which no program that knows no digests may survive.
ALTER TABLE deployment ADD COLUMN first_erasure_ms BIGINT;

-- Reads of personal data that the audit has noted in this hour, and the key of the digests under which it notes them.
CREATE TABLE person_reads (
    actor_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    hour BIGINT NOT NULL,
    PRIMARY KEY (actor_id, digest, hour)
);
ALTER TABLE deployment ADD COLUMN reading_key TEXT;

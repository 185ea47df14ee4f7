-- oldest program: 0.1.0
-- How many records of a feed have a number up to state_seq, and their digest (docs/interface.md section D14). Complete where
-- state_seq is head_seq. state_writes: `writes` when the state was last carried on; an older program does not carry it on.
ALTER TABLE feeds ADD COLUMN state_seq BIGINT NOT NULL DEFAULT 0;
ALTER TABLE feeds ADD COLUMN state_records BIGINT NOT NULL DEFAULT 0;
ALTER TABLE feeds ADD COLUMN state_digest TEXT NOT NULL
    DEFAULT '0000000000000000000000000000000000000000000000000000000000000000';
ALTER TABLE feeds ADD COLUMN state_writes BIGINT NOT NULL DEFAULT 0;

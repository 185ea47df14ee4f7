-- oldest program: 0.1.0
-- When the first pair of a chain of refreshes was issued, so that a chain can end; NULL: when this pair was issued, as in
-- rows of an older program. And whether a refresh with a token of this key needs the key's secret.

ALTER TABLE token_pairs ADD COLUMN chain_started_ms BIGINT;
ALTER TABLE clients ADD COLUMN refresh_needs_secret SMALLINT NOT NULL DEFAULT 0;

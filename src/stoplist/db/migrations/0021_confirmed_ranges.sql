-- oldest program: 0.1.0
-- Which records an import has confirmed, without writing them (docs/decisions/0023-imports.md).

-- The changes from first_seq to last_seq were sent again by somebody else. Ranges of a feed never overlap, and a record is
-- confirmed while its number is in one.
CREATE TABLE confirmed_ranges (
    feed_id BIGINT NOT NULL,
    first_seq BIGINT NOT NULL,
    last_seq BIGINT NOT NULL,
    PRIMARY KEY (feed_id, last_seq)
);

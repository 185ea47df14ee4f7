-- Text that statements of several packages share. It stands in a statement where `-- include: name` does.

-- fragment: is_confirmed
-- Primary key of confirmed_ranges: whether {record} was sent again since its last change. Imports confirm ranges of numbers.
CASE WHEN {record}.is_confirmed <> 1 AND {record}.seq >= (
    SELECT c.first_seq FROM confirmed_ranges c WHERE c.feed_id = :feed_id AND c.last_seq >= {record}.seq
    ORDER BY c.last_seq LIMIT 1
) THEN 1 ELSE {record}.is_confirmed END

-- Text that statements of several packages share. It stands in a statement where `-- include: name` does.

-- fragment: is_confirmed
-- Primary key of confirmed_ranges: whether {record} was sent again since its last change. Imports confirm ranges of numbers.
CASE WHEN {record}.is_confirmed <> 1 AND {record}.seq >= (
    SELECT c.first_seq FROM confirmed_ranges c WHERE c.feed_id = :feed_id AND c.last_seq >= {record}.seq
    ORDER BY c.last_seq LIMIT 1
) THEN 1 ELSE {record}.is_confirmed END

-- fragment: of_record
-- Primary keys of unsubscribes and unsubscribe_versions: where {row} is of the record of {address} and {group_no}. The last condition
-- follows from the others. By it PostgreSQL finds the key cheaper than another index that begins with feed_id, also where
-- statistics of a table of one row make it expect one row from either; it would then read the whole feed for each record.
WHERE {row}.feed_id = :feed_id AND {row}.address = {address} AND {row}.group_no = {group_no}
  AND ({row}.address, {row}.group_no) >= ({address}, {group_no})  -- only: postgresql

-- The two databases of a deployment whose feeds are apart: the pair, the owners of the feeds, and the outbox.

-- name: pair
-- The only row.
SELECT pair_id, pair_part, oldest_program FROM deployment WHERE one_row = 1

-- name: set_pair
-- The only row.
UPDATE deployment SET pair_id = :pair_id, pair_part = :pair_part, oldest_program = :oldest_program WHERE one_row = 1

-- name: any_feed
SELECT feed_id FROM feeds LIMIT 1

-- name: any_organization
SELECT organization_id FROM organizations LIMIT 1

-- name: owners_of_feeds
-- Every feed; a row is short.
SELECT feed_id, organization_id, organization_uid FROM feeds

-- name: uids
-- Every organization; a row is short.
SELECT organization_id, uid FROM organizations

-- name: complete_uids
-- Every organization; a row is short.
UPDATE organizations SET uid = lower(hex(randomblob(16))) WHERE uid IS NULL  -- only: sqlite
UPDATE organizations SET uid = md5(CAST(gen_random_uuid() AS TEXT)) WHERE uid IS NULL  -- only: postgresql

-- name: highest_owner
-- Every feed.
SELECT MAX(organization_id) AS organization_id FROM feeds WHERE feed_id IS NOT NULL

-- name: skip_numbers
-- The next organization gets a greater number than :used. By the sequence, which knows the numbers of organizations that
-- are being created.
SELECT setval('organizations_organization_id_seq', CAST(:used AS BIGINT))  -- only: postgresql
FROM organizations_organization_id_seq s  -- only: postgresql
WHERE s.last_value - CASE WHEN s.is_called THEN 0 ELSE 1 END < CAST(:used AS BIGINT)  -- only: postgresql
SELECT 1 WHERE :used < 0  -- only: sqlite

-- name: set_owner
-- Primary key. The first one stays.
UPDATE feeds SET organization_uid = :organization_uid WHERE feed_id = :feed_id AND organization_uid IS NULL

-- name: entries
-- Every entry, the oldest first: few, since they are moved at once.
SELECT feed_id, entry_id, kind, body, added_ms FROM feed_outbox
WHERE (added_ms, entry_id) > (:after_ms, :after_entry) ORDER BY added_ms, entry_id LIMIT :most

-- name: oldest_entry
-- Every entry.
SELECT MIN(added_ms) AS added_ms FROM feed_outbox WHERE feed_id IS NOT NULL

-- name: entries_of_feed
-- Primary key.
SELECT feed_id, entry_id, kind, body, added_ms FROM feed_outbox
WHERE feed_id = :feed_id AND entry_id > :after_entry ORDER BY entry_id LIMIT :most

-- name: take_entry
-- Primary key. Of two processes that move the same entry, one inserts a row.
INSERT INTO moved_entries (entry_id, added_ms) VALUES (:entry_id, :added_ms) ON CONFLICT (entry_id) DO NOTHING

-- name: forget_entries
-- Primary key, once per entry.
DELETE FROM feed_outbox WHERE feed_id = :feed_id
  AND entry_id IN (SELECT value FROM json_each(:entry_ids))  -- only: sqlite
  AND entry_id = ANY (ARRAY(SELECT json_array_elements_text(:entry_ids)))  -- only: postgresql

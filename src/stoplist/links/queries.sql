-- Link keys: a small table. The statements of a click use primary keys.

-- name: create_link_key
INSERT INTO link_keys (link_key_id, organization_id, secret, created_ms, turned_away, unusable)
VALUES (:link_key_id, :organization_id, :secret, :created_ms, 0, 0)

-- name: link_key_and_group
-- Primary keys. All that a click must know but the feed and its records, which a Citus keeps on another node. A group of
-- another organization is none.
SELECT k.secret, k.revoked_ms, o.organization_id, o.slug, o.name, o.contact_line, o.accent_colour,
       g.group_no, g.group_id, g.name AS group_name
FROM link_keys k JOIN organizations o ON o.organization_id = k.organization_id
LEFT JOIN groups g ON g.group_id = :group_id AND g.organization_id = k.organization_id
WHERE k.link_key_id = :link_key_id

-- name: link_key
-- Primary keys.
SELECT k.link_key_id, k.secret, k.created_ms, k.retired_ms, k.revoked_ms, k.turned_away, k.unusable, k.last_unusable_ms,
       o.organization_id, o.slug AS org_slug, o.name AS org_name, o.contact_line, o.accent_colour
FROM link_keys k JOIN organizations o ON o.organization_id = k.organization_id
WHERE k.link_key_id = :link_key_id

-- name: lock_link_key
-- The row lock is taken before anything is read, so that changes to one key are made one after the other.
UPDATE link_keys SET link_key_id = link_key_id WHERE link_key_id = :link_key_id
RETURNING link_key_id

-- name: link_keys
SELECT k.link_key_id, k.secret, k.created_ms, k.retired_ms, k.revoked_ms, k.turned_away, k.unusable, k.last_unusable_ms,
       o.slug AS org_slug
FROM link_keys k JOIN organizations o ON o.organization_id = k.organization_id
WHERE CAST(:org_slug AS TEXT) IS NULL OR o.slug = :org_slug
ORDER BY o.slug, k.created_ms, k.link_key_id

-- name: retire_link_key
UPDATE link_keys SET retired_ms = :now_ms WHERE link_key_id = :link_key_id

-- name: revoke_link_key
UPDATE link_keys SET revoked_ms = :now_ms WHERE link_key_id = :link_key_id

-- name: link_key_secrets_after
-- Primary key.
SELECT link_key_id, secret FROM link_keys WHERE link_key_id > :after ORDER BY link_key_id LIMIT :max_rows

-- name: replace_link_key_secret
-- Primary key. The comparison keeps two processes from undoing each other.
UPDATE link_keys SET secret = :secret WHERE link_key_id = :link_key_id AND secret = :was

-- name: count_link_events
-- Primary key, once per key.
UPDATE link_keys SET turned_away = turned_away + :turned_away, unusable = unusable + :unusable,
    last_unusable_ms = COALESCE(:last_unusable_ms, last_unusable_ms)
WHERE link_key_id = :link_key_id

-- name: count_acts_of_link_key
-- submissions_sent_by, then reversals_by once per row: an Undo is not an act of its own.
SELECT COUNT(*) AS acts FROM submissions s
WHERE s.feed_id = :feed_id AND s.actor_id = :link_key_id AND s.received_ms >= :since_ms
  AND (SELECT MIN(r.submission_id) FROM reversals r
       WHERE r.feed_id = :feed_id AND r.reversed_by = s.submission_id) IS NULL

-- name: submissions_of_link_key
-- submissions_sent_by, then reversals_by once per row: an Undo is not an act of its own. The newest first.
SELECT s.received_ms, s.submission_id FROM submissions s
WHERE s.feed_id = :feed_id AND s.actor_id = :link_key_id AND s.received_ms >= :since_ms
  AND (s.received_ms, s.submission_id) < (:until_ms, :before_id)
  AND (SELECT MIN(r.submission_id) FROM reversals r
       WHERE r.feed_id = :feed_id AND r.reversed_by = s.submission_id) IS NULL
ORDER BY s.received_ms DESC, s.submission_id DESC LIMIT :most

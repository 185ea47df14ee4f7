-- Organizations and groups. Small tables: every statement uses a primary key or a unique index.

-- name: organization_by_slug
SELECT organization_id, slug, name, default_group_id, created_ms, closed_ms, contact_line, accent_colour FROM organizations WHERE slug = :slug

-- name: organizations
SELECT organization_id, slug, name, default_group_id, created_ms, closed_ms, contact_line, accent_colour FROM organizations ORDER BY slug

-- name: create_organization
-- The unique slug decides between two concurrent inserts. No row is returned if the slug is taken.
INSERT INTO organizations (slug, name, created_ms, uid) VALUES (:slug, :name, :created_ms, :uid)
ON CONFLICT (slug) DO NOTHING
RETURNING organization_id

-- name: uid_of_organization
SELECT uid FROM organizations WHERE organization_id = :organization_id

-- name: rename_organization
UPDATE organizations SET name = :name WHERE organization_id = :organization_id

-- name: set_link_page
UPDATE organizations SET contact_line = :contact_line, accent_colour = :accent_colour
WHERE organization_id = :organization_id

-- name: close_organization
UPDATE organizations SET closed_ms = :closed_ms WHERE organization_id = :organization_id

-- name: set_default_group
UPDATE organizations SET default_group_id = :group_id WHERE organization_id = :organization_id

-- name: unset_default_group
UPDATE organizations SET default_group_id = NULL WHERE default_group_id = :group_id

-- name: lock_organization
-- Changes to one organization are made one after the other: the row lock is taken before anything is read.
UPDATE organizations SET slug = slug WHERE slug = :slug
RETURNING organization_id, slug, name, default_group_id, created_ms, closed_ms, contact_line, accent_colour

-- name: create_group
INSERT INTO groups (group_id, organization_id, group_no, name, created_ms)
SELECT :group_id, CAST(:organization_id AS bigint), COALESCE(MAX(group_no), 0) + 1, :name, CAST(:created_ms AS bigint)
FROM groups WHERE organization_id = :organization_id
ON CONFLICT (organization_id, name) DO NOTHING
RETURNING group_id

-- name: create_lost_group
-- By its number and by its name, both unique in the organization. No row is returned if either is taken.
INSERT INTO groups (group_id, organization_id, group_no, name, created_ms)
VALUES (:group_id, :organization_id, :group_no, :name, :created_ms)
ON CONFLICT DO NOTHING
RETURNING group_id

-- name: rename_group
-- By primary key. The organization is locked, so no other group takes the name meanwhile. No row if the name is taken.
UPDATE groups SET name = :name WHERE group_id = :group_id AND NOT EXISTS (
    SELECT 1 FROM groups other WHERE other.organization_id = groups.organization_id AND other.name = :name
    AND other.group_id <> groups.group_id)
RETURNING group_id

-- name: retire_group
UPDATE groups SET retired_ms = :retired_ms WHERE group_id = :group_id

-- name: group_by_id
SELECT g.group_id, g.name, g.created_ms, g.retired_ms, o.slug AS org_slug,
       CASE WHEN o.default_group_id = g.group_id THEN 1 ELSE 0 END AS is_default
FROM groups g JOIN organizations o ON o.organization_id = g.organization_id
WHERE g.group_id = :group_id

-- name: groups_of
SELECT g.group_id, g.name, g.created_ms, g.retired_ms, o.slug AS org_slug,
       CASE WHEN o.default_group_id = g.group_id THEN 1 ELSE 0 END AS is_default
FROM groups g JOIN organizations o ON o.organization_id = g.organization_id
WHERE o.slug = :slug ORDER BY g.group_no

-- name: target_default
-- Primary keys throughout. A client that names nothing means its default organization.
SELECT o.organization_id, o.slug, o.closed_ms, d.group_id AS default_group_id, d.group_no AS default_group_no,
       d.group_id, d.organization_id AS group_organization_id, d.group_no, d.retired_ms
FROM clients c JOIN organizations o ON o.organization_id = c.default_organization_id
LEFT JOIN groups d ON d.group_id = o.default_group_id
WHERE c.client_id = :client_id

-- name: target_by_slug
-- By the unique slug, then primary keys.
SELECT o.organization_id, o.slug, o.closed_ms, d.group_id AS default_group_id, d.group_no AS default_group_no,
       g.group_id, g.organization_id AS group_organization_id, g.group_no, g.retired_ms
FROM organizations o
JOIN client_organizations co ON co.client_id = :client_id AND co.organization_id = o.organization_id
LEFT JOIN groups d ON d.group_id = o.default_group_id
LEFT JOIN groups g ON g.group_id = :group_id
WHERE o.slug = :slug

-- name: target_by_group
-- Primary keys throughout. A group alone selects its organization.
SELECT o.organization_id, o.slug, o.closed_ms, d.group_id AS default_group_id, d.group_no AS default_group_no,
       g.group_id, g.organization_id AS group_organization_id, g.group_no, g.retired_ms
FROM groups g JOIN organizations o ON o.organization_id = g.organization_id
JOIN client_organizations co ON co.client_id = :client_id AND co.organization_id = o.organization_id
LEFT JOIN groups d ON d.group_id = o.default_group_id
WHERE g.group_id = :group_id

-- name: group_numbers
SELECT group_no, group_id FROM groups WHERE organization_id = :organization_id

-- name: target_of_people
-- As target_by_slug, for actors without a key.
SELECT o.organization_id, o.slug, o.closed_ms, d.group_id AS default_group_id, d.group_no AS default_group_no,
       g.group_id, g.organization_id AS group_organization_id, g.group_no, g.retired_ms
FROM organizations o
LEFT JOIN groups d ON d.group_id = o.default_group_id
LEFT JOIN groups g ON g.group_id = :group_id
WHERE o.slug = :slug

-- name: organizations_named
-- By the unique slug, once per slug.
SELECT o.organization_id, o.slug, o.name, o.default_group_id, o.created_ms, o.closed_ms, o.contact_line, o.accent_colour
FROM json_each(:slugs) j CROSS JOIN organizations o  -- only: sqlite
FROM json_array_elements_text(:slugs) j CROSS JOIN LATERAL (SELECT o.* FROM organizations o  -- only: postgresql
WHERE o.slug = j.value
OFFSET 0) o  -- only: postgresql

-- name: groups_of_organizations
-- By the unique number in the organization, once per organization.
SELECT g.organization_id, g.group_no, g.group_id, g.name
FROM json_each(:organizations) j CROSS JOIN groups g  -- only: sqlite
FROM json_array_elements_text(:organizations) j CROSS JOIN LATERAL (SELECT g.* FROM groups g  -- only: postgresql
WHERE g.organization_id = j.value  -- only: sqlite
WHERE g.organization_id = CAST(j.value AS BIGINT)  -- only: postgresql
OFFSET 0) g  -- only: postgresql

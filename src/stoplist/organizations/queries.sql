-- Organizations and groups. Small tables: every statement is led by a primary key or a unique index.

-- name: organization_by_slug
SELECT organization_id, slug, name, default_group_id, created_ms, closed_ms FROM organizations WHERE slug = :slug

-- name: organizations
SELECT organization_id, slug, name, default_group_id, created_ms, closed_ms FROM organizations ORDER BY slug

-- name: create_organization
-- The unique slug decides between two that are made at the same time; no row says that it was taken.
INSERT INTO organizations (slug, name, created_ms) VALUES (:slug, :name, :created_ms)
ON CONFLICT (slug) DO NOTHING
RETURNING organization_id

-- name: rename_organization
UPDATE organizations SET name = :name WHERE organization_id = :organization_id

-- name: close_organization
UPDATE organizations SET closed_ms = :closed_ms WHERE organization_id = :organization_id

-- name: set_default_group
UPDATE organizations SET default_group_id = :group_id WHERE organization_id = :organization_id

-- name: unset_default_group
UPDATE organizations SET default_group_id = NULL WHERE default_group_id = :group_id

-- name: lock_organization
-- Changes to one organization go one after the other: the row lock is taken before anything is read.
UPDATE organizations SET slug = slug WHERE slug = :slug
RETURNING organization_id, slug, name, default_group_id, created_ms, closed_ms

-- name: create_group
INSERT INTO groups (group_id, organization_id, group_no, name, created_ms)
SELECT :group_id, CAST(:organization_id AS bigint), COALESCE(MAX(group_no), 0) + 1, :name, CAST(:created_ms AS bigint)
FROM groups WHERE organization_id = :organization_id
ON CONFLICT (organization_id, name) DO NOTHING
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

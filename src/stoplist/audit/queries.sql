-- Append-only: no statement here changes or deletes rows.
-- The audit is read newest first, by (at_ms, audit_id). A floor_… finds the position of the :scan-th row before
-- :before, by an index alone. The page_… between the two positions examines no more rows than that, however few match.
-- On PostgreSQL a floor_… nests one LIMIT in another, since it would otherwise sort instead of following the index (see
-- the queries.sql of the opt-outs); a page_… may sort the few rows between the two positions. For a person or an action
-- there is a row comparison in place of an equality, with which PostgreSQL might follow audit_time and read every row.
-- OFFSET 0 keeps the other filters out of the choice of the index.

-- name: append
INSERT INTO audit (at_ms, actor_kind, actor_id, source_ip, request_id, action, target, detail)
VALUES (:at_ms, :actor_kind, :actor_id, :source_ip, :request_id, :action, :target, :detail)
RETURNING audit_id

-- name: concern
-- All organizations of a row in one statement, each by its unique slug. CROSS JOIN makes SQLite begin with the list.
INSERT INTO audit_organizations (organization_id, at_ms, audit_id)
SELECT o.organization_id, CAST(:at_ms AS bigint), CAST(:audit_id AS bigint)
FROM json_each(:slugs) j CROSS JOIN organizations o WHERE o.slug = j.value  -- only: sqlite
FROM json_array_elements_text(:slugs) j CROSS JOIN LATERAL (  -- only: postgresql
    SELECT organization_id FROM organizations WHERE slug = j.value OFFSET 0) o  -- only: postgresql

-- name: place_of
-- By primary key.
SELECT at_ms FROM audit WHERE audit_id = :audit_id

-- name: concerned
-- By audit_organizations_audit, once per row of the page, then primary keys.
SELECT ao.audit_id, o.slug
FROM json_each(:audit_ids) j CROSS JOIN audit_organizations ao  -- only: sqlite
CROSS JOIN organizations o  -- only: sqlite
WHERE ao.audit_id = j.value AND o.organization_id = ao.organization_id  -- only: sqlite
FROM json_array_elements_text(:audit_ids) j CROSS JOIN LATERAL (  -- only: postgresql
    SELECT * FROM audit_organizations WHERE audit_id = CAST(j.value AS bigint) OFFSET 0) ao  -- only: postgresql
CROSS JOIN LATERAL (SELECT slug FROM organizations  -- only: postgresql
    WHERE organization_id = ao.organization_id OFFSET 0) o  -- only: postgresql
ORDER BY ao.audit_id, o.slug

-- name: numbers_of_organizations
-- By the unique slug, once per slug.
SELECT o.organization_id
FROM json_each(:slugs) j CROSS JOIN organizations o WHERE o.slug = j.value  -- only: sqlite
FROM json_array_elements_text(:slugs) j CROSS JOIN LATERAL (  -- only: postgresql
    SELECT organization_id FROM organizations WHERE slug = j.value OFFSET 0) o  -- only: postgresql
ORDER BY o.organization_id

-- name: latest_of_target
-- audit_target_time.
SELECT * FROM (  -- only: postgresql
SELECT audit_id, at_ms, actor_kind, actor_id, source_ip, request_id, action, target, detail FROM audit
WHERE target = :target ORDER BY at_ms DESC, audit_id DESC LIMIT :most
) page ORDER BY at_ms DESC, audit_id DESC LIMIT (SELECT CAST(:most AS BIGINT))  -- only: postgresql

-- fragment: floor_end
ORDER BY at_ms DESC, audit_id DESC
LIMIT 1 OFFSET :scan - 1  -- only: sqlite
LIMIT :scan) page ORDER BY at_ms DESC, audit_id DESC  -- only: postgresql
LIMIT 1 OFFSET (SELECT CAST(:scan AS BIGINT) - 1)  -- only: postgresql

-- fragment: floor_by
-- PostgreSQL keeps to the index only if its first column leads comparison and order.
SELECT at_ms, audit_id FROM (  -- only: postgresql
SELECT {column}, at_ms, audit_id FROM audit
WHERE
  {column} = :{parameter} AND (at_ms, audit_id) < (:before_ms, :before_id)  -- only: sqlite
  AND (at_ms, audit_id) >= (:floor_ms, :floor_id)  -- only: sqlite
  ({column}, at_ms, audit_id) < (:{parameter}, :before_ms, :before_id)  -- only: postgresql
  AND ({column}, at_ms, audit_id) >= (:{parameter}, :floor_ms, :floor_id)  -- only: postgresql
ORDER BY {column} DESC, at_ms DESC, audit_id DESC
LIMIT 1 OFFSET :scan - 1  -- only: sqlite
LIMIT :scan) page ORDER BY {column} DESC, at_ms DESC, audit_id DESC  -- only: postgresql
LIMIT 1 OFFSET (SELECT CAST(:scan AS BIGINT) - 1)  -- only: postgresql

-- fragment: page_by
SELECT audit_id, at_ms, actor_kind, actor_id, source_ip, request_id, action, target, detail
FROM (SELECT * FROM audit
WHERE
  {column} = :{parameter} AND (at_ms, audit_id) < (:before_ms, :before_id)  -- only: sqlite
  AND (at_ms, audit_id) >= (:floor_ms, :floor_id)  -- only: sqlite
  ({column}, at_ms, audit_id) < (:{parameter}, :before_ms, :before_id)  -- only: postgresql
  AND ({column}, at_ms, audit_id) >= (:{parameter}, :floor_ms, :floor_id)  -- only: postgresql
OFFSET 0  -- only: postgresql
) a

-- name: floor_of_all
-- audit_time alone.
SELECT at_ms, audit_id FROM (  -- only: postgresql
SELECT at_ms, audit_id FROM audit
WHERE (at_ms, audit_id) < (:before_ms, :before_id)
  AND (at_ms, audit_id) >= (:floor_ms, :floor_id)
-- include: floor_end

-- name: page_of_all
-- audit_time.
SELECT audit_id, at_ms, actor_kind, actor_id, source_ip, request_id, action, target, detail
FROM (SELECT * FROM audit
WHERE (at_ms, audit_id) < (:before_ms, :before_id)
  AND (at_ms, audit_id) >= (:floor_ms, :floor_id)
OFFSET 0  -- only: postgresql
) a
WHERE (CAST(:person AS text) IS NULL OR actor_id = :person)
  AND (CAST(:action AS text) IS NULL OR action = :action)
  AND (CAST(:target AS text) IS NULL OR target = :target)
ORDER BY at_ms DESC, audit_id DESC LIMIT :most

-- name: floor_of_target
-- audit_target_time alone.
SELECT at_ms, audit_id FROM (  -- only: postgresql
SELECT at_ms, audit_id FROM audit
WHERE target = :target AND (at_ms, audit_id) < (:before_ms, :before_id)
  AND (at_ms, audit_id) >= (:floor_ms, :floor_id)
-- include: floor_end

-- name: page_of_target
-- audit_target_time; audit_organizations_audit for an actor who may read only the entries of :mine.
SELECT audit_id, at_ms, actor_kind, actor_id, source_ip, request_id, action, target, detail
FROM (SELECT * FROM audit
WHERE target = :target AND (at_ms, audit_id) < (:before_ms, :before_id)
  AND (at_ms, audit_id) >= (:floor_ms, :floor_id)
OFFSET 0  -- only: postgresql
) a
WHERE (CAST(:person AS text) IS NULL OR actor_id = :person)
  AND (CAST(:action AS text) IS NULL OR action = :action)
  AND (CAST(:sees_all AS integer) = 1 OR (
    EXISTS (SELECT 1 FROM audit_organizations ao WHERE ao.audit_id = a.audit_id)
    AND NOT EXISTS (SELECT 1 FROM audit_organizations ao WHERE ao.audit_id = a.audit_id AND ao.organization_id NOT IN (
        SELECT value FROM json_each(:mine)  -- only: sqlite
        SELECT CAST(value AS bigint) FROM json_array_elements_text(CAST(:mine AS json))  -- only: postgresql
    ))))
ORDER BY at_ms DESC, audit_id DESC LIMIT :most

-- name: floor_of_person
-- audit_actor alone.
-- include: floor_by column=actor_id parameter=person

-- name: page_of_person
-- audit_actor.
-- include: page_by column=actor_id parameter=person
WHERE (CAST(:action AS text) IS NULL OR action = :action)
ORDER BY at_ms DESC, audit_id DESC LIMIT :most

-- name: floor_of_action
-- audit_action alone.
-- include: floor_by column=action parameter=action

-- name: page_of_action
-- audit_action.
-- include: page_by column=action parameter=action
ORDER BY at_ms DESC, audit_id DESC LIMIT :most

-- name: floor_of_organization
-- The primary key of audit_organizations alone.
SELECT at_ms, audit_id FROM (  -- only: postgresql
SELECT at_ms, audit_id FROM audit_organizations
WHERE organization_id = :organization_id AND (at_ms, audit_id) < (:before_ms, :before_id)
  AND (at_ms, audit_id) >= (:floor_ms, :floor_id)
-- include: floor_end

-- name: page_of_organization
-- The primary keys of audit_organizations and audit, then audit_organizations_audit, to leave out entries that also
-- concern other organizations than :mine.
SELECT a.audit_id, a.at_ms, a.actor_kind, a.actor_id, a.source_ip, a.request_id, a.action, a.target, a.detail
FROM audit_organizations mine CROSS JOIN audit a  -- only: sqlite
FROM audit_organizations mine CROSS JOIN LATERAL (  -- only: postgresql
    SELECT * FROM audit WHERE audit_id = mine.audit_id OFFSET 0) a  -- only: postgresql
WHERE mine.organization_id = :organization_id AND a.audit_id = mine.audit_id
  AND (mine.at_ms, mine.audit_id) < (:before_ms, :before_id)
  AND (mine.at_ms, mine.audit_id) >= (:floor_ms, :floor_id)
  AND (CAST(:person AS text) IS NULL OR a.actor_id = :person)
  AND (CAST(:action AS text) IS NULL OR a.action = :action)
  AND NOT EXISTS (SELECT 1 FROM audit_organizations ao WHERE ao.audit_id = a.audit_id AND ao.organization_id NOT IN (
    SELECT value FROM json_each(:mine)  -- only: sqlite
    SELECT CAST(value AS bigint) FROM json_array_elements_text(:mine)  -- only: postgresql
  ))
ORDER BY mine.at_ms DESC, mine.audit_id DESC LIMIT :most

-- Credentials and token pairs.

-- name: find_client
-- Primary key.
SELECT client_id, secret_hash, epoch, is_active, token_per_minute FROM clients WHERE client_id = :client_id

-- name: find_access_token
-- token_pairs_access, then primary keys: the whole bearer check in one statement, and what a request means that names no
-- organization.
SELECT p.client_id, p.access_expires_ms, p.epoch, c.epoch AS current_epoch, c.is_active, c.permissions, c.api_per_minute,
       o.organization_id, o.slug, o.closed_ms, d.group_no, d.group_id
FROM token_pairs p JOIN clients c ON c.client_id = p.client_id
LEFT JOIN organizations o ON o.organization_id = c.default_organization_id
LEFT JOIN groups d ON d.group_id = o.default_group_id
WHERE p.access_hash = :access_hash

-- name: find_refresh_token
-- token_pairs_refresh, the primary key of clients, token_pairs_rotated_from.
SELECT p.client_id, p.refresh_expires_ms, p.chain_started_ms, p.epoch, c.epoch AS current_epoch, c.is_active,
       c.token_per_minute, c.refresh_needs_secret,
       CASE WHEN EXISTS (SELECT 1 FROM token_pairs s WHERE s.rotated_from = p.pair_id) THEN 1 ELSE 0 END AS is_rotated
FROM token_pairs p JOIN clients c ON c.client_id = p.client_id
WHERE p.refresh_hash = :refresh_hash

-- name: issue_pair
-- Only while the client is as it was when it proved itself. A deactivation that commits in between leaves a pair of
-- the old epoch, which is dead from the start.
INSERT INTO token_pairs (client_id, epoch, access_hash, refresh_hash, chain_started_ms, access_expires_ms, refresh_expires_ms)
SELECT c.client_id, c.epoch, CAST(:access_hash AS bytea), CAST(:refresh_hash AS bytea),  -- only: postgresql
       CAST(:chain_started_ms AS bigint), CAST(:access_expires_ms AS bigint),  -- only: postgresql
       CAST(:refresh_expires_ms AS bigint)  -- only: postgresql
SELECT c.client_id, c.epoch, :access_hash, :refresh_hash, :chain_started_ms, :access_expires_ms,  -- only: sqlite
       :refresh_expires_ms  -- only: sqlite
FROM clients c WHERE c.client_id = :client_id AND c.epoch = :epoch AND c.is_active = 1
RETURNING pair_id

-- name: rotate_pair
-- One statement consumes the presented token and stores its successors. token_pairs_rotated_from is the
-- compare-and-set: of any number of concurrent rotations one inserts, and the others wait for it and then conflict. The
-- pair inherits the presented token's epoch, so that a revocation that commits in between leaves it dead. The start of
-- its chain was read before: rows never change.
INSERT INTO token_pairs (client_id, epoch, access_hash, refresh_hash, rotated_from, chain_started_ms, access_expires_ms,
                         refresh_expires_ms)
SELECT p.client_id, p.epoch, CAST(:access_hash AS bytea), CAST(:refresh_hash AS bytea), p.pair_id,  -- only: postgresql
       CAST(:chain_started_ms AS bigint), CAST(:access_expires_ms AS bigint),  -- only: postgresql
       CAST(:refresh_expires_ms AS bigint)  -- only: postgresql
SELECT p.client_id, p.epoch, :access_hash, :refresh_hash, p.pair_id, :chain_started_ms, :access_expires_ms,  -- only: sqlite
       :refresh_expires_ms  -- only: sqlite
FROM token_pairs p JOIN clients c ON c.client_id = p.client_id AND c.epoch = p.epoch AND c.is_active = 1
    AND c.refresh_needs_secret <= :has_secret
WHERE p.refresh_hash = :presented_hash AND p.refresh_expires_ms > :now_ms
ON CONFLICT (rotated_from) WHERE rotated_from IS NOT NULL DO NOTHING
RETURNING client_id

-- name: revoke_if_epoch
-- The reuse alarm: a compare-and-set, so that any number of losers bump the epoch once.
UPDATE clients SET epoch = epoch + 1 WHERE client_id = :client_id AND epoch = :epoch
RETURNING epoch

-- name: may_delete_expired
-- One process at a time, and no process waits for another; the lock ends with the transaction. SQLite has one process.
-- The number is "STOQ", next to that of the migrations.
SELECT CASE WHEN pg_try_advisory_xact_lock(1398034257) THEN 1 ELSE 0 END AS may  -- only: postgresql
SELECT 1 AS may  -- only: sqlite

-- name: delete_expired_pairs
-- The oldest rows by primary key, one batch at a time; a row is kept until its refresh token expires. If a clock was
-- set back, the token that it was rotated from may expire later: the row is then kept, because it proves that use.
DELETE FROM token_pairs WHERE pair_id IN (
    SELECT pair_id
    FROM (SELECT pair_id, rotated_from, refresh_expires_ms FROM token_pairs ORDER BY pair_id LIMIT :most) oldest
    WHERE refresh_expires_ms <= :now_ms AND COALESCE(
        (SELECT used.refresh_expires_ms FROM token_pairs used WHERE used.pair_id = oldest.rotated_from), 0) <= :now_ms
)

-- name: create_client
-- The primary key decides if one form is submitted twice at the same time; no row: it was created already.
INSERT INTO clients (client_id, label, secret_hash, secret_prefix, epoch, is_active, default_organization_id,
                     permissions, token_per_minute, api_per_minute, refresh_needs_secret, created_ms)
VALUES (:client_id, :label, :secret_hash, :secret_prefix, 1, 1,
        (SELECT organization_id FROM organizations WHERE slug = :default_organization), :permissions,
        :token_per_minute, :api_per_minute, :refresh_needs_secret, :created_ms)
ON CONFLICT (client_id) DO NOTHING
RETURNING client_id

-- name: replace_client
-- Like create_client, with the rights of the client that is replaced, save the ceilings.
INSERT INTO clients (client_id, label, secret_hash, secret_prefix, epoch, is_active, default_organization_id,
                     permissions, token_per_minute, api_per_minute, refresh_needs_secret, created_ms)
SELECT CAST(:new_client_id AS text), CAST(:label AS text), CAST(:secret_hash AS bytea),  -- only: postgresql
       CAST(:secret_prefix AS text), 1, 1,  -- only: postgresql
SELECT :new_client_id, :label, :secret_hash, :secret_prefix, 1, 1,  -- only: sqlite
       c.default_organization_id, c.permissions, CAST(:token_per_minute AS integer), CAST(:api_per_minute AS integer),
       c.refresh_needs_secret, CAST(:created_ms AS bigint)
FROM clients c WHERE c.client_id = :client_id
ON CONFLICT (client_id) DO NOTHING
RETURNING client_id

-- name: replace_client_organizations
INSERT INTO client_organizations (client_id, organization_id)
SELECT CAST(:new_client_id AS text), organization_id FROM client_organizations WHERE client_id = :client_id

-- name: add_client_organization
INSERT INTO client_organizations (client_id, organization_id)
SELECT c.client_id, o.organization_id FROM clients c, organizations o WHERE c.client_id = :client_id AND o.slug = :slug

-- name: remove_client_organizations
DELETE FROM client_organizations WHERE client_id = :client_id

-- name: credentials
SELECT c.client_id, c.label, c.secret_prefix, c.is_active, c.permissions, c.token_per_minute, c.api_per_minute,
       c.refresh_needs_secret, c.created_ms, d.slug AS default_organization,
       (SELECT MAX(u.last_used_ms) FROM client_days u WHERE u.client_id = c.client_id) AS last_used_ms
FROM clients c JOIN organizations d ON d.organization_id = c.default_organization_id
ORDER BY c.created_ms, c.client_id

-- name: some_credentials
-- Primary key of clients, once per key.
SELECT c.client_id, c.label, c.secret_prefix, c.is_active, c.permissions, c.token_per_minute, c.api_per_minute,
       c.refresh_needs_secret, c.created_ms, d.slug AS default_organization,
       (SELECT MAX(u.last_used_ms) FROM client_days u WHERE u.client_id = c.client_id) AS last_used_ms
FROM clients c JOIN organizations d ON d.organization_id = c.default_organization_id
WHERE c.client_id IN (SELECT value FROM json_each(:clients))  -- only: sqlite
WHERE c.client_id = ANY (ARRAY(SELECT value FROM json_array_elements_text(:clients)))  -- only: postgresql
ORDER BY c.created_ms, c.client_id

-- name: credential
SELECT c.client_id, c.label, c.secret_prefix, c.is_active, c.permissions, c.token_per_minute, c.api_per_minute,
       c.refresh_needs_secret, c.created_ms, d.slug AS default_organization,
       (SELECT MAX(u.last_used_ms) FROM client_days u WHERE u.client_id = c.client_id) AS last_used_ms
FROM clients c JOIN organizations d ON d.organization_id = c.default_organization_id
WHERE c.client_id = :client_id

-- name: organizations_of_clients
SELECT co.client_id, o.slug FROM client_organizations co
JOIN organizations o ON o.organization_id = co.organization_id ORDER BY co.client_id, o.slug

-- name: organizations_of_some_clients
-- Primary key of client_organizations, once per key.
SELECT co.client_id, o.slug FROM client_organizations co
JOIN organizations o ON o.organization_id = co.organization_id
WHERE co.client_id IN (SELECT value FROM json_each(:clients))  -- only: sqlite
WHERE co.client_id = ANY (ARRAY(SELECT value FROM json_array_elements_text(:clients)))  -- only: postgresql
ORDER BY co.client_id, o.slug

-- name: organizations_of_client
SELECT o.slug FROM client_organizations co JOIN organizations o ON o.organization_id = co.organization_id
WHERE co.client_id = :client_id ORDER BY o.slug

-- name: lock_client
-- Serialises changes to one credential: the row lock is taken before anything is read.
UPDATE clients SET client_id = client_id WHERE client_id = :client_id RETURNING is_active

-- name: deactivate_client
-- Inactive and every token revoked in the same statement.
UPDATE clients SET is_active = 0, epoch = epoch + 1 WHERE client_id = :client_id

-- name: activate_client
UPDATE clients SET is_active = 1 WHERE client_id = :client_id

-- name: revoke_tokens
UPDATE clients SET epoch = epoch + 1 WHERE client_id = :client_id

-- name: revoke_everything
-- After a restore: tokens revoked since the backup would live again.
UPDATE clients SET epoch = epoch + 1

-- name: replace_secret
-- The new secret and every token revoked in the same statement.
UPDATE clients SET secret_hash = :secret_hash, secret_prefix = :secret_prefix, epoch = epoch + 1
WHERE client_id = :client_id

-- name: set_ceilings
UPDATE clients SET token_per_minute = :token_per_minute, api_per_minute = :api_per_minute WHERE client_id = :client_id

-- name: ceilings
SELECT token_per_minute, api_per_minute FROM clients WHERE client_id = :client_id

-- name: update_client
UPDATE clients SET label = :label, permissions = :permissions, refresh_needs_secret = :refresh_needs_secret,
    default_organization_id = (SELECT organization_id FROM organizations WHERE slug = :default_organization)
WHERE client_id = :client_id

-- name: add_use
-- Primary key. The later use wins, because a server that could not write for a while brings older ones.
INSERT INTO client_days (client_id, day, requests, limit_refusals, failed_authentications, last_used_ms)
VALUES (:client_id, :day, :requests, :limit_refusals, :failed_authentications, :last_used_ms)
ON CONFLICT (client_id, day) DO UPDATE SET
    requests = client_days.requests + excluded.requests,
    limit_refusals = client_days.limit_refusals + excluded.limit_refusals,
    failed_authentications = client_days.failed_authentications + excluded.failed_authentications,
    last_used_ms = CASE WHEN client_days.last_used_ms > excluded.last_used_ms THEN client_days.last_used_ms
                        ELSE COALESCE(excluded.last_used_ms, client_days.last_used_ms) END

-- name: add_refusal
INSERT INTO client_refusals (client_id, at_ms, request_id, code) VALUES (:client_id, :at_ms, :request_id, :code)
ON CONFLICT (client_id, at_ms, request_id) DO NOTHING

-- name: forget_refusals
-- All but the last :keep of each code of the client, by the primary key.
DELETE FROM client_refusals WHERE client_id = :client_id AND (at_ms, request_id) IN (
    SELECT at_ms, request_id FROM (
        SELECT at_ms, request_id, ROW_NUMBER() OVER (PARTITION BY code ORDER BY at_ms DESC, request_id DESC) AS place
        FROM client_refusals WHERE client_id = :client_id
    ) newest_first WHERE place > :keep
)

-- name: use_by_day
SELECT day, requests, limit_refusals, failed_authentications FROM client_days
WHERE client_id = :client_id AND day >= :since_day ORDER BY day

-- name: refusals
SELECT at_ms, request_id, code FROM client_refusals WHERE client_id = :client_id ORDER BY at_ms DESC, request_id DESC

-- name: alarms
-- audit_action, no further back than :since_ms, and never more than the last :most of all keys.
SELECT target AS client_id, MAX(at_ms) AS at_ms FROM (
    SELECT target, at_ms FROM audit WHERE action = 'client.reuse_alarm' AND at_ms >= :since_ms
    ORDER BY at_ms DESC, audit_id DESC LIMIT :most
) latest GROUP BY target ORDER BY MAX(at_ms) DESC, target

-- name: key_alerts
-- The primary keys of client_days and client_organizations, once per key: only a few days of each.
SELECT client_id, label, is_active, limit_refusals, failed_authentications FROM (
    SELECT c.client_id, c.label, c.is_active,
           CASE WHEN c.client_id IN (SELECT value FROM json_each(:alarmed)) THEN 0 ELSE 1 END AS rank_of_alarm,  -- only: sqlite
           CASE WHEN c.client_id IN (SELECT value FROM json_array_elements_text(:alarmed)) THEN 0 ELSE 1 END AS rank_of_alarm,  -- only: postgresql
           CAST(COALESCE((SELECT SUM(d.limit_refusals) FROM client_days d
                          WHERE d.client_id = c.client_id AND d.day >= :since_day), 0) AS bigint) AS limit_refusals,
           CAST(COALESCE((SELECT SUM(d.failed_authentications) FROM client_days d
                          WHERE d.client_id = c.client_id AND d.day >= :since_day), 0) AS bigint) AS failed_authentications
    FROM clients c
    WHERE CAST(:sees_all AS integer) = 1 OR EXISTS (
        SELECT 1 FROM client_organizations co JOIN organizations o ON o.organization_id = co.organization_id
        WHERE co.client_id = c.client_id
          AND o.slug IN (SELECT value FROM json_each(:slugs))  -- only: sqlite
          AND o.slug IN (SELECT value FROM json_array_elements_text(:slugs))  -- only: postgresql
    )
) seen
WHERE rank_of_alarm = 0 OR limit_refusals + failed_authentications > 0
ORDER BY rank_of_alarm, limit_refusals + failed_authentications DESC, client_id LIMIT :most

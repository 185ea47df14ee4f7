-- The people who use the pages. The tables have a few hundred rows, except for the attempts. Every statement that a
-- page waits for uses a primary key, a unique index or an index of 0005_people.sql.

-- name: create_person
-- The unique address decides between two concurrent inserts. No row is returned if the address is taken.
INSERT INTO people (email, is_administrator, is_disabled, created_ms)
VALUES (:email, :is_administrator, 0, :created_ms)
ON CONFLICT (email) DO NOTHING
RETURNING person_id

-- name: account
-- By the unique address.
SELECT person_id, email, is_disabled, password_hash, let_in_by, totp_secret, totp_step FROM people WHERE email = :email

-- name: lock_account
-- Changes to one person are made one after the other: the row lock is taken before anything else is read.
UPDATE people SET email = email WHERE email = :email
RETURNING person_id, email, is_disabled, password_hash, let_in_by, totp_secret, totp_step

-- name: lock_account_of_link
-- Locks the person first, then the link, as all statements do, so that two concurrent uses cannot deadlock.
UPDATE people SET email = email
WHERE person_id = (SELECT person_id FROM sign_in_links WHERE link_hash = :link_hash AND expires_ms > :now_ms)
RETURNING person_id, email, is_disabled, password_hash, let_in_by, totp_secret, totp_step

-- name: lock_administrators
-- If two administrators take each other's right away at the same time, the second waits here.
UPDATE people SET email = email WHERE is_administrator = 1 AND is_disabled = 0
RETURNING email

-- name: person
-- One row per role, or one row without an organization if the person has no role.
SELECT p.email, p.is_administrator, p.is_disabled, p.created_ms, p.last_sign_in_ms,
       CASE WHEN p.password_hash IS NULL THEN 0 ELSE 1 END AS has_password,
       CASE WHEN p.totp_secret IS NULL THEN 0 ELSE 1 END AS has_two_step, o.slug, r.role
FROM people p LEFT JOIN person_organizations r ON r.person_id = p.person_id
LEFT JOIN organizations o ON o.organization_id = r.organization_id
WHERE p.email = :email ORDER BY o.slug

-- name: people
-- As `person`, for all people.
SELECT p.email, p.is_administrator, p.is_disabled, p.created_ms, p.last_sign_in_ms,
       CASE WHEN p.password_hash IS NULL THEN 0 ELSE 1 END AS has_password,
       CASE WHEN p.totp_secret IS NULL THEN 0 ELSE 1 END AS has_two_step, o.slug, r.role
FROM people p LEFT JOIN person_organizations r ON r.person_id = p.person_id
LEFT JOIN organizations o ON o.organization_id = r.organization_id
ORDER BY p.email, o.slug

-- name: people_of
-- As `person`, for the people with a role in one organization, by the index on the organization.
SELECT p.email, p.is_administrator, p.is_disabled, p.created_ms, p.last_sign_in_ms,
       CASE WHEN p.password_hash IS NULL THEN 0 ELSE 1 END AS has_password,
       CASE WHEN p.totp_secret IS NULL THEN 0 ELSE 1 END AS has_two_step, o.slug, r.role
FROM person_organizations here JOIN people p ON p.person_id = here.person_id
JOIN person_organizations r ON r.person_id = p.person_id
JOIN organizations o ON o.organization_id = r.organization_id
WHERE here.organization_id = :organization_id ORDER BY p.email, o.slug

-- name: person_of_link
-- As `person`, for the person of a link, by the primary key of the link.
SELECT p.email, p.is_administrator, p.is_disabled, p.created_ms, p.last_sign_in_ms,
       CASE WHEN p.password_hash IS NULL THEN 0 ELSE 1 END AS has_password,
       CASE WHEN p.totp_secret IS NULL THEN 0 ELSE 1 END AS has_two_step, o.slug, r.role
FROM sign_in_links l JOIN people p ON p.person_id = l.person_id
LEFT JOIN person_organizations r ON r.person_id = p.person_id
LEFT JOIN organizations o ON o.organization_id = r.organization_id
WHERE l.link_hash = :link_hash AND l.expires_ms > :now_ms AND p.is_disabled = 0 ORDER BY o.slug

-- name: put_role
INSERT INTO person_organizations (person_id, organization_id, role) VALUES (:person_id, :organization_id, :role)
ON CONFLICT (person_id, organization_id) DO UPDATE SET role = excluded.role

-- name: remove_role
DELETE FROM person_organizations WHERE person_id = :person_id AND organization_id = :organization_id

-- name: set_administrator
UPDATE people SET is_administrator = :is_administrator WHERE person_id = :person_id

-- name: set_disabled
UPDATE people SET is_disabled = :is_disabled WHERE person_id = :person_id

-- name: set_password
UPDATE people SET password_hash = :password_hash WHERE person_id = :person_id

-- name: set_let_in_by
UPDATE people SET let_in_by = :let_in_by WHERE person_id = :person_id

-- name: rehash_password
-- Compare-and-set: does not overwrite a password that was changed meanwhile.
UPDATE people SET password_hash = :password_hash WHERE person_id = :person_id AND password_hash = :was

-- name: set_two_step
UPDATE people SET totp_secret = :totp_secret, totp_step = :totp_step WHERE person_id = :person_id

-- name: use_totp_step
-- Compare-and-set: of two concurrent uses of the same code, only one moves the step.
UPDATE people SET totp_step = :totp_step
WHERE person_id = :person_id AND totp_secret IS NOT NULL AND totp_step < :totp_step

-- name: totp_secrets_after
-- The next people with two-step sign-in, by the primary key.
SELECT person_id, email, totp_secret FROM people
WHERE totp_secret IS NOT NULL AND person_id > :after ORDER BY person_id LIMIT :max_rows

-- name: replace_totp_secret
-- Compare-and-set: does not bring back a secret that was changed or removed meanwhile.
UPDATE people SET totp_secret = :totp_secret WHERE person_id = :person_id AND totp_secret = :was

-- name: note_sign_in
UPDATE people SET last_sign_in_ms = :now_ms WHERE person_id = :person_id

-- name: add_recovery_code
INSERT INTO recovery_codes (person_id, code_hash) VALUES (:person_id, :code_hash)

-- name: use_recovery_code
-- A code is good once: using it deletes its row.
DELETE FROM recovery_codes WHERE person_id = :person_id AND code_hash = :code_hash

-- name: delete_recovery_codes
DELETE FROM recovery_codes WHERE person_id = :person_id

-- name: add_link
INSERT INTO sign_in_links (link_hash, person_id, made_by, without_two_step, expires_ms)
VALUES (:link_hash, :person_id, :made_by, :without_two_step, :expires_ms)

-- name: use_link
-- A link is good once: of two concurrent uses, only one deletes the row.
DELETE FROM sign_in_links WHERE link_hash = :link_hash AND person_id = :person_id
RETURNING made_by, without_two_step

-- name: delete_links
DELETE FROM sign_in_links WHERE person_id = :person_id

-- name: delete_links_of_others
-- Deletes the links that other organization admins made; those of administrators have `made_by = ''`.
DELETE FROM sign_in_links WHERE person_id = :person_id AND made_by <> '' AND made_by <> :made_by

-- name: put_invitation
-- The primary key decides: a new invitation replaces an earlier one of the same address, and its link.
INSERT INTO invitations (organization_id, email, role, link_hash, invited_by, created_ms)
VALUES (:organization_id, :email, :role, :link_hash, :invited_by, :created_ms)
ON CONFLICT (organization_id, email) DO UPDATE
SET role = excluded.role, link_hash = excluded.link_hash, invited_by = excluded.invited_by,
    created_ms = excluded.created_ms

-- name: has_role
SELECT r.role FROM people p JOIN person_organizations r ON r.person_id = p.person_id
WHERE p.email = :email AND r.organization_id = :organization_id

-- name: delete_invitation
-- Of two concurrent answers, only one deletes the row.
DELETE FROM invitations WHERE organization_id = :organization_id AND email = :email AND created_ms > :since_ms
RETURNING email, role, invited_by, created_ms

-- name: delete_invitation_of_link
-- By the unique link_hash. A newer invitation has another one.
DELETE FROM invitations WHERE link_hash = :link_hash AND created_ms > :since_ms
RETURNING email, role, invited_by, created_ms

-- fragment: invitations_with_organization
SELECT o.slug, o.name, i.email, i.role, i.invited_by, i.created_ms
FROM invitations i JOIN organizations o ON o.organization_id = i.organization_id

-- name: invitation_of_link
-- By the unique link_hash.
-- include: invitations_with_organization
WHERE i.link_hash = :link_hash AND i.created_ms > :since_ms

-- name: invitations_of_organization
-- By the primary key.
-- include: invitations_with_organization
WHERE i.organization_id = :organization_id AND i.created_ms > :since_ms ORDER BY i.email

-- name: invitations_for_person
-- By invitations_email.
-- include: invitations_with_organization
WHERE i.email = :email AND i.created_ms > :since_ms ORDER BY o.slug

-- name: delete_every_invitation
DELETE FROM invitations

-- name: delete_expired_invitations
-- A scan of a small table: the invitations of a week.
DELETE FROM invitations WHERE link_hash IN
    (SELECT link_hash FROM invitations WHERE created_ms <= :since_ms LIMIT :max_rows)

-- name: add_ticket
INSERT INTO sign_in_tickets (ticket_hash, person_id, expires_ms) VALUES (:ticket_hash, :person_id, :expires_ms)

-- name: account_of_ticket
-- By the primary key of the ticket.
SELECT p.person_id, p.email, p.is_disabled, p.password_hash, p.let_in_by, p.totp_secret, p.totp_step
FROM sign_in_tickets t JOIN people p ON p.person_id = t.person_id
WHERE t.ticket_hash = :ticket_hash AND t.expires_ms > :now_ms

-- name: use_ticket
DELETE FROM sign_in_tickets WHERE ticket_hash = :ticket_hash

-- name: delete_tickets
-- By the index on the person.
DELETE FROM sign_in_tickets WHERE person_id = :person_id

-- name: add_session
INSERT INTO sessions (session_hash, session_id, person_id, created_ms, seen_ms, source_ip, user_agent)
VALUES (:session_hash, :session_id, :person_id, :now_ms, :now_ms, :source_ip, :user_agent)

-- name: find_session
-- Session, person and roles in one statement, by primary keys. Nothing is cached between requests.
SELECT s.session_id, s.seen_ms, p.email, p.is_administrator, p.is_disabled, p.created_ms, p.last_sign_in_ms,
       CASE WHEN p.password_hash IS NULL THEN 0 ELSE 1 END AS has_password,
       CASE WHEN p.totp_secret IS NULL THEN 0 ELSE 1 END AS has_two_step, o.slug, r.role
FROM sessions s JOIN people p ON p.person_id = s.person_id
LEFT JOIN person_organizations r ON r.person_id = p.person_id
LEFT JOIN organizations o ON o.organization_id = r.organization_id
WHERE s.session_hash = :session_hash AND s.seen_ms > :idle_since_ms AND s.created_ms > :old_since_ms
  AND p.is_disabled = 0
ORDER BY o.slug

-- name: touch_session
UPDATE sessions SET seen_ms = :now_ms WHERE session_hash = :session_hash AND seen_ms < :now_ms

-- name: sessions_of
-- By the unique address, then by the index on the person.
SELECT s.session_id, s.created_ms, s.seen_ms, s.source_ip, s.user_agent
FROM people p JOIN sessions s ON s.person_id = p.person_id
WHERE p.email = :email AND s.seen_ms > :idle_since_ms AND s.created_ms > :old_since_ms
ORDER BY s.seen_ms DESC, s.session_id

-- name: owner_of_session
-- By the unique session_id.
SELECT p.email FROM sessions s JOIN people p ON p.person_id = s.person_id WHERE s.session_id = :session_id

-- name: end_session
DELETE FROM sessions WHERE session_id = :session_id

-- name: end_sessions_but
-- By the index on the person. No session has the id ''.
DELETE FROM sessions WHERE person_id = :person_id AND session_id <> :session_id

-- name: sign_out
DELETE FROM sessions WHERE session_hash = :session_hash

-- name: lock_source
-- Attempts of one source are counted one after the other, so that all processes together allow no more attempts than
-- one process would. The lock ends with the transaction. SQLite runs one write transaction at a time anyway.
SELECT pg_advisory_xact_lock(CAST(:lock AS bigint)), 1 AS is_locked  -- only: postgresql
SELECT 1 AS is_locked WHERE :lock IS NOT NULL  -- only: sqlite

-- name: recent_attempts
-- The newest attempts of a source, by sign_in_attempts_source; no more than it takes to lock the source.
SELECT account_hash, at_ms FROM sign_in_attempts WHERE source = :source AND at_ms > :since_ms
ORDER BY at_ms DESC LIMIT :most

-- name: add_attempt
INSERT INTO sign_in_attempts (attempt_id, source, account_hash, at_ms)
VALUES (:attempt_id, :source, :account_hash, :at_ms)

-- name: settle_attempt
UPDATE sign_in_attempts SET at_ms = :at_ms WHERE attempt_id = :attempt_id

-- name: forget_attempt
DELETE FROM sign_in_attempts WHERE attempt_id = :attempt_id

-- name: may_delete_ended
-- Only one process deletes at a time, as for expired tokens. The number is "STOR".
SELECT CASE WHEN pg_try_advisory_xact_lock(1398034258) THEN 1 ELSE 0 END AS may  -- only: postgresql
SELECT 1 AS may  -- only: sqlite

-- name: delete_every_link
DELETE FROM sign_in_links

-- name: delete_every_ticket
DELETE FROM sign_in_tickets

-- name: end_every_session
DELETE FROM sessions

-- name: delete_expired_links
-- A scan of a small table: at most one row per person, except for links made within a day.
DELETE FROM sign_in_links WHERE link_hash IN
    (SELECT link_hash FROM sign_in_links WHERE expires_ms <= :now_ms LIMIT :max_rows)

-- name: delete_expired_tickets
-- A scan of a small table: the tickets of the last minutes.
DELETE FROM sign_in_tickets WHERE ticket_hash IN
    (SELECT ticket_hash FROM sign_in_tickets WHERE expires_ms <= :now_ms LIMIT :max_rows)

-- name: delete_ended_sessions
-- A scan of a small table: the sessions of a week.
DELETE FROM sessions WHERE session_hash IN (
    SELECT session_hash FROM sessions WHERE seen_ms <= :idle_since_ms OR created_ms <= :old_since_ms LIMIT :max_rows
)

-- name: delete_old_attempts
-- By sign_in_attempts_time, up to the last row of the batch and all rows of the same millisecond. Without statistics
-- PostgreSQL would scan the whole table for rows chosen by key, or for rows with only an upper bound, but not for a
-- range with two bounds.
DELETE FROM sign_in_attempts WHERE at_ms > 0 AND at_ms <= :since_ms AND at_ms <= COALESCE(
    (SELECT at_ms FROM sign_in_attempts WHERE at_ms > 0 ORDER BY at_ms LIMIT 1 OFFSET :before_last), :since_ms)

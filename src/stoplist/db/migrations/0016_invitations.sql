-- oldest program: 0.1.0
-- Roles that admins of organizations offer, by address: no row says whether the address has an account.
-- link_hash: SHA-256 of the link's token, 32 bytes. invited_by: the e-mail address of the admin.

CREATE TABLE invitations (
    organization_id BIGINT NOT NULL REFERENCES organizations (organization_id),
    email TEXT NOT NULL,
    role TEXT NOT NULL,
    link_hash BYTEA NOT NULL UNIQUE,
    invited_by TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    PRIMARY KEY (organization_id, email)
);
CREATE INDEX invitations_email ON invitations (email);

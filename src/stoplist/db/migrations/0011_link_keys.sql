-- oldest program: 0.1.0
-- Link keys, with which an organization's senders make opt-out links (docs/interface.md section D15), and what the page
-- behind a link shows of the organization.

-- secret: the link key, encrypted under the secret key of the deployment (src/stoplist/encryption.py); `lost`: given up, because
-- no key could read it. turned_away: people whose link was answered 410. unusable: links without an acceptable address.
CREATE TABLE link_keys (
    link_key_id TEXT NOT NULL PRIMARY KEY,
    organization_id BIGINT NOT NULL REFERENCES organizations (organization_id),
    secret TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    retired_ms BIGINT,
    revoked_ms BIGINT,
    turned_away BIGINT NOT NULL,
    unusable BIGINT NOT NULL,
    last_unusable_ms BIGINT
);
CREATE INDEX link_keys_organization ON link_keys (organization_id);

-- contact_line: how people reach the organization. accent_colour: `#` and six lower-case hexadecimal digits.
ALTER TABLE organizations ADD COLUMN contact_line TEXT;
ALTER TABLE organizations ADD COLUMN accent_colour TEXT;

-- oldest program: 0.1.0
-- Tickets between the two steps of signing in: random values, of which only the SHA-256 is stored (32 bytes), so that
-- nobody can make one from a copy of the database and the secret key.
-- people.totp_secret holds an encrypted secret (src/stoplist/encryption.py) from now on. The start of a server encrypts
-- those that an older program stored as base32. `lost`: a secret that no key could read; two-step sign-in stays on.

CREATE TABLE sign_in_tickets (
    ticket_hash BYTEA NOT NULL PRIMARY KEY,
    person_id BIGINT NOT NULL REFERENCES people (person_id),
    expires_ms BIGINT NOT NULL
);
CREATE INDEX sign_in_tickets_person ON sign_in_tickets (person_id);

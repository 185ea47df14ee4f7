"""What a credential and a token pair are. Source: docs/interface.md sections 2.1, 2.2 and D2."""

import msgspec

READ, UNSUBSCRIBE, RESUBSCRIBE = "read", "unsubscribe", "resubscribe"
PERMISSIONS = (READ, UNSUBSCRIBE, RESUBSCRIBE)
NEW_KEY_PERMISSIONS = frozenset((READ, UNSUBSCRIBE))

ACCESS_TTL_S = 900
REFRESH_TTL_S = 2_592_000
TOKEN_PER_MINUTE = 10
API_PER_MINUTE = 60
MOST_PER_MINUTE = 1_000_000_000


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """An API credential as people see it; the secret is never kept, only its prefix and hash.

    `organizations` are slugs; ceilings are those in force; times are milliseconds since 1970 UTC.
    """

    client_id: str
    label: str
    secret_prefix: str
    is_active: bool
    organizations: list[str]
    default_organization: str
    permissions: list[str]
    token_per_minute: int
    api_per_minute: int
    last_used_ms: int | None
    created_ms: int


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """What authentication needs of a credential, read anew for each request."""

    client_id: str
    secret_hash: bytes
    epoch: int
    is_active: bool
    token_per_minute: int


class TokenPair(msgspec.Struct, frozen=True, kw_only=True):
    """A success of the token endpoint: the five fields of section 2.2, ready to encode."""

    access_token: str
    token_type: str = "Bearer"
    expires_in: int = ACCESS_TTL_S
    refresh_token: str
    refresh_expires_in: int = REFRESH_TTL_S


class Bearer(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a valid access token speaks for."""

    client_id: str
    permissions: frozenset[str]
    api_per_minute: int


def permissions_text(permissions: frozenset[str]) -> str:
    """Permissions as they are stored: in their own order, between single spaces."""
    return " ".join(word for word in PERMISSIONS if word in permissions)

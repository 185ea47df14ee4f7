"""The shapes of credentials and token pairs. Source: docs/interface.md sections 2.1, 2.2 and D2."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from stoplist import ids
from stoplist.organizations.target import Target

READ, UNSUBSCRIBE, RESUBSCRIBE = "read", "unsubscribe", "resubscribe"
PERMISSIONS = (READ, UNSUBSCRIBE, RESUBSCRIBE)
NEW_KEY_PERMISSIONS = frozenset((READ, UNSUBSCRIBE))

ACCESS_TTL_S = 900
REFRESH_TTL_S = 2_592_000
TOKEN_PER_MINUTE = 10
API_PER_MINUTE = 60
MAX_PER_MINUTE = 1_000_000_000


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """An API credential as people see it; only the prefix and the hash of its secret are stored.

    `organizations` are the slugs of the organizations that the reader may see; `hidden_organizations` counts the
    others. The default organization is None if it is hidden. Ceilings are those in force; times are milliseconds since
    1970 UTC.
    """

    client_id: str
    label: str
    secret_prefix: str
    is_active: bool
    organizations: list[str]
    default_organization: str | None
    permissions: list[str]
    token_per_minute: int
    api_per_minute: int
    refresh_needs_secret: bool
    last_used_ms: int | None
    created_ms: int
    hidden_organizations: int = 0


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a credential that authentication needs, read for each request."""

    client_id: str
    secret_hash: bytes
    epoch: int
    is_active: bool
    token_per_minute: int


class TokenPair(msgspec.Struct, frozen=True, kw_only=True):
    """A successful answer of the token endpoint. All five fields are always present.

    Source: docs/interface.md section 2.2.
    """

    access_token: Annotated[
        str,
        Meta(
            pattern=ids.secret_pattern(ids.ACCESS_TOKEN),
            description="Opaque. Send it as `Authorization: Bearer` with every request to the API.",
        ),
    ]
    token_type: Annotated[Literal["Bearer"], Meta(description="Always `Bearer`.")] = "Bearer"
    expires_in: Annotated[
        int, Meta(description="How many seconds the access token lives: 900, or what is left of its chain.")
    ] = ACCESS_TTL_S
    refresh_token: Annotated[
        str,
        Meta(
            pattern=ids.secret_pattern(ids.REFRESH_TOKEN),
            description="Opaque, and good once: a new access token without the secret. Store it before you use it.",
        ),
    ]
    refresh_expires_in: Annotated[
        int, Meta(description="How many seconds the refresh token lives: 2592000, or what is left of its chain.")
    ] = REFRESH_TTL_S


class Bearer(msgspec.Struct, frozen=True, kw_only=True):
    """The client that a valid access token speaks for, and its default organization if that is open."""

    client_id: str
    permissions: frozenset[str]
    api_per_minute: int
    default_target: Target | None = None


def permissions_text(permissions: frozenset[str]) -> str:
    """Return permissions in their stored form: in their own order, separated by single spaces."""
    return " ".join(word for word in PERMISSIONS if word in permissions)

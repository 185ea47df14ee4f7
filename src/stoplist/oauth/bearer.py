"""The bearer check: one statement, nothing cached between requests. Source: docs/interface.md section D3."""

import enum

from stoplist import ids
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.db.query import load_queries
from stoplist.oauth.model import API_PER_MINUTE, Bearer
from stoplist.organizations.target import default_target

_FIND = load_queries(__package__)["find_access_token"]
_PERMISSIONS: dict[str, frozenset[str]] = {}


class TokenRefusal(enum.Enum):
    """The reason why an access token is not valid now."""

    UNKNOWN = "no client has it"
    ENDED = "expired or revoked"


async def find_bearer(database: Database, clock: Clock, access_token: str) -> Bearer | TokenRefusal:
    """Return whom the token speaks for now, or why it speaks for nobody. A wrong checksum saves the look-up."""
    if not ids.is_well_formed(access_token, ids.ACCESS_TOKEN):
        return TokenRefusal.UNKNOWN
    rows = await database.rows(_FIND, ids.hash_secret(access_token))
    if not rows:
        return TokenRefusal.UNKNOWN
    client_id, expires_ms, epoch, current_epoch, is_active, permissions, api_per_minute, *default = rows[0]
    if clock.now_ms() >= expires_ms or epoch != current_epoch or not is_active:
        return TokenRefusal.ENDED
    return Bearer(
        client_id=client_id,
        permissions=_permissions(permissions),
        api_per_minute=api_per_minute or API_PER_MINUTE,
        default_target=default_target(*default),
    )


def _permissions(text: str) -> frozenset[str]:
    # At most eight different texts exist.
    if text not in _PERMISSIONS:
        _PERMISSIONS[text] = frozenset(text.split())
    return _PERMISSIONS[text]

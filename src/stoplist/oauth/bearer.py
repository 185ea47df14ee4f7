"""The bearer check: one statement, nothing cached between requests. Source: docs/interface.md section D3."""

from stoplist import ids
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.db.query import load_queries
from stoplist.oauth.model import API_PER_MINUTE, Bearer

_FIND = load_queries(__package__)["find_access_token"]
_PERMISSIONS: dict[str, frozenset[str]] = {}


async def find_bearer(database: Database, clock: Clock, access_token: str) -> Bearer | None:
    """Return whom the token speaks for now; None if it is malformed, unknown, expired or revoked."""
    if not ids.is_well_formed(access_token, ids.ACCESS_TOKEN):
        return None
    row = await database.one(_FIND, access_hash=ids.hash_secret(access_token))
    if row is None or clock.now_ms() >= row["access_expires_ms"]:
        return None
    if row["epoch"] != row["current_epoch"] or not row["is_active"]:
        return None
    return Bearer(
        client_id=row["client_id"],
        permissions=_permissions(row["permissions"]),
        api_per_minute=row["api_per_minute"] or API_PER_MINUTE,
    )


def _permissions(text: str) -> frozenset[str]:
    # At most eight different texts exist.
    if text not in _PERMISSIONS:
        _PERMISSIONS[text] = frozenset(text.split())
    return _PERMISSIONS[text]

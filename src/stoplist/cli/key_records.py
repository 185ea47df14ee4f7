"""The fields that the commands about keys print."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from stoplist.cli.context import CommandContext
from stoplist.cli.printing import rfc3339
from stoplist.clock import DAY_MS
from stoplist.oauth import credentials, usage
from stoplist.oauth.model import Credential

DAYS_SHOWN = 30


def to_record(credential: Credential) -> dict[str, Any]:
    """Return the fields that commands print of a key."""
    return {
        "client_id": credential.client_id,
        "label": credential.label,
        "secret_prefix": credential.secret_prefix,
        "active": credential.is_active,
        "organizations": credential.organizations,
        "default_organization": credential.default_organization,
        "permissions": credential.permissions,
        "token_per_minute": credential.token_per_minute,
        "api_per_minute": credential.api_per_minute,
        "refresh_needs_secret": credential.refresh_needs_secret,
        "last_used_at": rfc3339(credential.last_used_ms),
        "created_at": rfc3339(credential.created_ms),
    }


async def read_details(context: CommandContext, client_id: str) -> dict[str, Any]:
    """Return the fields of a key, with its use by day and its last refusals."""
    credential = await credentials.show_credential(context.actor, context.database, client_id=client_id)
    today = context.clock.now_ms() // DAY_MS
    days = await usage.use_by_day(context.actor, context.database, client_id, since_day=today - DAYS_SHOWN + 1)
    refusals = await usage.last_refusals(context.actor, context.database, client_id)
    return {
        **to_record(credential),
        "days": [{**msgspec.structs.asdict(day), "day": _date(day.day)} for day in days],
        "refusals": [
            {"at": rfc3339(refusal.at_ms), "request_id": refusal.request_id, "error": refusal.code}
            for refusal in refusals[: usage.MAX_KEPT_REFUSALS]
        ],
    }


def _date(day: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).date().isoformat()

"""Checks link keys: whether servers can read them, and whether people clicked links that nobody could act on."""

from collections.abc import Sequence
from typing import NamedTuple

from stoplist.clock import DAY_MS
from stoplist.db.query import load_queries
from stoplist.links.key_secrets import unreadable_link_keys
from stoplist.links.model import LinkKeyDetails, details_from_row
from stoplist.maintenance.doctor.accounts import AccountSource
from stoplist.maintenance.doctor.finding import Finding, not_checked, ok, warning

_LINK_KEYS = load_queries("stoplist.links")["link_keys"]

CHECK = "link keys"
_RECENT_DAYS = 30


class LinkKeyFacts(NamedTuple):
    """All link keys, and the ids of those that no secret key can read."""

    link_keys: Sequence[LinkKeyDetails] = ()
    unreadable: Sequence[str] = ()


async def read_link_keys(source: AccountSource, secret_keys: Sequence[str]) -> LinkKeyFacts:
    """Return the facts on the link keys in a database that has the table of them."""
    rows = await source.all(_LINK_KEYS, org_slug=None)
    return LinkKeyFacts([details_from_row(row) for row in rows], await unreadable_link_keys(source, secret_keys))


def link_keys(facts: LinkKeyFacts | None, now_ms: int) -> Finding:
    """Report links without an acceptable address that were clicked in the last 30 days: nobody was opted out.

    `facts` is None if there is no database to read.
    """
    if facts is None:
        return not_checked(CHECK, "There are no link keys to read.")
    since_ms = now_ms - _RECENT_DAYS * DAY_MS
    for key in facts.link_keys:
        if key.last_unusable_ms is not None and key.last_unusable_ms >= since_ms:
            return warning(
                CHECK,
                f"People clicked links of {key.link_key_id} ({key.org_slug}) whose address is not acceptable, "
                f"{key.unusable} times in all, and could not opt out. Ask its senders which addresses they put "
                "into links.",
            )
    return ok(CHECK, f"{len(facts.link_keys)} link keys.")

"""Checks notices: where the webhook leads, and whether notices are delivered."""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from stoplist.clock import DAY_MS
from stoplist.db.query import load_queries
from stoplist.maintenance.doctor.accounts import AccountSource
from stoplist.maintenance.doctor.finding import Finding, ok, warning, wrong
from stoplist.notices.model import MAIL, WEBHOOK
from stoplist.notices.resolution import AddressRefused, resolve
from stoplist.settings import Settings

CHECK = "notices"

_FAILURES = load_queries(__package__)["notice_failures"]
_LATE_MS = 3_600_000
_RECENT_MS = 7 * DAY_MS
_HTTPS_PORT = 443


class NoticeFailures(NamedTuple):
    """One way's failures: notices that have waited for over an hour, those given up in 7 days, and one error."""

    way: str
    waiting: int
    given_up: int
    error: str


async def read_notices(source: AccountSource, now_ms: int) -> list[NoticeFailures]:
    """Return what was not delivered, in a database that has the tables of notices."""
    rows = await source.all(_FAILURES, before_ms=now_ms - _LATE_MS, since_ms=now_ms - _RECENT_MS)
    return [NoticeFailures(row["way"], row["waiting"], row["given_up"], row["error"]) for row in rows]


async def notices(failures: Sequence[NoticeFailures], settings: Settings) -> list[Finding]:
    """Check the ways that are set: wrong if the webhook leads to a private address, a warning for failures."""
    ways = [way for way, is_set in ((WEBHOOK, settings.notice_url), (MAIL, settings.smtp_server)) if is_set is not None]
    if not ways:
        return [ok(CHECK, "Nothing delivers them: neither STOPLIST_NOTICE_URL nor STOPLIST_SMTP_URL is set.")]
    findings = [_failure(one) for one in failures if one.way in ways]
    if settings.notice_url is not None:
        findings += await _destination(settings.notice_url, is_private_allowed=settings.notice_allow_private)
    return findings or [ok(CHECK, f"They are delivered by {' and '.join(ways)}.")]


def _failure(failures: NoticeFailures) -> Finding:
    return warning(
        CHECK,
        f"By {failures.way}, {failures.waiting} have waited for over an hour and {failures.given_up} were given up in "
        f"the last 7 days ({failures.error}): `stoplist notice test` shows whether it works now.",
    )


async def _destination(url: str, *, is_private_allowed: bool) -> list[Finding]:
    parts = urlsplit(url)
    try:
        await resolve(parts.hostname or "", parts.port or _HTTPS_PORT, is_private_allowed=is_private_allowed)
    except AddressRefused:
        return [
            wrong(
                CHECK,
                "The host of STOPLIST_NOTICE_URL has an address that is not public, so nothing is sent to it: name "
                "another host, or set STOPLIST_NOTICE_ALLOW_PRIVATE=yes if this one is meant.",
            )
        ]
    except (OSError, UnicodeError):
        return [warning(CHECK, "The host of STOPLIST_NOTICE_URL cannot be resolved from here.")]
    return []

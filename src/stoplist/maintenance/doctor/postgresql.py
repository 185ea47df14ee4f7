"""Checks a PostgreSQL database: that of a whole deployment, or one of a pair."""

import asyncio
from typing import NamedTuple

from stoplist.clock import Clock
from stoplist.databases.pair import ACCOUNTS, ACCOUNTS_URL, FEEDS, FEEDS_URL
from stoplist.db import Database, Row, schema
from stoplist.db.opening import open_database
from stoplist.db.query import load_queries
from stoplist.db.schema import Deployment
from stoplist.errors import SettingsError, StoreUnavailable
from stoplist.maintenance.doctor.assessments import (
    assess_clock_offset,
    assess_deployment,
    assess_durability,
    assess_role,
)
from stoplist.maintenance.doctor.contents import Contents, holds_feeds, read_contents
from stoplist.maintenance.doctor.finding import Finding, not_checked, ok, wrong
from stoplist.settings import Settings

_SERVER_FACTS = load_queries(__package__)["server_facts"]

CONNECT_TIMEOUT_S = 15.0
CHECKS_OF_A_DATABASE = ("schema", "environment", "copy", "role", "durability", "clock", "connections")


class Part(NamedTuple):
    """A PostgreSQL database of a deployment, and the setting with its URL.

    `name` is None if it is the only one, otherwise ACCOUNTS or FEEDS. A process opens at most `connections` to it,
    which are `share` of its pool.
    """

    name: str | None
    url: str
    setting: str
    connections: int
    share: str

    def check(self, name: str) -> str:
        """Return the name of a check of this database."""
        return name if self.name is None else f"{name} ({self.name})"


class CheckedPart(NamedTuple):
    """The findings on a database, and what was read from it; `opened` is None if that failed."""

    part: Part
    findings: list[Finding]
    opened: Database | None = None
    deployment: Deployment | None = None
    server: Row | None = None
    holds_feeds: bool = False
    contents: Contents = Contents()


def parts_of(settings: Settings) -> list[Part]:
    """Return the PostgreSQL databases of these settings: one, or those of the accounts and of the feeds."""
    pool, share = settings.database_pool, "STOPLIST_DATABASE_POOL"
    if settings.feeds_url is None:
        return [Part(None, settings.database_url, ACCOUNTS_URL, pool, share)]
    # Submissions have the other half of a pool.
    half = pool - pool // 2
    return [
        Part(ACCOUNTS, settings.database_url, ACCOUNTS_URL, half, f"half of {share}"),
        Part(FEEDS, settings.feeds_url, FEEDS_URL, pool, share),
    ]


async def open_part(part: Part, settings: Settings) -> Database:
    """Open one of the databases; SettingsError if this fails or takes too long."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return await open_database(
                part.url, create=False, pool_size=2, prepared=settings.database_prepared, setting=part.setting
            )
    except TimeoutError:
        raise SettingsError(
            f"PostgreSQL does not answer within {CONNECT_TIMEOUT_S:.0f} s: check the host and port in {part.setting}."
        ) from None


async def check_part(opened: Database, part: Part, settings: Settings, *, is_environment_set: bool) -> CheckedPart:
    """Check an open database, without writing to it; StoreUnavailable if it fails meanwhile."""
    deployment = await schema.read(opened)
    clock = Clock()
    asked_ms = clock.local_ms()
    database_ms = await opened.clock_ms()
    answered_ms = clock.local_ms()
    server = await opened.one(_SERVER_FACTS)
    reached, has_feeds = ok("database", "PostgreSQL can be reached."), False
    if part.name != ACCOUNTS:
        reached, has_feeds = await _check_feeds(opened, deployment)
    contents = Contents()
    if part.name != FEEDS:
        contents = await read_contents(opened, deployment, settings)
    findings = [reached, *assess_deployment(deployment, settings, is_environment_set=is_environment_set)]
    if server is not None:
        findings += [assess_role(server, setting=part.setting), assess_durability(server)]
    if database_ms is not None:
        findings.append(assess_clock_offset((asked_ms + answered_ms) // 2 - database_ms))
    return CheckedPart(part, named(findings, part), opened, deployment, server, has_feeds, contents)


def unreachable_part(part: Part, text: str) -> CheckedPart:
    """Return the findings on a database that cannot be used, for the reason in `text`."""
    rest = [not_checked(check, "The database could not be reached.") for check in CHECKS_OF_A_DATABASE]
    return CheckedPart(part, named([wrong("database", text), *rest], part))


def named(findings: list[Finding], part: Part) -> list[Finding]:
    """Return the findings under the names of the checks of this database."""
    return [Finding(part.check(finding.check), finding.status, finding.text) for finding in findings]


async def _check_feeds(opened: Database, deployment: Deployment | None) -> tuple[Finding, bool]:
    """Return the finding on the first read of a feed, and whether there is a feed.

    It fails alone if a row is locked or a node hangs; cursors may then exist.
    """
    try:
        has_feeds = await holds_feeds(opened, deployment)
    except StoreUnavailable as error:
        return wrong("database", f"PostgreSQL can be reached, but not its feeds: {error.text}"), True
    return ok("database", "PostgreSQL can be reached."), has_feeds

"""Checks the database: reachable, of this release and environment, not a standby, and durable."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from stoplist.clock import Clock
from stoplist.db import Database, schema
from stoplist.db.opening import open_database, sqlite_path
from stoplist.db.query import load_queries
from stoplist.db.schema import Deployment
from stoplist.db.sqlite_file import is_in_wal_mode, open_for_inspection, unreadable_reason
from stoplist.errors import SettingsError, StoreUnavailable
from stoplist.maintenance.doctor.accounts import AccountFacts, AccountSource, read_accounts
from stoplist.maintenance.doctor.assessments import (
    assess_clock_offset,
    assess_connections,
    assess_deployment,
    assess_durability,
    assess_role,
)
from stoplist.maintenance.doctor.finding import Finding, not_checked, ok, warning, wrong
from stoplist.maintenance.doctor.link_keys import LinkKeyFacts, read_link_keys
from stoplist.maintenance.doctor.nodes import examine
from stoplist.maintenance.doctor.notices import NoticeFailures, read_notices
from stoplist.secret_key import existing_secret_keys
from stoplist.settings import Settings

_QUERIES = load_queries(__package__)
_SERVER_FACTS = _QUERIES["server_facts"]
_HOLDS_FEEDS = _QUERIES["holds_feeds"]

CONNECT_TIMEOUT_S = 15.0
_FEEDS_SINCE, _PEOPLE_SINCE, _LINK_KEYS_SINCE, _NOTICES_SINCE = 2, 5, 11, 14
_REST = ("schema", "environment", "copy", "role", "durability", "clock", "connections")


class DatabaseFindings(NamedTuple):
    """The findings, whether the database holds a feed (cursors may have been issued for it), accounts and link keys.

    `accounts` and `link_keys` are None if the database could not be read, or has no such table yet.
    """

    findings: list[Finding]
    holds_feeds: bool
    accounts: AccountFacts | None = None
    link_keys: LinkKeyFacts | None = None
    notices: Sequence[NoticeFailures] = ()


async def database(settings: Settings, *, is_environment_set: bool) -> DatabaseFindings:
    """Run the checks of the database, without writing to it."""
    path = sqlite_path(settings.database_url)
    if path is not None:
        return await _sqlite(settings, path, is_environment_set=is_environment_set)
    return await _postgresql(settings, is_environment_set=is_environment_set)


async def _sqlite(settings: Settings, path: Path, *, is_environment_set: bool) -> DatabaseFindings:
    try:
        if not _is_nonempty(path):
            return _unreachable(f"There is none at {path}: `stoplist migrate` or `stoplist serve` creates one.")
        with open_for_inspection(path) as file:
            deployment = await schema.read(file)
            holds_feeds = await _holds_feeds(file, deployment)
            accounts = await _accounts(file, deployment, settings)
            link_keys = await _link_keys(file, deployment, settings)
            notices = await _notices(file, deployment)
            is_wal = is_in_wal_mode(path)
    except OSError as error:
        return _unreachable(f"{path}: {error.strerror}. Run this as the server's account.")
    except StoreUnavailable as error:
        return _unreachable(f"{path}: {_why_unreadable(path) or error.text}.")
    findings = [
        ok("database", f"{path} can be read."),
        *assess_deployment(deployment, settings, is_environment_set=is_environment_set),
    ]
    findings.append(not_checked("role", "A SQLite file has no standby."))
    if is_wal:
        findings.append(ok("durability", "The file is in WAL mode, and servers commit with synchronous=FULL."))
    else:
        findings.append(
            warning("durability", "The file is not in WAL mode, which a server sets at startup: is it a copy?")
        )
    findings.append(ok("clock", "The database uses this machine's clock."))
    findings.append(not_checked("connections", "SQLite has no connection limit."))
    return DatabaseFindings(findings, holds_feeds, accounts, link_keys, notices)


def _why_unreadable(path: Path) -> str | None:
    """Return why the system cannot read the file; None if it can, so that SQLite dislikes its content."""
    reason = unreadable_reason(path)
    if reason is None:
        return None
    return (
        f"the system cannot read the file ({reason}): run this as the server's account, and look for errors of the "
        "disk in the system's log (dmesg). The file may be whole: repair the disk before restoring a backup"
    )


def _is_nonempty(path: Path) -> bool:
    # An empty file would open as a database without a schema.
    return path.exists() and path.stat().st_size > 0


async def _postgresql(settings: Settings, *, is_environment_set: bool) -> DatabaseFindings:
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            opened = await open_database(
                settings.database_url, create=False, pool_size=2, prepared=settings.database_prepared
            )
    except SettingsError as error:
        return _unreachable(error.text)
    except TimeoutError:
        return _unreachable(
            f"PostgreSQL does not answer within {CONNECT_TIMEOUT_S:.0f} s: "
            "check the host and port in STOPLIST_DATABASE_URL."
        )
    try:
        return await _query(opened, settings, is_environment_set=is_environment_set)
    except StoreUnavailable as error:
        return _unreachable(error.text)
    finally:
        await opened.close()


async def _query(opened: Database, settings: Settings, *, is_environment_set: bool) -> DatabaseFindings:
    deployment = await schema.read(opened)
    clock = Clock()
    asked_ms = clock.local_ms()
    database_ms = await opened.clock_ms()
    answered_ms = clock.local_ms()
    facts = await opened.one(_SERVER_FACTS)
    feeds_finding, holds_feeds = await _check_feeds(opened, deployment)
    accounts = await _accounts(opened, deployment, settings)
    link_keys = await _link_keys(opened, deployment, settings)
    notices = await _notices(opened, deployment)
    findings = [
        feeds_finding,
        *assess_deployment(deployment, settings, is_environment_set=is_environment_set),
    ]
    if facts is not None:
        findings += [assess_role(facts), assess_durability(facts)]
    if database_ms is not None:
        findings.append(assess_clock_offset((asked_ms + answered_ms) // 2 - database_ms))
    if facts is not None:
        findings.append(assess_connections(settings, facts["connections"]))
    findings += (await examine(opened, settings)).findings
    return DatabaseFindings(findings, holds_feeds, accounts, link_keys, notices)


async def _check_feeds(opened: Database, deployment: Deployment | None) -> tuple[Finding, bool]:
    """Return the finding on the first read of a feed, and whether there is a feed.

    It fails alone if a row is locked or a node hangs; cursors may then exist.
    """
    try:
        holds_feeds = await _holds_feeds(opened, deployment)
    except StoreUnavailable as error:
        return wrong("database", f"PostgreSQL can be reached, but not its feeds: {error.text}"), True
    return ok("database", "PostgreSQL can be reached."), holds_feeds


async def _holds_feeds(source: schema.RowSource, deployment: Deployment | None) -> bool:
    has_table = deployment is not None and deployment.schema_version >= _FEEDS_SINCE
    return has_table and await source.one(_HOLDS_FEEDS) is not None


async def _accounts(source: AccountSource, deployment: Deployment | None, settings: Settings) -> AccountFacts | None:
    if deployment is None or deployment.schema_version < _PEOPLE_SINCE:
        return None
    return await read_accounts(source, existing_secret_keys(settings))


async def _link_keys(source: AccountSource, deployment: Deployment | None, settings: Settings) -> LinkKeyFacts | None:
    if deployment is None or deployment.schema_version < _LINK_KEYS_SINCE:
        return None
    return await read_link_keys(source, existing_secret_keys(settings))


async def _notices(source: AccountSource, deployment: Deployment | None) -> list[NoticeFailures]:
    if deployment is None or deployment.schema_version < _NOTICES_SINCE:
        return []
    return await read_notices(source, Clock().now_ms())


def _unreachable(text: str) -> DatabaseFindings:
    rest = [not_checked(check, "The database could not be reached.") for check in _REST]
    return DatabaseFindings([wrong("database", text), *rest], holds_feeds=False)

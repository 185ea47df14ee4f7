"""Checks the database: reachable, of this release and environment, not a standby, and durable."""

import asyncio
from pathlib import Path
from typing import NamedTuple

from stoplist.clock import Clock
from stoplist.db import Database, schema
from stoplist.db.opening import open_database, sqlite_path
from stoplist.db.query import load_queries
from stoplist.db.schema import Deployment
from stoplist.db.sqlite_file import is_in_wal_mode, open_for_inspection
from stoplist.errors import SettingsError, StoreUnavailable
from stoplist.maintenance.doctor.assessments import (
    assess_clock_offset,
    assess_connections,
    assess_deployment,
    assess_durability,
    assess_role,
)
from stoplist.maintenance.doctor.finding import Finding, not_checked, ok, warning, wrong
from stoplist.settings import Settings

_QUERIES = load_queries(__package__)
_SERVER_FACTS = _QUERIES["server_facts"]
_HOLDS_FEEDS = _QUERIES["holds_feeds"]

CONNECT_TIMEOUT_S = 15.0
_FEEDS_SINCE = 2
_REST = ("schema", "environment", "copy", "role", "durability", "clock", "connections")


class DatabaseFindings(NamedTuple):
    """The findings, and whether the database holds a feed, for which cursors may have been issued."""

    findings: list[Finding]
    holds_feeds: bool


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
            is_wal = is_in_wal_mode(path)
    except (OSError, StoreUnavailable) as error:
        text = error.text if isinstance(error, StoreUnavailable) else error.strerror
        return _unreachable(f"{path}: {text}. Run this as the server's account; a damaged file must be restored.")
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
    return DatabaseFindings(findings, holds_feeds)


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
    holds_feeds = await _holds_feeds(opened, deployment)
    findings = [
        ok("database", "PostgreSQL can be reached."),
        *assess_deployment(deployment, settings, is_environment_set=is_environment_set),
    ]
    if facts is not None:
        findings += [assess_role(facts), assess_durability(facts)]
    if database_ms is not None:
        findings.append(assess_clock_offset((asked_ms + answered_ms) // 2 - database_ms))
    if facts is not None:
        findings.append(assess_connections(settings, facts["connections"]))
    return DatabaseFindings(findings, holds_feeds)


async def _holds_feeds(source: schema.RowSource, deployment: Deployment | None) -> bool:
    has_table = deployment is not None and deployment.schema_version >= _FEEDS_SINCE
    return has_table and await source.one(_HOLDS_FEEDS) is not None


def _unreachable(text: str) -> DatabaseFindings:
    rest = [not_checked(check, "The database could not be reached.") for check in _REST]
    return DatabaseFindings([wrong("database", text), *rest], holds_feeds=False)

"""Checks the database, or both: reachable, of this release and environment, not a standby, and durable."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from stoplist.db import schema
from stoplist.db.opening import sqlite_path
from stoplist.db.sqlite_file import is_in_wal_mode, open_for_inspection, unreadable_reason
from stoplist.errors import SettingsError, StoreUnavailable
from stoplist.maintenance.doctor.accounts import AccountFacts
from stoplist.maintenance.doctor.assessments import assess_connections, assess_deployment
from stoplist.maintenance.doctor.contents import holds_feeds, read_contents
from stoplist.maintenance.doctor.finding import Finding, not_checked, ok, warning, wrong
from stoplist.maintenance.doctor.link_keys import LinkKeyFacts
from stoplist.maintenance.doctor.nodes import examine
from stoplist.maintenance.doctor.notices import NoticeFailures
from stoplist.maintenance.doctor.pair import pair, whole_database
from stoplist.maintenance.doctor.postgresql import (
    CHECKS_OF_A_DATABASE,
    CheckedPart,
    Part,
    check_part,
    named,
    open_part,
    parts_of,
    unreachable_part,
)
from stoplist.settings import Settings


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
    """Run the checks of the database, or of both, without writing to them."""
    path = sqlite_path(settings.database_url)
    if path is not None:
        return await _sqlite(settings, path, is_environment_set=is_environment_set)
    return await _postgresql(settings, is_environment_set=is_environment_set)


def connections(checked: Sequence[CheckedPart], settings: Settings) -> list[Finding]:
    """Return the findings on the connections to each server; two databases on one server share its connections."""
    reached = [(one.part, one.server) for one in checked if one.server is not None]
    if len({server["started_at"] for _, server in reached}) < len(reached):
        (accounts, server), (feeds, _) = reached
        of_process, share = accounts.connections + feeds.connections, f"one and a half times {feeds.share}"
        return [assess_connections(settings, server["connections"], of_process=of_process, share=share)]
    return [
        finding
        for part, server in reached
        for finding in named(
            [assess_connections(settings, server["connections"], of_process=part.connections, share=part.share)], part
        )
    ]


async def _sqlite(settings: Settings, path: Path, *, is_environment_set: bool) -> DatabaseFindings:
    try:
        if not _is_nonempty(path):
            return _unreachable(f"There is none at {path}: `stoplist migrate` or `stoplist serve` creates one.")
        with open_for_inspection(path) as file:
            deployment = await schema.read(file)
            has_feeds = await holds_feeds(file, deployment)
            contents = await read_contents(file, deployment, settings)
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
    return DatabaseFindings(findings, has_feeds, *contents)


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
    async with AsyncExitStack() as stack:
        checked = [
            await _checked(stack, part, settings, is_environment_set=is_environment_set) for part in parts_of(settings)
        ]
        findings = [finding for part in checked for finding in part.findings]
        findings += connections(checked, settings)
        accounts, feeds = checked[0], checked[-1]
        if feeds.opened is not None:
            findings += (await examine(feeds.opened, settings)).findings
        if feeds is not accounts:
            findings += await pair(accounts, feeds)
        elif accounts.opened is not None:
            findings += await whole_database(accounts.opened)
    return DatabaseFindings(findings, feeds.holds_feeds, *accounts.contents)


async def _checked(stack: AsyncExitStack, part: Part, settings: Settings, *, is_environment_set: bool) -> CheckedPart:
    """Check one of the databases, which stays open until the stack is closed."""
    try:
        opened = await open_part(part, settings)
        stack.push_async_callback(opened.close)
        return await check_part(opened, part, settings, is_environment_set=is_environment_set)
    except (SettingsError, StoreUnavailable) as error:
        return unreachable_part(part, error.text)


def _unreachable(text: str) -> DatabaseFindings:
    rest = [not_checked(check, "The database could not be reached.") for check in CHECKS_OF_A_DATABASE]
    return DatabaseFindings([wrong("database", text), *rest], holds_feeds=False)

"""Checks two databases of one deployment: that they belong together, and that neither lacks what the other knows.

Source: docs/interface.md section D1, Feeds apart.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from stoplist.clock import Clock
from stoplist.databases.foreign_feeds import find_foreign_feeds
from stoplist.databases.moving import decoded, waiting_entries
from stoplist.databases.opening import joined, open_databases
from stoplist.databases.pair import ACCOUNTS_URL, FEEDS_URL, SINCE, require_pair
from stoplist.db import Database, schema
from stoplist.db.query import load_queries
from stoplist.db.split import SplitDatabase
from stoplist.errors import SettingsError, StoreUnavailable
from stoplist.maintenance.doctor.finding import WRONG, Finding, not_checked, ok, warning, wrong
from stoplist.maintenance.doctor.postgresql import CheckedPart
from stoplist.maintenance.lost_groups import find_lost_groups
from stoplist.settings import Settings
from stoplist.unsubscribes.channel import channel_name

_QUERIES = load_queries(__package__)
_SLUGS = _QUERIES["slugs"]

_PAIR, _FOREIGN, _LOST, _OUTBOXES, _GROUPS = "pair", "foreign feeds", "lost feeds", "outboxes", "groups"
_LATE_MS = 300_000
_SHOWN = 10


async def whole_database(database: Database) -> list[Finding]:
    """Return a finding if the only database is one of a pair: it is wrong to use it alone."""
    try:
        await require_pair(database)
    except SettingsError as error:
        return [wrong(_PAIR, error.text)]
    return []


async def pair(accounts: CheckedPart, feeds: CheckedPart) -> list[Finding]:
    """Check the two databases together."""
    if accounts.opened is None or feeds.opened is None:
        return _none_checked("The databases could not both be reached.")
    deployments = [one for one in (accounts.deployment, feeds.deployment) if one is not None]
    if len(deployments) < 2 or any(one.schema_version < SINCE for one in deployments):
        return _none_checked("The schema is not there yet, or too old.")
    database = joined(accounts.opened, feeds.opened)
    try:
        finding = await _check_pair(database, *(one.environment for one in deployments))
        if finding.status == WRONG:
            return [finding, *_none_checked("The databases do not belong together.")[1:]]
        return [finding, *await _check_owners(database), *await _check_outboxes(feeds.opened)]
    except StoreUnavailable as error:
        return _none_checked(f"The feeds cannot be read: {error.text}")


async def lost_groups(settings: Settings) -> list[Finding]:
    """Look through every record for groups that the accounts have lost; nothing is returned for one database."""
    if settings.feeds_url is None:
        return []
    try:
        async with opened_databases(settings) as database:
            found = await find_lost_groups(database)
            slugs = await _slugs(database)
    except (OSError, SettingsError, StoreUnavailable) as error:
        return [not_checked(_GROUPS, f"The feeds cannot be read: {str(error).rstrip('.')}.")]
    if not found:
        return [ok(_GROUPS, "Every record is for a group that there is, or for all groups.")]
    names = [
        f"{slugs[lost.organization_id]}, {channel_name(lost.feed_id)} ({', '.join(map(str, sorted(lost.numbers)))})"
        for lost in found
    ]
    return [
        wrong(
            _GROUPS,
            f"The accounts have lost groups of these feeds (by number): {_listed(names)}. They were restored to an "
            "earlier time than the feeds: run `stoplist after-restore`, before somebody creates a group.",
        )
    ]


@asynccontextmanager
async def opened_databases(settings: Settings) -> AsyncIterator[Database]:
    """Open what these settings name; of a pair, foreign feeds are left out. SettingsError if two are no pair."""
    database = await open_databases(settings, create=False, pool_size=2)
    try:
        if isinstance(database, SplitDatabase):
            for one, setting in ((database.accounts, ACCOUNTS_URL), (database.feeds, FEEDS_URL)):
                await schema.require(one, setting, environment=None)
            await require_pair(database)
            database.foreign_feeds = frozenset(feed.feed_id for feed in await find_foreign_feeds(database))
        yield database
    finally:
        await database.close()


async def _check_pair(database: SplitDatabase, of_accounts: str, of_feeds: str) -> Finding:
    """Return the finding on two databases, given the environment of each."""
    try:
        await require_pair(database)
    except SettingsError as error:
        return wrong(_PAIR, error.text)
    if of_accounts != of_feeds:
        return wrong(
            _PAIR,
            f"The database of the accounts belongs to {of_accounts}, and that of the feeds to {of_feeds}: they must be "
            "of one environment.",
        )
    return ok(_PAIR, "The two databases belong together.")


async def _check_owners(database: SplitDatabase) -> list[Finding]:
    """Return the findings on feeds whose organization is another one, or is not there."""
    found, slugs = await find_foreign_feeds(database), await _slugs(database)
    foreign = [f"{slugs[feed.organization_id]}, {channel_name(feed.feed_id)}" for feed in found if not feed.is_lost]
    lost = [f"organization {feed.organization_id}, {channel_name(feed.feed_id)}" for feed in found if feed.is_lost]
    return [_assess_foreign(foreign), _assess_lost(lost)]


def _assess_foreign(names: Sequence[str]) -> Finding:
    if not names:
        return ok(_FOREIGN, "Each feed was opened by the organization that it is read for.")
    return wrong(
        _FOREIGN,
        f"Another organization, which had the same number, opened the feeds of {_listed(names)}: the accounts were "
        "restored to an earlier time than the feeds. These feeds are refused with 503. Restore both databases to one "
        "time; or run `stoplist after-restore`, and create other organizations in the place of these, which get new "
        "numbers.",
    )


def _assess_lost(names: Sequence[str]) -> Finding:
    if not names:
        return ok(_LOST, "The organization of each feed is there.")
    return warning(
        _LOST,
        f"There are feeds of organizations that are not there: {_listed(names)}. The accounts were restored to an "
        "earlier time than the feeds. Restore both to one time, or people who opted out of these may be written to. "
        "Until `stoplist after-restore` has run, or a server has started, a new organization could get the number.",
    )


async def _check_outboxes(feeds: Database) -> list[Finding]:
    before_ms, late, unreadable = Clock().now_ms() - _LATE_MS, 0, []
    async for entries in waiting_entries(feeds):
        for entry in entries:
            if decoded(entry) is None:
                unreadable.append(f"{entry['entry_id']} of feed {entry['feed_id']}")
            else:
                late += entry["added_ms"] < before_ms
    findings = []
    if unreadable:
        text = (
            f"These entries for the audit, or notices, cannot be moved, because this release cannot read them: "
            f"{_listed(unreadable)}. If a newer release wrote them, its servers move them. Otherwise they are damaged: "
            "see docs/operate.md, When one of them is away."
        )
        findings.append(wrong(_OUTBOXES, text))
    if late:
        text = (
            f"{late} entries for the audit, or notices, have waited beside their feeds for over "
            f"{_LATE_MS // 60_000} minutes. Servers move them within seconds: start one, or look into its log."
        )
        findings.append(warning(_OUTBOXES, text))
    return findings or [
        ok(_OUTBOXES, f"No entry for the audit or notice has waited for over {_LATE_MS // 60_000} minutes.")
    ]


async def _slugs(database: SplitDatabase | Database) -> dict[int, str]:
    return {row["organization_id"]: row["slug"] for row in await database.all(_SLUGS)}


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return "; ".join(names[:_SHOWN]) + more


def _none_checked(text: str) -> list[Finding]:
    return [not_checked(check, text) for check in (_PAIR, _FOREIGN, _LOST, _OUTBOXES)]

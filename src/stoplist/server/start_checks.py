"""Checks of the stores before a server starts: its schema, nodes, secrets and limit store.

Source: docs/interface.md section D1.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stoplist.clock import Clock
from stoplist.databases.foreign_feeds import skip_used_numbers
from stoplist.databases.opening import check_databases, migrate_databases, open_databases
from stoplist.db import Database
from stoplist.db.opening import sqlite_path
from stoplist.db.split import feeds_of
from stoplist.errors import SettingsError
from stoplist.limits.opening import open_limiter
from stoplist.links.key_secrets import renew_link_keys, unreadable_link_keys, unreadable_link_keys_text
from stoplist.notices.sealed_links import renew_sealed_links
from stoplist.secret_key import is_key_missing, secret_keys
from stoplist.settings import Settings
from stoplist.staff.totp_secrets import renew_encryption, unreadable_secrets, unreadable_text
from stoplist.unsubscribes.feed import complete_digest_keys

_LOG = logging.getLogger(__name__)


@asynccontextmanager
async def open_checked(settings: Settings) -> AsyncIterator[Database]:
    """Open the database of these settings, with the schema of this release; SettingsError if it has another."""
    database = await open_databases(settings, create=True, pool_size=settings.database_pool)
    try:
        if sqlite_path(settings.database_url) is not None:
            migration = await migrate_databases(database, environment=settings.environment, now_ms=Clock().now_ms())
            await complete_digest_keys(database)
            if migration.copy:
                _LOG.info("The schema was brought up to date", extra={"fields": {"copy": migration.copy}})
        elif await check_databases(database, environment=settings.environment) is None:
            raise SettingsError("The PostgreSQL database is empty: run `stoplist migrate` first.")
        yield database
    finally:
        await database.close()


async def prepare_start(settings: Settings, database: Database) -> None:
    """Do what happens once per start, before the first process serves; SettingsError if a server must not start.

    Checks the nodes and the secret key, and encrypts stored secrets under the newest key. May be repeated.
    """
    await check_nodes(settings, database)
    await skip_used_numbers(database)
    await check_missing_key(settings, database)
    keys = secret_keys(settings)
    await renew_encryption(database, keys)
    await renew_link_keys(database, keys)
    await renew_sealed_links(database, keys)


async def check_nodes(settings: Settings, database: Database) -> None:
    """Log what is wrong with the nodes of a distributed database; SettingsError if one of them loses commits.

    An unavailable node does not prevent the start, because the feeds on other nodes can be served.
    """
    if sqlite_path(settings.database_url) is not None:
        return
    from stoplist.maintenance.doctor.nodes import examine  # noqa: PLC0415 - a start on SQLite needs none of it

    found = await examine(feeds_of(database), settings)
    if found.lossy:
        raise SettingsError(
            f"These nodes have synchronous_commit = off, so a crash could lose acknowledged opt-outs: "
            f"{', '.join(found.lossy)}. Set it to on there."
        )
    for finding in found.problems:
        _LOG.warning("The nodes of the database need attention", extra={"fields": {"why": finding.text}})


async def check_missing_key(settings: Settings, database: Database) -> None:
    """Raise SettingsError if the secret key is missing and stored secrets were encrypted under it.

    To be called before a key is created, since a new key would hide which one is missing.
    """
    if not is_key_missing(settings):
        return
    if emails := await unreadable_secrets(database, ()):
        raise SettingsError(unreadable_text(emails))
    if link_key_ids := await unreadable_link_keys(database, ()):
        raise SettingsError(unreadable_link_keys_text(link_key_ids))


async def check_limiter(settings: Settings) -> None:
    """Raise SettingsError if the URL of the limit store is wrong or the store refuses the connection."""
    await (await open_limiter(settings.limits_url, Clock())).close()

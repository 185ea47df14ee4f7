"""Opens the databases of a deployment, and checks that a program may use them.

Source: docs/interface.md section D1, Feeds apart.
"""

from functools import partial

from stoplist.databases import moving, pair
from stoplist.databases.foreign_feeds import complete_owners, watch_foreign_feeds
from stoplist.databases.pair import ACCOUNTS_URL, FEEDS_URL
from stoplist.db import Database, schema
from stoplist.db.opening import open_database, sqlite_path
from stoplist.db.split import SplitDatabase
from stoplist.errors import SettingsError
from stoplist.settings import Settings


async def open_databases(settings: Settings, *, create: bool, pool_size: int) -> Database:
    """Open the database of these settings, or both. SettingsError if this fails. Nothing is checked yet.

    `create` creates a missing SQLite file. Each process opens at most `pool_size` connections to each database.
    """
    if settings.feeds_url is None:
        return await open_database(
            settings.database_url, create=create, pool_size=pool_size, prepared=settings.database_prepared
        )
    if sqlite_path(settings.database_url) is not None:
        raise SettingsError(
            "STOPLIST_DATABASE_URL must be postgresql://… if STOPLIST_FEEDS_URL is set, since a SQLite file holds "
            "accounts and feeds together. Set it, or unset STOPLIST_FEEDS_URL."
        )
    accounts = await open_database(
        settings.database_url, create=False, pool_size=pool_size, prepared=settings.database_prepared
    )
    try:
        feeds = await open_database(
            settings.feeds_url,
            create=False,
            pool_size=pool_size,
            prepared=settings.database_prepared,
            setting=FEEDS_URL,
        )
    except BaseException:
        await accounts.close()
        raise
    return joined(accounts, feeds)


def joined(accounts: Database, feeds: Database) -> SplitDatabase:
    """Return two open databases as that of one deployment. Entries in outboxes are moved after each change."""
    database = SplitDatabase(accounts, feeds)
    database.on_entries = partial(moving.move_entries_of_feed, database)
    return database


async def check_databases(database: Database, *, environment: str | None) -> schema.Deployment | None:
    """Check what is open: the schema, the environment (None: either), and that two belong together.

    Return the deployment row; None if there is none, because a database is empty. SettingsError if this program must
    not use them. Feeds that another organization opened are refused from then on.
    """
    deployment = await schema.read(database)
    if deployment is None:
        return None
    schema.check(deployment, environment=environment, newest=schema.load_migrations()[-1].number)
    if isinstance(database, SplitDatabase):
        await schema.require(database.feeds, FEEDS_URL, environment=deployment.environment)
    await pair.require_pair(database)
    await watch_foreign_feeds(database)
    return deployment


async def migrate_databases(database: Database, *, environment: str, now_ms: int) -> schema.MigrationResult:
    """Bring the schema of the databases up to date, or create it, and make two new ones a pair. May be repeated.

    Return what was done to the database of the accounts. SettingsError as for `schema.migrate`, and for two that do not
    belong together; then neither was changed.
    """
    if not isinstance(database, SplitDatabase):
        await pair.require_pair(database)
        return await schema.migrate(database, environment=environment, now_ms=now_ms)
    newest = schema.load_migrations()[-1].number
    for one, setting in ((database.accounts, ACCOUNTS_URL), (database.feeds, FEEDS_URL)):
        with schema.named_by(setting):
            await schema.check_before(one, environment=environment, newest=newest, setting=setting)
    await pair.require_joinable(database)
    result = await schema.migrate(database.accounts, environment=environment, now_ms=now_ms)
    await schema.migrate(database.feeds, environment=environment, now_ms=now_ms)
    await pair.join(database)
    await complete_owners(database.accounts, database.feeds, database.feeds.write_one)
    return result

"""`stoplist migrate`: creates the database, or brings its schema up to date; safe to run twice at once."""

import asyncio

import click

from stoplist.cli.opened import data_dir_option, settings_of
from stoplist.cli.printing import json_option, print_json, print_line
from stoplist.clock import Clock
from stoplist.db import schema
from stoplist.db.opening import make_folder, open_database
from stoplist.settings import Settings


@click.command("migrate")
@data_dir_option
@json_option
def command(data_dir: str | None, as_json: bool) -> None:
    """Create the database, or bring its schema up to date.

    The database is the one of STOPLIST_DATABASE_URL (default: a SQLite file in the data folder) and belongs to
    STOPLIST_ENVIRONMENT from then on. A SQLite file is copied before it is changed. Safe to run again.
    """
    done = asyncio.run(_migrate(settings_of(data_dir)))
    if as_json:
        print_json({"schema_before": done.before, "schema": done.after, "copy": done.copy})
    elif done.before == done.after:
        print_line(f"The database has schema {done.after} already: nothing to do.")
    else:
        print_line(f"The database has schema {done.after} now (before: {done.before or 'none'}).")
        if done.copy:
            print_line(f"A copy of it as it was before lies at {done.copy}.")


async def _migrate(settings: Settings) -> schema.Migrated:
    make_folder(settings.database_url)
    database = await open_database(settings.database_url, create=True, pool_size=2)
    try:
        return await schema.migrate(database, environment=settings.environment, now_ms=Clock().now_ms())
    finally:
        await database.close()

"""`stoplist migrate`: creates the database, or brings its schema up to date; safe to run twice at once."""

import asyncio

import click

from stoplist.cli.context import data_dir_option, settings_of
from stoplist.cli.printing import json_option, print_json, print_line
from stoplist.clock import Clock
from stoplist.db import schema
from stoplist.db.opening import create_folder, open_database
from stoplist.db.sharding import DistributionResult, distribute, require_citus, require_postgresql
from stoplist.settings import Settings


@click.command("migrate")
@click.option("--distribute", "is_distributed", is_flag=True, help="Spread the feeds over the nodes of a Citus.")
@data_dir_option
@json_option
def command(is_distributed: bool, data_dir: str | None, as_json: bool) -> None:
    """Create the database, or bring its schema up to date.

    The database is the one of STOPLIST_DATABASE_URL (default: a SQLite file in the data folder) and belongs to
    STOPLIST_ENVIRONMENT from then on. A SQLite file is copied before it is changed. Safe to run again.

    With --distribute, on PostgreSQL with the Citus extension, the tables of the feeds are distributed by feed_id. Best
    done while they are empty: writers wait as long as rows are being moved.
    """
    done, distributed = asyncio.run(_migrate(settings_of(data_dir), is_distributed=is_distributed))
    if as_json:
        of_nodes = {} if distributed is None else {"distributed": distributed.tables}
        print_json({"schema_before": done.before, "schema": done.after, "copy": done.copy, **of_nodes})
        return
    _print_schema(done)
    if distributed is not None:
        tables = ", ".join(distributed.tables)
        print_line(f"Distributed by feed_id now: {tables}." if tables else "The feeds are distributed already.")


def _print_schema(done: schema.MigrationResult) -> None:
    if done.before == done.after:
        print_line(f"The database has schema {done.after} already: nothing to do.")
    else:
        print_line(f"The database has schema {done.after} now (before: {done.before or 'none'}).")
        if done.copy:
            print_line(f"A copy of it as it was before lies at {done.copy}.")


async def _migrate(
    settings: Settings, *, is_distributed: bool
) -> tuple[schema.MigrationResult, DistributionResult | None]:
    if is_distributed:
        require_postgresql(settings.database_url)
    create_folder(settings.database_url)
    database = await open_database(settings.database_url, create=True, pool_size=2, prepared=settings.database_prepared)
    try:
        if is_distributed:
            await require_citus(database)
        done = await schema.migrate(database, environment=settings.environment, now_ms=Clock().now_ms())
        return done, await distribute(database) if is_distributed else None
    finally:
        await database.close()

"""`stoplist migrate`: creates the database, or brings its schema up to date. Safe to run concurrently."""

import asyncio

import click

from stoplist.cli.context import data_dir_option, settings_of
from stoplist.cli.printing import json_option, print_json, print_line
from stoplist.clock import Clock
from stoplist.databases.opening import migrate_databases, open_databases
from stoplist.db import schema
from stoplist.db.opening import create_folder
from stoplist.db.sharding import DistributionResult, distribute, require_citus, require_postgresql
from stoplist.db.split import feeds_of
from stoplist.proof.feed_states import complete_states
from stoplist.settings import Settings
from stoplist.unsubscribes.feed import complete_digest_keys

_LINE_NS = 5_000_000_000


@click.command("migrate")
@click.option(
    "--distribute", "is_distributed", is_flag=True, help="Distribute the feeds over the nodes of a Citus cluster."
)
@data_dir_option
@json_option
def command(is_distributed: bool, data_dir: str | None, as_json: bool) -> None:
    """Create the database, or bring its schema up to date.

    STOPLIST_DATABASE_URL names the database (default: a SQLite file in the data folder). A new database belongs to
    STOPLIST_ENVIRONMENT permanently. A SQLite file is copied before it is changed. The command may be repeated.
    Afterwards it computes the states of feeds that have none yet, while servers may run.

    With --distribute, on PostgreSQL with the Citus extension, the tables of the feeds are distributed by feed_id. Do
    this while the tables are empty: writers wait while rows are moved.
    """
    result, distributed = asyncio.run(_migrate(settings_of(data_dir), is_distributed=is_distributed))
    if as_json:
        citus_fields = {} if distributed is None else {"distributed": distributed.tables}
        print_json({"schema_before": result.before, "schema": result.after, "copy": result.copy, **citus_fields})
        return
    _print_schema(result)
    if distributed is not None:
        tables = ", ".join(distributed.tables)
        print_line(f"Now distributed by feed_id: {tables}." if tables else "The feeds are already distributed.")


def _print_schema(result: schema.MigrationResult) -> None:
    if result.before == result.after:
        print_line(f"The database already has schema {result.after}: nothing to do.")
    else:
        print_line(f"The database now has schema {result.after} (before: {result.before or 'none'}).")
        if result.copy:
            print_line(f"A copy of the former database is at {result.copy}.")


class _StateProgress:
    """Prints every few seconds, on stderr, how many records the states of feeds cover so far."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._records, self._next_ns = clock, 0, clock.monotonic_ns() + _LINE_NS
        self._has_printed = False

    def note(self, records: int) -> None:
        """Note records that were just read."""
        self._records += records
        if self._clock.monotonic_ns() >= self._next_ns:
            self._next_ns = self._clock.monotonic_ns() + _LINE_NS
            self._has_printed = True
            self._print("Computing the states of feeds")

    def end(self) -> None:
        """Print the total, if anything was printed before."""
        if self._has_printed:
            self._print("The states of all feeds are computed")

    def _print(self, text: str) -> None:
        click.echo(f"{text}: {self._records:,} records.", err=True)


async def _migrate(
    settings: Settings, *, is_distributed: bool
) -> tuple[schema.MigrationResult, DistributionResult | None]:
    if is_distributed:
        require_postgresql(settings.database_url)
    create_folder(settings.database_url)
    database = await open_databases(settings, create=True, pool_size=2)
    try:
        if is_distributed:
            await require_citus(feeds_of(database))
        result = await migrate_databases(database, environment=settings.environment, now_ms=Clock().now_ms())
        distributed = None
        if is_distributed:
            distributed = await distribute(feeds_of(database), has_accounts=settings.feeds_url is None)
        await complete_digest_keys(database)
        progress = _StateProgress(Clock())
        await complete_states(database, pause_s=0, on_step=progress.note)
        progress.end()
        return result, distributed
    finally:
        await database.close()

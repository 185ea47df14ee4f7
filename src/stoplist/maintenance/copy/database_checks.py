"""Checks of the databases of a copy before it begins. Source: docs/interface.md section D9."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from stoplist.clock import Clock
from stoplist.databases import pair
from stoplist.db import Database, schema
from stoplist.db.clock import follow_clock
from stoplist.db.opening import open_database, sqlite_path
from stoplist.db.split import SplitDatabase
from stoplist.errors import SettingsError

_NOT_WHOLE = (
    "It is one of the two databases of a deployment whose feeds are apart: name both, that of the accounts with --to "
    "and that of the feeds with --to-feeds; or another one."
)
_NO_PAIR = (
    "These are not the two databases of one deployment, that of its accounts first: make two empty databases a pair by "
    "`stoplist migrate` with STOPLIST_DATABASE_URL set to --to and STOPLIST_FEEDS_URL to --to-feeds."
)


def existing_file(source_url: str) -> Path:
    """Return the file of the source. Raise SettingsError if there is none, or an empty one."""
    path = sqlite_path(source_url)
    try:
        if path is not None and path.stat().st_size > 0:
            return path
    except OSError:
        pass
    raise SettingsError(f"--from: there is no Stoplist database at {path}.")


async def check_databases(source_url: str, target_url: str, feeds_url: str | None, clock: Clock) -> str:
    """Return the environment of all databases, and set `clock` by the target's. Raise SettingsError if they differ."""
    async with _open_database("--from", source_url) as (source, _):
        pass
    async with _open_database("--to", target_url) as (target, database):
        _require_same_environment(source, target)
        await follow_clock(clock, database)
        if feeds_url is None:
            await _require_pair(database, _NOT_WHOLE)
        else:
            async with _open_database("--to-feeds", feeds_url) as (target, feeds):
                _require_same_environment(source, target)
                await _require_pair(SplitDatabase(database, feeds), _NO_PAIR)
    return source.environment


def _require_same_environment(source: schema.Deployment, target: schema.Deployment) -> None:
    if source.environment != target.environment:
        raise SettingsError(
            f"The source belongs to the {source.environment} environment, the target to {target.environment}: "
            f"recreate the target, with STOPLIST_ENVIRONMENT={source.environment} for `stoplist migrate`."
        )


async def _require_pair(target: Database, refusal: str) -> None:
    """Raise SettingsError with this text, which names options, unless `pair.require_pair` accepts the target."""
    try:
        await pair.require_pair(target)
    except SettingsError:
        raise SettingsError(refusal) from None


@asynccontextmanager
async def _open_database(option: str, url: str) -> AsyncIterator[tuple[schema.Deployment, Database]]:
    """Open the database that `option` names. Raise SettingsError unless it has the schema of this release."""
    newest = schema.load_migrations()[-1].number
    try:
        database = await open_database(url, create=False, pool_size=2, prepared=False, setting=option)
        try:
            deployment = await schema.read(database)
            if deployment is None:
                raise SettingsError("there is no Stoplist database: run `stoplist migrate` on an empty database first.")
            # An unfinished copy is handled later.
            schema.check(deployment._replace(is_incomplete=False), environment=None, newest=newest)
            if deployment.schema_version > newest:
                raise SettingsError(
                    f"The database has schema {deployment.schema_version}: use the release that created it."
                )
            yield deployment, database
        finally:
            await database.close()
    except SettingsError as error:
        raise SettingsError(f"{option}: {error.text}") from None

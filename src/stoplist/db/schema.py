"""The schema: numbered migrations that only add, and the checks before a program uses a database.

A migration is `migrations/NNNN_title.sql`; its first line `-- oldest program: X.Y.Z` names the oldest release that
may keep running once the migration is applied. Source: docs/interface.md section D1, Environment and Schema.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import Any, NamedTuple, Protocol

from stoplist import __version__
from stoplist.db import Database, Row, SchemaChange
from stoplist.db.query import Query, load_queries, only_for
from stoplist.errors import SettingsError

_QUERIES = load_queries(__package__)
_ANY_TABLE = _QUERIES["any_table"]
_HAS_DEPLOYMENT = _QUERIES["has_deployment"]
_DEPLOYMENT = _QUERIES["deployment"]
_CREATE_DEPLOYMENT = _QUERIES["create_deployment"]
_RECORD_MIGRATION = _QUERIES["record_migration"]
_COPY_UNDER_WAY = _QUERIES["copy_under_way"]
_COPY_PROGRESS_SINCE = 3
_OLDEST = re.compile(r"^-- oldest program: (\d+\.\d+\.\d+)$", re.MULTILINE)


class Migration(NamedTuple):
    """A migration: its number, its text for both databases, and the oldest release that may run afterwards."""

    number: int
    text: str
    oldest_program: str


class Deployment(NamedTuple):
    """The deployment row of a database. `is_incomplete` while `stoplist copy` has not finished filling it."""

    environment: str
    schema_version: int
    oldest_program: str
    is_incomplete: bool = False


class MigrationResult(NamedTuple):
    """The schema versions before (0: none) and after a migration, and the path of the copy, if one was made."""

    before: int
    after: int
    copy: str | None


def load_migrations() -> list[Migration]:
    """Return the migrations of this release, in order."""
    files = (file for file in resources.files(__package__).joinpath("migrations").iterdir())
    return sorted(_migration(file.name, file.read_text("utf-8")) for file in files if file.name.endswith(".sql"))


async def migrate(
    database: Database,
    *,
    environment: str,
    now_ms: int,
    migrations: Sequence[Migration] | None = None,
    program: str = __version__,
) -> MigrationResult:
    """Bring the schema up to date, or create it in an empty database. Safe to run twice at once.

    Raise SettingsError if the database belongs to the other environment, to another product, or to a newer release
    that excludes this one.
    """
    steps = load_migrations() if migrations is None else migrations

    async def change(change: SchemaChange) -> MigrationResult:
        deployment = await check_before(change, environment=environment, newest=steps[-1].number, program=program)
        before = deployment.schema_version if deployment else 0
        pending = [step for step in steps if step.number > before]
        copy = await change.keep_copy(f"before-{pending[0].number:04}") if deployment and pending else None
        oldest = deployment.oldest_program if deployment else "0.0.0"
        for step in pending:
            await change.script(only_for(database.kind, step.text))
            if step.number == 1:
                await change.run(_CREATE_DEPLOYMENT, environment=environment, created_ms=now_ms)
            # The first erasure has perhaps raised it (docs/interface.md section D13).
            oldest = later_release(oldest, step.oldest_program)
            await change.run(_RECORD_MIGRATION, schema_version=step.number, oldest_program=oldest)
        return MigrationResult(before, max(before, steps[-1].number), copy)

    return await database.under_schema_lock(change)


class RowSource(Protocol):
    """The part of a database, a transaction or a read-only file that reads a row."""

    async def one(self, query: Query, **values: Any) -> Row | None: ...


async def read(source: RowSource) -> Deployment | None:
    """Return the deployment row; None if the database has none."""
    if await source.one(_HAS_DEPLOYMENT) is None:
        return None
    row = await source.one(_DEPLOYMENT)
    if row is None:
        return None
    is_incomplete = row["schema_version"] >= _COPY_PROGRESS_SINCE and await source.one(_COPY_UNDER_WAY) is not None
    return Deployment(row["environment"], row["schema_version"], row["oldest_program"], is_incomplete)


async def check_before(
    source: RowSource,
    *,
    environment: str,
    newest: int,
    program: str = __version__,
    setting: str = "STOPLIST_DATABASE_URL",
) -> Deployment | None:
    """Return the deployment row; None if the database is empty. SettingsError if `migrate` must not change it.

    `setting` names the database.
    """
    deployment = await read(source)
    if deployment is not None:
        check(deployment, environment=environment, newest=newest, program=program, may_be_old=True)
    elif await source.one(_ANY_TABLE):
        raise SettingsError(
            "This database holds the tables of another product, and Stoplist needs a database of its own: "
            f"name an empty one with {setting}."
        )
    return deployment


async def require(source: RowSource, setting: str, *, environment: str | None) -> Deployment:
    """Return the deployment row of one of two databases, that of this setting.

    SettingsError if this program must not use it. `environment` None accepts either one.
    """
    deployment = await read(source)
    if deployment is None:
        raise SettingsError(
            f"There is no Stoplist database where {setting} leads: correct it, or create one (docs/operate.md, Feeds "
            "in a database of their own)."
        )
    with named_by(setting):
        check(deployment, environment=environment, newest=load_migrations()[-1].number)
    return deployment


@contextmanager
def named_by(setting: str) -> Iterator[None]:
    """Let a SettingsError about one of two databases say which one it is about: that of this setting."""
    try:
        yield
    except SettingsError as error:
        raise SettingsError(f"With {setting}: {error.text}") from None


def check(
    deployment: Deployment,
    *,
    environment: str | None,
    newest: int,
    program: str = __version__,
    may_be_old: bool = False,
) -> None:
    """Raise SettingsError if this program must not use the database. `environment` None accepts either one."""
    if environment is not None and deployment.environment != environment:
        raise SettingsError(
            f"This database belongs to the {deployment.environment} environment, but STOPLIST_ENVIRONMENT is "
            f"{environment}. Set it to {deployment.environment}, or name another database: each environment has one."
        )
    if deployment.schema_version > newest and _version(program) < _version(deployment.oldest_program):
        raise SettingsError(
            f"This database was migrated for Stoplist {deployment.oldest_program} or newer; this is {program}. "
            "Run the newer release, or restore the copy made before the migration."
        )
    if deployment.is_incomplete:
        raise SettingsError(
            "`stoplist copy` has not finished filling this database: let it finish, or run the same command again to "
            "resume it; or drop this database and create an empty one."
        )
    if deployment.schema_version < newest and not may_be_old:
        raise SettingsError(
            f"The database has schema {deployment.schema_version}, this release needs {newest}: run `stoplist migrate`."
        )


def _migration(name: str, text: str) -> Migration:
    oldest = _OLDEST.search(text)
    if not oldest:
        raise ValueError(f"{name} has no line `-- oldest program: X.Y.Z`")
    return Migration(int(name[:4]), text, oldest[1])


def later_release(one: str, other: str) -> str:
    """Return the later of two releases, such as `0.10.0` of that and `0.9.1`."""
    return max(one, other, key=_version)


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))

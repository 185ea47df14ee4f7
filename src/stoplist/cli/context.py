"""What every command but `serve` and `migrate` starts with: the settings, the database that is there, and who acts."""

import asyncio
import os
import pwd
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from stoplist.actor import ADMINISTER, Actor
from stoplist.chores import follow_clock
from stoplist.clock import Clock
from stoplist.db import Database, schema
from stoplist.db.opening import open_database, sqlite_path
from stoplist.errors import SettingsError
from stoplist.settings import Settings, load, parse

T = TypeVar("T")
Command = Callable[..., Any]

ENV_FILE = Path(".env")


class Opened(msgspec.Struct, frozen=True):
    """An open database, the time, and the person at the command line."""

    database: Database
    clock: Clock
    actor: Actor


def as_setting(_context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Refuse what is no value of the setting that the option stands for: that is wrong usage."""
    if value is not None and option.name is not None:
        try:
            parse(option.name.upper(), value)
        except SettingsError as error:
            raise click.UsageError(error.text) from None
    return value


def data_dir_option(command: Command) -> Command:
    """`--data-dir`, which every command takes."""
    return click.option(
        "--data-dir",
        callback=as_setting,
        metavar="FOLDER",
        help="The data folder (STOPLIST_DATA_DIR; default ./data).",
    )(command)


def settings_of(data_dir: str | None, **flags: str | None) -> Settings:
    """The settings of this process: variables, .env, and flags, which win. SettingsError when they are wrong."""
    return load(os.environ, env_file=ENV_FILE, flags={"DATA_DIR": data_dir, **flags})


def run(data_dir: str | None, work: Callable[[Opened], Awaitable[T]]) -> T:
    """Do `work` on the database that is there; it takes its environment from the database itself."""

    async def opened_work() -> T:
        async with _opened(settings_of(data_dir)) as opened:
            return await work(opened)

    return asyncio.run(opened_work())


def command_actor() -> Actor:
    """The person at the command line: the account of this machine, who may do all."""
    user_id = os.getuid()
    try:
        # Not getpass.getuser(), which believes variables that anybody may set.
        name = pwd.getpwuid(user_id).pw_name
    except KeyError:  # an account without a name, as in a container
        name = str(user_id)
    if user_id == 0 and "SUDO_USER" in os.environ:
        name = f"{os.environ['SUDO_USER']} as {name}"
    return Actor(kind="command", id=name, may=frozenset((ADMINISTER,)))


def database_file(settings: Settings) -> Path | None:
    """The SQLite file that is there, None for PostgreSQL. SettingsError where there is nothing."""
    path = sqlite_path(settings.database_url)
    if path is not None and not _holds_something(path):
        raise SettingsError(_nothing_there(f"at {path}"))
    return path


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Opened]:
    path = database_file(settings)
    database = await open_database(
        settings.database_url, create=False, pool_size=2, prepared=settings.database_prepared
    )
    try:
        known = await schema.read(database)
        if known is None:
            raise SettingsError(_nothing_there(f"at {path}" if path else "in this PostgreSQL database"))
        schema.check(known, environment=None, newest=schema.load_migrations()[-1].number)
        clock = Clock()
        await follow_clock(clock, database)
        yield Opened(database, clock, command_actor())
    finally:
        await database.close()


def _holds_something(path: Path) -> bool:
    # Opening an empty file would make it one of SQLite's.
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError as error:
        raise SettingsError(f"The database file {path} cannot be reached: {error.strerror}.") from None


def _nothing_there(where: str) -> str:
    return (
        f"There is no Stoplist database {where}: `stoplist migrate` makes one (on SQLite `stoplist serve` too). "
        "Check --data-dir, STOPLIST_DATA_DIR and STOPLIST_DATABASE_URL if there should be one."
    )

"""The context of a command: settings, the existing database, and the actor. Not for `serve` and `migrate`."""

import asyncio
import os
import pwd
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from stoplist.actor import ADMINISTER, Actor
from stoplist.clock import Clock
from stoplist.databases.opening import check_databases, open_databases
from stoplist.db import Database
from stoplist.db.clock import follow_clock
from stoplist.db.opening import sqlite_path
from stoplist.errors import SettingsError
from stoplist.folders import folder_error
from stoplist.serve_requirements import base_url_error
from stoplist.settings import Settings, load, parse

T = TypeVar("T")
Command = Callable[..., Any]

ENV_FILE = Path(".env")


class CommandContext(msgspec.Struct, frozen=True):
    """An open database, the clock, and the person at the command line as the actor."""

    database: Database
    clock: Clock
    actor: Actor
    database_url: str
    history_days: int = 0


def as_setting(_context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Return an option's value; wrong usage if it is not valid for the setting of that name."""
    if value is not None and option.name is not None:
        try:
            parse(option.name.upper(), value)
        except SettingsError as error:
            raise click.UsageError(error.text) from None
    return value


def data_dir_option(command: Command) -> Command:
    """Add the option `--data-dir`, which every command takes."""
    return click.option(
        "--data-dir",
        callback=as_setting,
        metavar="FOLDER",
        help="The data folder (STOPLIST_DATA_DIR; default ./data).",
    )(command)


def settings_of(data_dir: str | None, **flags: str | None) -> Settings:
    """Return the settings of this process: flags, then variables, then .env. SettingsError if they are wrong."""
    return load(os.environ, env_file=ENV_FILE, flags={"DATA_DIR": data_dir, **flags})


def require_base_url(environment: str, settings: Settings) -> None:
    """Raise SettingsError if links made in this environment would lead to localhost."""
    if text := base_url_error(environment, settings):
        raise SettingsError(text)


def run(data_dir: str | None, work: Callable[[CommandContext], Awaitable[T]], *, prints_links: bool = False) -> T:
    """Run `work` on the existing database, in whichever environment that database belongs to.

    `prints_links`: the output will contain the base address, so a database of production needs one that is set.
    """

    async def work_on_database() -> T:
        async with _open_context(settings_of(data_dir), prints_links=prints_links) as context:
            return await work(context)

    # As in a server: else a statement that ends in a thread waits 5 ms for a loop that is busy, thousands of times.
    sys.setswitchinterval(0.0005)
    return asyncio.run(work_on_database())


def command_actor() -> Actor:
    """Return the person at the command line as an actor with all rights, named by the account of this machine."""
    user_id = os.getuid()
    try:
        # Not getpass.getuser(), which trusts variables that any user may set.
        name = pwd.getpwuid(user_id).pw_name
    except KeyError:  # an account without a name, as in a container
        name = str(user_id)
    if user_id == 0 and "SUDO_USER" in os.environ:
        name = f"{os.environ['SUDO_USER']} as {name}"
    return Actor(kind="command", id=name, may=frozenset((ADMINISTER,)))


def database_file(settings: Settings) -> Path | None:
    """Return the existing SQLite file, or None for PostgreSQL. SettingsError if there is no such file."""
    path = sqlite_path(settings.database_url)
    if path is not None and not _is_not_empty(path):
        raise SettingsError(_no_database_text(f"at {path}"))
    return path


@asynccontextmanager
async def _open_context(settings: Settings, *, prints_links: bool) -> AsyncIterator[CommandContext]:
    path = database_file(settings)
    database = await open_databases(settings, create=False, pool_size=2)
    try:
        deployment = await check_databases(database, environment=None)
        if deployment is None:
            raise SettingsError(_no_database_text(f"at {path}" if path else "in this PostgreSQL database"))
        if prints_links:
            require_base_url(deployment.environment, settings)
        clock = Clock()
        await follow_clock(clock, database)
        yield CommandContext(database, clock, command_actor(), settings.database_url, settings.history_days)
    finally:
        await database.close()


def _is_not_empty(path: Path) -> bool:
    # SQLite would turn an empty file into a database by opening it.
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError as error:
        reason = folder_error(path.parent, error)
        raise SettingsError(f"The database file {path} cannot be reached: {reason}.") from None


def _no_database_text(where: str) -> str:
    return (
        f"There is no Stoplist database {where}. `stoplist migrate` creates one (on SQLite `stoplist serve` too). "
        "If there should be one, check --data-dir, STOPLIST_DATA_DIR and STOPLIST_DATABASE_URL."
    )

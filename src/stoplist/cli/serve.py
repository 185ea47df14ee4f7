"""`stoplist serve`: the server."""

import asyncio
import sys
from functools import partial

import click
import uvloop

from stoplist import log
from stoplist.cli import demo
from stoplist.cli.opened import as_setting, data_dir_option, settings_of
from stoplist.errors import SettingsError
from stoplist.settings import Settings, check_serve
from stoplist.web.running import AfterStart, serve

_NO_DEMO = "--demo is for development: in production create organizations and keys with their commands."


@click.command("serve")
@click.option("--environment", type=click.Choice(("development", "production")), help="STOPLIST_ENVIRONMENT")
@click.option("--host", callback=as_setting, help="The address to listen on (STOPLIST_HOST; default 127.0.0.1).")
@click.option("--port", callback=as_setting, help="The port to listen on (STOPLIST_PORT; default 8443).")
@click.option("--workers", callback=as_setting, help="How many processes (STOPLIST_WORKERS; default 1).")
@click.option("--demo", "is_demo", is_flag=True, help="Fill an empty development database with something to try.")
@data_dir_option
def command(
    environment: str | None,
    host: str | None,
    port: str | None,
    workers: str | None,
    is_demo: bool,
    data_dir: str | None,
) -> None:
    """Run the server, until SIGTERM or Ctrl+C.

    Flags win over the STOPLIST_* variables, and those over a .env file. The first start on SQLite makes the database,
    and in development a local certificate authority, in the data folder.
    """
    if is_demo and environment == "production":
        raise click.UsageError(_NO_DEMO)
    settings = settings_of(data_dir, ENVIRONMENT=environment, HOST=host, PORT=port, WORKERS=workers)
    if is_demo and settings.environment == "production":
        raise SettingsError(_NO_DEMO)
    check_serve(settings)
    _run(settings, partial(demo.show, settings) if is_demo else None)


def _run(settings: Settings, after_start: AfterStart | None) -> None:
    log.configure(settings.log_format)
    # A thread that comes back from the disk waits this long for the interpreter, at most; the default is ten times it.
    sys.setswitchinterval(0.0005)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings, after_start=after_start))
    finally:
        log.flush()

"""`stoplist serve`: runs the server."""

from functools import partial

import click

from stoplist.cli.context import as_setting, data_dir_option, settings_of
from stoplist.errors import SettingsError
from stoplist.server.lifecycle import OnReady, run_loop
from stoplist.server.lifecycle import serve as serve_alone
from stoplist.settings import check_serve

_NO_DEMO = "--demo is for development. In production, create organizations and keys with their commands."


@click.command("serve")
@click.option(
    "--environment", type=click.Choice(("development", "production")), help="The environment (STOPLIST_ENVIRONMENT)."
)
@click.option("--host", callback=as_setting, help="The address to listen on (STOPLIST_HOST; default 127.0.0.1).")
@click.option("--port", callback=as_setting, help="The port to listen on (STOPLIST_PORT; default 8443).")
@click.option("--workers", callback=as_setting, help="The number of processes (STOPLIST_WORKERS; default 1).")
@click.option("--demo", "is_demo", is_flag=True, help="Fill an empty development database with example data.")
@data_dir_option
def command(
    environment: str | None,
    host: str | None,
    port: str | None,
    workers: str | None,
    is_demo: bool,
    data_dir: str | None,
) -> None:
    """Run the server until SIGTERM or Ctrl+C.

    Options override the STOPLIST_* variables, which override a .env file. The first start on SQLite creates the
    database in the data folder and, in development, a local certificate authority.
    """
    if is_demo and environment == "production":
        raise click.UsageError(_NO_DEMO)
    settings = settings_of(data_dir, ENVIRONMENT=environment, HOST=host, PORT=port, WORKERS=workers)
    if is_demo and settings.environment == "production":
        raise SettingsError(_NO_DEMO)
    check_serve(settings)
    on_ready: OnReady | None = None
    if is_demo:
        from stoplist.cli.demo import show  # noqa: PLC0415 - other servers spend no time on it

        on_ready = partial(show, settings)
    serve = serve_alone
    if settings.workers > 1:
        from stoplist.server.supervisor import serve_workers  # noqa: PLC0415 - one process needs no other

        serve = serve_workers
    run_loop(settings, serve(settings, on_ready=on_ready))

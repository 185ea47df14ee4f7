"""`stoplist serve`: runs the server."""

import os
from functools import partial

import click

from stoplist.cli.context import ENV_FILE, data_dir_option
from stoplist.errors import SettingsError
from stoplist.serve_requirements import Requirement, require, server_settings
from stoplist.server.lifecycle import OnReady, run_loop
from stoplist.server.lifecycle import serve as serve_alone
from stoplist.settings import Settings, is_valid

_NO_DEMO = "--demo is for development. In production, create organizations and keys with their commands"
_DEMO_REQUIREMENT = require("ENVIRONMENT", lambda it: it.environment == "production", _NO_DEMO)


@click.command("serve")
@click.option(
    "--environment",
    type=click.Choice(("development", "production")),
    help="The environment (STOPLIST_ENVIRONMENT; default development).",
)
@click.option("--host", help="The address to listen on (STOPLIST_HOST; default 127.0.0.1).")
@click.option("--port", help="The port to listen on (STOPLIST_PORT; default 8443).")
@click.option("--workers", help="The number of processes (STOPLIST_WORKERS; default 1).")
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
        raise click.UsageError(f"{_NO_DEMO}.")
    flags = {"DATA_DIR": data_dir, "ENVIRONMENT": environment, "HOST": host, "PORT": port, "WORKERS": workers}
    settings = _settings(flags, (_DEMO_REQUIREMENT,) if is_demo else ())
    on_ready: OnReady | None = None
    if is_demo:
        from stoplist.cli.demo import show  # noqa: PLC0415 - other servers spend no time on it

        on_ready = partial(show, settings)
    serve = serve_alone
    if settings.workers > 1:
        from stoplist.server.supervisor import serve_workers  # noqa: PLC0415 - one process needs no other

        serve = serve_workers
    run_loop(settings, serve(settings, on_ready=on_ready))


def _settings(flags: dict[str, str | None], also: tuple[Requirement, ...]) -> Settings:
    """Return the settings of the server; one error names all that is wrong, and is wrong usage if an option is."""
    try:
        return server_settings(os.environ, env_file=ENV_FILE, flags=flags, also=also)
    except SettingsError as error:
        if all(text is None or is_valid(name, text) for name, text in flags.items()):
            raise
        raise click.UsageError(error.text) from None

"""`stoplist`: the table of commands, and how their errors are printed.

The exit status is 1 for what cannot be done, 2 for what is wrong on the command line itself.
Source: docs/interface.md section D9.
"""

import os
import signal
import sys
from importlib import import_module
from typing import Any

import click

from stoplist import __version__
from stoplist.cli.command_group import CommandGroup
from stoplist.control_characters import escaped
from stoplist.errors import Refused, StoplistError

# Name, one line of help, module: the module is loaded when the command is used, so that `serve` starts quickly.
COMMANDS = {
    "serve": ("Run the server.", "stoplist.cli.serve"),
    "migrate": ("Create the database, or bring its schema up to date.", "stoplist.cli.migrate"),
    "org": ("Organizations: create, list, rename, close, choose the default group.", "stoplist.cli.org"),
    "group": ("Groups, which people can opt out of separately: create, list, retire.", "stoplist.cli.group"),
    "key": ("API keys: create, list, show, change, rotate, deactivate.", "stoplist.cli.key"),
    "link-key": (
        "Link keys, with which senders make opt-out links: create, list, retire, revoke, reverse, forget.",
        "stoplist.cli.link_key",
    ),
    "submission": ("Submissions: list, show, reverse.", "stoplist.cli.submission"),
    "import": (
        "Imports: store the opt-outs of a file, resume, show, reverse, discard.",
        "stoplist.cli.imports",
    ),
    "export": ("Write opt-outs to a file.", "stoplist.cli.export"),
    "propagation": (
        "Propagation: how far each key has followed each feed, and which are behind.",
        "stoplist.cli.propagation",
    ),
    "user": ("People who use the admin pages: create, list, link, disable, enable.", "stoplist.cli.user"),
    "person": (
        "People whose opt-outs are stored: show what is stored, erase one who stays barred.",
        "stoplist.cli.person",
    ),
    "backup": ("Copy the SQLite database while the server runs.", "stoplist.cli.backup"),
    "copy": ("Copy a whole deployment from SQLite to PostgreSQL.", "stoplist.cli.copy"),
    "feeds": ("Give the feeds a database of their own on PostgreSQL, or take them back.", "stoplist.cli.feeds"),
    "after-restore": ("After a restore: refuse all cursors and tokens given out so far.", "stoplist.cli.after_restore"),
    "notice": ("Notices to the operator: send a test.", "stoplist.cli.notice"),
    "doctor": ("Examine the installation, and exit with 1 if something is wrong.", "stoplist.cli.doctor"),
    "addresses": (
        "Addresses: check a list, find stored addresses that this release would write differently.",
        "stoplist.cli.addresses",
    ),
    "openapi": ("Print the OpenAPI description of the API.", "stoplist.cli.openapi"),
}
# Scripts of 0.1.0 depend on them; they go with 0.3.0 (README.md, Versions).
_FORMER_NAMES = {"restored": "after-restore"}


class _Commands(CommandGroup):
    """A group that loads its commands by the table COMMANDS."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not all(map(_is_utf8, args)):
            raise click.UsageError("The command line contains bytes that are not UTF-8.", ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as error:  # click prints it, and it may repeat what a file says
            error.message = escaped(error.message, keeps_lines=True)  # type: ignore[misc]  # final only for subclasses
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = _FORMER_NAMES.get(cmd_name, cmd_name)
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name][1]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (help_text, _) in COMMANDS.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="stoplist", message="%(prog)s %(version)s")
def stoplist() -> None:
    """Stoplist: the list of people who asked you to stop.

    `stoplist serve --demo` starts a server to try; `stoplist COMMAND --help` explains a command. Settings are read from
    STOPLIST_* variables and from a .env file in the working directory (docs/interface.md section D1).
    """


def main() -> None:
    """Run the `stoplist` command, and exit with status 1 on a StoplistError."""
    if os.getpid() == 1:
        # The kernel drops what would end PID 1 of a container by default, so a start or a command could not be stopped.
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    try:
        stoplist(prog_name="stoplist")
    except StoplistError as error:
        hint = f" {error.command}" if isinstance(error, Refused) and error.command else ""
        click.echo(escaped(f"stoplist: {error.text}{hint}", keeps_lines=True), err=True)
        sys.exit(1)


def _is_utf8(argument: str) -> bool:
    try:
        argument.encode()
    except UnicodeEncodeError:  # Python decodes such bytes to surrogates
        return False
    return True

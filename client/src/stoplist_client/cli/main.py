"""`stoplist-client`: the commands, and how each ends.

Exit status 0, 1, 2 and 3 as the help says; 130 after Ctrl+C, 143 after SIGTERM.
"""

import difflib
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from stoplist_client.cli.address_lines import is_utf_8, may_be_an_address
from stoplist_client.cli.exit_status import GlobalOptions, ended, hearing_sigterm
from stoplist_client.cli.notices import notes_told
from stoplist_client.version import __version__

PROGRAM = "stoplist-client"

# Name, one line of help, module: the module is loaded when the command is used, so that none waits for all.
COMMANDS = {
    "login": ("Store a key for the commands below, once it was seen to work.", "login"),
    "logout": ("Forget a stored key and its tokens.", "logout"),
    "unsubscribe": ("Submit opt-outs: arguments, lines, or a CSV file.", "unsubscribe"),
    "resubscribe": ("Submit consents that you can prove, each with its moment.", "resubscribe"),
    "look-up": ("Ask the service what it knows of some addresses.", "look_up"),
    "sync": ("Bring the local mirror up to date, once or for as long as it runs.", "sync"),
    "check": ("Print the addresses you may write to, from the mirror.", "check"),
    "scrub": ("Copy a CSV file without the people who opted out.", "scrub"),
    "completion": ("Print what makes a shell complete these commands.", "completion"),
}


class _Commands(click.Group):
    """A group whose commands are loaded from the table."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not all(map(is_utf_8, args)):
            raise click.UsageError("The command line holds bytes that are not UTF-8.", ctx)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in COMMANDS or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        # Whoever forgot the command may have typed an address.
        what = "That is no command" if may_be_an_address(name) else f"There is no command {name!r}"
        near = difflib.get_close_matches(name.lower().replace("_", "-"), COMMANDS, n=1)
        raise click.UsageError(f"{what}: did you mean {near[0]}?" if near else what, ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"stoplist_client.cli.commands.{COMMANDS[cmd_name][1]}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (help_text, _) in COMMANDS.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def stoplist_client() -> None:
    """Submit opt-outs to Stoplist, and know whom you may write to.

    Begin with `stoplist-client login`. Without it, as in a container, three variables do:
    STOPLISTCLIENT_BASE_URL, STOPLISTCLIENT_CLIENT_ID, and STOPLISTCLIENT_CLIENT_SECRET (or
    STOPLISTCLIENT_CLIENT_SECRET_FILE); further ones are STOPLISTCLIENT_ORG, _GROUP, _CA_FILE, _MIRROR, and _DIR, the
    folder in which profiles, tokens and mirrors lie.

    \b
    Exit status:
      0    done
      1    it failed; stderr says why
      2    wrong usage: options, arguments or variables
      3    done, but some of the addresses were not acceptable
           (with check --fail-if-barred also: somebody is barred)
      130  interrupted by Ctrl+C; 143 ended by SIGTERM
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """The `stoplist-client` command: SystemExit with its status, whatever happened."""
    wishes = GlobalOptions()
    try:
        with hearing_sigterm(), notes_told():
            status = stoplist_client(arguments, prog_name=PROGRAM, standalone_mode=False, obj=wishes)
        # What is left to be written is written here, where somebody can still be told that it could not be.
        if sys.stdout is not None:
            sys.stdout.flush()
    except BaseException as error:
        status = ended(error, wishes)
    sys.exit(status if isinstance(status, int) else 0)

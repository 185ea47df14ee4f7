"""Entry point of `stoplist-client`: the list of commands and the exit status.

The exit status is 0, 1, 2 or 3 as documented in the help text, 130 after Ctrl+C and 143 after SIGTERM.
"""

import difflib
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from stoplist_client.cli.address_lines import is_utf_8, may_be_an_address
from stoplist_client.cli.exit_status import GlobalOptions, report_error, sigterm_raises
from stoplist_client.cli.notices import notices_on_stderr
from stoplist_client.version import __version__

PROGRAM = "stoplist-client"

# Name, one line of help, module. A module is loaded only when its command is used, which keeps each command fast.
COMMANDS = {
    "login": ("Check a key and store it for the other commands.", "login"),
    "logout": ("Remove a stored key and its tokens.", "logout"),
    "unsubscribe": ("Submit opt-outs from arguments, stdin or a CSV file.", "unsubscribe"),
    "resubscribe": ("Submit consents that you can prove, each with its time.", "resubscribe"),
    "look-up": ("Show the service's records for some addresses.", "look_up"),
    "sync": ("Update the local mirror, once or continuously.", "sync"),
    "check": ("Print the addresses you may write to, according to the mirror.", "check"),
    "scrub": ("Copy a CSV file without the people who opted out.", "scrub"),
    "links": ("Add a column of opt-out links to a CSV file, or try a link.", "links"),
    "completion": ("Print a shell completion script.", "completion"),
}


class _Commands(click.Group):
    """A click group that loads its commands from COMMANDS."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not all(map(is_utf_8, args)):
            raise click.UsageError("The command line contains bytes that are not UTF-8.", ctx)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in COMMANDS or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        # If the command was forgotten, this is an address, which must not be repeated.
        problem = "That is not a command" if may_be_an_address(name) else f"There is no command {name!r}"
        similar = difflib.get_close_matches(name.lower().replace("_", "-"), COMMANDS, n=1)
        raise click.UsageError(f"{problem}. Did you mean {similar[0]}?" if similar else problem, ctx)

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
    """Submit opt-outs to Stoplist, and check whom you may write to.

    Start with `stoplist-client login`. Where nobody can log in, as in a container, set three variables instead:
    STOPLISTCLIENT_BASE_URL, STOPLISTCLIENT_CLIENT_ID, and STOPLISTCLIENT_CLIENT_SECRET (or
    STOPLISTCLIENT_CLIENT_SECRET_FILE). Optional variables are STOPLISTCLIENT_ORG, _GROUP, _CA_FILE, _MIRROR, and
    _DIR, the folder for profiles, tokens and mirrors.

    \b
    Exit status:
      0    done
      1    failed; stderr says why
      2    wrong usage: options, arguments or variables
      3    done, but some of the addresses were not valid
           (check --fail-if-barred: or somebody is barred)
      130  interrupted by Ctrl+C
      143  terminated by SIGTERM
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the `stoplist-client` command. Always raises SystemExit with the exit status."""
    global_options = GlobalOptions()
    try:
        with sigterm_raises(), notices_on_stderr():
            status = stoplist_client(arguments, prog_name=PROGRAM, standalone_mode=False, obj=global_options)
        # Flush here, where a failure to write can still be reported.
        if sys.stdout is not None:
            sys.stdout.flush()
    except BaseException as error:
        status = report_error(error, global_options)
    sys.exit(status if isinstance(status, int) else 0)

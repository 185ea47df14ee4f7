"""`stoplist-client completion`: print a shell completion script."""

import click
from click.shell_completion import get_completion_class

from stoplist_client.cli.exit_status import Failed, debug_option
from stoplist_client.cli.options import Command
from stoplist_client.cli.printing import print_line

_VARIABLE = "_STOPLIST_CLIENT_COMPLETE"


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")), metavar="SHELL")
@debug_option
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a completion script for bash (4.4 or newer), zsh or fish.

    It completes commands, options, channels and profiles.

    \b
    To install it:
      bash  stoplist-client completion bash > ~/.local/share/bash-completion/completions/stoplist-client
      zsh   stoplist-client completion zsh > ~/.zsh/_stoplist-client, in a folder of $fpath, before compinit
      fish  stoplist-client completion fish > ~/.config/fish/completions/stoplist-client.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise Failed(f"Completion for {shell} is not available.")
    root = ctx.find_root()
    print_line(kind(root.command, {}, str(root.info_name), _VARIABLE).source())

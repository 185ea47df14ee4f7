"""Groups of commands: options of a command may stand before its name, and a misspelt name is answered with the nearest.

Source: docs/interface.md section D9.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import click

_AFTER_TOO = "Before or after the command:"


class CommandGroup(click.Group):
    """A group of commands. `--data-dir` and `--json` before a command are handed on to that command."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        # For `--help`. `parse_args` hands them on before they would be parsed here.
        self.params += [
            click.Option(["--data-dir"], metavar="FOLDER", expose_value=False, help=f"{_AFTER_TOO} the data folder."),
            click.Option(["--json"], is_flag=True, expose_value=False, help=f"{_AFTER_TOO} print JSON, for programs."),
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        count = _count_handed_on(args)
        if count < len(args) and not args[count].startswith("-"):
            args = [args[count], *args[:count], *args[count + 1 :]]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(f"No such command {args[0]!r}.{_suggestion(args[0], self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)


def _count_handed_on(args: Sequence[str]) -> int:
    """Return how many of the first words are options to hand on, with their values."""
    count = 0
    while count < len(args):
        if args[count] == "--data-dir":
            count += 2
        elif args[count] == "--json" or args[count].startswith("--data-dir="):
            count += 1
        else:
            break
    return count


def _suggestion(name: str, commands: Sequence[str]) -> str:
    # `organization` is farther from `org` than a typing error, but begins with it.
    meant = [one for one in commands if name.startswith(one) or one.startswith(name)]
    meant = meant or get_close_matches(name, commands)
    return f" Did you mean {' or '.join(map(repr, meant))}?" if name and meant else ""

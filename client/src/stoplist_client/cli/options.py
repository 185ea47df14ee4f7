"""Options that several commands share, and the parsers of their values.

A malformed value is wrong usage. No message repeats a value that may be an address.
"""

import math
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from stoplist_client.cli.exit_status import debug_option
from stoplist_client.cli.profile import NAME, profile_names
from stoplist_client.model import CHANNELS, Channel

F = TypeVar("F", bound=Callable[..., Any])

_GROUP_ID = re.compile("grp_[0-9A-Za-z]{22}")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,9})([smhd]?)")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


class Command(click.Command):
    """A command whose errors do not repeat extra arguments, which may be addresses or secrets."""

    allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            s = "" if len(rest) == 1 else "s"
            raise click.UsageError(f"The command line has {len(rest)} argument{s} too many.", ctx)
        return rest


def parse_channel(ctx: click.Context, _param: click.Parameter, value: str) -> Channel:
    """Return the channel of this name."""
    for channel in CHANNELS:
        if value == channel:
            return channel
    raise click.UsageError("The first argument must be a channel: email, sms or phone.", ctx)


def parse_group(_ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return a well-formed group id."""
    if value is not None and _GROUP_ID.fullmatch(value) is None:
        raise click.BadParameter("A group id is grp_ followed by 22 letters and digits.", param=param)
    return value


def parse_channels(_ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[Channel, ...]:
    """Return the channels of these names."""
    if not set(value) <= set(CHANNELS):
        raise click.BadParameter("A channel is email, sms or phone.", param=param)
    return tuple(channel for each in value for channel in CHANNELS if channel == each)


def parse_seconds(_ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return the seconds of a duration written as `90`, `90s`, `15m`, `24h` or `7d`."""
    if value is None:
        return None
    match = _DURATION.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a duration: write seconds, or 15m, 24h, 7d.", param=param)
    return int(match[1]) * _SECONDS[match[2]]


def parse_age(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return a duration in seconds; `any` is infinite."""
    return math.inf if value == "any" else parse_seconds(ctx, param, value)


def parse_time(_ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return an RFC 3339 time with its offset, unchanged."""
    try:
        if value is None or (_TIME.fullmatch(value) and datetime.fromisoformat(value.upper())):
            return value
    except ValueError:
        pass
    raise click.BadParameter(
        "A time needs date, time and UTC offset: 2026-03-01T09:30:00Z, or …+01:00 in place of Z.", param=param
    )


def _parse_profile_name(_ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and NAME.fullmatch(value) is None:
        raise click.BadParameter(
            "A profile name has up to 64 letters, digits, dots, - and _, and starts with a letter or digit.",
            param=param,
        )
    return value


def _complete_channel(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(channel) for channel in CHANNELS if channel.startswith(incomplete)]


def _complete_profile(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in profile_names() if name.startswith(incomplete)]


FILE_PATH = click.Path(path_type=Path)  # not required to exist: opening the file reports that

channel_argument = click.argument("channel", callback=parse_channel, shell_complete=_complete_channel)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
org_option = click.option("--org", metavar="SLUG", help="The organization, if not the profile's.")
group_option = click.option(
    "--group", callback=parse_group, metavar="ID", help="The group (grp_…), if not the profile's."
)
mirror_option = click.option(
    "--mirror",
    type=FILE_PATH,
    envvar="STOPLISTCLIENT_MIRROR",
    metavar="FILE",
    help="The mirror file (STOPLISTCLIENT_MIRROR; default: beside the profile).",
)


def common_options(command: F) -> F:
    """Add `--profile` and `--debug`, which every command that uses a profile takes."""
    profile_option = click.option(
        "--profile",
        "profile_name",
        callback=_parse_profile_name,
        shell_complete=_complete_profile,
        metavar="NAME",
        help="The profile to use (STOPLISTCLIENT_PROFILE; default: `default`).",
    )
    return profile_option(debug_option(command))

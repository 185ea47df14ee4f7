"""The words that commands take, and the options that several share; a malformed word is wrong usage.

No refusal repeats a word that may be an address.
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
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


class Command(click.Command):
    """A command whose refusals do not repeat what was typed too much: that may be an address, or a secret."""

    allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            s = "" if len(rest) == 1 else "s"
            raise click.UsageError(f"The command line has {len(rest)} argument{s} too many.", ctx)
        return rest


def as_channel(ctx: click.Context, _param: click.Parameter, value: str) -> Channel:
    """One of the three channels."""
    for channel in CHANNELS:
        if value == channel:
            return channel
    raise click.UsageError("A channel is one of email, sms and phone, and stands before everything else.", ctx)


def as_group(_ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """What may be the id of a group."""
    if value is not None and _GROUP_ID.fullmatch(value) is None:
        raise click.BadParameter("The id of a group is grp_ and 22 letters and digits.", param=param)
    return value


def as_channels(_ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[Channel, ...]:
    """Some of the three channels."""
    if not set(value) <= set(CHANNELS):
        raise click.BadParameter("A channel is one of email, sms and phone.", param=param)
    return tuple(channel for each in value for channel in CHANNELS if channel == each)


def as_seconds(_ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """The seconds of a time span, written `90`, `90s`, `15m`, `24h` or `7d`."""
    if value is None:
        return None
    found = _DURATION.fullmatch(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is no time span: write seconds, or 15m, 24h, 7d.", param=param)
    return int(found[1]) * _SECONDS[found[2]]


def as_age(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """A time span in seconds; `any` is infinite."""
    return math.inf if value == "any" else as_seconds(ctx, param, value)


def as_moment(_ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A moment as RFC 3339 has it, with its offset; handed on as it was written."""
    try:
        if value is None or (_MOMENT.fullmatch(value) and datetime.fromisoformat(value.upper())):
            return value
    except ValueError:
        pass
    raise click.BadParameter("Write date, time and offset from UTC: 2026-03-01T09:30:00Z, or …+01:00.", param=param)


def _as_profile_name(_ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and NAME.fullmatch(value) is None:
        raise click.BadParameter(
            "A name has up to 64 letters, digits, dots, - and _, and begins with a letter or digit.", param=param
        )
    return value


def _channels(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(channel) for channel in CHANNELS if channel.startswith(incomplete)]


def _profiles(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in profile_names() if name.startswith(incomplete)]


A_FILE = click.Path(path_type=Path)  # that it is there is seen when it is opened

channel_argument = click.argument("channel", callback=as_channel, shell_complete=_channels)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
org_option = click.option("--org", metavar="SLUG", help="The organization, if not the profile's.")
group_option = click.option("--group", callback=as_group, metavar="ID", help="The group (grp_…), if not the profile's.")
mirror_option = click.option(
    "--mirror",
    type=A_FILE,
    envvar="STOPLISTCLIENT_MIRROR",
    metavar="FILE",
    help="Where the mirror lies (STOPLISTCLIENT_MIRROR; default: beside the profile).",
)


def common_options(command: F) -> F:
    """`--profile` and `--debug`, which every command takes that works with a profile."""
    profile_option = click.option(
        "--profile",
        "profile_name",
        callback=_as_profile_name,
        shell_complete=_profiles,
        metavar="NAME",
        help="The profile to use (STOPLISTCLIENT_PROFILE; default: `default`).",
    )
    return profile_option(debug_option(command))

"""The mirror and the message group that `check` and `scrub` ask about."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from stoplist_client.cli.exit_status import Failed, print_notice
from stoplist_client.cli.options import common_options, json_option, mirror_option, org_option, parse_age, parse_group
from stoplist_client.cli.profile import Profile
from stoplist_client.cli.profile_selection import load_profile_if_any
from stoplist_client.errors import MirrorTooOld, NotMirrored
from stoplist_client.mirror import ANY_GROUP, Mirror
from stoplist_client.model import Channel

F = TypeVar("F", bound=Callable[..., Any])


class MirrorQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of Mirror.check, apart from the addresses."""

    channel: Channel
    org_slug: str | None
    group_id: Any
    max_age_s: float | None

    def check(self, mirror: Mirror, addresses: list[str]) -> Iterator[Any]:
        """Yield a Checked for each address, in order."""
        return mirror.check(
            self.channel, addresses, org_slug=self.org_slug, group_id=self.group_id, max_age_s=self.max_age_s
        )


def query_options(command: F) -> F:
    """Add the options of `open_mirror_query`."""
    for option in reversed(
        (
            click.option("--group", callback=parse_group, metavar="ID", help="The message is of this group (grp_…)."),
            click.option("--no-group", is_flag=True, help="The message is of no named group."),
            click.option("--any-group", is_flag=True, help="Bar everybody who opted out of anything."),
            org_option,
            click.option(
                "--max-age",
                "max_age_s",
                callback=parse_age,
                metavar="TIME",
                help="The maximum age of the mirror: 90s, 15m, 24h (default), 7d, or `any`.",
            ),
            mirror_option,
            json_option,
            common_options,
        )
    ):
        command = option(command)
    return command


@contextmanager
def open_mirror_query(
    channel: Channel,
    *,
    group: str | None,
    no_group: bool,
    any_group: bool,
    org: str | None,
    max_age_s: float | None,
    mirror: Path | None,
    profile_name: str | None,
) -> Iterator[tuple[Mirror, MirrorQuery]]:
    """Open the mirror, and yield it with the query that the options describe. With --mirror, no profile is needed.

    A group without a record in the mirror causes a notice, since a mistyped id would allow everybody.
    """
    profile = load_profile_if_any(profile_name)
    group_id = _group_id(profile, group, no_group, any_group, org)
    path = mirror or (profile.mirror if profile else None)
    if path is None:
        raise Failed("No mirror is selected: add --mirror FILE, or run `stoplist-client login`.")
    if not path.is_file():
        raise Failed(f"There is no mirror at {path}: run `stoplist-client sync` to create it.")
    org_slug = org or (profile.org_slug if profile else None)
    with Mirror(path) as opened:
        try:
            if isinstance(group_id, str) and not opened.knows_group(channel, group_id, org_slug=org_slug):
                print_notice(f"The mirror has no record of the group {group_id}: check the id.")
            yield opened, MirrorQuery(channel=channel, org_slug=org_slug, group_id=group_id, max_age_s=max_age_s)
        except MirrorTooOld as error:
            raise Failed(_too_old_text(error.age_s)) from None
        except NotMirrored:
            raise Failed(
                f"The mirror has no complete copy of {channel} of {org_slug or 'the organization'}: "
                f"run `stoplist-client sync`, with --org and --channel if the mirror does not follow it yet."
            ) from None


def _group_id(profile: Profile | None, group: str | None, no_group: bool, any_group: bool, org: str | None) -> Any:
    if sum((group is not None, no_group, any_group)) > 1:
        raise click.UsageError("Use only one of --group, --no-group and --any-group.")
    if group is not None:
        return group
    if any_group:
        return ANY_GROUP
    if no_group:
        return None
    # The group of the profile belongs to the organization of the profile.
    if profile and profile.group_id and org in (None, profile.org_slug):
        return profile.group_id
    raise click.UsageError(
        "Say which group the message is of. --group ID bars those who opted out of that group or of all groups, "
        "--no-group those who opted out of all groups, --any-group those who opted out of anything."
    )


def _too_old_text(age_s: float) -> str:
    if age_s < 0:
        return (
            "The mirror was last synchronised in the future: correct the clock of this host, and run "
            "`stoplist-client sync`."
        )
    return (
        f"The mirror was last synchronised {timedelta(seconds=round(age_s))} ago, which is more than --max-age allows: "
        "run `stoplist-client sync`, or add `--max-age any`."
    )

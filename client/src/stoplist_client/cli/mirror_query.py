"""What `check` and `scrub` share: which mirror is asked, and about a message of which group."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from stoplist_client.cli.exit_status import Failed, tell
from stoplist_client.cli.options import as_age, as_group, common_options, json_option, mirror_option, org_option
from stoplist_client.cli.profile import Profile
from stoplist_client.cli.profile_selection import load_if_any
from stoplist_client.errors import MirrorTooOld, NotMirrored
from stoplist_client.mirror import ANY_GROUP, Mirror
from stoplist_client.model import Channel

F = TypeVar("F", bound=Callable[..., Any])


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Whom may a message go to: the arguments of Mirror.check beside the addresses."""

    channel: Channel
    org_slug: str | None
    group_id: Any
    max_age_s: float | None

    def of(self, mirror: Mirror, addresses: list[str]) -> Iterator[Any]:
        """A Checked for each of these addresses, in their order."""
        return mirror.check(
            self.channel, addresses, org_slug=self.org_slug, group_id=self.group_id, max_age_s=self.max_age_s
        )


def asking_options(command: F) -> F:
    """The options by which a question is asked; see `asked`."""
    for option in reversed(
        (
            click.option("--group", callback=as_group, metavar="ID", help="A message of this group (grp_…)."),
            click.option("--no-group", is_flag=True, help="A message of no named group."),
            click.option("--any-group", is_flag=True, help="Bar whoever opted out of anything."),
            org_option,
            click.option(
                "--max-age",
                "max_age_s",
                callback=as_age,
                metavar="TIME",
                help="How old the mirror may be: 90s, 15m, 24h (default), 7d; or `any`.",
            ),
            mirror_option,
            json_option,
            common_options,
        )
    ):
        command = option(command)
    return command


@contextmanager
def asked(
    channel: Channel,
    *,
    group: str | None,
    no_group: bool,
    any_group: bool,
    org: str | None,
    max_age_s: float | None,
    mirror: Path | None,
    profile_name: str | None,
) -> Iterator[tuple[Mirror, Question]]:
    """The mirror, open, and the question that the options ask. A profile is not needed where --mirror is given.

    A group of which the mirror has no record is told: a mistyped id would let everybody through.
    """
    profile = load_if_any(profile_name)
    group_id = _group(profile, group, no_group, any_group, org)
    path = mirror or (profile.mirror if profile else None)
    if path is None:
        raise Failed("Which mirror? Name it with --mirror, or log in with `stoplist-client login`.")
    if not path.is_file():
        raise Failed(f"There is no mirror at {path}: `stoplist-client sync` makes one.")
    org_slug = org or (profile.org_slug if profile else None)
    with Mirror(path) as opened:
        try:
            if isinstance(group_id, str) and not opened.knows_group(channel, group_id, org_slug=org_slug):
                tell(f"No record of the group {group_id} is here: is the id right?")
            yield opened, Question(channel=channel, org_slug=org_slug, group_id=group_id, max_age_s=max_age_s)
        except MirrorTooOld as error:
            raise Failed(_too_old(error.age_s)) from None
        except NotMirrored:
            raise Failed(
                f"The mirror does not know {channel} of {org_slug or 'that organization'} to its end: "
                f"`stoplist-client sync` reads it, and --org and --channel add to what is followed."
            ) from None


def _group(profile: Profile | None, group: str | None, no_group: bool, any_group: bool, org: str | None) -> Any:
    if sum((group is not None, no_group, any_group)) > 1:
        raise click.UsageError("Say one of --group, --no-group and --any-group.")
    if group is not None:
        return group
    if any_group:
        return ANY_GROUP
    if no_group:
        return None
    # The profile's group is one of the profile's organization.
    if profile and profile.group_id and org in (None, profile.org_slug):
        return profile.group_id
    raise click.UsageError(
        "Say what the message is: of a group, --group ID (barred is who left that group, or everything); of no named "
        "group, --no-group (barred is who left everything); or --any-group (barred is who left anything at all)."
    )


def _too_old(age_s: float) -> str:
    if age_s < 0:
        return (
            "The mirror was brought up to date in the future: mend the clock of this host, and `stoplist-client sync`."
        )
    return (
        f"The mirror was brought up to date {timedelta(seconds=round(age_s))} ago, longer than --max-age allows: "
        "`stoplist-client sync` does that again, and `--max-age any` answers all the same."
    )

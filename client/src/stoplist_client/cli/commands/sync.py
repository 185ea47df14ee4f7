"""`stoplist-client sync`: keep the mirror up to date."""

from pathlib import Path

import click

from stoplist_client.cli.context import client_of
from stoplist_client.cli.exit_status import FAILED, Failed
from stoplist_client.cli.options import Command, as_channels, as_seconds, common_options, json_option, mirror_option
from stoplist_client.cli.printing import print_line
from stoplist_client.cli.profile import Profile, make_folder
from stoplist_client.cli.profile_selection import load, load_if_any
from stoplist_client.cli.sync_round import Shown, one_round
from stoplist_client.cli.watch_loop import watch as watch_on
from stoplist_client.mirror import Mirror
from stoplist_client.model import CHANNELS, Channel


@click.command("sync", cls=Command)
@click.option("--watch", is_flag=True, help="Go on until SIGINT or SIGTERM, which end it with 0.")
@click.option(
    "--every",
    "every_s",
    callback=as_seconds,
    default="60",
    show_default=True,
    metavar="TIME",
    help="With --watch: how long to wait in between, as 30s, 5m, 1h.",
)
@click.option("--org", "orgs", multiple=True, metavar="SLUG", help="Follow this organization; may be repeated.")
@click.option(
    "--channel", "channels", multiple=True, callback=as_channels, metavar="CHANNEL", help="Follow it; may be repeated."
)
@click.option(
    "--submit-missing",
    "submits",
    is_flag=True,
    help="Submit again what the service lost when it was put back to an earlier state.",
)
@click.option("--unfollow", "unfollows", is_flag=True, help="Take what --org and --channel name out of the mirror.")
@click.option(
    "--forget-missing",
    "forgets",
    is_flag=True,
    help="With --unfollow: give up opt-outs, too, that the service lost and that stand in this mirror alone.",
)
@mirror_option
@json_option
@common_options
def command(
    watch: bool,
    every_s: float,
    orgs: tuple[str, ...],
    channels: tuple[Channel, ...],
    submits: bool,
    unfollows: bool,
    forgets: bool,
    mirror: Path | None,
    as_json: bool,
    profile_name: str | None,
) -> None:
    """Bring the local mirror up to date: everything the first time, and then what changed.

    It is what `stoplist-client check` and `scrub` ask. The first run follows all three channels of the profile's
    organization; --org and --channel, then or later, say what is followed or is to be added. It may be killed at any
    moment and run again, also twice at once. With --watch what passes by itself, as a service that is away, is told on
    stderr and tried again later.

    An organization that the key may not read, or no longer, is told on stderr, and holds up no other; without --watch
    the command ends with 1 then. With --submit-missing what the service does not take again is counted on stderr, and
    the command ends with 1, too. --unfollow takes an organization out of the mirror, with all that is known of it;
    nothing is read. It is refused while opt-outs of it stand here alone, unless --forget-missing gives those up.

    \b
    Examples:
      stoplist-client sync
      stoplist-client sync --watch --every 5m
      stoplist-client sync --mirror /var/lib/app/opt-outs.db --org acme --channel email
      stoplist-client sync --unfollow --org acme
    """
    if every_s < 1:
        raise click.UsageError("--every must be a second at least: all processes of a key share its requests a minute.")
    if unfollows:
        if watch or submits or not (orgs or channels):
            raise click.UsageError("--unfollow goes with --org, --channel or both, and nothing is read then.")
        _unfollow(load_if_any(profile_name), mirror, orgs, channels, forgets=forgets)
        return
    if forgets:
        raise click.UsageError("--forget-missing goes with --unfollow: opt-outs are given up with what they belong to.")
    profile = load(profile_name)
    if mirror is None:
        make_folder()
    with client_of(profile) as client, Mirror(mirror or profile.mirror, client) as opened:
        _follow(opened, profile, orgs, channels)
        shown = Shown(as_json=as_json, watches=watch)

        def synchronise() -> bool:
            done = one_round(client, opened, submits=submits)
            shown.show(done)
            # Where nothing at all may be read it is not that one organization went away.
            if done.refusal and not (watch and done.feeds):
                raise done.refusal
            return not (done.resubmission and done.resubmission.refused)

        if watch:
            watch_on(synchronise, every_s)
        elif not synchronise():
            raise click.exceptions.Exit(FAILED)


def _follow(mirror: Mirror, profile: Profile, orgs: tuple[str, ...], channels: tuple[Channel, ...]) -> None:
    if mirror.feeds() and not (orgs or channels):
        return
    slugs = orgs or ((profile.org_slug,) if profile.org_slug else ())
    if not slugs:
        raise Failed("Which organization? Name it with --org, or log in again with its slug.")
    for slug in slugs:
        mirror.follow(*(channels or CHANNELS), org_slug=slug)


def _unfollow(
    profile: Profile | None, path: Path | None, orgs: tuple[str, ...], channels: tuple[Channel, ...], *, forgets: bool
) -> None:
    path = path or (profile.mirror if profile else None)
    slugs = orgs or ((profile.org_slug,) if profile and profile.org_slug else ())
    if path is None or not slugs:
        raise Failed("Of which mirror and organization? Name them with --mirror and --org, or log in.")
    if not path.is_file():
        raise Failed(f"There is no mirror at {path}.")
    with Mirror(path) as opened:
        followed = [(feed.org_slug, feed.channel) for feed in opened.feeds()]
        for slug in slugs:
            its = [channel for org, channel in followed if org == slug and channel in (channels or CHANNELS)]
            if len(its) < max(1, len(set(channels))):
                known = ", ".join(f"{channel} of {org}" for org, channel in followed) or "nothing"
                raise Failed(f"The mirror does not follow that of {slug}. It follows {known}.")
            if forgets:
                for channel in its:
                    opened.settle(channel, opened.missing(channel, org_slug=slug), org_slug=slug)
            opened.unfollow(*its, org_slug=slug)
            for channel in its:
                print_line(f"{slug} {channel}: not followed any more.")

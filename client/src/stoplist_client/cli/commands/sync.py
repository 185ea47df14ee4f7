"""`stoplist-client sync`: update the mirror."""

from pathlib import Path

import click

from stoplist_client.cli.context import open_client
from stoplist_client.cli.exit_status import FAILED, Failed
from stoplist_client.cli.options import (
    Command,
    common_options,
    json_option,
    mirror_option,
    parse_channels,
    parse_seconds,
)
from stoplist_client.cli.printing import print_line
from stoplist_client.cli.profile import Profile, make_folder
from stoplist_client.cli.profile_selection import load_profile, load_profile_if_any
from stoplist_client.cli.sync_round import RoundPrinter, SyncRound, run_round
from stoplist_client.cli.watch_loop import watch as watch_on
from stoplist_client.client import Client
from stoplist_client.mirror import Mirror
from stoplist_client.model import CHANNELS, Channel


@click.command("sync", cls=Command)
@click.option("--watch", is_flag=True, help="Keep running until SIGINT or SIGTERM; the exit status is then 0.")
@click.option(
    "--every",
    "every_s",
    callback=parse_seconds,
    metavar="TIME",
    help="With --watch: update this often, such as 30s, 5m, 1h, instead of waiting for changes.",
)
@click.option("--org", "orgs", multiple=True, metavar="SLUG", help="Follow this organization; may be repeated.")
@click.option(
    "--channel",
    "channels",
    multiple=True,
    callback=parse_channels,
    metavar="CHANNEL",
    help="Follow this channel; may be repeated.",
)
@click.option(
    "--submit-missing",
    "submits",
    is_flag=True,
    help="Submit opt-outs again that the service lost when it was restored to an earlier state.",
)
@click.option("--unfollow", "unfollows", is_flag=True, help="Remove what --org and --channel name from the mirror.")
@click.option(
    "--forget-missing",
    "forgets",
    is_flag=True,
    help="With --unfollow: also give up opt-outs that the service lost and only this mirror has.",
)
@mirror_option
@json_option
@common_options
def command(
    watch: bool,
    every_s: float | None,
    orgs: tuple[str, ...],
    channels: tuple[Channel, ...],
    submits: bool,
    unfollows: bool,
    forgets: bool,
    mirror: Path | None,
    as_json: bool,
    profile_name: str | None,
) -> None:
    """Update the local mirror: read everything the first time, and only changes after that.

    `stoplist-client check` and `scrub` ask the mirror. The first run follows all three channels of the profile's
    organization, or what --org and --channel name; later runs add what they name. You may kill the command at any time
    and run it again, even several times at once. With --watch, the service answers as soon as something has changed;
    the command asks at most every 3 seconds, and leaves half of the key's limit to others. Temporary failures, such as
    an unavailable service, are reported on stderr and retried later.

    If the key may not read an organization, that is reported on stderr, the others are read nevertheless, and the exit
    status is 1 (with --watch, the command goes on). With --submit-missing, opt-outs that the service refuses are
    counted on stderr, and the exit status is 1. --unfollow removes an organization and its records from the mirror, and
    reads nothing. It is refused while only this mirror has some of its opt-outs, unless --forget-missing gives them up.

    \b
    Examples:
      stoplist-client sync
      stoplist-client sync --watch --every 5m
      stoplist-client sync --mirror /var/lib/app/opt-outs.db --org acme --channel email
      stoplist-client sync --unfollow --org acme
    """
    if every_s is not None and every_s < 1:
        raise click.UsageError("--every must be at least 1s: all processes of a key share its limit of requests.")
    if unfollows:
        if watch or submits or not (orgs or channels):
            raise click.UsageError(
                "--unfollow needs --org or --channel, and cannot be used with --watch or --submit-missing."
            )
        _unfollow(load_profile_if_any(profile_name), mirror, orgs, channels, forgets=forgets)
        return
    if forgets:
        raise click.UsageError("--forget-missing can only be used with --unfollow.")
    profile = load_profile(profile_name)
    if mirror is None:
        make_folder()
    with open_client(profile) as client, Mirror(mirror or profile.mirror, client) as opened:
        _follow(opened, profile, orgs, channels)
        printer = RoundPrinter(as_json=as_json, watches=watch)
        _synchronise(client, opened, printer, submits=submits, watches=watch, every_s=every_s)


def _synchronise(
    client: Client, mirror: Mirror, printer: RoundPrinter, *, submits: bool, watches: bool, every_s: float | None
) -> None:
    """Update the mirror once, or until a signal; Exit if the service refused opt-outs that were submitted again."""

    def synchronise(wait_s: int | None) -> SyncRound:
        result = run_round(client, mirror, submits=submits, wait_s=wait_s)
        printer.show(result)
        # If no feed could be read, the key itself is at fault, and --watch cannot help.
        if result.refusal and not result.is_partial and not (watches and result.feeds):
            raise result.refusal
        return result

    if watches:
        watch_on(synchronise, every_s)
        return
    resubmission = synchronise(None).resubmission
    if resubmission and resubmission.refused:
        raise click.exceptions.Exit(FAILED)


def _follow(mirror: Mirror, profile: Profile, orgs: tuple[str, ...], channels: tuple[Channel, ...]) -> None:
    followed = sorted({feed.org_slug for feed in mirror.feeds()})
    if followed and not (orgs or channels):
        if profile.org_slug and profile.org_slug not in followed:
            click.echo(
                f"This mirror follows {', '.join(followed)}, but not {profile.org_slug}, the organization of the "
                f"profile or of STOPLISTCLIENT_ORG: add --org {profile.org_slug} to follow it too, or name another "
                "mirror (--mirror).",
                err=True,
            )
        return
    slugs = orgs or ((profile.org_slug,) if profile.org_slug else ())
    if not slugs:
        raise Failed("The organization is not known: add --org SLUG, or log in again with --org.")
    for slug in slugs:
        mirror.follow(*(channels or CHANNELS), org_slug=slug)


def _unfollow(
    profile: Profile | None, path: Path | None, orgs: tuple[str, ...], channels: tuple[Channel, ...], *, forgets: bool
) -> None:
    path = path or (profile.mirror if profile else None)
    slugs = orgs or ((profile.org_slug,) if profile and profile.org_slug else ())
    if path is None or not slugs:
        raise Failed("The mirror or organization is not known: add --mirror FILE and --org SLUG, or log in.")
    if not path.is_file():
        raise Failed(f"There is no mirror at {path}.")
    with Mirror(path) as opened:
        followed = [(feed.org_slug, feed.channel) for feed in opened.feeds()]
        for slug in slugs:
            to_remove = [channel for org, channel in followed if org == slug and channel in (channels or CHANNELS)]
            if len(to_remove) < max(1, len(set(channels))):
                feeds = ", ".join(f"{channel} of {org}" for org, channel in followed) or "nothing"
                raise Failed(f"The mirror does not follow these channels of {slug}. It follows {feeds}.")
            if forgets:
                for channel in to_remove:
                    opened.settle(channel, opened.missing(channel, org_slug=slug), org_slug=slug)
            opened.unfollow(*to_remove, org_slug=slug)
            for channel in to_remove:
                print_line(f"{slug} {channel}: no longer followed.")

"""`stoplist-client sync`: keep the mirror up to date."""

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from stoplist_client.cli.chosen import load
from stoplist_client.cli.missing import submit_missing
from stoplist_client.cli.opened import client_of
from stoplist_client.cli.printing import counted, print_json, print_line
from stoplist_client.cli.profile import Profile, make_folder
from stoplist_client.cli.progress import Bar
from stoplist_client.cli.trouble import Failed, tell
from stoplist_client.cli.words import Command, as_channels, as_seconds, common_options, json_option, mirror_option
from stoplist_client.errors import ApiError, ConfigurationError, InvalidToken, StoplistClientError
from stoplist_client.mirror import FeedSynced, Mirror, Synced
from stoplist_client.model import CHANNELS, Channel

_FIRST_WAIT_S, _LONGEST_WAIT_S = 5.0, 300.0


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
@mirror_option
@json_option
@common_options
def command(
    watch: bool,
    every_s: float,
    orgs: tuple[str, ...],
    channels: tuple[Channel, ...],
    submits: bool,
    mirror: Path | None,
    as_json: bool,
    profile_name: str | None,
) -> None:
    """Bring the local mirror up to date: everything the first time, and then what changed.

    It is what `stoplist-client check` and `scrub` ask. The first run follows all three channels of the profile's
    organization; --org and --channel, then or later, say what is followed or is to be added. It may be killed at any
    moment and run again, also twice at once. With --watch what passes by itself, as a service that is away, is told on
    stderr and tried again later.

    \b
    Examples:
      stoplist-client sync
      stoplist-client sync --watch --every 5m
      stoplist-client sync --mirror /var/lib/app/opt-outs.db --org acme --channel email
    """
    if every_s < 1:
        raise click.UsageError("--every must be a second at least: all processes of a key share its requests a minute.")
    profile = load(profile_name)
    if mirror is None:
        make_folder()
    with client_of(profile) as client, Mirror(mirror or profile.mirror, client) as opened:
        _follow(opened, profile, orgs, channels)
        shown = _Shown(as_json=as_json, watches=watch)

        def synchronise() -> None:
            synced = _synced(opened)
            shown.show(synced, submit_missing(client, opened, synced.feeds) if submits else None)

        if watch:
            _watch(synchronise, every_s)
        else:
            synchronise()


def _follow(mirror: Mirror, profile: Profile, orgs: tuple[str, ...], channels: tuple[Channel, ...]) -> None:
    if mirror.feeds() and not (orgs or channels):
        return
    slugs = orgs or ((profile.org_slug,) if profile.org_slug else ())
    if not slugs:
        raise Failed("Which organization? Name it with --org, or log in again with its slug.")
    for slug in slugs:
        mirror.follow(*(channels or CHANNELS), org_slug=slug)


def _synced(mirror: Mirror) -> Synced:
    with Bar("Reading", lambda: None) as bar:
        return mirror.sync(lambda feed: bar.show(f"{feed.org_slug} {feed.channel} {counted(feed.records, 'change')}"))


def _watch(synchronise: Callable[[], None], every_s: float) -> None:
    """Goes on until a signal; what cannot pass by itself is raised."""
    failures = 0
    with _ended_by_signals():
        while True:
            wait_s = every_s
            try:
                synchronise()
                failures = 0
            except StoplistClientError as error:
                if not _may_pass(error):
                    raise
                failures += 1
                wait_s = backoff_s(failures, every_s, random.random())  # noqa: S311 - spreads them, and is no secret
                tell(f"{error} Trying again in {wait_s:.0f} s.")
            time.sleep(wait_s)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and Ctrl+C end what is within, wherever it is, and are no error."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


def _may_pass(error: StoplistClientError) -> bool:
    """Whether the same may go well later without anybody doing anything."""
    if isinstance(error, ApiError) and not isinstance(error, InvalidToken):
        return error.status == 429 or error.status >= 500
    return not isinstance(error, ConfigurationError)


def backoff_s(failures: int, every_s: float, chance: float) -> float:
    """How long to wait after so many failures in a row; never much longer than usual, nor than five minutes."""
    longest_s = max(every_s, _LONGEST_WAIT_S)
    return float(min(min(every_s, _FIRST_WAIT_S) * 2.0 ** min(failures - 1, 16), longest_s) * (1 + chance / 2))


class _Shown:
    """Prints what each round did: all feeds at first, and those that changed later; or, for programs, always all."""

    def __init__(self, *, as_json: bool, watches: bool) -> None:
        self._as_json, self._watches, self._is_first = as_json, watches, True

    def show(self, synced: Synced, submitted: int | None) -> None:
        """Show one round; `submitted` again were so many of those that are missing, None where nobody wanted that."""
        if self._as_json:
            feeds = [msgspec.structs.asdict(feed) for feed in synced.feeds]
            # Of many rounds each has a line to itself.
            print_json({"feeds": feeds, "submitted_again": submitted or 0}, is_indented=not self._watches)
        else:
            for feed in synced.feeds:
                if feed.records or feed.was_rebuilt or self._is_first:
                    print_line(_line(feed))
            if submitted:
                print_line(f"{counted(submitted, 'opt-out')} that the service had lost: submitted again.")
        for feed in synced.feeds:
            if submitted is None and feed.missing and (feed.was_rebuilt or self._is_first):
                tell(_missing(feed))
        self._is_first = False


def _line(feed: FeedSynced) -> str:
    anew = ", read anew since the service was put back to an earlier state" if feed.was_rebuilt else ""
    return f"{feed.org_slug} {feed.channel}: {counted(feed.records, 'change')}{anew}"


def _missing(feed: FeedSynced) -> str:
    return (
        f"{feed.org_slug} {feed.channel}: the service was put back to an earlier state and lost "
        f"{counted(feed.missing, 'opt-out')} that this mirror has. "
        "They stay barred here; --submit-missing submits them again."
    )

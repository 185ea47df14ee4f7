"""One round of `sync`: reads all followed feeds, submits lost opt-outs again, and prints the result."""

from collections.abc import Iterator

import msgspec

from stoplist_client.cli.exit_status import print_notice
from stoplist_client.cli.messages import message_of
from stoplist_client.cli.printing import print_json, print_line, quantity
from stoplist_client.cli.progress import ProgressBar
from stoplist_client.cli.resubmission import RefusedOptOuts, Resubmission, submit_missing
from stoplist_client.client import Client
from stoplist_client.errors import ApiError, InsufficientScope, MirrorDiverged, UnauthorizedOrganization
from stoplist_client.mirror import FeedSynced, Mirror


class SyncRound(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one round.

    `refusal` is about a feed that the key may not read, or one that still differs from the service after it was read
    anew; all others were read. `resubmission` is None if it was not requested. `pause_s`: see Synced; None if a feed
    was refused. `is_partial`: it waited for a change of any feed.
    """

    feeds: tuple[FeedSynced, ...]
    refusal: ApiError | MirrorDiverged | None
    resubmission: Resubmission | None
    pause_s: float | None = None
    is_partial: bool = False


def run_round(client: Client, mirror: Mirror, *, submits: bool, wait_s: int | None = None) -> SyncRound:
    """Read all feeds that the key may read and, with `submits`, submit opt-outs again that the service lost.

    With `wait_s`, wait for a change of any feed.
    """
    read: dict[tuple[str, str], FeedSynced] = {}
    refusal: ApiError | MirrorDiverged | None = None
    pause_s: float | None = None
    with ProgressBar("Reading", lambda: None) as bar:

        def note(feed: FeedSynced) -> None:
            read[feed.org_slug, feed.channel] = feed
            bar.show(f"{feed.org_slug} {feed.channel} {quantity(feed.records, 'change')}")

        try:
            pause_s = mirror.sync(note, wait=wait_s).pause_s
        except (UnauthorizedOrganization, InsufficientScope) as error:
            refusal = error
        except MirrorDiverged as error:
            refusal = error
            pause_s = error.pause_s
    resubmission = submit_missing(client, mirror) if submits else None
    return SyncRound(
        feeds=tuple(read.values()),
        refusal=refusal,
        resubmission=resubmission,
        pause_s=pause_s,
        is_partial=wait_s is not None,
    )


class RoundPrinter:
    """Prints the result of each round: all feeds the first time, then only those that changed; as JSON, always all.

    A refusal is printed on stderr once, until it is over.
    """

    def __init__(self, *, as_json: bool, watches: bool) -> None:
        self._as_json, self._watches, self._is_first = as_json, watches, True
        self._refusals_before: set[object] = set()

    def show(self, done: SyncRound) -> None:
        """Print the result of one round; of a partial one, not what was refused, which the next round reads again."""
        resubmission = done.resubmission or Resubmission(0, ())
        if not (done.feeds or resubmission.submitted or resubmission.refused):
            pass  # the refusal is all there is to print
        elif self._as_json:
            self._print_json(done, resubmission)
        else:
            for feed in done.feeds:
                if feed.records or feed.was_rebuilt or self._is_first:
                    print_line(_feed_line(feed))
            if resubmission.submitted:
                print_line(f"Submitted {quantity(resubmission.submitted, 'opt-out')} again that the service had lost.")
        for feed in done.feeds:
            if done.resubmission is None and feed.missing and (feed.was_rebuilt or self._is_first):
                print_notice(_missing_text(feed))
        if not done.is_partial or isinstance(done.refusal, MirrorDiverged):
            self._print_new_refusals(dict(self._refused(done, resubmission)))
        self._is_first = False

    def _print_json(self, done: SyncRound, resubmission: Resubmission) -> None:
        fields = {
            "feeds": list(done.feeds),
            "submitted_again": resubmission.submitted,
            "refused_again": list(resubmission.refused),
        }
        # With --watch, each round is one line.
        print_json(fields, is_indented=not self._watches)

    def _refused(self, done: SyncRound, resubmission: Resubmission) -> Iterator[tuple[object, str]]:
        """Yield a key and a text for each refusal. The texts contain request ids, and so differ in every round."""
        for refused in resubmission.refused:
            yield (refused.org_slug, refused.channel, refused.group_id), _refused_text(refused)
        if done.refusal is not None and self._watches and done.feeds:
            key = done.refusal.text if isinstance(done.refusal, ApiError) else str(done.refusal)
            yield key, message_of(done.refusal)

    def _print_new_refusals(self, refused: dict[object, str]) -> None:
        for about, text in refused.items():
            if about not in self._refusals_before:
                print_notice(text)
        self._refusals_before = set(refused)


def _feed_line(feed: FeedSynced) -> str:
    rebuilt = ""
    if feed.was_diverged:
        rebuilt = ", read from the beginning because the mirror differed from the service"
    elif feed.was_rebuilt:
        rebuilt = ", read from the beginning because the service was restored to an earlier state"
    return f"{feed.org_slug} {feed.channel}: {quantity(feed.records, 'change')}{rebuilt}"


def _missing_text(feed: FeedSynced) -> str:
    return (
        f"{feed.org_slug} {feed.channel}: the service was restored to an earlier state and lost "
        f"{quantity(feed.missing, 'opt-out')} that this mirror has. "
        "They stay barred in this mirror; --submit-missing submits them again."
    )


def _refused_text(refused: RefusedOptOuts) -> str:
    group = refused.group_id or "all groups"
    return (
        f"{refused.org_slug} {refused.channel}, {group}: the service lost {quantity(refused.opt_outs, 'opt-out')} and "
        f"does not accept them again, so they stay barred in this mirror: {refused.problem}"
    )

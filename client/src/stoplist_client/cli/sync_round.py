"""One round of `sync`: what is followed is read, what the service lost is submitted again, and both are told."""

from collections.abc import Iterator

import msgspec

from stoplist_client.cli.exit_status import tell
from stoplist_client.cli.messages import spoken
from stoplist_client.cli.printing import counted, print_json, print_line
from stoplist_client.cli.progress import Bar
from stoplist_client.cli.resubmission import Refused, Resubmission, submit_missing
from stoplist_client.client import Client
from stoplist_client.errors import ApiError, InsufficientScope, UnauthorizedOrganization
from stoplist_client.mirror import FeedSynced, Mirror


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What was read; `refusal` is about a feed that the key may not read, and all others were read nevertheless.

    `again` is None where nobody wanted anything to be submitted again.
    """

    feeds: tuple[FeedSynced, ...]
    refusal: ApiError | None
    resubmission: Resubmission | None


def one_round(client: Client, mirror: Mirror, *, submits: bool) -> Round:
    """All feeds were read that the key may read, and with `submits` what is missing there was submitted again."""
    read: dict[tuple[str, str], FeedSynced] = {}
    refusal: ApiError | None = None
    with Bar("Reading", lambda: None) as bar:

        def note(feed: FeedSynced) -> None:
            read[feed.org_slug, feed.channel] = feed
            bar.show(f"{feed.org_slug} {feed.channel} {counted(feed.records, 'change')}")

        try:
            mirror.sync(note)
        except (UnauthorizedOrganization, InsufficientScope) as error:
            refusal = error
    resubmission = submit_missing(client, mirror) if submits else None
    return Round(feeds=tuple(read.values()), refusal=refusal, resubmission=resubmission)


class Shown:
    """Prints what each round did: all feeds at first, and those that changed later; or, for programs, always all.

    What was refused goes to stderr, once for as long as it lasts.
    """

    def __init__(self, *, as_json: bool, watches: bool) -> None:
        self._as_json, self._watches, self._is_first = as_json, watches, True
        self._refused_before: set[object] = set()

    def show(self, done: Round) -> None:
        """Show one round."""
        resubmission = done.resubmission or Resubmission(0, ())
        if not (done.feeds or resubmission.submitted or resubmission.refused):
            pass  # the refusal says it all
        elif self._as_json:
            self._print_json(done, resubmission)
        else:
            for feed in done.feeds:
                if feed.records or feed.was_rebuilt or self._is_first:
                    print_line(_line(feed))
            if resubmission.submitted:
                print_line(f"{counted(resubmission.submitted, 'opt-out')} that the service had lost: submitted again.")
        for feed in done.feeds:
            if done.resubmission is None and feed.missing and (feed.was_rebuilt or self._is_first):
                tell(_missing(feed))
        self._tell_refused(dict(self._refused(done, resubmission)))
        self._is_first = False

    def _print_json(self, done: Round, resubmission: Resubmission) -> None:
        shown = {
            "feeds": list(done.feeds),
            "submitted_again": resubmission.submitted,
            "refused_again": list(resubmission.refused),
        }
        # Of many rounds each has a line to itself.
        print_json(shown, is_indented=not self._watches)

    def _refused(self, done: Round, resubmission: Resubmission) -> Iterator[tuple[object, str]]:
        """What is to be told, by what it is about: texts have the number of a request, and change."""
        for one in resubmission.refused:
            yield (one.org_slug, one.channel, one.group_id), _refused(one)
        if done.refusal is not None and self._watches and done.feeds:
            yield done.refusal.text, spoken(done.refusal)

    def _tell_refused(self, refused: dict[object, str]) -> None:
        for about, text in refused.items():
            if about not in self._refused_before:
                tell(text)
        self._refused_before = set(refused)


def _line(feed: FeedSynced) -> str:
    anew = ", read anew since the service was put back to an earlier state" if feed.was_rebuilt else ""
    return f"{feed.org_slug} {feed.channel}: {counted(feed.records, 'change')}{anew}"


def _missing(feed: FeedSynced) -> str:
    return (
        f"{feed.org_slug} {feed.channel}: the service was put back to an earlier state and lost "
        f"{counted(feed.missing, 'opt-out')} that this mirror has. "
        "They stay barred here; --submit-missing submits them again."
    )


def _refused(one: Refused) -> str:
    group = one.group_id or "all groups"
    return (
        f"{one.org_slug} {one.channel}, {group}: {counted(one.opt_outs, 'opt-out')} that the service had lost stay "
        f"barred here, and it does not take them again: {one.problem}"
    )

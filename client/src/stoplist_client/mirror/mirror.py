"""The public class Mirror."""

import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from stoplist_addresses import RULES, AddressError

from stoplist_client.blocking import BlockingClient
from stoplist_client.errors import ConfigurationError, MirrorDiverged, MirrorTooOld, NotMirrored, StoplistClientError
from stoplist_client.flows.following import MAX_RECORDS
from stoplist_client.mirror import asking, feeds, listing, verification
from stoplist_client.mirror.bulk_query import BulkQuery
from stoplist_client.mirror.canonical_forms import in_slices
from stoplist_client.mirror.file import MirrorFile
from stoplist_client.mirror.group import Group, checked_group
from stoplist_client.mirror.held_pages import HeldPages
from stoplist_client.mirror.mirror_errors import as_mirror_error, hides_arguments, without_traceback
from stoplist_client.mirror.model import Checked, Followed, Synced, Verified
from stoplist_client.mirror.sweeping import sweep
from stoplist_client.mirror.syncing import MAX_WAIT_S, Progress, Synchronisation
from stoplist_client.model import Channel, Record

if TYPE_CHECKING:  # queries need no network, so httpx2 is not imported
    from stoplist_client.client import Client

_DAY_S = 86_400.0


class Mirror:
    """A local copy of the list of any number of organizations and channels, in one SQLite file.

    One process updates the mirror with `sync`, every few minutes or once a night. Any number of threads and processes
    query it. The file contains addresses, and only this user can read it. Keep it on a local disk, not on a network
    share. It survives a kill -9 at any time.

    path:       the file; created if it does not exist and a client is given, or by `follow`
    client:     reads from the service; not needed for queries
    max_age_s:  an older mirror does not answer, unless the query allows more; math.inf allows any age
    page_records: the number of changes that are read and stored together
    clock:      returns the seconds since 1970 UTC; for tests

    Raises MirrorError, including NotMirrored, MirrorTooOld and MirrorDiverged, and ConfigurationError for wrong
    arguments. `sync` also raises the errors of the client.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        client: "Client | None" = None,
        *,
        max_age_s: float = _DAY_S,
        page_records: int = MAX_RECORDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._max_age_s = _checked_age(max_age_s)
        if client is not None and not isinstance(client, BlockingClient):
            raise ConfigurationError("A Mirror needs a Client, also in programs that use an AsyncClient otherwise.")
        if not 1 <= page_records <= MAX_RECORDS:
            raise ConfigurationError(f"page_records must be from 1 to {MAX_RECORDS}.")
        self._file, self._client, self._page_records, self._now_s = MirrorFile(path), client, page_records, clock
        self._held = HeldPages()
        try:
            self._check_file()
        except BaseException:
            self._file.close()
            raise

    def follow(self, *channels: Channel, org_slug: str | None = None) -> None:
        """Follow these channels of the organization, by default that of the client.

        The mirror answers about them once `sync` has read them. May be repeated.
        """
        named, org_slug = _checked_channels(channels), self._default_org(org_slug)
        if org_slug is None:
            raise ConfigurationError("Name the org_slug of the list to follow, here or in the client.")
        slug = feeds.checked_slug(org_slug)
        self._file.create()
        with self._file.pooled_connection() as connection:
            feeds.follow(connection, named, slug)

    def unfollow(self, *channels: Channel, org_slug: str | None = None) -> None:
        """Stop following these channels of the organization, and delete their records from the mirror.

        `org_slug` works as in `follow`, and may be left out if the mirror follows one organization on these channels.
        Raises NotMirrored if a channel is not followed, and MirrorError while there are `missing` opt-outs, which would
        be lost for good: submit them again or `settle` them first. After an error, nothing has changed.
        """
        named = _checked_channels(channels)
        with self._file.own_connection() as connection:
            feeds.unfollow(connection, named, self._default_org(org_slug))
            sweep(connection)

    def feeds(self) -> tuple[Followed, ...]:
        """Return the followed feeds, with their number of records and their age."""
        with self._file.pooled_connection() as connection:
            return feeds.followed(connection, self._now_s)

    def sync(self, on_progress: Progress | None = None, *, wait: int | None = None) -> Synced:
        """Update all followed feeds to the present state of the service.

        Continues where the last call ended, even if it was killed. Several processes may call this at once. After a
        restore of the service, everything is read again into a new copy, while the old one answers. Opt-outs that the
        service lost go on barring, are counted in `Synced.missing`, and can be submitted again from `missing`. If the
        key may not read a feed, the others are read first, and the error is raised at the end. `on_progress` is called
        after each page with a FeedSynced. Source: docs/interface.md section D6.

        At the end of each feed, the mirror compares its number of records and their digest with those of the service.
        If they differ, the feed is read anew at once. Until that is done, the mirror bars what either copy bars, and
        raises MirrorDiverged for everything else. If the new copy differs, too, it is kept and answers; `sync` raises
        MirrorDiverged, and reads it anew once an hour at most. Source: docs/interface.md section D14, State of a feed.

        A synchronisation that stored anything ends by telling the service so: it presents its last cursor once more.
        Source: docs/interface.md section D14, Propagation.

        With `wait`, from 1 to 30 seconds, the service is asked to answer once something has changed, and the call
        returns as soon as it has answered about any feed. Call it again after `Synced.pause_s`: the requests about the
        other feeds go on in the background. Source: docs/interface.md section D14, Waiting for news.
        """
        if self._client is None:
            raise ConfigurationError("This Mirror has no client: pass one to synchronise.")
        if wait is not None and not (isinstance(wait, int) and 1 <= wait <= MAX_WAIT_S):
            raise ConfigurationError(f"wait must be a whole number of seconds from 1 to {MAX_WAIT_S}.")
        with self._file.own_connection() as connection:
            feeds.bind(connection, self._client.base_url)
            synchronisation = Synchronisation(
                self._client,
                connection,
                now_s=self._now_s,
                limit=self._page_records,
                on_progress=on_progress,
                held=self._held,
            )
            return synchronisation.run() if wait is None else synchronisation.run_waiting(wait)

    def is_barred(
        self,
        channel: Channel,
        address: str,
        *,
        org_slug: str | None = None,
        group_id: Group,
        max_age_s: float | None = None,
    ) -> bool:
        """Return whether a message of this group must not go to this address, in any spelling.

        `group_id` is the id of a group; or None for a message of no named group, which only the all-groups record bars;
        or ANY_GROUP, which bars everybody who opted out of anything. `org_slug` may be left out if the mirror follows
        one organization on this channel. Raises stoplist_addresses.AddressError for an invalid address: never send to
        it. Source: docs/interface.md section D5.
        """
        file = self._file
        # Tracebacks may show the variables of these frames. So errors are raised without them, and the variables are
        # cleared.
        try:
            rule = RULES.get(channel)
            if rule is None:
                raise feeds.unknown_channel_error()
            canonical = rule(address)
            if max_age_s is None:
                max_age_s = self._max_age_s
            connection = file.acquire()
            try:
                statements = connection.statements.get((channel, org_slug, group_id))
                if statements is None:
                    statements = asking.statements_for(connection, channel, org_slug, checked_group(group_id))
                return asking.is_barred(connection, statements, canonical, max_age_s, self._now_s())
            except (NotMirrored, MirrorTooOld, MirrorDiverged):
                # The file may have been replaced by another one.
                if not file.was_replaced(connection):
                    raise
            finally:
                file.release(connection)
            return self.is_barred(channel, address, org_slug=org_slug, group_id=group_id, max_age_s=max_age_s)
        except (StoplistClientError, AddressError) as error:
            refusal: Exception = without_traceback(error)
        except sqlite3.Error as error:
            refusal = as_mirror_error(error, file.path)
        address = canonical = ""
        raise refusal

    @hides_arguments
    def check(
        self,
        channel: Channel,
        addresses: Iterable[str],
        *,
        org_slug: str | None = None,
        group_id: Group,
        max_age_s: float | None = None,
    ) -> Iterator[Checked]:
        """Yield the verdict on each address, in order: allowed, barred, or invalid with the reason.

        The arguments are those of `is_barred`. Addresses are read in slices of 2000; the age of the mirror is checked
        for each slice.
        """
        query = self._bulk_query(channel, addresses, org_slug=org_slug, group_id=group_id, max_age_s=max_age_s)
        return in_slices(query.check, addresses)

    @hides_arguments
    def filter_allowed(
        self,
        channel: Channel,
        addresses: Iterable[str],
        *,
        org_slug: str | None = None,
        group_id: Group,
        max_age_s: float | None = None,
    ) -> Iterator[str]:
        """Yield the addresses that a message of this group may go to, as they were given. Skips invalid addresses.

        Arguments and slices are those of `check`.
        """
        query = self._bulk_query(channel, addresses, org_slug=org_slug, group_id=group_id, max_age_s=max_age_s)
        return in_slices(query.filter_allowed, addresses)

    def knows_group(self, channel: Channel, group_id: str, *, org_slug: str | None = None) -> bool:
        """Return whether the mirror ever had a record of this group. An unknown group may simply have no opt-outs.

        Lets a program ask its user whether an id is right: with a wrong id, the mirror bars too few people. Raises the
        errors of `is_barred`, but ignores the age of the mirror.
        """
        with self._file.pooled_connection() as connection:
            statements = asking.statements_for(
                connection, feeds.checked_channel(channel), org_slug, checked_group(group_id)
            )
            return isinstance(statements.group, int)

    def records(self, channel: Channel, *, org_slug: str | None = None) -> Iterator[Record]:
        """Yield all records of the service in the order of `seq`, as of the time when the first one is read.

        Ignores the age of the mirror. Iterate without long pauses: until the end, the file cannot reuse free space.
        """
        return listing.records(self._file, feeds.checked_channel(channel), org_slug)

    def position(self, channel: Channel, *, org_slug: str | None = None) -> int | None:
        """Return the `seq` of the last change that the mirror answers from; None before the first complete read.

        `sync` tells the service, unless the mirror was found to differ from it. Raises MirrorDiverged while a feed that
        differs is read anew, and ignores the age of the mirror. Source: docs/interface.md section D14, Propagation.
        """
        return listing.position(self._file, feeds.checked_channel(channel), org_slug)

    def missing(self, channel: Channel, *, org_slug: str | None = None) -> Iterator[Record]:
        """Yield the opt-outs that the mirror has and the service lost in a restore.

        Submit them again with their `occurred_at` and group, then pass them to `settle`. Each goes on barring until the
        feed contains it again, or it is settled, or the feed shows a later act of the person.
        """
        return listing.missing(self._file, feeds.checked_channel(channel), org_slug)

    def settle(self, channel: Channel, records: Iterable[Record], *, org_slug: str | None = None) -> None:
        """Let the service decide about these `missing` opt-outs from the next `sync` on.

        Call this after you submitted them again: if the service knows a later consent of the person, the feed does not
        show them. Also call it for opt-outs that should stay lost, for example those of a wrong import that was the
        reason for the restore. If the service is restored again before that `sync`, what it lost is `missing` again.
        """
        listing.settle(self._file, feeds.checked_channel(channel), org_slug, records, now_s=self._now_s)

    def verify(self) -> tuple[Verified, ...]:
        """Return the number of records and the digest of each feed, computed from all rows of its copy.

        Needs no client; takes about two seconds for a million records. Raises MirrorDiverged if the rows are not those
        that `sync` stored: from then on only what is barred is answered, until the next `sync` has read the feed anew.
        Feeds that were not read to their end yet are left out. Source: docs/interface.md section D14, State of a feed.
        """
        with self._file.own_connection() as connection:
            return verification.verify(connection)

    def close(self) -> None:
        """Close the file. Later calls raise MirrorError. May be repeated."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Mirror({os.fspath(self._file.path)!r})"

    def _check_file(self) -> None:
        """Refuse a file that is not a mirror, or is one of another service, before the first query."""
        if self._client is not None:
            self._file.create()
            with self._file.pooled_connection() as connection:
                feeds.bind(connection, self._client.base_url)
        elif self._file.exists():
            with self._file.pooled_connection():
                pass

    def _default_org(self, org_slug: str | None) -> str | None:
        return self._client.org_slug if org_slug is None and self._client is not None else org_slug

    def _bulk_query(
        self,
        channel: Channel,
        addresses: Iterable[str],
        *,
        org_slug: str | None,
        group_id: Group,
        max_age_s: float | None,
    ) -> BulkQuery:
        """Check the arguments of a query about many addresses, and return the query."""
        checked_group(group_id)
        if isinstance(addresses, str | bytes):
            raise ConfigurationError("addresses must be a list or another iterable, not a single address.")
        return BulkQuery(
            self._file,
            feeds.checked_channel(channel),
            org_slug=org_slug,
            group_id=group_id,
            max_age_s=self._max_age_s if max_age_s is None else _checked_age(max_age_s),
            now_s=self._now_s,
        )


def _checked_channels(channels: tuple[Channel, ...]) -> list[str]:
    if not channels:
        raise ConfigurationError("Name at least one channel: email, sms or phone.")
    return [feeds.checked_channel(channel) for channel in channels]


def _checked_age(max_age_s: float) -> float:
    if not max_age_s >= 0 or math.isnan(max_age_s):
        raise ConfigurationError("max_age_s must be a number of seconds, or math.inf for any age.")
    return max_age_s

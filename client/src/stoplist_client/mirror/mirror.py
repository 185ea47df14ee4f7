"""The public class Mirror."""

import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

from stoplist_addresses import RULES, AddressError

from stoplist_client.blocking import BlockingClient
from stoplist_client.errors import ConfigurationError, MirrorTooOld, NotMirrored, StoplistClientError
from stoplist_client.flows.following import MAX_RECORDS
from stoplist_client.mirror import asking, feeds, listing
from stoplist_client.mirror.canonical_forms import canonical_forms, in_slices
from stoplist_client.mirror.file import MirrorFile
from stoplist_client.mirror.group import Group, checked_group
from stoplist_client.mirror.mirror_errors import as_mirror_error, hides_arguments, without_traceback
from stoplist_client.mirror.model import Checked, Followed, Synced
from stoplist_client.mirror.sweeping import sweep
from stoplist_client.mirror.syncing import Progress, Synchronisation
from stoplist_client.model import Channel, Record

if TYPE_CHECKING:  # queries need no network, so httpx2 is not imported
    from stoplist_client.client import Client

# The channel, organization and group of a query.
_Query: TypeAlias = tuple[Channel, str | None, Group]

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

    Raises MirrorError, including NotMirrored and MirrorTooOld, and ConfigurationError for wrong arguments. `sync` also
    raises the errors of the client.
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

    def sync(self, on_progress: Progress | None = None) -> Synced:
        """Update all followed feeds to the present state of the service.

        Continues where the last call ended, even if it was killed. Several processes may call this at once. After a
        restore of the service, everything is read again into a new copy, while the old one answers. Opt-outs that the
        service lost go on barring, are counted in `Synced.missing`, and can be submitted again from `missing`. If the
        key may not read a feed, the others are read first, and the error is raised at the end. `on_progress` is called
        after each page with a FeedSynced. Source: docs/interface.md section D6.
        """
        if self._client is None:
            raise ConfigurationError("This Mirror has no client: pass one to synchronise.")
        with self._file.own_connection() as connection:
            feeds.bind(connection, self._client.base_url)
            return Synchronisation(
                self._client, connection, now_s=self._now_s, limit=self._page_records, on_progress=on_progress
            ).run()

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
            except (NotMirrored, MirrorTooOld):
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
        rule, query = self._checked_query(channel, addresses, org_slug, group_id)
        return in_slices(partial(self._check_slice, rule, query, self._effective_max_age_s(max_age_s)), addresses)

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
        rule, query = self._checked_query(channel, addresses, org_slug, group_id)
        return in_slices(partial(self._filter_slice, rule, query, self._effective_max_age_s(max_age_s)), addresses)

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

    def _effective_max_age_s(self, max_age_s: float | None) -> float:
        return self._max_age_s if max_age_s is None else _checked_age(max_age_s)

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

    def _checked_query(
        self, channel: Channel, addresses: Iterable[str], org_slug: str | None, group_id: Group
    ) -> tuple[Callable[[str], str], _Query]:
        """Check the arguments of a query, and return the address rule of the channel and the query."""
        checked_group(group_id)
        if isinstance(addresses, str | bytes):
            raise ConfigurationError("addresses must be a list or another iterable, not a single address.")
        return RULES[feeds.checked_channel(channel)], (channel, org_slug, group_id)

    @hides_arguments
    def _filter_slice(
        self, rule: Callable[[str], str], query: _Query, max_age_s: float, addresses: list[str]
    ) -> list[str]:
        forms = canonical_forms(rule, addresses)
        barred = self._barred_indexes(forms, query, max_age_s)
        return [
            address
            for index, (address, form) in enumerate(zip(addresses, forms, strict=True))
            if form is not None and index not in barred
        ]

    @hides_arguments
    def _check_slice(
        self, rule: Callable[[str], str], query: _Query, max_age_s: float, addresses: list[str]
    ) -> list[Checked]:
        problems: dict[int, str] = {}
        forms = canonical_forms(rule, addresses, problems)
        barred = self._barred_indexes(forms, query, max_age_s)
        return [
            Checked(address, None, "invalid", problems[index])
            if form is None
            else Checked(address, form, "barred" if index in barred else "allowed")
            for index, (address, form) in enumerate(zip(addresses, forms, strict=True))
        ]

    def _barred_indexes(self, forms: list[str | None], query: _Query, max_age_s: float) -> set[int]:
        """The places of those that are."""
        with self._file.pooled_connection() as connection:
            try:
                statements = asking.statements_for(connection, *query)
                return asking.barred_indexes(connection, statements, forms, max_age_s=max_age_s, now_s=self._now_s())
            except (NotMirrored, MirrorTooOld):
                if not self._file.was_replaced(connection):
                    raise
        return self._barred_indexes(forms, query, max_age_s)


def _checked_channels(channels: tuple[Channel, ...]) -> list[str]:
    if not channels:
        raise ConfigurationError("Name at least one channel: email, sms or phone.")
    return [feeds.checked_channel(channel) for channel in channels]


def _checked_age(max_age_s: float) -> float:
    if not max_age_s >= 0 or math.isnan(max_age_s):
        raise ConfigurationError("max_age_s must be a number of seconds, or math.inf for any age.")
    return max_age_s

"""The mirror, as programs use it."""

import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar

from stoplist_addresses import RULES, AddressError

from stoplist_client.blocking import BlockingClient
from stoplist_client.errors import ConfigurationError, MirrorTooOld, NotMirrored, StoplistClientError
from stoplist_client.flows.following import MAX_RECORDS
from stoplist_client.mirror import asking, feeds, listing
from stoplist_client.mirror.file import MirrorFile
from stoplist_client.mirror.group import Group, checked_group
from stoplist_client.mirror.mirror_errors import as_mirror_error, shows_nothing, without_traceback
from stoplist_client.mirror.model import Checked, Followed, Synced
from stoplist_client.mirror.sweeping import sweep
from stoplist_client.mirror.syncing import Progress, Syncing
from stoplist_client.model import Channel, Record

if TYPE_CHECKING:  # who only asks needs no network
    from stoplist_client.client import Client

T = TypeVar("T")
# What a question is about.
_About: TypeAlias = tuple[Channel, str | None, Group]

_DAY_S = 86_400.0
# What one statement is asked: more is hardly quicker, and who pipes addresses in waits for the first answer longer.
_SLICE = 2_000


class Mirror:
    """A copy of any number of organizations and channels in one file, for whoever sends messages on this host.

    One process keeps it up to date with `sync`, every few minutes or after each night; any number of threads and
    processes ask it. It holds addresses: the file is readable by this user alone. It lies on a disk of this host, not
    on one that is shared over a network. It survives a kill -9 at any moment.

    path:       the file; it is made where there is none, if a client is given, or with `follow`
    client:     what to read from the service with; who only asks needs none
    max_age_s:  older than this it does not answer, unless the question allows more; math.inf allows any age
    page_records: how many changes are read and stored together
    clock:      seconds since 1970; there for tests

    Errors: MirrorError, of it NotMirrored and MirrorTooOld; ConfigurationError for what cannot be meant; `sync` raises
    those of the client too.
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
            raise ConfigurationError("A Mirror is synchronised with a Client, also where others are AsyncClients.")
        if not 1 <= page_records <= MAX_RECORDS:
            raise ConfigurationError(f"page_records must be from 1 to {MAX_RECORDS}.")
        self._file, self._client, self._page_records, self._now_s = MirrorFile(path), client, page_records, clock
        try:
            self._open()
        except BaseException:
            self._file.close()
            raise

    def follow(self, *channels: Channel, org_slug: str | None = None) -> None:
        """The mirror follows these channels of the organization (that of the client, if none is named) from now on.

        It answers about them once `sync` has read them. May be repeated.
        """
        named, org_slug = _checked_channels(channels), self._org_of(org_slug)
        if org_slug is None:
            raise ConfigurationError("Name the org_slug whose list is to be followed, here or in the client.")
        slug = feeds.checked_slug(org_slug)
        self._file.make()
        with self._file.reading() as connection:
            feeds.follow(connection, named, slug)

    def unfollow(self, *channels: Channel, org_slug: str | None = None) -> None:
        """The mirror follows these channels of the organization no more, has nothing of them, and does not answer.

        `org_slug` as in `follow`, or left out where the mirror follows one organization on these channels. Errors, and
        nothing was changed: NotMirrored for what is not followed; MirrorError while there are `missing` opt-outs, which
        would be lost for good: submit them again, or `settle` them.
        """
        named = _checked_channels(channels)
        with self._file.opened() as connection:
            feeds.unfollow(connection, named, self._org_of(org_slug))
            sweep(connection)

    def feeds(self) -> tuple[Followed, ...]:
        """What is followed, how much of it is here, and how old it is."""
        with self._file.reading() as connection:
            return feeds.described(connection, self._now_s)

    def sync(self, on_progress: Progress | None = None) -> Synced:
        """All that is followed is as new as the service was a moment ago.

        It goes on where it stood, and whatever ends it loses nothing. Several processes may do so at once. After a
        restore of the service all is read anew beside the old copy, which answers until then; opt-outs that the
        service lost go on barring, are counted in `Synced.missing`, and wait in `missing` to be submitted again. A feed
        that the key may not read holds up no other: its error is raised at the end. `on_progress` is called after each
        page with a FeedSynced. Source: docs/interface.md section D6.
        """
        if self._client is None:
            raise ConfigurationError("This Mirror has no client to synchronise with: make it with one.")
        with self._file.opened() as connection:
            feeds.bind(connection, self._client.base_url)
            return Syncing(
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
        """Whether a message of this group must not go to this address, in any spelling.

        `group_id` is a group's id; None for a message of no named group, which the all-groups record alone bars; or
        ANY_GROUP, and whoever opted out of anything is barred. `org_slug` may be left out where the mirror follows one
        organization on this channel. stoplist_addresses.AddressError for what is no address: never send to it.
        Source: docs/interface.md section D5.
        """
        file = self._file
        # Tracebacks may show what has a name in these frames: so refusals leave without them, and the names without
        # the address.
        try:
            rule = RULES.get(channel)
            if rule is None:
                raise feeds.no_channel()
            canonical = rule(address)
            if max_age_s is None:
                max_age_s = self._max_age_s
            connection = file.take()
            try:
                statements = connection.prepared.get((channel, org_slug, group_id))
                if statements is None:
                    statements = asking.prepared(connection, channel, org_slug, checked_group(group_id))
                return asking.is_barred(connection, statements, canonical, max_age_s, self._now_s())
            except (NotMirrored, MirrorTooOld):
                # Somebody may have put another file in its place.
                if not file.was_replaced(connection):
                    raise
            finally:
                file.give_back(connection)
            return self.is_barred(channel, address, org_slug=org_slug, group_id=group_id, max_age_s=max_age_s)
        except (StoplistClientError, AddressError) as error:
            refusal: Exception = without_traceback(error)
        except sqlite3.Error as error:
            refusal = as_mirror_error(error, file.path)
        address = canonical = ""
        raise refusal

    @shows_nothing
    def check(
        self,
        channel: Channel,
        addresses: Iterable[str],
        *,
        org_slug: str | None = None,
        group_id: Group,
        max_age_s: float | None = None,
    ) -> Iterator[Checked]:
        """The verdict on each address, in their order: allowed, barred, or invalid and why. Arguments as in is_barred.

        They are read two thousand at a time; the mirror must be young enough for each lot.
        """
        rule, about = self._subject(channel, addresses, org_slug, group_id)
        return _each(partial(self._checked, rule, about, self._age_of(max_age_s)), addresses)

    @shows_nothing
    def filter_allowed(
        self,
        channel: Channel,
        addresses: Iterable[str],
        *,
        org_slug: str | None = None,
        group_id: Group,
        max_age_s: float | None = None,
    ) -> Iterator[str]:
        """Those addresses that messages of this group may go to, as they were given; what is no address is left out.

        Arguments and slices as in `check`.
        """
        rule, about = self._subject(channel, addresses, org_slug, group_id)
        return _each(partial(self._allowed, rule, about, self._age_of(max_age_s)), addresses)

    def knows_group(self, channel: Channel, group_id: str, *, org_slug: str | None = None) -> bool:
        """Whether there ever was a record of this group here; a group that is not known may be one that nobody left.

        For a program that asks its user once whether an id is right: with a wrong one the mirror bars too few. Errors
        as in is_barred; however old the mirror is.
        """
        with self._file.reading() as connection:
            statements = asking.prepared(connection, feeds.checked_channel(channel), org_slug, checked_group(group_id))
            return isinstance(statements.group, int)

    def records(self, channel: Channel, *, org_slug: str | None = None) -> Iterator[Record]:
        """All records as the service told them, by `seq`, as of the moment when the first one is asked for.

        However old the mirror is. Go through them without long pauses: until the end the file cannot reuse room.
        """
        return listing.records(self._file, feeds.checked_channel(channel), org_slug)

    def missing(self, channel: Channel, *, org_slug: str | None = None) -> Iterator[Record]:
        """Opt-outs that the mirror had and that the service lost by a restore: submit them again.

        With the `occurred_at` and the group that they show; then call `settle` with them. Each goes on barring until it
        comes back in the feed, or is settled, or the feed shows that the person did something later.
        """
        return listing.missing(self._file, feeds.checked_channel(channel), org_slug)

    def settle(self, channel: Channel, records: Iterable[Record], *, org_slug: str | None = None) -> None:
        """From the next `sync` on the service alone decides about these of the `missing`.

        For those that were submitted again: if the service knows that the person came back later, nothing comes in the
        feed. Also for those that nobody wants back, as those of an import in error that was the reason of the restore.
        If the service is restored once more before that `sync`, what it lost again is `missing` again.
        """
        listing.settle(self._file, feeds.checked_channel(channel), org_slug, records, now_s=self._now_s)

    def close(self) -> None:
        """The file is closed; whoever asks from here on gets a MirrorError. May be repeated."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Mirror({os.fspath(self._file.path)!r})"

    def _age_of(self, max_age_s: float | None) -> float:
        return self._max_age_s if max_age_s is None else _checked_age(max_age_s)

    def _open(self) -> None:
        """A file that is none of ours, or another service's, is refused here, and not at the first message."""
        if self._client is not None:
            self._file.make()
            with self._file.reading() as connection:
                feeds.bind(connection, self._client.base_url)
        elif self._file.exists():
            with self._file.reading():
                pass

    def _org_of(self, org_slug: str | None) -> str | None:
        return self._client.org_slug if org_slug is None and self._client is not None else org_slug

    def _subject(
        self, channel: Channel, addresses: Iterable[str], org_slug: str | None, group_id: Group
    ) -> tuple[Callable[[str], str], _About]:
        """The rule of the channel and what is asked about, once all that can be wrong in a call was looked at."""
        checked_group(group_id)
        if isinstance(addresses, str | bytes):
            raise ConfigurationError("addresses must be a list or anything else to go through.")
        return RULES[feeds.checked_channel(channel)], (channel, org_slug, group_id)

    @shows_nothing
    def _allowed(self, rule: Callable[[str], str], about: _About, max_age_s: float, addresses: list[str]) -> list[str]:
        forms = _canonical(rule, addresses)
        barred = self._barred(forms, about, max_age_s)
        return [
            address
            for place, (address, form) in enumerate(zip(addresses, forms, strict=True))
            if form is not None and place not in barred
        ]

    @shows_nothing
    def _checked(
        self, rule: Callable[[str], str], about: _About, max_age_s: float, addresses: list[str]
    ) -> list[Checked]:
        problems: dict[int, str] = {}
        forms = _canonical(rule, addresses, problems)
        barred = self._barred(forms, about, max_age_s)
        return [
            Checked(address, None, "invalid", problems[place])
            if form is None
            else Checked(address, form, "barred" if place in barred else "allowed")
            for place, (address, form) in enumerate(zip(addresses, forms, strict=True))
        ]

    def _barred(self, forms: list[str | None], about: _About, max_age_s: float) -> set[int]:
        """The places of those that are."""
        with self._file.reading() as connection:
            try:
                statements = asking.prepared(connection, *about)
                return asking.barred_places(connection, statements, forms, max_age_s=max_age_s, now_s=self._now_s())
            except (NotMirrored, MirrorTooOld):
                if not self._file.was_replaced(connection):
                    raise
        return self._barred(forms, about, max_age_s)


def _each(verdicts: Callable[[list[str]], list[T]], addresses: Iterable[str]) -> Iterator[T]:
    """Slice by slice. There is no frame here that could hold addresses when something is raised."""
    left = iter(addresses)
    return chain.from_iterable(map(verdicts, iter(lambda: list(islice(left, _SLICE)), [])))


def _canonical(
    rule: Callable[[str], str], addresses: list[str], problems: dict[int, str] | None = None
) -> list[str | None]:
    """The canonical form of each, None where there is none; `problems` takes in why."""
    with suppress(AddressError):
        return list(map(rule, addresses))  # as nearly always: each has one
    forms: list[str | None] = []
    for place, address in enumerate(addresses):
        try:
            forms.append(rule(address))
        except AddressError as error:
            forms.append(None)
            if problems is not None:
                problems[place] = str(error)
    return forms


def _checked_channels(channels: tuple[Channel, ...]) -> list[str]:
    if not channels:
        raise ConfigurationError("Name at least one channel: email, sms or phone.")
    return [feeds.checked_channel(channel) for channel in channels]


def _checked_age(max_age_s: float) -> float:
    if not max_age_s >= 0 or math.isnan(max_age_s):
        raise ConfigurationError("max_age_s must be a number of seconds, or math.inf for any age.")
    return max_age_s

"""Brings a mirror up to date, feed by feed and page by page; whatever ends it, the next time goes on from there."""

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from stoplist_client.errors import ApiError, InsufficientScope, InvalidCursor, UnauthorizedOrganization
from stoplist_client.mirror import copies
from stoplist_client.mirror.copies import FeedGone, Groups
from stoplist_client.mirror.feeds import Feed, all_feeds
from stoplist_client.mirror.file import transaction
from stoplist_client.mirror.model import FeedSynced, Synced
from stoplist_client.mirror.reading import Ahead, Fetched, Place, fetch
from stoplist_client.mirror.sweeping import sweep

if TYPE_CHECKING:  # who only asks needs no network
    from stoplist_client.client import Client

Progress: TypeAlias = Callable[[FeedSynced], None]

# A service that is restored again while everything is read anew is none that works.
_MOST_RESTARTS = 3


class Syncing:
    """One synchronisation: a client, a connection that writes, and how many records a page has at most."""

    def __init__(
        self,
        client: "Client",
        connection: sqlite3.Connection,
        *,
        now_s: Callable[[], float],
        limit: int,
        on_progress: Progress | None,
    ) -> None:
        self._client, self._connection, self._now_s, self._limit = client, connection, now_s, limit
        self._on_progress = on_progress
        self._groups = Groups(connection)

    def run(self) -> Synced:
        """All feeds are as new as the service. One that the key may not read holds up no other: its error is last."""
        done, refusals = [], []
        for feed in all_feeds(self._connection):
            try:
                done.append(self._feed(feed))
            except FeedGone:
                continue  # another process stopped following it meanwhile
            except (UnauthorizedOrganization, InsufficientScope) as refusal:
                refusals.append(_named(refusal, feed))
        sweep(self._connection)
        if refusals:
            raise refusals[0]
        return Synced(tuple(done))

    def _feed(self, feed: Feed) -> FeedSynced:
        place, restarts = self._place(feed), 0
        done = FeedSynced(org_slug=feed.org_slug, channel=feed.channel, was_rebuilt=place.is_rebuilding)  # type: ignore[arg-type]
        ahead = self._fetch(place)
        while True:
            try:
                page = ahead.result()
            except InvalidCursor:
                if place.cursor is None or restarts == _MOST_RESTARTS:
                    raise
                restarts += 1
                with transaction(self._connection):
                    copies.begin_anew(self._connection, feed, place)
                place = self._place(feed)
                done = msgspec.structs.replace(done, was_rebuilt=done.was_rebuilt or place.is_rebuilding)
                ahead = self._fetch(place)
                continue
            if page.has_more:
                ahead = self._fetch(msgspec.structs.replace(place, cursor=page.next_cursor))
            number = self._applied(place, page)
            if number is None:  # another process was quicker, and is where we want to be
                place = self._place(feed)
                ahead = self._fetch(place)
                continue
            done = self._told(done, feed, number)
            if not page.has_more:
                return done
            place = msgspec.structs.replace(place, cursor=page.next_cursor)

    def _place(self, feed: Feed) -> Place:
        with transaction(self._connection):
            return copies.place_of(self._connection, feed)

    def _fetch(self, place: Place) -> Ahead[Fetched]:
        return fetch(self._client, self._now_s, place, cursor=place.cursor, limit=self._limit)

    def _applied(self, place: Place, page: Fetched) -> int | None:
        """How many changes were applied; None if it was too late for that."""
        changes = page.changes()
        try:
            with transaction(self._connection):
                is_applied = copies.apply(
                    self._connection,
                    self._groups,
                    place,
                    changes,
                    next_cursor=page.next_cursor,
                    synced_s=None if page.has_more else page.asked_s,
                )
        except BaseException:
            self._groups = Groups(self._connection)
            raise
        return len(changes) if is_applied else None

    def _told(self, done: FeedSynced, feed: Feed, number: int) -> FeedSynced:
        (missing,) = self._connection.execute(
            "SELECT count(*) FROM missing WHERE feed_no = ?", (feed.feed_no,)
        ).fetchone()
        done = msgspec.structs.replace(done, pages=done.pages + 1, records=done.records + number, missing=missing)
        if self._on_progress is not None:
            self._on_progress(done)
        return done


def _named(refusal: ApiError, feed: Feed) -> ApiError:
    """The same, telling people of which feed it speaks: a key that may read one may not read another."""
    refusal.text = (
        f"{refusal.text} This was about {feed.channel} of {feed.org_slug}; Mirror.unfollow stops following it."
    )
    return refusal

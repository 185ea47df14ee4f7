"""Updates a mirror feed by feed and page by page. An interrupted update continues with the next one."""

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
from stoplist_client.mirror.reading import BackgroundTask, FetchedPage, Position, fetch
from stoplist_client.mirror.sweeping import sweep

if TYPE_CHECKING:  # queries need no network, so httpx2 is not imported
    from stoplist_client.client import Client

Progress: TypeAlias = Callable[[FeedSynced], None]

# A service that is restored again and again while it is read does not work.
_MAX_RESTARTS = 3


class Synchronisation:
    """One synchronisation with a client, a connection that writes, and a maximum number of records per page."""

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
        """Update all feeds. If the key may not read a feed, update the others first, and raise the error at the end."""
        synced, refusals = [], []
        for feed in all_feeds(self._connection):
            try:
                synced.append(self._sync_feed(feed))
            except FeedGone:
                continue  # another process unfollowed the feed meanwhile
            except (UnauthorizedOrganization, InsufficientScope) as refusal:
                refusals.append(_with_feed(refusal, feed))
        sweep(self._connection)
        if refusals:
            raise refusals[0]
        return Synced(tuple(synced))

    def _sync_feed(self, feed: Feed) -> FeedSynced:
        position, restarts = self._position(feed), 0
        synced = FeedSynced(org_slug=feed.org_slug, channel=feed.channel, was_rebuilt=position.is_rebuilding)  # type: ignore[arg-type]
        next_page = self._fetch(position)
        while True:
            try:
                page = next_page.result()
            except InvalidCursor:
                if position.cursor is None or restarts == _MAX_RESTARTS:
                    raise
                restarts += 1
                with transaction(self._connection):
                    copies.restart(self._connection, feed, position)
                position = self._position(feed)
                synced = msgspec.structs.replace(synced, was_rebuilt=synced.was_rebuilt or position.is_rebuilding)
                next_page = self._fetch(position)
                continue
            if page.has_more:
                next_page = self._fetch(msgspec.structs.replace(position, cursor=page.next_cursor))
            count = self._apply(position, page)
            if count is None:  # another process has applied this page
                position = self._position(feed)
                next_page = self._fetch(position)
                continue
            synced = self._report(synced, feed, count)
            if not page.has_more:
                return synced
            position = msgspec.structs.replace(position, cursor=page.next_cursor)

    def _position(self, feed: Feed) -> Position:
        with transaction(self._connection):
            return copies.position_of(self._connection, feed)

    def _fetch(self, position: Position) -> BackgroundTask[FetchedPage]:
        return fetch(self._client, self._now_s, position, cursor=position.cursor, limit=self._limit)

    def _apply(self, position: Position, page: FetchedPage) -> int | None:
        """Apply a page, and return the number of changes, or None if another process was faster."""
        changes = page.changes()
        try:
            with transaction(self._connection):
                is_applied = copies.apply(
                    self._connection,
                    self._groups,
                    position,
                    changes,
                    next_cursor=page.next_cursor,
                    synced_s=None if page.has_more else page.asked_s,
                )
        except BaseException:
            self._groups = Groups(self._connection)
            raise
        return len(changes) if is_applied else None

    def _report(self, synced: FeedSynced, feed: Feed, count: int) -> FeedSynced:
        (missing,) = self._connection.execute(
            "SELECT count(*) FROM missing WHERE feed_no = ?", (feed.feed_no,)
        ).fetchone()
        synced = msgspec.structs.replace(
            synced, pages=synced.pages + 1, records=synced.records + count, missing=missing
        )
        if self._on_progress is not None:
            self._on_progress(synced)
        return synced


def _with_feed(refusal: ApiError, feed: Feed) -> ApiError:
    """Return the refusal with the feed in its message: a key may be able to read one feed and not another."""
    refusal.text = f"{refusal.text} The refused feed is {feed.channel} of {feed.org_slug}; Mirror.unfollow removes it."
    return refusal

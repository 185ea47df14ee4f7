"""Updates a mirror feed by feed and page by page. An interrupted update continues with the next one."""

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from stoplist_client.errors import (
    ApiError,
    InsufficientScope,
    InvalidCursor,
    MirrorDiverged,
    StoplistClientError,
    UnauthorizedOrganization,
)
from stoplist_client.mirror import copies
from stoplist_client.mirror.copies import FeedGone, Groups
from stoplist_client.mirror.divergence import Compared, compare
from stoplist_client.mirror.feeds import Feed, all_feeds
from stoplist_client.mirror.file import transaction
from stoplist_client.mirror.held_pages import HeldPage, HeldPages
from stoplist_client.mirror.model import FeedSynced, Synced
from stoplist_client.mirror.reading import BackgroundTask, FetchedPage, Position, fetch
from stoplist_client.mirror.sweeping import sweep

if TYPE_CHECKING:  # queries need no network, so httpx2 is not imported
    from stoplist_client.client import Client

Progress: TypeAlias = Callable[[FeedSynced], None]

# A service that is restored again and again while it is read does not work.
_MAX_RESTARTS = 3
MAX_WAIT_S = 30


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
        held: HeldPages,
    ) -> None:
        self._held = held
        self._client, self._connection, self._now_s, self._limit = client, connection, now_s, limit
        self._on_progress = on_progress
        self._groups = Groups(connection)

    def run(self) -> Synced:
        """Update all feeds. If the key may not read a feed, update the others first, and raise the error at the end."""
        return self._sync_feeds(all_feeds(self._connection), {})

    def run_waiting(self, wait_s: int) -> Synced:
        """Ask about the feeds that no request waits for, wait for any answer, and update the feeds that have one.

        The other requests go on, for the next call. Refusals are raised as by `run`; such a feed then rests a minute.
        """
        held = self._held
        feeds = {feed.feed_no: feed for feed in all_feeds(self._connection)}
        held.forget(held.awaited() - feeds.keys())
        for feed in feeds.values():
            if held.is_due(feed.feed_no, self._now_s()):
                with suppress(FeedGone):
                    position = self._position(feed)
                    held.add(HeldPage(position, self._fetch(position, wait_s=wait_s, on_done=held.note_arrival)))
        arrived = {one.position.feed_no: one for one in held.take_arrived()}
        return self._sync_feeds([feed for number, feed in feeds.items() if number in arrived], arrived)

    def _sync_feeds(self, feeds: Iterable[Feed], arrived: Mapping[int, HeldPage]) -> Synced:
        synced, refusals = [], []
        for feed in feeds:
            try:
                synced.append(self._sync_feed(feed, arrived.get(feed.feed_no)))
            except FeedGone:
                continue  # another process unfollowed the feed meanwhile
            except (UnauthorizedOrganization, InsufficientScope) as refusal:
                refusals.append(_with_feed(refusal, feed))
                self._held.note_refusal(feed.feed_no, self._now_s())
        sweep(self._connection)
        result = Synced(tuple(synced), pause_s=self._held.pause_s(self._now_s()))
        if diverged := [feed for feed in synced if feed.is_diverged]:
            raise _diverged_error(diverged, result.pause_s)
        if refusals:
            raise refusals[0]
        return result

    def _sync_feed(self, feed: Feed, begun: HeldPage | None) -> FeedSynced:
        position, restarts = self._position(feed) if begun is None else begun.position, 0
        synced = FeedSynced(
            org_slug=feed.org_slug,
            channel=feed.channel,  # type: ignore[arg-type]
            was_rebuilt=position.is_rebuilding,
            was_diverged=position.is_reread,
        )
        next_page = self._fetch(position) if begun is None else begun.page
        while True:
            try:
                page = next_page.result()
                self._held.note_answer(feed.feed_no, page)
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
                ahead = msgspec.structs.replace(position, cursor=page.next_cursor)
                next_page = self._fetch(ahead, reads_ahead=True)  # this page is not stored yet
            applied = self._apply(position, page)
            if applied is None:  # another process has applied this page
                position = self._position(feed)
                next_page = self._fetch(position)
                continue
            count, compared = applied
            if compared is Compared.READS_ANEW:
                synced = msgspec.structs.replace(synced, was_rebuilt=True, was_diverged=True)
            is_diverged = compared is Compared.DIFFERS
            synced = self._report(msgspec.structs.replace(synced, is_diverged=is_diverged), feed, count)
            if compared is Compared.READS_ANEW:
                position = self._position(feed)
                next_page = self._fetch(position)
                continue
            if not page.has_more:
                if synced.records or position.is_building:
                    self._confirm(feed)
                return synced
            position = msgspec.structs.replace(position, cursor=page.next_cursor)

    def _position(self, feed: Feed) -> Position:
        with transaction(self._connection):
            return copies.position_of(self._connection, feed)

    def _fetch(self, position: Position, **options: Any) -> BackgroundTask[FetchedPage]:
        return fetch(self._client, self._now_s, position, limit=self._limit, **options)

    def _confirm(self, feed: Feed) -> None:
        """Present the last cursor once more, which tells the service that the changes up to it are stored.

        Has no other effect: the next synchronisation reads what has changed, and raises the error if there is one.
        """
        position = self._position(feed)
        if position.is_proof:
            with suppress(StoplistClientError):
                self._held.note_answer(feed.feed_no, fetch(self._client, self._now_s, position, limit=1).result())

    def _apply(self, position: Position, page: FetchedPage) -> tuple[int, Compared] | None:
        """Apply a page, and compare the copy where it stands at a state of the service.

        Return the number of changes and the result of the comparison, or None if another process was faster.
        """
        changes, compared = page.changes(), Compared.AGREES
        try:
            with transaction(self._connection):
                is_applied = copies.apply(
                    self._connection,
                    self._groups,
                    position,
                    changes,
                    next_cursor=page.next_cursor,
                    synced_s=None if page.has_more else page.asked_s,
                    digest_key=page.digest_key,
                )
                if is_applied and not page.has_more:
                    compared = compare(
                        self._connection,
                        position,
                        page.state,
                        now_s=self._now_s(),
                        is_waited_for=page.is_waited_for,
                    )
        except BaseException:
            self._groups = Groups(self._connection)
            raise
        if page.digest_key is not None:
            # The log, too, must not keep an address that was erased. It is cut off unless another process reads it now.
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return (len(changes), compared) if is_applied else None

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


def _diverged_error(diverged: Sequence[FeedSynced], pause_s: float) -> MirrorDiverged:
    feeds = ", ".join(f"{feed.channel} of {feed.org_slug}" for feed in diverged)
    error = MirrorDiverged(
        f"The mirror's copy of {feeds} differs from the service, although it was read anew. Tell the operator of the "
        "service. The mirror goes on answering from this copy, and reads it anew once an hour at most."
    )
    error.pause_s = pause_s
    return error


def _with_feed(refusal: ApiError, feed: Feed) -> ApiError:
    """Return the refusal with the feed in its message: a key may be able to read one feed and not another."""
    refusal.text = f"{refusal.text} The refused feed is {feed.channel} of {feed.org_slug}; Mirror.unfollow removes it."
    return refusal

"""The blocking client, for programs without an event loop."""

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from stoplist_client.blocking import BlockingClient
from stoplist_client.core import Core, Elements
from stoplist_client.flows.following import MAX_RECORDS, FeedReader
from stoplist_client.flows.submitting import Progress
from stoplist_client.model import Channel, Item, LookedUp, Moment, Page, Record, Submitted
from stoplist_client.transport.driver import Driver


class Client(BlockingClient, Core):
    """Submits opt-outs, looks up addresses, and follows changes. Any number of threads may share one client.

    Raises the errors of stoplist_client.errors. Close the client, or use it in a `with` statement.
    """

    def unsubscribe(
        self,
        channel: Channel,
        items: Iterable[str | Item],
        *,
        org_slug: str | None = None,
        group_id: str | None = None,
        all_groups: bool = False,
        occurred_at: Moment | None = None,
        reason: str | None = None,
        source: str | None = None,
        lenient: bool = False,
        on_progress: Progress | None = None,
    ) -> Submitted:
        """Submit opt-outs, and return when the service has stored all of them durably.

        `items` are addresses or Items, any number of them, read as they are sent. An Item takes the fields that it
        leaves out (when, why and where the person acted) from the call; without `occurred_at`, the time is that at
        which the item is read. An invalid item refuses its batch with InvalidItem. With `lenient`, it is returned in
        `item_errors` and the others are stored. `on_progress` is called after each batch with the totals so far.
        The call may be repeated. Source: docs/interface.md section D6.
        """
        items = Elements(items)  # rebound, since a traceback may show the arguments of a method
        return self._driver.run(
            self._submission_flow(
                "unsubscribed",
                channel,
                items,
                org_slug=org_slug,
                group_id=group_id,
                all_groups=all_groups,
                occurred_at=occurred_at,
                reason=reason,
                source=source,
                lenient=lenient,
                on_progress=on_progress,
            )
        )

    def resubscribe(
        self,
        channel: Channel,
        items: Iterable[str | Item],
        *,
        org_slug: str | None = None,
        group_id: str | None = None,
        all_groups: bool = False,
        occurred_at: Moment | None = None,
        source: str | None = None,
        lenient: bool = False,
        on_progress: Progress | None = None,
    ) -> Submitted:
        """Submit consents, and return when the service has stored all of them durably.

        Works like `unsubscribe`, but each item needs an `occurred_at`, its own or that of the call: the time of a
        consent that you can prove. A later opt-out stays in force, and the item counts as `outranked`. The key needs
        the permission `resubscribe`.
        """
        items = Elements(items)
        return self._driver.run(
            self._submission_flow(
                "resubscribed",
                channel,
                items,
                org_slug=org_slug,
                group_id=group_id,
                all_groups=all_groups,
                occurred_at=occurred_at,
                source=source,
                lenient=lenient,
                on_progress=on_progress,
            )
        )

    def look_up(
        self,
        channel: Channel,
        addresses: Iterable[str],
        *,
        org_slug: str | None = None,
        group_id: str | None = None,
        every_group: bool = False,
    ) -> Iterator[LookedUp]:
        """Yield the service's records for each address, in order. One request looks up to 100 addresses up.

        With a group (of the call, or else of the client), only records that apply to it are returned; `every_group`
        returns all records of the organization. Raises BadRequest for an invalid address, with `item_errors`.
        Addresses are part of the query, which proxies may log: to check many addresses, use a Mirror.
        """
        addresses = Elements(addresses)
        look_up = self._new_look_up(channel, addresses, self._read_target(org_slug, group_id, every_group))
        return (looked_up for results in self._driver.each(look_up.next_results) for looked_up in results)

    def changes(
        self,
        channel: Channel,
        *,
        cursor: str | None = None,
        org_slug: str | None = None,
        group_id: str | None = None,
        every_group: bool = False,
        limit: int = MAX_RECORDS,
    ) -> "Changes":
        """Return all changes after `cursor`, or all records if it is None, up to now. See Changes.

        Asking for the next page tells the service that the one before is stored, and so does a `cursor`: store a page
        before you ask on. Groups are selected as in `look_up`.
        """
        target = self._read_target(org_slug, group_id, every_group)
        return Changes(self._driver, self._new_feed_reader(channel, target, cursor, limit))

    def close(self) -> None:
        """Close all connections. May be repeated.

        Requests that other threads have sent end first, those of `Mirror.sync(wait=…)` within a second.
        """
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connect(self, options: dict[str, Any], *, total_s: float) -> None:
        self._driver = Driver(options, total_s=total_s)


class Changes(Iterator[Record]):
    """Iterates over changed records in the order of their last change, or with `pages()` over pages.

    After an error, iterate again: the current page is read once more. After InvalidCursor, read everything again
    without a cursor.
    """

    def __init__(self, driver: Driver, reader: FeedReader) -> None:
        self._driver, self._reader = driver, reader
        self._records: Iterator[Record] | None = None

    @property
    def cursor(self) -> str | None:
        """The cursor to store and to continue with.

        It advances after the last record of a page, when the next one is requested. If you store it then, a crash
        loses no record.
        """
        return self._reader.cursor

    def pages(self) -> Iterator[Page]:
        """Yield pages. `cursor` advances when the next page is requested. An empty page may not be the last one."""
        for page in self._driver.each(self._reader.next_page):
            yield page
            self._reader.mark_processed(page)

    def __next__(self) -> Record:
        if self._records is None:
            self._records = (record for page in self.pages() for record in page.records)
        try:
            return next(self._records)
        except BaseException:
            self._records = None  # exhausted; the next call continues at the cursor
            raise

"""The client for programs with threads, or without."""

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from stoplist_client.blocking import BlockingClient
from stoplist_client.core import Core, Elements
from stoplist_client.flows.following import MOST_RECORDS, Following
from stoplist_client.flows.submitting import Progress
from stoplist_client.model import Channel, Item, LookedUp, Moment, Page, Record, Submitted
from stoplist_client.transport.driver import Driver


class Client(BlockingClient, Core):
    """Submits opt-outs, looks addresses up, and follows changes. Any number of threads may share one.

    Errors are those of stoplist_client.errors. Close it, or use it in a `with`.
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
        """When this returns all items are stored by the service as opt-outs, and outlive its crash.

        `items` are addresses or Items, any number of them, read as they are sent. What an Item leaves open (when, why
        and where somebody acted) it takes from the call; without `occurred_at` it is an act of the moment when it was
        read here. A bad item refuses its batch by InvalidItem, or, if `lenient`, is told in `item_errors` while the
        others are stored. `on_progress` is called after each batch with the sums so far. The call may be repeated.
        Source: docs/interface.md section D6.
        """
        items = Elements(items)  # a traceback shows what a method was given
        return self._driver.run(
            self._submitting(
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
        """When this returns all items are stored as consents; who opted out later stays out, counted as `outranked`.

        As `unsubscribe`, but each item needs an `occurred_at`, its own or that of the call: the moment of a consent
        that can be proved. The key needs the permission `resubscribe`.
        """
        items = Elements(items)
        return self._driver.run(
            self._submitting(
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
        """What the service knows of each address, in their order; up to 100 are asked for at a time.

        With a group (the call's, or else the client's) the records that bear on it; `every_group` gives all of the
        organization. BadRequest for an address that is none, in `item_errors`. Addresses stand in the query, which
        proxies may write down: for many of them use a Mirror.
        """
        addresses = Elements(addresses)
        look_up = self._looking_up(channel, addresses, self._readable(org_slug, group_id, every_group))
        return (found for some in self._driver.each(look_up.further) for found in some)

    def changes(
        self,
        channel: Channel,
        *,
        cursor: str | None = None,
        org_slug: str | None = None,
        group_id: str | None = None,
        every_group: bool = False,
        limit: int = MOST_RECORDS,
    ) -> "Changes":
        """All that changed since `cursor`, or ever if it is None, up to now: see Changes.

        Groups are as in `look_up`.
        """
        target = self._readable(org_slug, group_id, every_group)
        return Changes(self._driver, self._following(channel, target, cursor, limit))

    def close(self) -> None:
        """The connections are closed. May be repeated."""
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connect(self, options: dict[str, Any]) -> None:
        self._driver = Driver(options)


class Changes(Iterator[Record]):
    """Goes through the records that changed, in the order of their last change, or with `pages()` through pages.

    After an error it may be gone on with: the page that was begun is read once more. After InvalidCursor, read anew
    without one.
    """

    def __init__(self, driver: Driver, following: Following) -> None:
        self._driver, self._following = driver, following
        self._records: Iterator[Record] | None = None

    @property
    def cursor(self) -> str | None:
        """What to keep, and to come back with: it is behind all records after which another one was asked for.

        So it moves once a page was dealt with, up to its last record: whoever keeps it loses nothing in a crash.
        """
        return self._following.cursor

    def pages(self) -> Iterator[Page]:
        """Page by page; `cursor` moves on when the next one is asked for. A page may be empty, and not the last."""
        for page in self._driver.each(self._following.further):
            yield page
            self._following.passed(page)

    def __next__(self) -> Record:
        if self._records is None:
            self._records = (record for page in self.pages() for record in page.records)
        try:
            return next(self._records)
        except BaseException:
            self._records = None  # it is spent: whoever asks again goes on at the cursor
            raise

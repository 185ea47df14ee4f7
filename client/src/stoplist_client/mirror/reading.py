"""Reads pages of changes for a mirror. The next page is fetched while one is being stored.

Source: docs/interface.md section D6 (GET).
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Generic, TypeVar

import msgspec

from stoplist_client.errors import StoplistClientError
from stoplist_client.flows.answers import decode_answer, not_understood
from stoplist_client.flows.flow import Answer, Send
from stoplist_client.flows.sending import call
from stoplist_client.flows.target import channel_path, query_value
from stoplist_client.mirror.mirror_errors import without_traceback
from stoplist_client.model import Seq, Status
from stoplist_client.redacted import Redacted

if TYPE_CHECKING:  # queries need no network, so httpx2 is not imported
    from stoplist_client.client import Client

T = TypeVar("T")


# The time that an answer may take beyond that for which it is held.
_BEYOND_WAIT_S = 15.0


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The position of reading: a copy and its cursor. `old_no` is the copy that answers meanwhile, if any.

    `is_reread`: the copy was begun because the one before it differs from the service. `bars_meanwhile`: what it bars
    is barred before it is complete. `is_diverged`: the copy that answers differs from the service.
    """

    feed_no: int
    org_slug: str
    channel: str
    copy_no: int
    cursor: str | None
    is_building: bool
    old_no: int | None
    is_reread: bool = False
    bars_meanwhile: bool = False
    is_diverged: bool = False

    @property
    def is_proof(self) -> bool:
        """Return whether the cursor proves that all changes up to it are stored, and answer queries as they should."""
        return not (self.is_building or self.is_diverged)

    @property
    def is_rebuilding(self) -> bool:
        """Return whether another copy answers until this one is complete."""
        return self.is_building and self.old_no is not None


class Change(Redacted, msgspec.Struct, gc=False):
    """A record of a page. Times stay texts, since they are stored and rarely read."""

    seq: Seq
    address: str | None
    group_id: str | None
    id: str
    status: Status
    reason: str
    source: str | None
    occurred_at: str
    recorded_at: str
    address_digest: str | None = None


class _Changes(Redacted, msgspec.Struct, gc=False):
    items: list[Change]


class FeedState(msgspec.Struct, frozen=True):
    """Figures of a complete copy of the feed: the number of its records, and their digest."""

    records: int
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _PageEnd(Redacted, msgspec.Struct):
    next_cursor: str
    has_more: bool
    state: FeedState | None = None
    digest_key: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{43}$")] | None = None


_CHANGES = msgspec.json.Decoder(_Changes)
# Skipping the items takes a quarter of decoding them, so the next page can be requested before this one is decoded.
_PAGE_END = msgspec.json.Decoder(_PageEnd)


class FetchedPage(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """A page whose changes are not decoded yet. `asked_s` is the time just before it was requested.

    `is_waited_for`: the service was asked to hold the request until there is a change.
    """

    answer: Answer
    next_cursor: str
    has_more: bool
    asked_s: float
    state: FeedState | None = None
    digest_key: str | None = None
    is_waited_for: bool = False

    def changes(self) -> list[Change]:
        """Return the changes in the order of `seq`. Raises NotUnderstood if one has neither address nor digest."""
        changes = decode_answer(self.answer, _CHANGES).items
        if any(change.address is None and not (change.address_digest and self.digest_key) for change in changes):
            raise not_understood(self.answer, "A record has no address, and no digest in its place.")
        if self.has_more and not changes:
            raise not_understood(self.answer, "The page has_more, but no records.")
        return changes


class BackgroundTask(Generic[T]):
    """Work in a thread of its own, whose result is awaited later."""

    def __init__(self, work: Callable[[], T], on_done: Callable[[], None] | None = None) -> None:
        self._work, self._on_done = work, on_done
        self._is_done = threading.Event()
        self._outcome: T
        self._error: BaseException | None = None
        # A daemon thread, so that an interrupted process does not wait for an answer that it no longer needs.
        threading.Thread(target=self._run, name="stoplist-mirror-page", daemon=True).start()

    @property
    def is_done(self) -> bool:
        """Return whether `result` returns at once."""
        return self._is_done.is_set()

    def result(self) -> T:
        """Wait for the work, and return its result or raise its error."""
        self._is_done.wait()
        if self._error is not None:
            raise self._error
        return self._outcome

    def _run(self) -> None:
        try:
            self._outcome = self._work()
        except StoplistClientError as error:
            self._error = without_traceback(error)
        except BaseException as error:
            self._error = error
        finally:
            self._is_done.set()
            if self._on_done is not None:
                self._on_done()


def fetch(
    client: "Client",
    now_s: Callable[[], float],
    position: Position,
    *,
    limit: int,
    wait_s: int | None = None,
    reads_ahead: bool = False,
    on_done: Callable[[], None] | None = None,
) -> BackgroundTask[FetchedPage]:
    """Start fetching the page after the position; with `wait_s` the service holds it until there is a change.

    To present a cursor is to say that everything up to it is stored. With `reads_ahead` it is not, yet.
    Source: docs/interface.md section D14, Propagation.
    """
    prefers = [f"wait={wait_s}"] if wait_s is not None else []
    if reads_ahead or not position.is_proof:
        prefers.append("read-ahead")
    headers = {"Prefer": ", ".join(prefers)} if prefers and position.cursor is not None else {}
    is_waited_for = wait_s is not None and position.cursor is not None
    request = Send(
        method="GET",
        url=_url_after(position, limit),
        headers=headers,
        read_timeout_s=wait_s + _BEYOND_WAIT_S if wait_s is not None and is_waited_for else None,
    )

    def work() -> FetchedPage:
        asked_s = now_s()
        answer = client._driver.run(call(client._session, request))
        page_end = decode_answer(answer, _PAGE_END)
        if page_end.has_more and page_end.next_cursor == position.cursor:
            raise not_understood(answer, "The page has_more, but its next_cursor leads to the same page.")
        return FetchedPage(
            answer=answer,
            next_cursor=page_end.next_cursor,
            has_more=page_end.has_more,
            asked_s=asked_s,
            state=page_end.state,
            digest_key=page_end.digest_key,
            is_waited_for=is_waited_for,
        )

    return BackgroundTask(work, on_done)


def _url_after(position: Position, limit: int) -> str:
    url = f"{channel_path(position.channel)}?org_slug={query_value(position.org_slug)}&limit={limit}"
    return url if position.cursor is None else f"{url}&cursor={query_value(position.cursor)}"

"""Reads pages of changes for a mirror. The next page is fetched while one is being stored.

Source: docs/interface.md section D6 (GET).
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from stoplist_client.errors import StoplistClientError
from stoplist_client.flows.answers import decode_answer, not_understood
from stoplist_client.flows.flow import Answer, Flow, Send
from stoplist_client.flows.sending import Session, call
from stoplist_client.flows.target import channel_path, query_value
from stoplist_client.mirror.mirror_errors import without_traceback
from stoplist_client.model import Status
from stoplist_client.redacted import Redacted

if TYPE_CHECKING:  # queries need no network, so httpx2 is not imported
    from stoplist_client.client import Client

T = TypeVar("T")


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The position of reading: a copy and its cursor. `old_no` is the copy that answers meanwhile, if any."""

    feed_no: int
    org_slug: str
    channel: str
    copy_no: int
    cursor: str | None
    is_building: bool
    old_no: int | None

    @property
    def is_rebuilding(self) -> bool:
        """Return whether another copy answers until this one is complete."""
        return self.is_building and self.old_no is not None


class Change(Redacted, msgspec.Struct, gc=False):
    """A record of a page. Times stay texts, since they are stored and rarely read."""

    seq: int
    address: str
    group_id: str | None
    id: str
    status: Status
    reason: str
    source: str | None
    occurred_at: str
    recorded_at: str


class _Changes(Redacted, msgspec.Struct, gc=False):
    items: list[Change]


class _PageEnd(msgspec.Struct):
    next_cursor: str
    has_more: bool


_CHANGES = msgspec.json.Decoder(_Changes)
# Skipping the items takes a quarter of decoding them, so the next page can be requested before this one is decoded.
_PAGE_END = msgspec.json.Decoder(_PageEnd)


class FetchedPage(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """A page whose changes are not decoded yet. `asked_s` is the time just before it was requested."""

    answer: Answer
    next_cursor: str
    has_more: bool
    asked_s: float

    def changes(self) -> list[Change]:
        """Return the changes in the order of `seq`."""
        return decode_answer(self.answer, _CHANGES).items


class BackgroundTask(Generic[T]):
    """Work in a thread of its own, whose result is awaited later."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._is_done = threading.Event()
        self._outcome: T
        self._error: BaseException | None = None
        # A daemon thread, so that an interrupted process does not wait for an answer that it no longer needs.
        threading.Thread(target=self._run, name="stoplist-mirror-page", daemon=True).start()

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


def fetch(
    client: "Client", now_s: Callable[[], float], position: Position, *, cursor: str | None, limit: int
) -> BackgroundTask[FetchedPage]:
    """Start fetching the page after `cursor` of the position's organization and channel."""

    def work() -> FetchedPage:
        asked_s = now_s()
        answer = client._driver.run(_request_page(client._session, position.channel, position.org_slug, cursor, limit))
        page_end = decode_answer(answer, _PAGE_END)
        if page_end.has_more and page_end.next_cursor == cursor:
            raise not_understood(answer, "The page has_more, but its next_cursor leads to the same page.")
        return FetchedPage(answer=answer, next_cursor=page_end.next_cursor, has_more=page_end.has_more, asked_s=asked_s)

    return BackgroundTask(work)


def _request_page(session: Session, channel: str, org_slug: str, cursor: str | None, limit: int) -> Flow[Answer]:
    query = f"org_slug={query_value(org_slug)}&limit={limit}"
    if cursor is not None:
        query += f"&cursor={query_value(cursor)}"
    return (yield from call(session, Send(method="GET", url=f"{channel_path(channel)}?{query}", headers={})))

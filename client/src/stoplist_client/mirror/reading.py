"""Pages of changes as a mirror reads them: the next one is under way while one is being stored.

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

if TYPE_CHECKING:  # who only asks needs no network
    from stoplist_client.client import Client

T = TypeVar("T")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where to read on: a copy and its cursor. `old_no` is the copy that answers meanwhile, if it is another one."""

    feed_no: int
    org_slug: str
    channel: str
    copy_no: int
    cursor: str | None
    is_building: bool
    old_no: int | None

    @property
    def is_rebuilding(self) -> bool:
        """Whether another copy answers until this one is read."""
        return self.is_building and self.old_no is not None


class Change(Redacted, msgspec.Struct, gc=False):
    """A record of a page. Times stay texts: they are stored, and hardly ever read."""

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


class _Ends(msgspec.Struct):
    next_cursor: str
    has_more: bool


_CHANGES = msgspec.json.Decoder(_Changes)
# What is skipped costs a quarter of what is kept: so the next page can be asked for before this one is looked at.
_ENDS = msgspec.json.Decoder(_Ends)


class Fetched(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """A page, its changes not yet looked at. `asked_s` is the moment before it was asked for."""

    answer: Answer
    next_cursor: str
    has_more: bool
    asked_s: float

    def changes(self) -> list[Change]:
        """What it holds, by `seq`."""
        return decode_answer(self.answer, _CHANGES).items


class Ahead(Generic[T]):
    """Something that is being brought by a thread of its own while the others go on."""

    def __init__(self, bring: Callable[[], T]) -> None:
        self._bring = bring
        self._is_there = threading.Event()
        self._outcome: T
        self._error: BaseException | None = None
        # A daemon: nobody who was interrupted waits for an answer that he does not want any more.
        threading.Thread(target=self._run, name="stoplist-mirror-page", daemon=True).start()

    def result(self) -> T:
        """What was brought, or the error that prevented it."""
        self._is_there.wait()
        if self._error is not None:
            raise self._error
        return self._outcome

    def _run(self) -> None:
        try:
            self._outcome = self._bring()
        except StoplistClientError as error:
            self._error = without_traceback(error)
        except BaseException as error:
            self._error = error
        finally:
            self._is_there.set()


def fetch(
    client: "Client", now_s: Callable[[], float], place: Place, *, cursor: str | None, limit: int
) -> Ahead[Fetched]:
    """The page after `cursor` of the place's organization and channel, under way."""

    def bring() -> Fetched:
        asked_s = now_s()
        answer = client._driver.run(_answer(client._session, place.channel, place.org_slug, cursor, limit))
        ends = decode_answer(answer, _ENDS)
        if ends.has_more and ends.next_cursor == cursor:
            raise not_understood(answer, "The answer says that there is more, and leads to itself.")
        return Fetched(answer=answer, next_cursor=ends.next_cursor, has_more=ends.has_more, asked_s=asked_s)

    return Ahead(bring)


def _answer(session: Session, channel: str, org_slug: str, cursor: str | None, limit: int) -> Flow[Answer]:
    query = f"org_slug={query_value(org_slug)}&limit={limit}"
    if cursor is not None:
        query += f"&cursor={query_value(cursor)}"
    return (yield from call(session, Send(method="GET", url=f"{channel_path(channel)}?{query}", headers={})))

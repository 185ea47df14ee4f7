"""Read what changed since a cursor, page by page. Source: docs/interface.md section D6 (GET)."""

import msgspec

from stoplist_client.errors import ConfigurationError
from stoplist_client.flows.answers import not_understood, understood
from stoplist_client.flows.flow import Flow, Send
from stoplist_client.flows.sending import Session, call
from stoplist_client.flows.target import Target, encoded, path_of
from stoplist_client.model import Page, Record
from stoplist_client.redacted import Redacted

MOST_RECORDS = 10_000


class _Read(Redacted, msgspec.Struct, frozen=True):
    items: tuple[Record, ...]
    next_cursor: str
    has_more: bool


_READ = msgspec.json.Decoder(_Read)


class Following:
    """How far a feed was read: `cursor` is what to keep, and moves on when a page is said to be `passed`."""

    def __init__(self, session: Session, channel: str, *, target: Target, cursor: str | None, limit: int) -> None:
        if not isinstance(limit, int) or not 1 <= limit <= MOST_RECORDS:
            raise ConfigurationError(f"limit must be from 1 to {MOST_RECORDS}: so many records has a page at most.")
        if cursor is not None and not isinstance(cursor, str):
            raise ConfigurationError(
                "cursor must be the text that an earlier page gave, or None to read from the start."
            )
        self._session, self._path = session, path_of(channel)
        self._query = [f"limit={limit}", *target.query()]
        self.cursor = cursor
        self._is_at_end = False

    def further(self) -> Flow[Page | None]:
        """The page after `cursor`; None once the page that was passed last was the end. It may be asked for again."""
        if self._is_at_end:
            return None
        query = self._query if self.cursor is None else [*self._query, f"cursor={encoded(self.cursor)}"]
        request = Send(method="GET", url=f"{self._path}?{'&'.join(query)}", headers={})
        answer = yield from call(self._session, request)
        read = understood(answer, _READ)
        if read.has_more and read.next_cursor == self.cursor:
            raise not_understood(answer, "The answer says that there is more, and leads to itself.")
        return Page(records=read.items, next_cursor=read.next_cursor, has_more=read.has_more)

    def passed(self, page: Page) -> None:
        """The caller has dealt with the page: it is not read again."""
        self.cursor, self._is_at_end = page.next_cursor, not page.has_more

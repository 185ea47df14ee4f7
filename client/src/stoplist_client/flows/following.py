"""Reads the changes since a cursor, page by page. Source: docs/interface.md section D6 (GET)."""

import msgspec

from stoplist_client.errors import ConfigurationError
from stoplist_client.flows.answers import decode_answer, not_understood
from stoplist_client.flows.flow import Flow, Send
from stoplist_client.flows.sending import Session, call
from stoplist_client.flows.target import Target, channel_path, query_value
from stoplist_client.model import Page, Record
from stoplist_client.redacted import Redacted

MAX_RECORDS = 10_000


class _PageBody(Redacted, msgspec.Struct, frozen=True):
    items: tuple[Record, ...]
    next_cursor: str
    has_more: bool
    digest_key: str | None = None


_PAGE_BODY = msgspec.json.Decoder(_PageBody)


class FeedReader:
    """Reads one feed. `cursor` is the position to store; it advances when a page is marked as processed."""

    def __init__(self, session: Session, channel: str, *, target: Target, cursor: str | None, limit: int) -> None:
        if not isinstance(limit, int) or not 1 <= limit <= MAX_RECORDS:
            raise ConfigurationError(f"limit must be from 1 to {MAX_RECORDS}, the maximum number of records of a page.")
        if cursor is not None and not isinstance(cursor, str):
            raise ConfigurationError(
                "cursor must be the next_cursor of an earlier page, or None to read from the beginning."
            )
        self._session, self._path = session, channel_path(channel)
        self._query = [f"limit={limit}", *target.query()]
        # A page for a group may be empty, because it only examines so many records.
        self._is_for_group = target.group_id is not None
        self.cursor = cursor
        self._is_at_end = False

    def next_page(self) -> Flow[Page | None]:
        """Return the page after `cursor`, or None if the last processed page was the end. May be repeated."""
        if self._is_at_end:
            return None
        query = self._query if self.cursor is None else [*self._query, f"cursor={query_value(self.cursor)}"]
        request = Send(method="GET", url=f"{self._path}?{'&'.join(query)}", headers={})
        answer = yield from call(self._session, request)
        body = decode_answer(answer, _PAGE_BODY)
        if body.has_more and body.next_cursor == self.cursor:
            raise not_understood(answer, "The page has_more, but its next_cursor leads to the same page.")
        if body.has_more and not body.items and not self._is_for_group:
            raise not_understood(answer, "The page has_more, but no records.")
        return Page(
            records=body.items, next_cursor=body.next_cursor, has_more=body.has_more, digest_key=body.digest_key
        )

    def mark_processed(self, page: Page) -> None:
        """Advance the cursor: the caller has processed this page."""
        self.cursor, self._is_at_end = page.next_cursor, not page.has_more

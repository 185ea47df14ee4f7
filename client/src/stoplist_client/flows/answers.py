"""Decodes answers: the expected body, a refusal as an error of its class, or an answer that is not Stoplist's.

Sources: docs/interface.md sections 7, D2 (Statuses and headers) and D4.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from stoplist_client.errors import BY_CODE, ApiError, NotUnderstood
from stoplist_client.flows.flow import Answer
from stoplist_client.model import Item, ItemError
from stoplist_client.redacted import Redacted

T = TypeVar("T")


class BadItem(msgspec.Struct, frozen=True):
    """An item that was not accepted; its index counts from 0 within its batch."""

    item_index: int
    item_error: str


class _Envelope(Redacted, msgspec.Struct, frozen=True):
    """The error body of the API and of the token endpoint."""

    error: str
    message: str | None = None
    error_description: str | None = None
    parameter: str | None = None
    item_errors: list[BadItem] = []
    org_slug: str | None = None
    group_id: str | None = None
    request_id: str | None = None


_ENVELOPE = msgspec.json.Decoder(_Envelope)
# Too deep nesting is a RecursionError, also within fields that nobody reads.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def decode_answer(answer: Answer, decoder: msgspec.json.Decoder[T]) -> T:
    """Return the decoded body of a 200. Raises NotUnderstood if the body has another shape."""
    try:
        return decoder.decode(answer.body)
    except _UNREADABLE:
        pass  # raised below, outside the handler: this exception holds the body
    raise not_understood(answer)


def refusal(
    answer: Answer, *, items: Sequence[str | Item] = (), indexes: Sequence[int] = ()
) -> ApiError | NotUnderstood:
    """Return the error for an answer other than 200.

    For a batch, `items` are its items and `indexes` their positions in the whole call.
    """
    try:
        envelope = _ENVELOPE.decode(answer.body)
    except _UNREADABLE:
        return not_understood(answer)
    kind = BY_CODE.get(envelope.error, ApiError)
    return kind(
        envelope.message or envelope.error_description or "The service gave no reason.",
        status=answer.status,
        code=envelope.error,
        parameter=envelope.parameter,
        item_errors=item_errors(envelope.item_errors, items, indexes),
        org_slug=envelope.org_slug,
        group_id=envelope.group_id,
        request_id=request_id(answer) or envelope.request_id,
        retry_after_s=retry_after_s(answer),
    )


def item_errors(
    errors: Sequence[BadItem], items: Sequence[str | Item], indexes: Sequence[int]
) -> tuple[ItemError, ...]:
    """Return the errors of a batch with the items themselves and their positions in the whole call."""
    return tuple(
        ItemError(indexes[bad.item_index], items[bad.item_index], bad.item_error)
        for bad in errors
        if 0 <= bad.item_index < len(items)
    )


def not_understood(answer: Answer, reason: str = "") -> NotUnderstood:
    """Return the error for an answer that is not Stoplist's. It repeats only the status of the answer."""
    problem = reason or _unexpected_answer(answer)
    advice = "Check base_url, and any proxy between here and the service."
    return NotUnderstood(f"{problem} {advice}", status=answer.status, request_id=request_id(answer))


def request_id(answer: Answer) -> str | None:
    """Return the request id, for the operator of the service; None if something else answered."""
    return answer.headers.get("x-request-id")


def retry_after_s(answer: Answer) -> int | None:
    """Return the seconds of the Retry-After header, or None if it is missing or not a number."""
    text = answer.headers.get("retry-after", "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _unexpected_answer(answer: Answer) -> str:
    if 300 <= answer.status < 400:
        return f"The answer is a redirect ({answer.status}), and redirects are not followed."
    kind = "an HTML page" if b"<html" in answer.body[:1000].lower() else "not one of Stoplist's"
    return f"The answer with status {answer.status} is {kind}."

"""What an answer says: what was asked for, or a refusal as an error of its class, or nothing that Stoplist would say.

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
    """An item that was not accepted, counted from 0 within its batch."""

    item_index: int
    item_error: str


class _Envelope(Redacted, msgspec.Struct, frozen=True):
    """Both envelopes in one: that of the API and that of the token endpoint."""

    error: str
    message: str | None = None
    error_description: str | None = None
    parameter: str | None = None
    item_errors: list[BadItem] = []
    org_slug: str | None = None
    group_id: str | None = None
    request_id: str | None = None


_ENVELOPE = msgspec.json.Decoder(_Envelope)


def understood(answer: Answer, decoder: msgspec.json.Decoder[T]) -> T:
    """The body of a 200, which must be of the decoder's shape; else NotUnderstood."""
    try:
        return decoder.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # what is raised here would hold on to the body
    raise not_understood(answer)


def refusal(
    answer: Answer, *, items: Sequence[str | Item] = (), indexes: Sequence[int] = ()
) -> ApiError | NotUnderstood:
    """The error of an answer that is none of 200, to be raised.

    Of a batch `items` are those that it held, and `indexes` where each stood in the whole call.
    """
    try:
        envelope = _ENVELOPE.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
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


def item_errors(told: Sequence[BadItem], items: Sequence[str | Item], indexes: Sequence[int]) -> tuple[ItemError, ...]:
    """What an answer says of single items, with the items themselves, counted over the whole call."""
    return tuple(
        ItemError(indexes[bad.item_index], items[bad.item_index], bad.item_error)
        for bad in told
        if 0 <= bad.item_index < len(items)
    )


def not_understood(answer: Answer, reason: str = "") -> NotUnderstood:
    """The error for an answer that Stoplist does not give. It repeats nothing of the answer but its status."""
    what = reason or _strangeness(answer)
    advice = "Check base_url, and what stands between here and the service."
    return NotUnderstood(f"{what} {advice}", status=answer.status, request_id=request_id(answer))


def request_id(answer: Answer) -> str | None:
    """The id to tell the operator of the service; None where something else answered."""
    return answer.headers.get("x-request-id")


def retry_after_s(answer: Answer) -> int | None:
    """After how many seconds to come back, if the answer says so as a number."""
    told = answer.headers.get("retry-after", "").strip()
    return int(told) if told.isascii() and told.isdigit() and len(told) < 10 else None


def _strangeness(answer: Answer) -> str:
    if 300 <= answer.status < 400:
        return f"The answer is a redirect ({answer.status}), and redirects are not followed."
    kind = "a page of HTML" if b"<html" in answer.body[:1000].lower() else "nothing that Stoplist would say"
    return f"The answer with status {answer.status} is {kind}."

"""Encodes the items of a call one by one, as the service takes them. Source: docs/interface.md section D6."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from stoplist_client.environment import Environment
from stoplist_client.errors import ConfigurationError
from stoplist_client.model import Item, Moment, Status
from stoplist_client.redacted import Redacted

_ENCODE = msgspec.json.Encoder().encode


class Act(Redacted, msgspec.Struct, frozen=True, omit_defaults=True):
    """An item of a request body."""

    address: str
    occurred_at: str | None = None
    reason: str | None = None
    source: str | None = None
    status: Status | None = None


class Encoder:
    """Encodes items as acts. An item takes the fields that it leaves out from the call.

    An opt-out without a time is stamped with this host's clock, unless `stamps` is False. A resubscription is never
    stamped, since its time must be that of a consent.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        status: Status = "unsubscribed",
        occurred_at: Moment | None = None,
        reason: str | None = None,
        source: str | None = None,
        stamps: bool = True,
    ) -> None:
        self._environment, self._reason, self._source = environment, reason, source
        self._occurred_at = None if occurred_at is None else moment_text(occurred_at, "occurred_at")
        self._needs_time = status == "resubscribed"
        self._status = status if self._needs_time else None  # the default of the service is an opt-out
        self._stamps = stamps and not self._needs_time

    def __repr__(self) -> str:
        return "Encoder(…)"

    def stamps(self, item: str | Item) -> bool:
        """Return whether this item gets the time of this host."""
        if not self._stamps or self._occurred_at is not None:
            return False
        return isinstance(item, str) or item.occurred_at is None

    def encoded(self, items: Sequence[str | Item], first_index: int) -> list[bytes]:
        """Return the JSON of each item. Raises ConfigurationError with the index of a wrong item in the whole call."""
        at = self._occurred_at
        if at is None and self._stamps:
            at = ms_text(datetime.fromtimestamp(self._environment.now_s(), UTC))
        if set(map(type, items)) <= {str} and not (self._needs_time and at is None):
            reason, source, status = self._reason, self._source, self._status
            try:
                return [_ENCODE(Act(item, at, reason, source, status)) for item in items]  # type: ignore[arg-type]
            except UnicodeEncodeError:
                pass
        return [_json(self._act(item, index, at)) for index, item in enumerate(items, first_index)]

    def _act(self, item: str | Item, index: int, at: str | None) -> Act:
        if isinstance(item, str):
            item = Item(item)
        elif not isinstance(item, Item) or not isinstance(item.address, str):
            raise ConfigurationError(f"Item {index} has the wrong type: it must be an address as a str, or an Item.")
        if item.occurred_at is not None:
            at = moment_text(item.occurred_at, f"occurred_at of item {index}")
        if at is None and self._needs_time:
            raise ConfigurationError(
                f"Item {index} has no occurred_at: a resubscription needs the time of the consent, on the item or on "
                "the call."
            )
        reason = self._reason if item.reason is None else item.reason
        source = self._source if item.source is None else item.source
        if not isinstance(reason, str | None) or not isinstance(source, str | None):
            raise ConfigurationError(f"The reason and the source of item {index} must be text.")
        # A subclass of str may encode itself in another way: take the plain text.
        return Act(str.__str__(item.address), at, reason, source, self._status)


def moment_text(moment: Moment, name: str) -> str:
    """Return a moment as RFC 3339 text. Text is returned unchanged, and checked by the service only.

    Raises ConfigurationError for a datetime without a UTC offset.
    """
    if isinstance(moment, str):
        return moment
    if not isinstance(moment, datetime):
        raise ConfigurationError(f"{name} must be a datetime or an RFC 3339 text.")
    if moment.utcoffset() is None:
        raise ConfigurationError(f"{name} has no UTC offset: give the datetime a tzinfo.")
    try:
        return ms_text(moment.astimezone(UTC))
    except OverflowError:
        raise ConfigurationError(f"{name} is outside of the years 1 to 9999 in UTC.") from None


def ms_text(moment: datetime) -> str:
    """Return a UTC time as `2026-03-01T09:30:00.000Z`, truncated to milliseconds as the service does."""
    return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def _json(act: Act) -> bytes:
    try:
        return _ENCODE(act)
    except UnicodeEncodeError:
        # UTF-8 cannot encode a lone surrogate. Sent as an escape, the service refuses and names the item.
        return json.dumps(msgspec.to_builtins(act)).encode()

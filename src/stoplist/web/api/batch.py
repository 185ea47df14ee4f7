"""Parses the body of a submission: first its shape as a whole, then each item, so that every bad item is reported.

Source: docs/interface.md sections D4 and D6.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, get_args

import msgspec
from msgspec import Raw

from stoplist.errors import BadRequest
from stoplist.slicing import Work, in_timed_slices
from stoplist.unsubscribes.model import (
    MAX_ITEMS,
    MAX_SOURCE_CHARS,
    UNSUBSCRIBED,
    BadItem,
    Batch,
    Item,
    RequestedTarget,
    SentReason,
    Status,
)
from stoplist.web.api.query import checked_name, shown_name

_FIELDS = Batch.__struct_fields__
_ITEM_FIELDS = Item.__struct_fields__
_STATUSES: tuple[str, ...] = get_args(Status)
_REASONS: tuple[str, ...] = get_args(SentReason)

_BODY = msgspec.json.Decoder(dict[str, Raw])
_ITEMS = msgspec.json.Decoder(list[Raw])
_ITEM = msgspec.json.Decoder(Item)
_GOOD_ITEMS = msgspec.json.Decoder(list[Item])

# msgspec refuses a text that holds half of a surrogate pair anywhere; the standard library reads it.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# Parsing blocks the event loop. 10 000 items of five fields have 50 000 commas, 10 001 opening brackets and braces, and
# 200 000 quotation marks around texts; two or three times as many are parsed in 30 ms, but 8 MiB of nothing else would
# take seconds. Items that msgspec refuses are parsed by the slow standard library up to a length that no item needs.
_MAX_COMMAS, _MAX_OPENINGS, _MAX_QUOTES = 100_000, 30_000, 400_000
_MAX_SLOW_ITEM_BYTES = 64 * 1024
_SCALAR_STARTS = (b'"', b"t", b"f", b"n")
_TOO_MANY_VALUES = f"The body holds far more values than {MAX_ITEMS} items have: send fewer at once."
_NOT_JSON = "The body is not JSON: send an object with items, in UTF-8."
_NOT_OBJECT = 'The body must be an object that holds the items: {"items": [{"address": "…"}]}.'
_UNREADABLE = "The item cannot be read: send an object that holds plain values."
_TOO_DEEP = "The body is nested too deeply: items are objects that hold plain values."


async def read_batch(body: bytes, work: Work) -> tuple[RequestedTarget, Sequence[Item | BadItem]]:
    """Return the target that the body names, and its items in order; BadRequest for any fault outside the items."""
    fields = _parse_fields(body)
    requested = _requested_target(fields)
    value = fields.get("items")
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if isinstance(value, Raw):
            good_items = _GOOD_ITEMS.decode(value)
            _check_count(good_items)
            return requested, good_items
    raw_items = _raw_items(value)
    _check_count(raw_items)
    items: list[Item | BadItem] = []
    async for part in in_timed_slices(raw_items, work):
        items.extend(map(_parse_item, part))
    return requested, items


def _check_count(items: Sequence[Any]) -> None:
    if not 0 < len(items) <= MAX_ITEMS:
        raise BadRequest(
            f"items must be a list of 1 to {MAX_ITEMS} objects; there are {len(items)}.", parameter="items"
        )


def _parse_fields(body: bytes) -> dict[str, Any]:
    """Return the fields of the body, with values still as JSON (`Raw`) unless only the standard library can read it."""
    if _has_too_many_values(body):
        raise BadRequest(_TOO_MANY_VALUES)
    try:
        fields: Any = _parse_object(body)
    except msgspec.ValidationError:
        raise BadRequest(_NOT_OBJECT) from None
    except ValueError:  # a base class of UnicodeDecodeError and msgspec.DecodeError
        raise BadRequest(_NOT_JSON) from None
    except RecursionError:
        raise BadRequest(_TOO_DEEP) from None
    if not isinstance(fields, dict):
        raise BadRequest(_NOT_OBJECT)
    for name in fields:
        if name not in _FIELDS:
            raise BadRequest(
                f"The body has an unknown field: it takes {', '.join(_FIELDS)}.", parameter=shown_name(name)
            )
    return fields


def _has_too_many_values(body: bytes) -> bool:
    """Return whether the body holds more values than any batch, however short; the content of texts does not count."""
    if not _exceeds_bounds(body):
        return False
    # Escapes occur in texts only: without them every quotation mark begins or ends a text.
    parts = body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"', _MAX_QUOTES + 1)
    return len(parts) > _MAX_QUOTES + 1 or _exceeds_bounds(b"".join(parts[::2]))


def _exceeds_bounds(text: bytes) -> bool:
    return text.count(b",") > _MAX_COMMAS or text.count(b"[") + text.count(b"{") > _MAX_OPENINGS


def _parse_object(body: bytes) -> Any:
    text = body.decode()
    try:
        return _BODY.decode(body)
    except msgspec.DecodeError:
        if _SURROGATE.search(body):
            return _parse_slowly(text)
        raise


def _value(fields: dict[str, Any], name: str) -> Any:
    """Return the value of a field, or NotImplemented unless it is text, true, false or null."""
    value = fields.get(name)
    if isinstance(value, Raw) and bytes(value)[:1] not in _SCALAR_STARTS:
        return NotImplemented
    try:
        return msgspec.json.decode(value) if isinstance(value, Raw) else value
    except msgspec.DecodeError:
        return NotImplemented


def _raw_items(value: Any) -> list[Any]:
    """Return the items, each still as JSON if `value` is."""
    if isinstance(value, Raw):
        with suppress(msgspec.ValidationError):
            value = _ITEMS.decode(value)
    if not isinstance(value, list):
        raise BadRequest(f"items must be a list of 1 to {MAX_ITEMS} objects.", parameter="items")
    return value


def _requested_target(fields: dict[str, Any]) -> RequestedTarget:
    org_slug, group_id = _text(fields, "org_slug"), _text(fields, "group_id")
    all_groups = _value(fields, "all_groups")
    if not isinstance(all_groups, bool | None):
        raise BadRequest("all_groups must be true or false.", parameter="all_groups")
    if all_groups and group_id is not None:
        raise BadRequest("Send a group_id, or all_groups: true, not both.", parameter="all_groups")
    return RequestedTarget(org_slug=org_slug, group_id=group_id, all_groups=bool(all_groups))


def _text(fields: dict[str, Any], name: str) -> str | None:
    text = _value(fields, name)
    if text is None:
        return None
    if not isinstance(text, str) or not _is_unicode(text):
        raise BadRequest(f"{name} must be text.", parameter=name)
    return checked_name(name, text)


def _parse_item(raw: Any) -> Item | BadItem:
    if not isinstance(raw, Raw):
        return _check_item(raw)
    try:
        return _ITEM.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    text = bytes(raw)
    if len(text) > _MAX_SLOW_ITEM_BYTES:
        return BadItem(_UNREADABLE)
    try:
        return _check_item(_parse_slowly(text.decode()))
    except (ValueError, RecursionError):
        return BadItem(_UNREADABLE)


class _InvalidShape(Exception):
    """The shape of an item is wrong; the message says why."""


def _parse_slowly(text: str) -> Any:
    """Parse a JSON text with the standard library. Raises ValueError and RecursionError."""
    return json.loads(text, parse_int=_ignore_number, parse_float=_ignore_number, parse_constant=_refuse_constant)


def _check_item(fields: Any) -> Item | BadItem:
    """Return the item that msgspec refused, or the error in it.

    The item may be valid: of a repeated field the last value counts, whatever the others hold.
    """
    if not isinstance(fields, dict):
        return BadItem("The item must be an object with an address.")
    status = fields.get("status")
    if status is None:
        status = UNSUBSCRIBED
    known_status = status if isinstance(status, str) and status in _STATUSES else None
    try:
        _check_fields(fields)
    except _InvalidShape as error:
        return BadItem(str(error), known_status)
    return Item(**fields)


def _check_fields(fields: dict[str, Any]) -> None:
    unknown = next((name for name in fields if name not in _ITEM_FIELDS), None)
    if unknown is not None:
        shown = shown_name(unknown)
        raise _InvalidShape(f"Unknown field{f' {shown}' if shown else ''}: an item takes {', '.join(_ITEM_FIELDS)}.")
    if fields.get("address") is None:
        raise _InvalidShape("address is missing.")
    for name, value in fields.items():
        if value is not None and not isinstance(value, str):
            raise _InvalidShape(f"{name} must be text.")
        if value is not None and not _is_unicode(value):
            raise _InvalidShape(f"{name} contains half of a surrogate pair: send text in UTF-8.")
    _check_choice(fields, "status", _STATUSES)
    _check_choice(fields, "reason", _REASONS)
    if len(fields.get("source") or "") > MAX_SOURCE_CHARS:
        raise _InvalidShape(f"source is longer than {MAX_SOURCE_CHARS} characters.")


def _check_choice(fields: dict[str, Any], name: str, choices: tuple[str, ...]) -> None:
    if fields.get(name) is not None and fields[name] not in choices:
        raise _InvalidShape(f"{name} must be one of {', '.join(choices)}.")


def _ignore_number(_text: str) -> int:
    """Return 0 for any number: no field of an item takes one, and a huge one would cost time to parse."""
    return 0


def _refuse_constant(_text: str) -> int:
    raise ValueError("NaN and Infinity are not JSON")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

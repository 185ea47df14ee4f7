"""The body of a submission: its shape as a whole, then each item by itself, so that every bad one can be named.

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
from stoplist.slicing import in_slices
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
_RAW_ITEMS = msgspec.json.Decoder(list[Raw])
_ITEM = msgspec.json.Decoder(Item)

# The quick reader refuses a whole text that holds half of a surrogate pair; the standard library reads it.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# Reading holds the loop up. 10 000 items of five fields have 50 000 commas, 10 001 brackets and braces that open and,
# around their texts, 200 000 quotation marks; two or three times as many are read in 30 ms, but 8 MiB of nothing else
# would take seconds. What cannot be read quickly is read slowly up to a length that no item needs.
_MAX_COMMAS, _MAX_OPENINGS, _MAX_QUOTES = 100_000, 30_000, 400_000
_MAX_CLOSER_BYTES = 64 * 1024
_PLAIN_VALUES = (b'"', b"t", b"f", b"n")
_TOO_MUCH = f"The body holds far more values than {MAX_ITEMS} items have: send fewer at once."
_NO_JSON = "The body is not JSON: send an object with items, in UTF-8."
_UNREADABLE = "The item cannot be read: send an object that holds plain values."
_TOO_DEEP = "The body is nested too deeply: items are objects that hold plain values."


async def read_batch(body: bytes) -> tuple[RequestedTarget, Sequence[Item | BadItem]]:
    """What the body names, and its items in order. Raises BadRequest for anything wrong outside the items."""
    fields = _fields(body)
    requested = _requested_target(fields)
    sent = _sent_items(fields.get("items"))
    if not 0 < len(sent) <= MAX_ITEMS:
        raise BadRequest(f"items must be a list of 1 to {MAX_ITEMS} objects; there are {len(sent)}.", parameter="items")
    items: list[Item | BadItem] = []
    async for part in in_slices(sent):
        items.extend(map(_item, part))
    return requested, items


def _fields(body: bytes) -> dict[str, Any]:
    """The fields of the body, their values still as JSON (`Raw`) where the quick reader can read the whole."""
    if _holds_too_much(body):
        raise BadRequest(_TOO_MUCH)
    try:
        fields: Any = _read(body)
    except ValueError:  # UnicodeDecodeError and msgspec.DecodeError are two of its kinds
        raise BadRequest(_NO_JSON) from None
    except RecursionError:
        raise BadRequest(_TOO_DEEP) from None
    if not isinstance(fields, dict):
        raise BadRequest(_NO_JSON)
    for name in fields:
        if name not in _FIELDS:
            raise BadRequest(
                f"The body has an unknown field: it takes {', '.join(_FIELDS)}.", parameter=shown_name(name)
            )
    return fields


def _holds_too_much(body: bytes) -> bool:
    """Whether there are more values than any batch has, however short; what stands inside texts does not count."""
    if not _is_much(body):
        return False
    # Escapes stand in texts alone: without them each quotation mark begins or ends one.
    parts = body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"', _MAX_QUOTES + 1)
    return len(parts) > _MAX_QUOTES + 1 or _is_much(b"".join(parts[::2]))


def _is_much(text: bytes) -> bool:
    return text.count(b",") > _MAX_COMMAS or text.count(b"[") + text.count(b"{") > _MAX_OPENINGS


def _read(body: bytes) -> Any:
    text = body.decode()
    try:
        return _BODY.decode(body)
    except msgspec.DecodeError:
        if _SURROGATE.search(body):
            return _parsed(text)
        raise


def _value(fields: dict[str, Any], name: str) -> Any:
    """What the field holds; something that is right for no field where it is no text, true, false or null."""
    value = fields.get(name)
    if isinstance(value, Raw) and bytes(value)[:1] not in _PLAIN_VALUES:
        return NotImplemented
    try:
        return msgspec.json.decode(value) if isinstance(value, Raw) else value
    except msgspec.DecodeError:
        return NotImplemented


def _sent_items(value: Any) -> list[Any]:
    """The items, each still as JSON where that can be."""
    if isinstance(value, Raw):
        with suppress(msgspec.ValidationError):
            value = _RAW_ITEMS.decode(value)
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


def _item(sent: Any) -> Item | BadItem:
    if not isinstance(sent, Raw):
        return _closer_look(sent)
    try:
        return _ITEM.decode(sent)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    text = bytes(sent)
    if len(text) > _MAX_CLOSER_BYTES:
        return BadItem(_UNREADABLE)
    try:
        return _closer_look(_parsed(text.decode()))
    except (ValueError, RecursionError):
        return BadItem(_UNREADABLE)


class _Wrong(Exception):
    """Why an item's shape is wrong."""


def _parsed(text: str) -> Any:
    """What the standard library makes of a JSON text. Raises ValueError and RecursionError."""
    return json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_no_constant)


def _closer_look(fields: Any) -> Item | BadItem:
    """The item that the quick reader refused, or what is wrong with it.

    It may be right: where a field is repeated the last counts, whatever the others hold.
    """
    if not isinstance(fields, dict):
        return BadItem("The item must be an object with an address.")
    status = fields.get("status")
    if status is None:
        status = UNSUBSCRIBED
    known_status = status if isinstance(status, str) and status in _STATUSES else None
    try:
        _check_fields(fields)
    except _Wrong as wrong:
        return BadItem(str(wrong), known_status)
    return Item(**fields)


def _check_fields(fields: dict[str, Any]) -> None:
    unknown = next((name for name in fields if name not in _ITEM_FIELDS), None)
    if unknown is not None:
        shown = shown_name(unknown)
        raise _Wrong(f"Unknown field{f' {shown}' if shown else ''}: an item takes {', '.join(_ITEM_FIELDS)}.")
    if fields.get("address") is None:
        raise _Wrong("address is missing.")
    for name, value in fields.items():
        if value is not None and not isinstance(value, str):
            raise _Wrong(f"{name} must be text.")
        if value is not None and not _is_unicode(value):
            raise _Wrong(f"{name} contains half of a surrogate pair: send text in UTF-8.")
    _check_choice(fields, "status", _STATUSES)
    _check_choice(fields, "reason", _REASONS)
    if len(fields.get("source") or "") > MAX_SOURCE_CHARS:
        raise _Wrong(f"source is longer than {MAX_SOURCE_CHARS} characters.")


def _check_choice(fields: dict[str, Any], name: str, choices: tuple[str, ...]) -> None:
    if fields.get(name) is not None and fields[name] not in choices:
        raise _Wrong(f"{name} must be one of {', '.join(choices)}.")


def _number(_text: str) -> int:
    """Any number will do: no field of an item takes one, and a huge one costs time to read."""
    return 0


def _no_constant(_text: str) -> int:
    raise ValueError("NaN and Infinity are no JSON")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

"""The query string of the six operations. Source: docs/interface.md sections D4 and D6."""

import re
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from stoplist.errors import BadRequest
from stoplist.unsubscribes.model import DEFAULT_LIMIT, MAX_LIMIT, MAX_LOOK_UPS, MAX_NAME_CHARS, RequestedTarget

_SINGLE = ("org_slug", "group_id", "limit", "cursor")
_ADDRESS = "address"
_NAMES = (*_SINGLE, _ADDRESS)
MAX_SHOWN_CHARS = 40
_SHOWN = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_SHOWN_CHARS}}}")
# The usual look-up: a single address, in which at most the @ is percent-encoded.
_ONE_ADDRESS = re.compile(rb"address=([A-Za-z0-9._-]{1,200})(?:@|%40)([A-Za-z0-9.-]{1,200})")
_NO_TARGET = RequestedTarget()
_MAX_PARAMETERS = 1000
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


class ReadQuery(NamedTuple):
    """A well-formed query; `addresses` is empty unless this is a look-up."""

    requested: RequestedTarget
    addresses: list[str]
    limit: int
    cursor: str | None


def read_query(query_string: bytes) -> ReadQuery:
    """Parse the query of a `GET`; BadRequest for unknown, repeated, malformed or incompatible parameters."""
    if match := _ONE_ADDRESS.fullmatch(query_string):
        return ReadQuery(_NO_TARGET, [(match[1] + b"@" + match[2]).decode()], DEFAULT_LIMIT, None)
    single, addresses = _parameters(query_string)
    # A limit beside addresses is valid and changes nothing: generated clients send the default of every parameter.
    if addresses and "cursor" in single:
        raise BadRequest("A look-up by address takes no cursor: it answers in one page.", parameter="cursor")
    if len(addresses) > MAX_LOOK_UPS:
        raise BadRequest(f"address is sent more than {MAX_LOOK_UPS} times: send fewer at once.", parameter=_ADDRESS)
    requested = RequestedTarget(org_slug=_checked(single, "org_slug"), group_id=_checked(single, "group_id"))
    return ReadQuery(requested, addresses, _limit(single.get("limit")), single.get("cursor"))


def checked_name(parameter: str, text: str) -> str:
    """Return `text`; BadRequest if it cannot name an organization or group."""
    if "\0" in text:
        raise BadRequest(f"{parameter} contains a NUL character: send text alone.", parameter=parameter)
    if len(text) > MAX_NAME_CHARS:
        raise BadRequest(f"{parameter} is longer than {MAX_NAME_CHARS} characters.", parameter=parameter)
    return text


def shown_name(name: str) -> str | None:
    """Return `name` if an error may repeat it (section D4), as it holds no address and no markup; else None."""
    return name if _SHOWN.fullmatch(name) else None


def _parameters(query_string: bytes) -> tuple[dict[str, str], list[str]]:
    single: dict[str, str] = {}
    addresses: list[str] = []
    for name, value in _pairs(query_string):
        if name == _ADDRESS:
            addresses.append(value)
        elif name not in _SINGLE:
            raise BadRequest(f"Unknown parameter: this takes {', '.join(_NAMES)}.", parameter=shown_name(name))
        elif name in single:
            raise BadRequest(f"{name} is sent more than once: send it once.", parameter=name)
        else:
            single[name] = value
    return single, addresses


def _pairs(query_string: bytes) -> list[tuple[str, str]]:
    """Return the decoded parameters in the order sent. Parsed here because parse_qsl takes three times as long."""
    parts = query_string.replace(b"+", b" ").split(b"&")
    if len(parts) > _MAX_PARAMETERS:
        raise BadRequest("The query string has too many parameters.")
    return [_pair(part) for part in parts if part]


def _pair(part: bytes) -> tuple[str, str]:
    name_part, _, value_part = part.partition(b"=")
    name = _text(name_part, parameter="")
    return name, _text(value_part, parameter=name)


def _text(encoded: bytes, *, parameter: str) -> str:
    try:
        encoded.decode("ascii")
        text = unquote_to_bytes(encoded).decode()
    except UnicodeDecodeError:
        raise BadRequest("The query string is not percent-encoded UTF-8.", parameter=shown_name(parameter)) from None
    if "\0" in text:
        raise BadRequest("The query string contains a NUL character: send text alone.", parameter=shown_name(parameter))
    return text


def _checked(single: dict[str, str], name: str) -> str | None:
    return checked_name(name, single[name]) if name in single else None


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not _NUMBER.fullmatch(text) or int(text) > MAX_LIMIT:
        raise BadRequest(f"limit must be a whole number from 1 to {MAX_LIMIT}.", parameter="limit")
    return int(text)

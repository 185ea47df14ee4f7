"""Form bodies and query strings of any bytes, for the token endpoint and the pages."""

import re
from enum import Enum, auto
from urllib.parse import parse_qsl

FORM = b"application/x-www-form-urlencoded"

# What a program sends to the token endpoint: nothing percent-encoded, nothing empty but a value.
_PLAIN = re.compile(rb"[A-Za-z0-9_]+=[A-Za-z0-9_.~-]*(?:&[A-Za-z0-9_]+=[A-Za-z0-9_.~-]*){0,7}")
_MAX_PLAIN_FIELDS = 8


class FormFault(Enum):
    """The faults of an encoded form."""

    NOT_UTF8 = auto()
    TOO_MANY_FIELDS = auto()
    NUL_CHARACTER = auto()


class MalformedForm(Exception):
    """An encoded form that is refused; each caller has its own text for its readers."""

    def __init__(self, fault: FormFault) -> None:
        super().__init__(fault.name)
        self.fault = fault


def is_form(content_type: bytes) -> bool:
    """Return whether a `Content-Type` is a form, with any parameters such as a charset."""
    return content_type == FORM or content_type.split(b";", 1)[0].strip().lower() == FORM


def parse_pairs(encoded: bytes, *, max_fields: int) -> list[tuple[str, str]]:
    """Return the names and values in their order, values without text included. Raise MalformedForm."""
    if max_fields >= _MAX_PLAIN_FIELDS and _PLAIN.fullmatch(encoded):
        return [_plain_pair(pair) for pair in encoded.decode("ascii").split("&")]
    try:
        text = encoded.decode("utf-8", "strict")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=max_fields)
    except UnicodeDecodeError:
        raise MalformedForm(FormFault.NOT_UTF8) from None
    except ValueError:
        raise MalformedForm(FormFault.TOO_MANY_FIELDS) from None
    if any("\0" in name or "\0" in value for name, value in pairs):
        raise MalformedForm(FormFault.NUL_CHARACTER)
    return pairs


def _plain_pair(pair: str) -> tuple[str, str]:
    name, _, value = pair.partition("=")
    return name, value

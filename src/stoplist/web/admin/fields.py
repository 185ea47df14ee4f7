"""Values of forms and query strings. Source: docs/interface.md section D10."""

from collections.abc import Mapping

from stoplist.errors import BadRequest
from stoplist.web.forms import FormFault, MalformedForm, parse_pairs

MAX_FORM_BYTES = 256 * 1024
MAX_FORM_BYTES_BEFORE_SIGN_IN = 8 * 1024
"""Limits the memory that a stranger can occupy with a form that is never finished."""

_MAX_FIELDS = 1_000
_FORM_FAULTS = {
    FormFault.NOT_UTF8: "The form is not valid UTF-8 text. Go back and try again.",
    FormFault.TOO_MANY_FIELDS: f"The form has more than {_MAX_FIELDS} fields. Go back and send fewer.",
    FormFault.NUL_CHARACTER: "The form contains a NUL character. Go back and remove it.",
}
_MAX_NUMBER, _MAX_DIGITS = 2**63 - 1, 19


class Fields:
    """The values by name, as typed."""

    def __init__(self, values: Mapping[str, list[str]]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str = "") -> str:
        """Return the last value of `name`, without surrounding white space."""
        return self._values[name][-1].strip() if name in self._values else default

    def exact(self, name: str) -> str:
        """Return the last value of `name` unchanged, for passwords; empty if there is none."""
        return self._values[name][-1] if name in self._values else ""

    def all(self, name: str) -> list[str]:
        """Return the distinct values of `name` in order."""
        return list(dict.fromkeys(self._values.get(name, [])))


NO_FIELDS = Fields({})


def parse_number(text: str) -> int | None:
    """Return the text as an integer, or None unless it is digits that fit a database integer (64 bits, signed)."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    return int(text) if is_number and int(text) <= _MAX_NUMBER else None


def read_fields(encoded: bytes) -> Fields:
    """Parse a form body or a query string of any bytes. Raises BadRequest."""
    try:
        pairs = parse_pairs(encoded, max_fields=_MAX_FIELDS)
    except MalformedForm as error:
        raise BadRequest(_FORM_FAULTS[error.fault]) from None
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return Fields(values)

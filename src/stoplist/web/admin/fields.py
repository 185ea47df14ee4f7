"""What a form or an address line holds. Source: docs/interface.md section D10."""

from collections.abc import Mapping
from urllib.parse import parse_qsl

from stoplist.errors import BadRequest

MAX_FORM_BYTES = 256 * 1024
_MOST_FIELDS = 1_000
_MOST, _MOST_DIGITS = 2**63 - 1, 19


class Fields:
    """The values by name, as they were typed."""

    def __init__(self, values: Mapping[str, list[str]]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str = "") -> str:
        """The last value of that name, without surrounding white space."""
        return self._values[name][-1].strip() if name in self._values else default

    def exact(self, name: str) -> str:
        """The last value of that name as it was typed, for passwords; empty if there is none."""
        return self._values[name][-1] if name in self._values else ""

    def all(self, name: str) -> list[str]:
        """Every value of that name, each once, in order."""
        return list(dict.fromkeys(self._values.get(name, [])))


NOTHING = Fields({})


def number_of(text: str) -> int | None:
    """The number that the text is, if it is one that a database can hold."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if is_number and int(text) <= _MOST else None


def read_fields(encoded: bytes) -> Fields:
    """The fields of a form body or query; any bytes will do. Raises BadRequest."""
    try:
        pairs = parse_qsl(
            encoded.decode("utf-8", "strict"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except UnicodeDecodeError:
        raise BadRequest("What was sent is not text in UTF-8: go back and try again.") from None
    except ValueError:
        raise BadRequest(f"The form has more than {_MOST_FIELDS} fields: go back and send fewer.") from None
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        if "\0" in name or "\0" in value:
            raise BadRequest("The form holds a NUL character: go back and send text alone.")
        values.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return Fields(values)

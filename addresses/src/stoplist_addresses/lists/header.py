"""Understands the first lines of a file: its separator, its header, and which column holds what.

Messages repeat no cell of a first row that may hold somebody's address. Source: docs/interface.md section D12, Columns.
"""

import csv
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from stoplist_addresses.lists.formats import (
    FORMATS,
    HISTORY_COLUMNS,
    STOPLIST,
    Format,
    known_format,
    normalized,
    recognized_format,
)
from stoplist_addresses.lists.model import FIELDS, Field, ListError, ListOptions

_SEPARATORS = (",", ";", "\t", "|")
_ADDRESSES = {
    "email": ("address", "email", "mail", "emailaddress", "emailaddr", "recipient", "subscriberemail"),
    "sms": (
        "address",
        "phone",
        "mobile",
        "sms",
        "number",
        "phonenumber",
        "mobilenumber",
        "msisdn",
        "cell",
        "cellphone",
    ),
    "phone": (
        "address",
        "phone",
        "mobile",
        "number",
        "telephone",
        "phonenumber",
        "mobilenumber",
        "msisdn",
        "telephonenumber",
    ),
}
_USUAL: Mapping[Field, tuple[str, ...]] = {
    "occurred_at": (
        "occurredat", "optoutat", "optouton", "optoutdate", "optouttime", "optedoutat", "optedouton", "optedoutdate",
        "unsubscribeat", "unsubscribedate", "unsubscribetime", "unsubscribedat", "unsubscribedon", "unsubscribeddate",
        "dateunsubscribed", "dateoptedout", "unsubdate", "unsubtime", "suppressedat", "suppressiondate",
    ),
    "reason": ("reason", "optoutreason", "unsubscribereason", "suppressionreason"),
    "source": ("source", "optoutsource", "unsubscribesource"),
}  # fmt: skip
# The similarity from which a column is refused as a misspelt one: a time that is not read would be another time.
_SIMILARITY: Mapping[Field, float] = {"occurred_at": 0.8, "reason": 0.88, "source": 0.88}
# Opted in or out is the same as subscribed, in other words.
_STATUS = re.compile(r"status|subscribed|consent|opt(?:ed)?(?:in|out)")
# White space in one place alone: a line of a few hundred spaces would take seconds, and a longer one for ever.
_PHONE = re.compile(r"\+?[\d().\s-]{5,}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Header:
    """A header and what its columns are: the index of each field, and the indexes of those that may say a status.

    `is_json`: the names are those of the fields of JSON objects.
    """

    names: tuple[str, ...]
    format: Format | None
    fields: Mapping[Field, int]
    status_columns: tuple[int, ...]
    is_json: bool = False

    @property
    def history(self) -> tuple[int, int] | None:
        """The indexes of a record's id and of its version, in an own export with its history; None otherwise."""
        if self.format is not STOPLIST or not set(map(normalized, self.names)) >= HISTORY_COLUMNS:
            return None
        return self.named("id", "columns"), self.named("seq", "columns")

    def has(self, name: str) -> bool:
        """Return whether a column has this name, as headers are compared."""
        return normalized(name) in map(normalized, self.names)

    def named(self, name: str, option: str) -> int:
        """Return the index of the column with this name. Raise ListError if it is none, or several."""
        return _index_of(self.names, name, option)


def find_separator(first_line: str, options: ListOptions) -> str | None:
    """Return what separates the cells of a file with this first line; None if it has one address a line.

    Raise ListError if the line is neither an address nor the name of a column.
    """
    if options.separator is not None:
        return options.separator
    has_at = "@" in first_line
    candidates = [each for each in _SEPARATORS if each in first_line and not (has_at and each == "|")]
    if candidates:
        return max(candidates, key=lambda each: len(next(csv.reader([first_line], delimiter=each), [])))
    name = next(iter(next(csv.reader([first_line]), [])), "")
    usual = normalized(name) in _ADDRESSES[options.channel]
    stated = word_of(options.columns.get("address")) in (word_of(name), "1")
    if usual or stated:
        return ","
    if _may_be_an_address(first_line, options.channel):
        return None
    raise ListError(
        "The first line is neither an address nor a usual name for a column of addresses: say the column's name.",
        option="columns",
    )


def word_of(text: str | None) -> str | None:
    """Return a header as it is compared to a stated one."""
    return None if text is None else text.strip().lower()


def understand_json(names: Sequence[str], options: ListOptions) -> Header:
    """Return what the fields of JSON objects are. Raise ListError unless they are those of an own export."""
    header = understand_header(names, options) if _is_own(names) else None
    if header is None or header.format is not STOPLIST:
        raise ListError(
            "The file is JSON, and no export of Stoplist: a list is CSV with a header, or text with one address a line."
        )
    return replace(header, is_json=True)


def _is_own(names: Sequence[str]) -> bool:
    return set(map(normalized, names)) >= STOPLIST.signature


def understand_header(cells: Sequence[str], options: ListOptions) -> Header:
    """Return what the columns are. Raise ListError if that is unclear, with the columns that are there."""
    names = tuple(cell.strip() for cell in cells)
    if any(_may_be_an_address(name, options.channel) for name in names):
        raise ListError("The first row looks like an address: the file needs a header with the names of its columns.")
    for field in options.columns:
        if field not in FIELDS:
            raise ListError(
                f"A column can be {', '.join(FIELDS[:-1])} or {FIELDS[-1]}, and nothing else.",
                is_usage=True,
                option="columns",
            )
    format_ = _format_of(names, options)
    fields: dict[Field, int] = {}
    for field in FIELDS:
        index = _column_of(names, field, format_, options)
        if index is not None:
            fields[field] = index
    return Header(names, format_, fields, tuple(_status_columns(names, format_, fields.values())))


def _format_of(names: Sequence[str], options: ListOptions) -> Format | None:
    headers = frozenset(map(normalized, names))
    if options.format is None:
        return recognized_format(headers, options.channel)
    format_ = known_format(options.format)
    if format_ is None:
        known = ", ".join(each.name for each in FORMATS)
        raise ListError(f"The format is not known. The formats are: {known}.", is_usage=True, option="format")
    if options.channel not in format_.channels:
        raise ListError(
            f"The format {format_.name} has no lists of the channel {options.channel}.", is_usage=True, option="format"
        )
    return format_


def _column_of(names: Sequence[str], field: Field, format_: Format | None, options: ListOptions) -> int | None:
    stated = options.columns.get(field)
    if stated is not None:
        return _index_of(names, stated, "columns")
    if format_ is not None:
        header = format_.columns.get(field)
        usual: tuple[str, ...] = () if header is None else (header,)
    else:
        usual = _ADDRESSES[options.channel] if field == "address" else _USUAL[field]
    matches = [index for index, name in enumerate(names) if normalized(name) in usual]
    if len(matches) > 1:
        raise ListError(f"Several columns may be {field}: say which one is. {_columns_text(names)}", option="columns")
    if matches:
        return matches[0]
    if field == "address":
        raise ListError(
            f"No column has a usual name for addresses: say which one is. {_columns_text(names)}", option="columns"
        )
    if format_ is None:
        _refuse_misspelt(names, field, options)
    return None


def _refuse_misspelt(names: Sequence[str], field: Field, options: ListOptions) -> None:
    stated = {word_of(name) for name in options.columns.values()}
    others = {normalized(name): name for name in names if word_of(name) not in stated}
    for similar in difflib.get_close_matches(normalized(field), others, n=1, cutoff=_SIMILARITY[field]):
        raise ListError(
            f"The column {others[similar]!r} looks like a misspelt {field}: say that it is, or rename it.",
            option="columns",
        )


def _index_of(names: Sequence[str], stated: str, option: str) -> int:
    matches = [index for index, name in enumerate(names) if name == stated.strip()]
    matches = matches or [index for index, name in enumerate(names) if name.lower() == word_of(stated)]
    if len(matches) == 1:
        return matches[0]
    if not matches and stated.isascii() and stated.isdigit() and 1 <= int(stated) <= len(names):
        return int(stated) - 1
    problem = "Several columns have" if matches else "No column has"
    raise ListError(f"{problem} the name {stated!r}. {_columns_text(names)}", option=option)


def _status_columns(names: Sequence[str], format_: Format | None, understood: Iterable[int]) -> Iterable[int]:
    """Yield the columns that say status, subscribed or consent, and are not understood as another field."""
    known = set(understood)
    for index, name in enumerate(names):
        header = normalized(name)
        if index in known or (format_ is not None and (header in format_.other or header in format_.statuses)):
            continue
        if _STATUS.search(header):
            yield index


def _columns_text(names: Sequence[str]) -> str:
    return f"The columns are: {', '.join(names)}."


def _may_be_an_address(text: str, channel: str) -> bool:
    if channel == "email":
        return "@" in text
    return _PHONE.fullmatch(text.strip()) is not None and any(map(str.isdigit, text))

"""The statements about a file as fields of a form. Source: docs/interface.md section D12, On the pages."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from stoplist_addresses.lists import FORMATS

from stoplist.lists.uploads.model import ALL_GROUPS_WORD, UploadOptions
from stoplist.organizations.model import Group
from stoplist.unsubscribes.channel import Channel
from stoplist.unsubscribes.model import OPT_OUT_REASONS
from stoplist.web.admin.fields import Fields

COLUMN_FIELDS: Final = ("address", "occurred_at", "reason", "source")
COLUMN_TITLES: Final = {
    "address": "Address",
    "occurred_at": "Opted out at",
    "reason": "Reason",
    "source": "Source",
}
# The field of the form for each option of the reader of lists.
FIELD_OF_OPTION: Final = {
    "as_of_ms": "as_of",
    "columns": "column_address",
    "encoding": "encoding",
    "format": "format",
    "opted_out_when": "opted_out_column",
    "reason": "reason",
    "time_zone": "time_zone",
}
TIME_ZONES: Final = (
    "UTC", "Africa/Cairo", "Africa/Johannesburg", "Africa/Lagos", "America/Argentina/Buenos_Aires", "America/Bogota",
    "America/Chicago", "America/Denver", "America/Halifax", "America/Los_Angeles", "America/Mexico_City",
    "America/New_York", "America/Sao_Paulo", "America/Toronto", "Asia/Dubai", "Asia/Hong_Kong", "Asia/Jakarta",
    "Asia/Jerusalem", "Asia/Kolkata", "Asia/Seoul", "Asia/Shanghai", "Asia/Singapore", "Asia/Tokyo", "Australia/Sydney",
    "Europe/Amsterdam", "Europe/Athens", "Europe/Berlin", "Europe/Dublin", "Europe/Helsinki", "Europe/Istanbul",
    "Europe/Lisbon", "Europe/London", "Europe/Madrid", "Europe/Paris", "Europe/Rome", "Europe/Stockholm",
    "Europe/Warsaw", "Europe/Zurich", "Pacific/Auckland",
)  # fmt: skip
"""Suggestions: any other name of the IANA database may be typed."""

MAX_COLUMN_CHOICES: Final = 1_000

_MAX_CHARS = 200


def read_options(form: Fields) -> UploadOptions:
    """Return what the form says. A wrong value is refused by the preview, beside its field."""
    header = _text(form, "opted_out_column")
    values = [value.strip()[:_MAX_CHARS] for value in form.text("opted_out_values").splitlines()]
    return UploadOptions(
        target=_text(form, "target"),
        as_of=_text(form, "as_of"),
        format=_text(form, "format") or None,
        time_zone=_text(form, "time_zone") or None,
        columns={name: column for name in COLUMN_FIELDS if (column := _text(form, f"column_{name}"))},
        opted_out_when=tuple((header, value) for value in dict.fromkeys(values)) if header else (),
        encoding=_text(form, "encoding") or None,
        reason=_text(form, "reason") or None,
        source=_text(form, "source") or None,
        is_strict="strict" in form,
    )


def option_values(options: UploadOptions) -> dict[str, str]:
    """Return the values that the fields show at first."""
    return {
        "target": options.target,
        "as_of": options.as_of,
        "format": options.format or "",
        "time_zone": options.time_zone or "",
        "encoding": options.encoding or "",
        "reason": options.reason or "",
        "source": options.source or "",
        "strict": "yes" if options.is_strict else "",
        "opted_out_column": options.opted_out_when[0][0] if options.opted_out_when else "",
        "opted_out_values": "\n".join(value for _, value in options.opted_out_when),
        **{f"column_{name}": options.columns.get(name, "") for name in COLUMN_FIELDS},
    }


def choices(channel: Channel, groups: Sequence[Group]) -> dict[str, Any]:
    """Return the choices of the selects."""
    return {
        "targets": [
            ("", "Choose…"),
            (ALL_GROUPS_WORD, "All messages of the organization"),
            *((each.group_id, f"Only {each.name}") for each in groups if each.retired_ms is None),
        ],
        "formats": [
            ("", "Recognize by the header"),
            *((each.name, each.title) for each in FORMATS if channel.name in each.channels),
        ],
        "reasons": [("", "Import"), *((each, each) for each in OPT_OUT_REASONS if each != "import")],
        "time_zones": TIME_ZONES,
    }


def column_choices(header: Sequence[str]) -> list[tuple[str, str]]:
    """Return the first columns as choices: by name, or by number where several have the same name or none.

    A row of 64 KiB has room for 32 000, whose page would have megabytes and take seconds.
    """
    found, counts = [("", "Recognize by name")], Counter(map(str.casefold, header))
    for number, name in enumerate(header[:MAX_COLUMN_CHOICES], 1):
        is_unique = name and counts[name.casefold()] == 1
        found.append((name if is_unique else str(number), name if is_unique else f"Column {number}: {name}"))
    return found


def _text(form: Fields, name: str) -> str:
    return form.text(name)[:_MAX_CHARS]

"""Types of command-line parameters. A malformed value is wrong usage (exit status 2)."""

from typing import Any

import click

from stoplist.clock import DAY_MS
from stoplist.errors import Refused
from stoplist.oauth.key_rules import DEFAULT_CEILING
from stoplist.oauth.model import MAX_PER_MINUTE
from stoplist.organizations.model import checked_name, checked_slug
from stoplist.rfc3339 import parse_ms


class _Slug(click.ParamType[str]):
    """The slug of a new organization."""

    name = "slug"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return checked_slug(value)
        except Refused as refusal:
            self.fail(refusal.text, param, ctx)


class _Name(click.ParamType[str]):
    """A name or label for people."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return checked_name(value, "A name or label")
        except Refused as refusal:
            self.fail(refusal.text, param, ctx)


class _Ceiling(click.ParamType[int | str]):
    """A number of requests in 60 seconds, or `default`."""

    name = "n|default"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value == DEFAULT_CEILING:
            return DEFAULT_CEILING
        if value.isascii() and value.isdigit() and len(value) <= 10 and 1 <= int(value) <= MAX_PER_MINUTE:
            return int(value)
        self.fail(f"{value!r} is neither a whole number from 1 to {MAX_PER_MINUTE} nor `default`.", param, ctx)


class _Period(click.ParamType[int]):
    """The beginning or the end of a period, in milliseconds: a time of RFC 3339, or a day in UTC."""

    name = "time"

    def __init__(self, *, is_end: bool) -> None:
        self._is_end = is_end

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        at_ms = parse_ms(value)
        if at_ms is not None:
            return at_ms
        day_ms = parse_ms(f"{value}T00:00:00Z")
        if day_ms is None:
            self.fail(
                f"{value!r} is neither a day such as 2026-03-01 nor a time such as 2026-03-01T09:30:00Z.", param, ctx
            )
        return day_ms + DAY_MS if self._is_end else day_ms


SLUG, NAME, CEILING = _Slug(), _Name(), _Ceiling()
SINCE, UNTIL = _Period(is_end=False), _Period(is_end=True)

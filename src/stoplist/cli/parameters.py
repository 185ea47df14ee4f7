"""Types of command-line parameters. A malformed value is wrong usage (exit status 2)."""

from typing import Any

import click

from stoplist.errors import Refused
from stoplist.oauth.key_rules import DEFAULT_CEILING
from stoplist.oauth.model import MAX_PER_MINUTE
from stoplist.organizations.model import checked_name, checked_slug


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


SLUG, NAME, CEILING = _Slug(), _Name(), _Ceiling()

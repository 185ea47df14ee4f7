"""Formats an audit entry for people: title, details by name, link to its target. Used by the page and the CSV file."""

from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from stoplist.actor import Actor
from stoplist.audit.actions import ACTIONS
from stoplist.audit.reading import AuditEntry
from stoplist.web.admin.sign_in_links import person_path

_WAS = "was"
_NAMES = {
    "api_per_minute": "API requests per minute",
    "are_codes_new": "new recovery codes",
    "confirmed": "left out, submitted again since",
    "corrected": "withdrawn, no consent known",
    "covers": "organizations",
    "group_id": "group",
    "has_history": "with history",
    "is_administrator": "administrator",
    "is_default": "default group",
    "is_on": "turned on",
    "org_slug": "organization",
    "others": "sessions ended",
    "record_id": "record",
    "restored": "restored to earlier state",
    "session_id": "session",
    "superseded": "left out, changed since",
    "token_per_minute": "token requests per minute",
    "two_step": "two-step sign-in",
    "was_default": "was the default group",
    "without_two_step": "without two-step sign-in",
}


class Fact(NamedTuple):
    """A detail by name and value; `before` is the earlier value if it differs."""

    name: str
    value: str
    before: str | None = None

    def __str__(self) -> str:
        was = "" if self.before is None else f" (before: {self.before})"
        return f"{self.name}: {self.value}{was}"


def title_of(entry: AuditEntry) -> str:
    """Return the action in words."""
    return ACTIONS.get(entry.action, entry.action)


def facts_of(entry: AuditEntry) -> list[Fact]:
    """Return the details. If a whole state was replaced, return only what differs."""
    return list(_facts(entry.detail))


def path_of(actor: Actor, entry: AuditEntry) -> str | None:
    """Return the path of the page of the entry's target, or None if there is none that `actor` may open."""
    noun, target = entry.action.partition(".")[0], quote(entry.target, safe="")
    if noun in ("key", "client"):
        return f"/settings/keys/{target}"
    if noun == "organization":
        return f"/organizations/{target}"
    if noun == "group" and entry.organizations:
        return f"/organizations/{quote(entry.organizations[0], safe='')}"
    if noun in ("submission", "unsubscribe", "resubscribe"):
        return f"/unsubscribes/{target}"
    if noun in ("person", "session") and actor.is_administrator and "@" in entry.target:
        return person_path(entry.target)
    return None


def _facts(detail: dict[str, Any]) -> Iterator[Fact]:
    was = detail.get(_WAS)
    old = was if isinstance(was, dict) else {}
    for name, value in detail.items():
        if name == _WAS or (name in old and old[name] == value):
            continue
        if isinstance(value, dict):
            yield from (Fact(f"{_name(name)}, {one.name}", one.value, one.before) for one in _facts(value))
        else:
            yield Fact(_name(name), _text(value), _text(old[name]) if name in old else None)
    if _WAS in detail and not isinstance(was, dict):
        yield Fact("before", _text(was))
    yield from (Fact(f"{_name(name)} before", _text(value)) for name, value in old.items() if name not in detail)


def _name(name: str) -> str:
    return _NAMES.get(name, name.replace("_", " "))


def _text(value: Any) -> str:
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, dict):
        return ", ".join(f"{_name(name)} {_text(one)}" for name, one in value.items())
    return str(value)

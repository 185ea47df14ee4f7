"""The rules for a key: its permissions, default organization and ceilings, and the label of its replacement. No I/O."""

import re
from collections.abc import Sequence
from typing import Any

from stoplist.actor import Actor
from stoplist.errors import Forbidden, Refused
from stoplist.oauth.model import (
    API_PER_MINUTE,
    MAX_PER_MINUTE,
    PERMISSIONS,
    TOKEN_PER_MINUTE,
    Credential,
)
from stoplist.organizations.model import MAX_NAME_CHARS

DEFAULT_CEILING = "default"

StoredCeilings = dict[str, int | None]
"""The ceilings of a key by name, as they are stored: None is the ordinary one."""

_ORDINARY = {"token_per_minute": TOKEN_PER_MINUTE, "api_per_minute": API_PER_MINUTE}

_REPLACEMENT = re.compile(r"^(?P<name>.*?) \(replacement(?: (?P<number>[1-9][0-9]{0,5}))?\)$")


def other_ceilings(credential: Credential) -> dict[str, Any]:
    """Return both ceilings if either is not the ordinary one, for the audit; otherwise nothing."""
    ceilings = {"token_per_minute": credential.token_per_minute, "api_per_minute": credential.api_per_minute}
    return {} if ceilings == _ORDINARY else ceilings


def has_raised_ceilings(credential: Credential) -> bool:
    """Return whether any ceiling in force is above the ordinary one."""
    return credential.token_per_minute > TOKEN_PER_MINUTE or credential.api_per_minute > API_PER_MINUTE


def without_raised(stored: StoredCeilings) -> StoredCeilings:
    """Return the ceilings with every raised one replaced by the ordinary one; lowered ones stay."""
    return {
        name: ceiling if ceiling is not None and ceiling < _ORDINARY[name] else None for name, ceiling in stored.items()
    }


def replacement_ceilings(actor: Actor, stored: StoredCeilings, *, deactivates_old: bool) -> StoredCeilings:
    """Return the ceilings of the replacement of a key with these ceilings.

    Only an administrator can raise ceilings, so nobody else can have them twice. Source: docs/interface.md section D8.
    """
    return stored if deactivates_old or actor.is_administrator else without_raised(stored)


def replacement_label(label: str) -> str:
    """Return `Shop (replacement)` for `Shop`, then `Shop (replacement 2)`; a name that is too long is shortened."""
    match = _REPLACEMENT.match(label)
    name, number = (match["name"], int(match["number"] or 1) + 1) if match else (label, 1)
    ending = " (replacement)" if number == 1 else f" (replacement {number})"
    return name[: MAX_NAME_CHARS - len(ending)].rstrip() + ending


def resolve_default(organizations: Sequence[str], default: str | None) -> str:
    """Return the default organization of a key: the named or the only one. Refused if it is unclear or not covered."""
    if not organizations:
        raise Refused("A key needs at least one organization.", field="organizations")
    if default is None and len(set(organizations)) > 1:
        raise Refused(
            "A key for several organizations needs one of them as its default organization.",
            field="default_organization",
        )
    if default is not None and default not in organizations:
        raise Refused(
            "The default organization must be one of the organizations of the key.", field="default_organization"
        )
    return default or organizations[0]


def check_permissions(permissions: frozenset[str]) -> None:
    """Raise Refused unless these are one or more of PERMISSIONS."""
    if not permissions or not permissions <= set(PERMISSIONS):
        raise Refused(f"The permissions of a key are one or more of: {', '.join(PERMISSIONS)}.", field="permissions")


def check_ceilings(actor: Actor, token_per_minute: int | str | None, api_per_minute: int | str | None) -> None:
    """Raise Forbidden if anybody but an administrator sets a ceiling, and Refused for a value that is none.

    A ceiling is a number of requests in 60 s or DEFAULT_CEILING; None leaves it as it is.
    """
    for field, ceiling in (("token_per_minute", token_per_minute), ("api_per_minute", api_per_minute)):
        if ceiling is not None and not actor.is_administrator:
            raise Forbidden("Only an administrator can set other ceilings: ask one.", field=field)
        if ceiling in (None, DEFAULT_CEILING):
            continue
        if not isinstance(ceiling, int) or not 1 <= ceiling <= MAX_PER_MINUTE:
            raise Refused(
                f"A ceiling is a whole number of requests from 1 to {MAX_PER_MINUTE}, or `default`.", field=field
            )


def changed_ceiling(ceiling: int | str | None, stored: int | None) -> int | None:
    """Return the ceiling to store, given a valid one as for `check_ceilings`."""
    if ceiling is None:
        return stored
    return None if ceiling == DEFAULT_CEILING else int(ceiling)

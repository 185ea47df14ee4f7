"""Shortens long lists of organizations to those whose name or slug a person asks for.

Source: docs/interface.md section D11.
"""

from collections.abc import Sequence
from typing import Any

from stoplist.organizations.model import Organization
from stoplist.web.admin.page_request import PageRequest

MAX_SHOWN = 50


def filtered_organizations(request: PageRequest, visible: Sequence[Organization]) -> dict[str, Any]:
    """Return the values of a page that lists organizations: those that match the form's field, and how many more do.

    The form is in parts.html, `organization_filter`, and appears if there are more than MAX_SHOWN.
    """
    name = request.query.text("organization")
    matching = [one for one in visible if matches(one, name)]
    return {
        "org_name": name,
        "organizations": matching[:MAX_SHOWN],
        "hidden": len(matching[MAX_SHOWN:]),
        "has_many": len(visible) > MAX_SHOWN,
        "has_any": bool(visible),
    }


def matches(organization: Organization, name: str) -> bool:
    """Return whether this text is part of the name or the slug, in any case."""
    return name.casefold() in organization.slug or name.casefold() in organization.name.casefold()

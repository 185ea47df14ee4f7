"""Roles in an organization as forms offer them. Source: docs/interface.md section D11."""

from stoplist.actor import ADMIN, VIEWER, Role
from stoplist.errors import Refused
from stoplist.web.admin.page_request import PageRequest

ROLE_TEXTS = (
    (VIEWER, "Viewer: sees opt-outs, groups and keys"),
    (ADMIN, "Admin: also changes them, and says who has a role"),
)


_ROLES: dict[str, Role] = {VIEWER: VIEWER, ADMIN: ADMIN}


def read_role(request: PageRequest) -> Role:
    """The role in the form; Refused where it is none."""
    role = _ROLES.get(request.form.text("role"))
    if role is None:
        raise Refused(f"A role is one of {', '.join(_ROLES)}.", field="role")
    return role

"""Roles in an organization, for forms. Source: docs/interface.md section D11."""

from stoplist.actor import ADMIN, VIEWER, Role
from stoplist.errors import Refused
from stoplist.web.admin.page_request import PageRequest

ROLE_TEXTS = (
    (VIEWER, "Viewer: can view opt-outs, groups and keys"),
    (ADMIN, "Admin: can also change them and manage roles"),
)


_ROLES: dict[str, Role] = {VIEWER: VIEWER, ADMIN: ADMIN}


def read_role(request: PageRequest) -> Role:
    """Return the role in the form. Raises Refused."""
    role = _ROLES.get(request.form.text("role"))
    if role is None:
        raise Refused(f"Choose one of these roles: {', '.join(_ROLES)}.", field="role")
    return role

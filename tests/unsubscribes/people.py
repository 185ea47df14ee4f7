"""People who look at opt-outs; the actor holds what each may do."""

from stoplist.actor import ADMIN, VIEWER, Actor, Role
from tests.builders import ADMINISTRATOR
from tests.unsubscribes.partner import Organization

BOSS = ADMINISTRATOR
"""Somebody who sees the whole deployment."""


def person(email: str = "ann@staff.example", **roles: Role) -> Actor:
    """Return a person with these roles."""
    return Actor(kind="person", id=email, roles=roles, source_ip="192.0.2.7", request_id="00" * 12)


def viewer(*organizations: Organization) -> Actor:
    """Return a viewer of these organizations."""
    return person("viewer@staff.example", **{one.slug: VIEWER for one in organizations})


def admin(*organizations: Organization) -> Actor:
    """Return an admin of these organizations."""
    return person("admin@staff.example", **{one.slug: ADMIN for one in organizations})

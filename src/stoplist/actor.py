"""The actor: who performs an operation. Created where a request or command arrives; recorded in the audit trail.

Who may do what: docs/interface.md section D11.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from stoplist.errors import Forbidden

Role = Literal["viewer", "admin"]

ADMINISTER = "administer"
VIEWER: Role = "viewer"
ADMIN: Role = "admin"


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """The person, key or command that performs an operation; the first argument of every operation.

    `kind` is `command`, `person`, `client`, `link` or `system`; `id` is the operating system account, e-mail address,
    `client_id`, id of the link key, or chore. `may` holds permissions that apply everywhere, `roles` the person's role
    by organization slug.
    `source_ip` and `request_id` tell the origin of the request.
    """

    kind: str
    id: str
    may: frozenset[str] = frozenset()
    roles: dict[str, Role] = {}
    source_ip: str | None = None
    request_id: str | None = None

    @property
    def is_administrator(self) -> bool:
        return ADMINISTER in self.may

    def is_person(self, email: str) -> bool:
        """Return whether the actor is this person; `email` is canonical."""
        return self.kind == "person" and self.id == email

    def sees(self, org_slug: str) -> bool:
        """Return whether the actor may see what the organization holds."""
        return self.is_administrator or org_slug in self.roles

    def administers(self, org_slugs: Iterable[str]) -> bool:
        """Return whether the actor may change what belongs to all of these organizations."""
        return self.is_administrator or all(self.roles.get(slug) == ADMIN for slug in org_slugs)

    def require_administrator(self) -> None:
        """Raise Forbidden unless the actor may change the deployment itself."""
        if not self.is_administrator:
            raise Forbidden("Only an administrator can do this: ask one.")

    def require_admin_of(self, *org_slugs: str) -> None:
        """Raise Forbidden unless the actor may change what belongs to these organizations."""
        if not self.administers(org_slugs):
            raise Forbidden("Only an administrator, or an admin of every organization concerned, can do this.")

"""Who acts: made by the edge, the first argument of every operation, kept in the audit.

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
    """`kind` is `command`, `person`, `client` or `system`; `id` names it.

    That is an account of the machine, an e-mail address, a `client_id`, a chore. `may` holds what it is allowed to do
    everywhere, `roles` what a person is in each organization, by slug; `source_ip` and `request_id` say from where and
    with which request.
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
        """Whether this very person acts; `email` is canonical."""
        return self.kind == "person" and self.id == email

    def sees(self, org_slug: str) -> bool:
        """Whether it may look at what the organization holds."""
        return self.is_administrator or org_slug in self.roles

    def administers(self, org_slugs: Iterable[str]) -> bool:
        """Whether it may change what belongs to these organizations, to every one of them."""
        return self.is_administrator or all(self.roles.get(slug) == ADMIN for slug in org_slugs)

    def require_administrator(self) -> None:
        """Refuse whoever may not change the deployment itself."""
        if not self.is_administrator:
            raise Forbidden("Only an administrator may do this: ask one.")

    def require_admin_of(self, *org_slugs: str) -> None:
        """Refuse whoever may not change what belongs to these organizations."""
        if not self.administers(org_slugs):
            raise Forbidden("Only an admin of every organization that this concerns, or an administrator, may do this.")

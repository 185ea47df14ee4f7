"""Who acts: made by the edge, the first argument of every operation, kept in the audit."""

import msgspec

from stoplist.errors import Refused

ADMINISTER = "administer"


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` is `command`, `client` or `system`; `id` names it (an account of the machine, a `client_id`, a chore).

    `may` holds what it is allowed to do; `source_ip` and `request_id` say from where and with which request.
    """

    kind: str
    id: str
    may: frozenset[str] = frozenset()
    source_ip: str | None = None
    request_id: str | None = None

    def must_be_administrator(self) -> None:
        """Refuse whoever may not change organizations, groups and keys."""
        if ADMINISTER not in self.may:
            raise Refused("Only an administrator may do this.")

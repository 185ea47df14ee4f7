"""What a person, a session and a way in are. Times are milliseconds since 1970 UTC.

Source: docs/interface.md section D11.
"""

from collections.abc import Sequence

import msgspec
from stoplist_addresses import AddressError, canonical_email

from stoplist.actor import Role
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.errors import Refused
from stoplist.staff.hashing import Hashing

# One for the process, since it bounds what the process does at a time.
_HASHING = Hashing()


class StaffStores(msgspec.Struct, frozen=True):
    """What the operations of signing in work with. `secret_keys`: the first signs tickets, all verify them."""

    database: Database
    clock: Clock
    secret_keys: Sequence[str]
    hashing: Hashing = _HASHING


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """Who may use the pages; `roles` by the slug of the organization, closed ones included.

    Whoever may not see everything is shown the roles in organizations that he sees.
    """

    email: str
    is_administrator: bool
    is_disabled: bool
    has_password: bool
    has_two_step: bool
    roles: dict[str, Role]
    created_ms: int
    last_sign_in_ms: int | None


class NewLink(msgspec.Struct, frozen=True, kw_only=True):
    """A way in, good once: whoever uses it chooses the password. The token is shown this once."""

    person: Person
    link_token: str
    expires_ms: int


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One browser that somebody is signed in with; `seen_ms` is exact to a minute."""

    session_id: str
    created_ms: int
    seen_ms: int
    source_ip: str
    user_agent: str
    is_current: bool


class FoundSession(msgspec.Struct, frozen=True):
    """Whose living session it is."""

    person: Person
    session_id: str


class SignedIn(msgspec.Struct, frozen=True):
    """Somebody is in: his new session, whose token is shown this once."""

    person: Person
    session_token: str


class SecondStep(msgspec.Struct, frozen=True):
    """The password was right, and a code is still asked for: the ticket shows for 5 minutes that it was."""

    ticket: str


def checked_email(text: str) -> str:
    """The canonical form of a person's e-mail address; else Refused."""
    try:
        return canonical_email(text)
    except AddressError as error:
        raise Refused(str(error), field="email") from None


def canonical_or_none(text: str) -> str | None:
    """The same, or None: for whoever only looks for a person."""
    try:
        return canonical_email(text)
    except AddressError:
        return None

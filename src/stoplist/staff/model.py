"""Types for people, sessions and sign-in results. Times are milliseconds since 1970 UTC.

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

# One per process, since it bounds how many hashes the process computes at a time.
_HASHING = Hashing()


class StaffStores(msgspec.Struct, frozen=True):
    """The stores that the sign-in operations use. The first of `secret_keys` encrypts TOTP secrets; all decrypt.

    `require_two_step`: the setting of that name.
    """

    database: Database
    clock: Clock
    secret_keys: Sequence[str]
    hashing: Hashing = _HASHING
    require_two_step: str = "nobody"


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """A person who may use the pages. `roles` is by organization slug, closed organizations included.

    An actor who may not see everything gets the roles in the organizations visible to that actor only.
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
    """A new sign-in link, good once, by which the person chooses a password. The token is shown only here."""

    person: Person
    link_token: str
    expires_ms: int


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """A role in an organization that an admin offers to an address. `invited_by` is the admin's address."""

    org_slug: str
    org_name: str
    email: str
    role: Role
    invited_by: str
    created_ms: int
    expires_ms: int


class NewInvitation(msgspec.Struct, frozen=True):
    """A new invitation, and the token of its link, which is shown only here and good until `link_expires_ms`."""

    invitation: Invitation
    link_token: str
    link_expires_ms: int


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that a person is signed in with. `seen_ms` is exact to a minute."""

    session_id: str
    created_ms: int
    seen_ms: int
    source_ip: str
    user_agent: str
    is_current: bool


class FoundSession(msgspec.Struct, frozen=True):
    """An active session and its person."""

    person: Person
    session_id: str


class SignedIn(msgspec.Struct, frozen=True):
    """A successful sign-in: the person and the token of the new session, which is shown only here."""

    person: Person
    session_token: str


class SecondStep(msgspec.Struct, frozen=True):
    """A correct password where a code is still needed. The ticket proves the password for 5 minutes."""

    ticket: str


def checked_email(text: str) -> str:
    """Return the canonical form of a person's e-mail address; Refused (field `email`) if it is not an address."""
    try:
        return canonical_email(text)
    except AddressError as error:
        raise Refused(str(error), field="email") from None


def canonical_or_none(text: str) -> str | None:
    """Return the canonical form of an e-mail address, or None if it is not an address."""
    try:
        return canonical_email(text)
    except AddressError:
        return None

"""What a screen is given, and what it answers with: it parses, calls one operation, and names its template."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from stoplist.actor import ADMIN, Actor
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.errors import Refused
from stoplist.limits.limiter import Limiter
from stoplist.oauth.usage import Usage
from stoplist.staff.model import Person, StaffStores
from stoplist.unsubscribes.model import OptOutStores
from stoplist.web.admin.fields import NOTHING, Fields
from stoplist.web.request_context import Headers

TEXT_HTML = b"text/html; charset=utf-8"


class AdminContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the screens work with."""

    database: Database
    clock: Clock
    limiter: Limiter
    usage: Usage
    secret_keys: tuple[str, ...]
    base_url: str

    @property
    def opt_outs(self) -> OptOutStores:
        """The stores of the operations on opt-outs."""
        return OptOutStores(database=self.database, clock=self.clock, secret_keys=self.secret_keys)

    @property
    def staff(self) -> StaffStores:
        """The stores of the operations on people."""
        return StaffStores(database=self.database, clock=self.clock, secret_keys=self.secret_keys)


class PageRequest(msgspec.Struct, kw_only=True):
    """One request to a screen. `actor` is the person with the rights of this moment; nobody in particular on the open
    screens, where `person` is None. `form` is what was posted; `refusal` why that could not be done, on the second try.
    """

    admin: AdminContext
    actor: Actor
    person: Person | None
    session_id: str = ""
    session_token: str = ""
    user_agent: str = ""
    path: dict[str, str] = {}
    query: Fields = NOTHING
    form: Fields = NOTHING
    refusal: Refused | None = None

    @property
    def database(self) -> Database:
        return self.admin.database

    @property
    def clock(self) -> Clock:
        return self.admin.clock

    @property
    def may_audit(self) -> bool:
        """Whether there is an audit that this person may read."""
        return self.actor.is_administrator or ADMIN in self.actor.roles.values()

    def field_value(self, name: str, default: str = "") -> str:
        """What a field shows: what was typed into it before a refusal, else `default`."""
        return self.form.text(name) if name in self.form else default

    def field_values(self, name: str, default: list[str]) -> list[str]:
        """The same for boxes that are ticked; where a form was sent, none may be."""
        return self.form.all(name) if self.refusal is not None else default


class HtmlPage(msgspec.Struct, frozen=True):
    """A template of this folder with its values."""

    template: str
    values: dict[str, Any] = {}
    status: int = 200
    headers: Headers = []


class Redirect(msgspec.Struct, frozen=True):
    """Go and look there (303); `note` is one of notes.NOTES, said at the top of that page."""

    to: str
    note: str = ""
    headers: Headers = []


class Download(msgspec.Struct, frozen=True):
    """A file that is made while it is sent."""

    name: str
    content_type: str
    parts: AsyncIterator[bytes]


Answer = HtmlPage | Redirect | Download
Handler = Callable[[PageRequest], Awaitable[Answer]]


class PageRoute(NamedTuple):
    """One method at one path of a screen. `again` shows the form once more where the answer is a refusal."""

    method: str
    path: str
    handler: Handler
    again: Handler | None = None
    is_open: bool = False
    """Whether nobody needs to have signed in."""


def get(path: str, handler: Handler, *, is_open: bool = False) -> PageRoute:
    """The page at `path`."""
    return PageRoute("GET", path, handler, is_open=is_open)


def post(path: str, handler: Handler, *, again: Handler, is_open: bool = False) -> PageRoute:
    """What a form at `path` does; `again` is the page of that form."""
    return PageRoute("POST", path, handler, again, is_open)

"""The request of a screen and its possible answers. A screen parses fields, calls one operation, names a template."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from stoplist.actor import ADMIN, Actor
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.errors import BadRequest, Refused
from stoplist.limits.limiter import Limiter
from stoplist.oauth.usage import Usage
from stoplist.proof.positions import Positions
from stoplist.staff import two_step
from stoplist.staff.model import Person, StaffStores
from stoplist.unsubscribes.model import OptOutStores
from stoplist.web.admin.fields import NO_FIELDS, Fields
from stoplist.web.body import StreamedBody
from stoplist.web.request_context import Headers

TEXT_HTML = b"text/html; charset=utf-8"


class AdminContext(msgspec.Struct, frozen=True, kw_only=True):
    """The stores and settings that all screens share."""

    database: Database
    clock: Clock
    limiter: Limiter
    usage: Usage
    positions: Positions
    secret_keys: tuple[str, ...]
    base_url: str
    require_two_step: str
    propagation_hours: int = 48
    sends_mail: bool = False
    import_max_mb: int
    history_days: int = 0

    @property
    def opt_outs(self) -> OptOutStores:
        """The stores for the operations on opt-outs."""
        return OptOutStores(
            database=self.database,
            clock=self.clock,
            secret_keys=self.secret_keys,
            history_days=self.history_days,
        )

    @property
    def staff(self) -> StaffStores:
        """The stores for the operations on people."""
        return StaffStores(
            database=self.database,
            clock=self.clock,
            secret_keys=self.secret_keys,
            require_two_step=self.require_two_step,
        )


class PostedStream(NamedTuple):
    """A body that is being posted. `renew` reads session and rights again after it has arrived."""

    body: StreamedBody
    renew: Callable[[], Awaitable["PageRequest"]]


class PageRequest(msgspec.Struct, kw_only=True):
    """One request to a screen.

    `actor` is the signed-in person with their current rights; on open screens without a session it has no id, and
    `person` is None. `form` holds what was posted, or `arriving` what is being posted on streamed
    routes. `refusal` is set when a refused form is shown again.
    """

    admin: AdminContext
    actor: Actor
    person: Person | None
    session_id: str = ""
    session_token: str = ""
    user_agent: str = ""
    path: dict[str, str] = {}
    query: Fields = NO_FIELDS
    form: Fields = NO_FIELDS
    arriving: "PostedStream | None" = None
    refusal: Refused | None = None

    @property
    def stream(self) -> "PostedStream":
        """Return the body of a streamed route."""
        if self.arriving is None:
            raise BadRequest("The form was sent in an unsupported format. Go back and try again.")
        return self.arriving

    @property
    def database(self) -> Database:
        return self.admin.database

    @property
    def clock(self) -> Clock:
        return self.admin.clock

    @property
    def must_have_two_step(self) -> bool:
        """True if STOPLIST_REQUIRE_TWO_STEP demands two-step sign-in of the signed-in person."""
        return self.person is not None and two_step.is_required(self.person, self.admin.require_two_step)

    @property
    def may_audit(self) -> bool:
        """True for administrators, and for admins of at least one organization."""
        return self.actor.is_administrator or ADMIN in self.actor.roles.values()

    def field_value(self, name: str, default: str = "") -> str:
        """Return the value to show in a field: what was typed before a refusal, else `default`."""
        return self.form.text(name) if name in self.form else default

    def field_values(self, name: str, default: list[str]) -> list[str]:
        """Return the boxes to show as ticked: those of a refused form (perhaps none), else `default`."""
        return self.form.all(name) if self.refusal is not None else default


class HtmlPage(msgspec.Struct, frozen=True):
    """A template and its values; `template` is relative to this folder."""

    template: str
    values: dict[str, Any] = {}
    status: int = 200
    headers: Headers = []


class Redirect(msgspec.Struct, frozen=True):
    """A redirect (303). `note` is a key of notes.NOTES, which the next page shows at its top."""

    to: str
    note: str = ""
    headers: Headers = []


class Download(msgspec.Struct, frozen=True):
    """A file that is produced while it is sent."""

    name: str
    content_type: str
    parts: AsyncGenerator[bytes, None]


Answer = HtmlPage | Redirect | Download
Handler = Callable[[PageRequest], Awaitable[Answer]]


class PageRoute(NamedTuple):
    """One method of one path. `on_refusal` shows the form again if `handler` refuses."""

    method: str
    path: str
    handler: Handler
    on_refusal: Handler | None = None
    is_open: bool = False
    """True for pages that need no session."""
    is_streamed: bool = False
    """True if the handler reads the body itself, while it arrives."""


def get(path: str, handler: Handler, *, is_open: bool = False) -> PageRoute:
    """Return the route of the page at `path`."""
    return PageRoute("GET", path, handler, is_open=is_open)


def upload(path: str, handler: Handler, *, on_refusal: Handler) -> PageRoute:
    """Return the route of a form with a file at `path`, whose handler reads `PageRequest.stream`."""
    return PageRoute("POST", path, handler, on_refusal, is_streamed=True)


def post(path: str, handler: Handler, *, on_refusal: Handler, is_open: bool = False) -> PageRoute:
    """Return the route of a form at `path`; `on_refusal` is the page with that form."""
    return PageRoute("POST", path, handler, on_refusal, is_open)

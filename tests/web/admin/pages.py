"""Requests pages from the whole application in process, as a browser with a session, and parses their HTML."""

from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from typing import Any, NamedTuple
from urllib.parse import urlencode

import argon2

from stoplist.actor import ADMINISTER, Actor, Role
from stoplist.organizations.groups import create_group
from stoplist.organizations.organizations import create_organization
from stoplist.staff.hashing import Hashing
from stoplist.staff.links import use_link
from stoplist.staff.model import SignedIn, StaffStores
from stoplist.staff.people import create_person
from stoplist.staff.roles import set_role
from stoplist.web.admin.cookies import NAME
from tests.builders import ADMINISTRATOR
from tests.web.application import FORM, PARTNER_IP, Answer, Application

PASSWORD = "a pass phrase of nobody"
SECRET_KEYS = ("k" * 32,)
# The same algorithm with minimal cost; other tests check the cost.
QUICK = Hashing(argon2.Parameters(argon2.Type.ID, 19, 8, 16, 1, 8, 1))

ROLES: dict[str, tuple[bool, dict[str, Role]]] = {
    "administrator": (True, {}),
    "admin": (False, {"acme": "admin"}),
    "viewer": (False, {"acme": "viewer"}),
    "other": (False, {"bolt": "admin"}),
    "both": (False, {"acme": "admin", "bolt": "viewer"}),
    "nobody": (False, {}),
}
"""The people by the name that tests use: whether an administrator, and the roles."""


class Form(NamedTuple):
    """A form of a page: method, path, and its initial values."""

    method: str
    action: str
    values: list[tuple[str, str]]

    def filled(self, **changes: str | Sequence[str] | None) -> list[tuple[str, str]]:
        """Return the values with `changes` applied; None removes a field, a sequence ticks several boxes."""
        kept = [(name, value) for name, value in self.values if name not in changes]
        for name, value in changes.items():
            if value is not None:
                kept += [(name, value)] if isinstance(value, str) else [(name, one) for one in value]
        return kept


class PageResponse(NamedTuple):
    """An answer with its parsed HTML."""

    status: int
    headers: list[tuple[str, str]]
    html: str
    text: str
    title: str
    forms: list[Form]
    links: list[str]

    def header(self, name: str) -> str | None:
        return next((value for known, value in self.headers if known == name), None)

    @property
    def location(self) -> str | None:
        return self.header("location")

    def form(self, action: str) -> Form:
        """Return the only form with this action."""
        (found,) = [form for form in self.forms if form.action == action]
        return found


class Browser:
    """A browser that keeps the session cookie and sends `Sec-Fetch-Site`."""

    def __init__(self, app: Application, token: str = "") -> None:
        self.app, self.token = app, token

    def get(self, target: str, *headers: tuple[str, str]) -> PageResponse:
        return self._keep(self.request("GET", target, *headers))

    def post(
        self, target: str, values: list[tuple[str, str]] | dict[str, Any] | None = None, *, site: str = "same-origin"
    ) -> PageResponse:
        body = urlencode(values or {}, doseq=True).encode()
        return self._keep(self.request("POST", target, FORM, ("sec-fetch-site", site), body=body))

    def send(self, form: Form, **changes: str | Sequence[str] | None) -> PageResponse:
        """Fill in a form and send it."""
        if form.method == "get":
            return self.get(f"{form.action}?{urlencode(form.filled(**changes))}")
        return self.post(form.action, form.filled(**changes))

    def submit_form(self, path: str, **changes: str | Sequence[str] | None) -> PageResponse:
        """Fill in and send the form of the page at `path` that leads to the same path."""
        return self.send(self.get(path).form(path), **changes)

    def follow(self, answer: PageResponse) -> PageResponse:
        """Follow a redirect."""
        assert answer.status == 303, answer.text
        assert answer.location is not None
        return self.get(answer.location)

    def request(
        self, method: str, target: str, *headers: tuple[str, str], body: bytes = b"", meanwhile: Any = None
    ) -> Answer:
        cookie = [("cookie", f"{NAME}={self.token}")] if self.token else []
        return self.app.request(method, target, headers=[*cookie, *headers], body=body, meanwhile=meanwhile)

    def _keep(self, answer: Answer) -> PageResponse:
        for name, value in answer.headers:
            if name == "set-cookie" and value.startswith(f"{NAME}="):
                self.token = value.partition("=")[2].partition(";")[0]
        return read(answer)


class Pages:
    """The application with the organizations `acme` (groups Newsletter, the default, and Reminders) and `bolt`, and
    the people of ROLES."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self._tokens: dict[str, str] = {}

    def prepare(self) -> None:
        """Create the organizations and people, once per database."""
        for slug, name in (("acme", "Acme Shoes"), ("bolt", "Bolt & Nut")):
            self.administer(create_organization, slug=slug, name=name, default_group="Newsletter")
        self.administer(create_group, org_slug="acme", name="Reminders")
        for name, (is_administrator, roles) in ROLES.items():
            self._tokens[name] = self.sign_up(email(name), is_administrator=is_administrator, roles=roles)

    def signed_in(self, name: str) -> Browser:
        """Return the browser of one of ROLES with the session from `prepare`."""
        return Browser(self.app, self._tokens[name])

    def with_app(self, app: Application) -> "Pages":
        """Return the same people with another application on the same database."""
        other = Pages(app)
        other._tokens = self._tokens
        return other

    def stranger(self) -> Browser:
        return Browser(self.app)

    def administer(self, operation: Any, **values: Any) -> Any:
        return self.app.administer(operation, **values)

    def actor(self, name: str) -> Actor:
        """Return one of ROLES as the actor of an operation."""
        is_administrator, roles = ROLES[name]
        may = frozenset((ADMINISTER,)) if is_administrator else frozenset[str]()
        return Actor(kind="person", id=email(name), may=may, roles=dict(roles), source_ip=PARTNER_IP)

    def sign_up(self, address: str, *, is_administrator: bool, roles: Mapping[str, Role]) -> str:
        """Create a person with these roles who is signed in; return the session's token."""
        link = self.administer(create_person, email=address, is_administrator=is_administrator)
        for slug, role in roles.items():
            self.administer(set_role, email=address, org_slug=slug, role=role)
        stores = StaffStores(self.app.database, self.app.clock, SECRET_KEYS, QUICK)
        done = self.app.run(
            use_link(ADMINISTRATOR, stores, link_token=link.link_token, password=PASSWORD, user_agent="a test")
        )
        assert isinstance(done, SignedIn)
        return done.session_token


def email(name: str) -> str:
    return f"{name}@people.example"


def read(answer: Answer) -> PageResponse:
    """Parse an answer; only HTML has forms and links."""
    reader = _Reader()
    html = answer.body.decode()
    if (answer.header("content-type") or "").startswith("text/html"):
        reader.feed(html)
    text = " ".join("".join(reader.text).split())
    return PageResponse(answer.status, answer.headers, html, text, reader.title.strip(), reader.forms, reader.links)


class _Reader(HTMLParser):
    """Collects text, title, links and forms."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.title = ""
        self.forms: list[Form] = []
        self.links: list[str] = []
        self._is_title = False
        self._select = ""
        self._has_option = False
        self._is_in_form = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self._is_title = tag == "title"
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "form":
            self._is_in_form = True
            self.forms.append(Form(found.get("method", "get"), found.get("action", ""), []))
        elif tag in ("input", "button") and "name" in found and self._is_in_form:
            if found.get("type") not in ("checkbox", "radio") or "checked" in found:
                self.forms[-1].values.append((found["name"], found.get("value", "")))
        elif tag == "select":
            self._select, self._has_option = found["name"], False
        elif tag == "option" and self._select:
            if not self._has_option:
                self.forms[-1].values.append((self._select, found.get("value", "")))
                self._has_option = True
            elif "selected" in found:
                self.forms[-1].values[-1] = (self._select, found.get("value", ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self._select = ""
        elif tag == "form":
            self._is_in_form = False

    def handle_data(self, data: str) -> None:
        if self._is_title:
            self.title += data
            self._is_title = False
        else:
            self.text.append(data)

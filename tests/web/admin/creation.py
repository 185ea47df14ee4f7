"""Creates people and organizations for a single test, since all tests of a module share a database."""

import itertools
import re
from typing import NamedTuple

import pyotp

from stoplist.actor import Role
from stoplist.organizations.groups import list_groups
from stoplist.organizations.model import Group
from stoplist.organizations.organizations import create_organization
from stoplist.staff.model import Person
from stoplist.staff.people import show_person
from stoplist.web.request_context import SIGN_IN_LINK_PATH, SIGN_IN_PATH
from tests.builders import ADMINISTRATOR
from tests.web.admin.pages import PASSWORD, Browser, PageResponse, Pages

TWO_STEP_PATH = "/settings/account/two-step"
_NUMBERS = itertools.count(1)


class NewPerson(NamedTuple):
    """A new person and the browser in which they are signed in."""

    email: str
    browser: Browser

    @property
    def page(self) -> str:
        """The path of the person's page for administrators."""
        return f"/settings/people/{self.email.replace('@', '%40')}"

    def page_in(self, slug: str) -> str:
        """Return the path of the person's page within an organization."""
        return f"/organizations/{slug}/people/{self.email.replace('@', '%40')}"


def new_name() -> str:
    """Return a name that is unique and no part of another name, for slugs and addresses."""
    return f"x{next(_NUMBERS):08}"


def new_address() -> str:
    return f"{new_name()}@people.example"


def new_person(pages: Pages, *, is_administrator: bool = False, roles: dict[str, Role] | None = None) -> NewPerson:
    """Create a person with these roles who is signed in."""
    address = new_address()
    token = pages.sign_up(address, is_administrator=is_administrator, roles=roles or {})
    return NewPerson(address, Browser(pages.app, token))


def admin_of(pages: Pages, slug: str) -> NewPerson:
    """Create an admin of the organization who is signed in."""
    return new_person(pages, roles={slug: "admin"})


def sign_in(pages: Pages, address: str, password: str = PASSWORD) -> tuple[Browser, PageResponse]:
    """Sign the person in with another browser; return it and the answer."""
    browser = pages.stranger()
    return browser, browser.submit_form(SIGN_IN_PATH, email=address, password=password)


def use_shown_link(pages: Pages, shown: PageResponse, *, repeated: str = PASSWORD) -> PageResponse:
    """Use the sign-in link on a page to set a password; return the answer."""
    browser = pages.stranger()
    form = browser.get(link_path(shown)).form(SIGN_IN_LINK_PATH)
    return browser.send(form, password=PASSWORD, repeated=repeated)


def link_path(shown: PageResponse, path: str = SIGN_IN_LINK_PATH) -> str:
    """Return the path, with its token, of the link on a page: a sign-in link, or one of another path."""
    (token,) = {part.partition("<")[0] for part in shown.html.split(f"{path}?token=")[1:]}
    return f"{path}?token={token}"


def turn_two_step_on(pages: Pages, browser: Browser) -> tuple[str, list[str]]:
    """Turn two-step sign-in on; return the secret of the app and the recovery codes."""
    form = browser.get(TWO_STEP_PATH).form(TWO_STEP_PATH)
    secret = dict(form.values)["secret"].partition(".")[0]
    shown = browser.send(form, code=code_of(pages, secret), password=PASSWORD)
    assert shown.status == 200, shown.text
    return secret, recovery_codes(shown)


def code_of(pages: Pages, secret: str) -> str:
    """Return the current code of the app."""
    return pyotp.TOTP(secret).at(pages.app.clock.now_ms() // 1000)


def recovery_codes(shown: PageResponse) -> list[str]:
    """Return the recovery codes on a page."""
    return re.findall(r"\b[a-z2-7]{4}(?:-[a-z2-7]{4}){3}\b", shown.html)


def person(pages: Pages, address: str) -> Person:
    """Return the person as an administrator sees them."""
    found: Person = pages.app.run(show_person(ADMINISTRATOR, pages.app.database, email=address))
    return found


def organization(pages: Pages, *, default_group: str | None = None) -> str:
    """Create an organization and return its slug."""
    slug = new_name()
    pages.administer(create_organization, slug=slug, name=f"The firm {slug}", default_group=default_group)
    return slug


def groups(pages: Pages, slug: str) -> dict[str, Group]:
    """Return the groups of an organization by name."""
    found: list[Group] = pages.app.run(list_groups(ADMINISTRATOR, pages.app.database, org_slug=slug))
    return {group.name: group for group in found}

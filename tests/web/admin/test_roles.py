"""Every route of the pages, requested by every role, without a session, and by the admin of another organization.

The routes come from the application; one without a row fails. docs/interface.md section D11.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from stoplist import ids
from stoplist.staff.people import set_role
from stoplist.web.admin.screens import ROUTES
from stoplist.web.request_context import SIGN_IN_LINK_PATH, SIGN_IN_PATH
from tests.web.admin.creation import groups, new_address, new_name, new_person, organization
from tests.web.admin.pages import PASSWORD, Browser, Form, PageResponse, Pages

# The result does not depend on the interpreter.
pytestmark = pytest.mark.slow

CALLERS = ("administrator", "admin", "viewer", "both", "other", "nobody", "stranger")
"""`admin` and `viewer` belong to the organization of the ids; `both` is its admin and viewer of another one; `other` is
admin of another one; `nobody` has signed in and has no role; `stranger` has not signed in."""

# The statuses for the seven callers. `in`: redirected to the sign-in page.
SIGNED_IN = "200 200 200 200 200 200 in"
MEMBERS = "200 200 200 200 404 404 in"
ADMINS = "200 200 403 200 404 404 in"
ADMINISTRATORS = "200 403 403 403 403 403 in"
VISIBLE_TO_MEMBERS = "200 403 403 403 404 404 in"
AUDITORS = "200 200 403 200 200 403 in"
STATUS_OF_POST = {"200": "303"}


class Sample:
    """A new organization with a key, a group, an opt-out and a person."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages
        self.slug = organization(pages, default_group="Newsletter")
        self.key = pages.app.new_key(organizations=(self.slug,))
        self.client_id = self.key.client_id
        self.group_id = next(iter(groups(pages, self.slug).values())).group_id
        token = pages.app.pair(self.key)["access_token"]
        answer = pages.app.request(
            "POST",
            "/api/v1/unsubscribe/email",
            headers=[("authorization", f"Bearer {token}"), ("content-type", "application/json")],
            body=json.dumps({"items": [{"address": "ann@example.com"}]}).encode(),
        )
        self.submission_id = answer.json()["submission_id"]
        self.seq = "1"
        self.person = new_person(pages, roles={self.slug: "viewer"})
        self.email = self.person.email.replace("@", "%40")
        self.session = session_of(self.person.browser)

    def browser(self, caller: str) -> Browser:
        """Create a person for one of CALLERS and return their browser."""
        if caller == "stranger":
            return self.pages.stranger()
        roles: dict[str, Any] = {
            "admin": {self.slug: "admin"},
            "viewer": {self.slug: "viewer"},
            "both": {self.slug: "admin", "bolt": "viewer"},
            "other": {"bolt": "admin"},
        }
        return new_person(self.pages, is_administrator=caller == "administrator", roles=roles.get(caller)).browser

    def path(self, template: str) -> str:
        values = {
            "client_id": self.client_id,
            "slug": self.slug,
            "org_slug": self.slug,
            "group_id": self.group_id,
            "channel": "email",
            "seq": self.seq,
            "submission_id": self.submission_id,
            "email:path": self.email,
        }
        for name, value in values.items():
            template = template.replace(f"{{{name}}}", value)
        assert "{" not in template, template
        return template


class Row(NamedTuple):
    """The expected statuses; for a post, the page with the form (the same path if empty) and the values to fill in.

    `before` prepares the sample as an administrator.
    """

    expected: str
    page: str = ""
    filled: Callable[[Sample], dict[str, Any]] = lambda sample: {}
    before: Callable[[Sample], None] = lambda sample: None

    def status_for(self, caller: str) -> str:
        return self.expected.split()[CALLERS.index(caller)]


def posts(expected: str, page: str = "", before: Callable[[Sample], None] = lambda sample: None, **filled: Any) -> Row:
    """Return the row of a post that answers with a redirect on success; values may be functions of the sample."""
    codes = " ".join(STATUS_OF_POST.get(code, code) for code in expected.split())
    return Row(codes, page, lambda sample: {k: v(sample) if callable(v) else v for k, v in filled.items()}, before)


def deactivated(sample: Sample) -> None:
    post(sample, "/settings/keys/{client_id}/deactivate")


def disabled(sample: Sample) -> None:
    post(sample, "/settings/people/{email:path}/disable")


def an_administrator(sample: Sample) -> None:
    post(sample, "/settings/people/{email:path}/administrator")


def another_group(sample: Sample) -> None:
    browser = sample.browser("administrator")
    form = browser.get(sample.path("/organizations/{slug}/groups/new")).forms[-1]
    assert browser.send(form, name="Reminders").status == 303
    sample.group_id = groups(sample.pages, sample.slug)["Reminders"].group_id


def post(sample: Sample, template: str) -> None:
    browser = sample.browser("administrator")
    form = form_to(browser.get(sample.path(template)), sample.path(template))
    assert browser.send(form).status == 303


def session_of(browser: Browser) -> str:
    """Return the session_id of this browser from the database, since pages only show those of other sessions."""
    found: str = browser.app.value(
        "SELECT session_id FROM sessions WHERE session_hash = :hash", hash=ids.hash_secret(browser.token)
    )
    return found


def form_to(page: PageResponse, path: str) -> Form:
    (found,) = [form for form in page.forms if form.method == "post" and form.action.replace("@", "%40") == path]
    return found


KEY = "/settings/keys/{client_id}"
ORG = "/organizations/{slug}"
FEED = "/unsubscribes/{org_slug}/{channel}"
GROUP = ORG + "/groups/{group_id}"
PERSON = "/settings/people/{email:path}"
MEMBER = ORG + "/people/{email:path}"
ACCOUNT = "/settings/account"

ROWS: dict[str, Row] = {
    f"GET {SIGN_IN_PATH}": Row("303 303 303 303 303 303 200"),
    f"POST {SIGN_IN_PATH}": Row("422 422 422 422 422 422 422", "-", lambda sample: {"email": "x@example.com"}),
    f"POST {SIGN_IN_PATH}/code": Row("422 422 422 422 422 422 422", "-", lambda sample: {"ticket": "x", "code": "1"}),
    "POST /settings/sign-out": Row("303 303 303 303 303 303 in", "-"),
    f"GET {SIGN_IN_LINK_PATH}": Row("404 404 404 404 404 404 404"),
    f"POST {SIGN_IN_LINK_PATH}": Row("404 404 404 404 404 404 404", "-", lambda sample: {"token": "x"}),
    "GET /": Row(SIGNED_IN),
    "GET /audit": Row(AUDITORS),
    "GET /audit/export": Row(AUDITORS),
    "GET /settings": Row(SIGNED_IN),
    "GET /settings/keys": Row(SIGNED_IN),
    "GET /settings/keys/new": Row(SIGNED_IN),
    "POST /settings/keys/new": Row(
        "200 200 422 200 404 422 in",  # a person without such a form sends that of another
        "/settings/keys/new",
        lambda sample: {
            "label": "New",
            "organizations": [sample.slug],
            "default_organization": sample.slug,
            "permissions": ["read"],
        },
    ),
    f"GET {KEY}": Row(MEMBERS),
    f"GET {KEY}/sheet": Row(MEMBERS),
    f"GET {KEY}/edit": Row(ADMINS),
    f"POST {KEY}/edit": posts(ADMINS, label="Another"),
    f"POST {KEY}/limits": posts(ADMINISTRATORS, f"{KEY}/edit", api_per_minute="100"),
    f"GET {KEY}/replace": Row(ADMINS),
    f"POST {KEY}/replace": Row(ADMINS),
    f"GET {KEY}/rotate": Row(ADMINS),
    f"POST {KEY}/rotate": Row(ADMINS),
    f"GET {KEY}/revoke": Row(ADMINS),
    f"POST {KEY}/revoke": posts(ADMINS),
    f"GET {KEY}/deactivate": Row(ADMINS),
    f"POST {KEY}/deactivate": posts(ADMINS),
    f"GET {KEY}/activate": Row(ADMINS),
    f"POST {KEY}/activate": posts(ADMINS, before=deactivated),
    "GET /unsubscribes": Row(SIGNED_IN),
    "POST /unsubscribes": Row(SIGNED_IN, "-", lambda sample: {"address": "ann@example.com"}),
    "GET /unsubscribes/{submission_id}": Row(MEMBERS),
    "GET /unsubscribes/{submission_id}/reverse": Row(VISIBLE_TO_MEMBERS),
    "POST /unsubscribes/{submission_id}/reverse": Row(VISIBLE_TO_MEMBERS.replace("200", "303")),
    f"GET {FEED}": Row(MEMBERS),
    f"GET {FEED}/add": Row(ADMINS),
    f"POST {FEED}/add": posts(ADMINS, address="bob@example.com", stated_reason="A phone call."),
    f"GET {FEED}/{{seq}}": Row(MEMBERS),
    f"GET {FEED}/{{seq}}/unsubscribe": Row(ADMINS),
    f"POST {FEED}/{{seq}}/unsubscribe": posts(ADMINS, stated_reason="A phone call."),
    f"GET {FEED}/{{seq}}/resubscribe": Row(ADMINS),
    f"POST {FEED}/{{seq}}/resubscribe": posts(ADMINS, stated_reason="A letter.", occurred_at="2047-01-15T07:00"),
    "GET /organizations": Row(SIGNED_IN),
    "GET /organizations/_new": Row(ADMINISTRATORS),
    "POST /organizations/_new": posts(ADMINISTRATORS, slug=lambda sample: new_name(), name="New", default_group=""),
    f"GET {ORG}": Row(MEMBERS),
    f"GET {ORG}/rename": Row(ADMINS),
    f"POST {ORG}/rename": posts(ADMINS, name="Another"),
    f"GET {ORG}/close": Row(ADMINISTRATORS),
    f"POST {ORG}/close": posts(ADMINISTRATORS),
    f"GET {ORG}/groups/new": Row(ADMINS),
    f"POST {ORG}/groups/new": posts(ADMINS, name="Offers"),
    f"GET {GROUP}/rename": Row(ADMINS),
    f"POST {GROUP}/rename": posts(ADMINS, name="News"),
    f"GET {GROUP}/retire": Row(ADMINS),
    f"POST {GROUP}/retire": posts(ADMINS),
    f"GET {GROUP}/default": Row(ADMINS),
    f"POST {GROUP}/default": posts(ADMINS, before=another_group),
    f"GET {ORG}/no-default": Row(ADMINS),
    f"POST {ORG}/no-default": posts(ADMINS),
    f"GET {ORG}/people/new": Row(ADMINS),
    f"POST {ORG}/people/new": Row(ADMINS, "", lambda sample: {"email": new_address(), "role": "viewer"}),
    f"GET {MEMBER}": Row(ADMINS),
    f"POST {MEMBER}/role": posts(ADMINS, MEMBER, role="admin"),
    f"GET {MEMBER}/remove": Row(ADMINS),
    f"POST {MEMBER}/remove": posts(ADMINS),
    f"GET {MEMBER}/link": Row(ADMINS),
    # This person has a password: a link would open their account.
    f"POST {MEMBER}/link": Row("200 403 404 403 404 404 in"),
    "GET /settings/people": Row(ADMINISTRATORS),
    "GET /settings/people/new": Row(ADMINISTRATORS),
    "POST /settings/people/new": Row(
        ADMINISTRATORS, "", lambda sample: {"email": new_address(), "org_slug": sample.slug, "role": "viewer"}
    ),
    f"GET {PERSON}": Row(ADMINISTRATORS),
    f"POST {PERSON}/role": posts(ADMINISTRATORS, PERSON, org_slug="bolt", role="admin"),
    f"POST {PERSON}/end-session": posts(ADMINISTRATORS, PERSON),
    f"GET {PERSON}/link": Row(ADMINISTRATORS),
    f"POST {PERSON}/link": Row("200 403 404 403 404 404 in"),
    f"GET {PERSON}/administrator": Row(ADMINISTRATORS),
    f"POST {PERSON}/administrator": posts(ADMINISTRATORS),
    f"GET {PERSON}/no-administrator": Row(ADMINISTRATORS),
    f"POST {PERSON}/no-administrator": posts(ADMINISTRATORS, before=an_administrator),
    f"GET {PERSON}/disable": Row(ADMINISTRATORS),
    f"POST {PERSON}/disable": posts(ADMINISTRATORS),
    f"GET {PERSON}/enable": Row(ADMINISTRATORS),
    f"POST {PERSON}/enable": posts(ADMINISTRATORS, before=disabled),
    f"GET {ACCOUNT}": Row(SIGNED_IN),
    f"POST {ACCOUNT}/password": posts(
        SIGNED_IN, ACCOUNT, current=PASSWORD, new="another pass phrase", repeated="another pass phrase"
    ),
    # The session of another person.
    f"POST {ACCOUNT}/end-session": Row(
        "303 404 404 404 404 404 in", "-", lambda sample: {"session_id": sample.session}
    ),
    f"POST {ACCOUNT}/end-other-sessions": posts(SIGNED_IN, "-"),
    f"GET {ACCOUNT}/two-step": Row(SIGNED_IN),
    f"POST {ACCOUNT}/two-step": Row("422 422 422 422 422 422 in", "", lambda sample: {"code": "000000"}),
    f"GET {ACCOUNT}/two-step-off": Row(SIGNED_IN),
    f"POST {ACCOUNT}/two-step-off": Row("303 303 303 303 303 303 in", "-", lambda sample: {"password": PASSWORD}),
    f"GET {ACCOUNT}/recovery-codes": Row(SIGNED_IN),
    f"POST {ACCOUNT}/recovery-codes": Row("422 422 422 422 422 422 in", "-", lambda sample: {"password": PASSWORD}),
}


def test_every_route_has_a_row() -> None:
    """So that access to every new page is decided."""
    assert sorted(f"{route.method} {route.path}" for route in ROUTES) == sorted(ROWS)


@pytest.mark.parametrize("route", ROWS)
def test_routes_are_open_to_the_right_callers(pages: Pages, route: str) -> None:
    """Even the form that an administrator would send does nothing for somebody without the right."""
    row, sample = ROWS[route], None
    answers: dict[str, str] = {}
    # Callers that are refused come first: they leave the sample unchanged for the next one.
    for caller in reversed(CALLERS):
        sample = sample or new_sample(pages, row)
        answers[caller] = outcome(send(route, row, sample, sample.browser(caller)))
        if route.startswith("POST") and answers[caller] in ("200", "303"):
            sample = None
    assert answers == {caller: row.status_for(caller) for caller in CALLERS}


def new_sample(pages: Pages, row: Row) -> Sample:
    sample = Sample(pages)
    row.before(sample)
    return sample


def send(route: str, row: Row, sample: Sample, browser: Browser) -> PageResponse:
    """Send a request to the route from this browser."""
    method, template = route.split()
    path = sample.path(template)
    if method == "GET":
        return browser.get(path)
    values = row.filled(sample)
    if row.page == "-":
        return browser.post(path, values)
    return browser.send(form_of(browser, sample, row.page or template, path), **values)


def form_of(browser: Browser, sample: Sample, page: str, path: str) -> Form:
    """Return the form of the page; if this person has none, that of an administrator."""
    for viewer in (browser, sample.browser("administrator")):
        found = [form for form in viewer.get(sample.path(page)).forms if form.action.replace("@", "%40") == path]
        if found:
            return found[0]
    raise AssertionError(f"{page} has no form for {path}")


def outcome(answer: PageResponse) -> str:
    """Return the status, or `in` for a redirect to the sign-in page."""
    path, _, query = (answer.location or "").partition("?")
    if answer.status == 303 and path == SIGN_IN_PATH and not query.startswith("note="):
        return "in"
    return str(answer.status)


@pytest.mark.parametrize(
    "template",
    [
        "/organizations/bolt/groups/{group_id}/rename",
        "/organizations/bolt/groups/{group_id}/retire",
        "/organizations/bolt/groups/{group_id}/default",
        "/organizations/bolt/people/{email:path}",
        "/organizations/bolt/people/{email:path}/remove",
        "/organizations/bolt/people/{email:path}/link",
    ],
)
def test_ids_of_another_organization_are_not_found(pages: Pages, template: str) -> None:
    """The path says `bolt`, of which this person is admin; the id belongs to another organization."""
    sample = Sample(pages)
    browser = sample.browser("other")
    path = sample.path(template)
    assert browser.get(path).status == 404
    if not path.endswith(sample.email):
        assert browser.post(path, {"name": "Taken"}).status in (403, 404)


def test_a_removed_role_ends_with_the_next_request(pages: Pages) -> None:
    """The session continues without the role."""
    sample = Sample(pages)
    browser = sample.person.browser
    assert browser.get(f"/organizations/{sample.slug}").status == 200
    pages.administer(set_role, email=sample.person.email, org_slug=sample.slug, role=None)
    assert browser.get(f"/organizations/{sample.slug}").status == 404

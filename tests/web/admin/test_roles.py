"""Every route of the pages, requested by every role, without a session, and by the admin of another organization.

The routes come from the application; one without a row fails. docs/interface.md section D11.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from stoplist import ids
from stoplist.links.keys import create_link_key
from stoplist.staff.roles import set_role
from stoplist.web.admin.screens import ROUTES
from stoplist.web.request_context import INVITATION_PATH, SIGN_IN_LINK_PATH, SIGN_IN_PATH
from tests.web.admin.creation import groups, new_address, new_name, new_person, organization
from tests.web.admin.pages import PASSWORD, Browser, Form, PageResponse, Pages
from tests.web.admin.uploading import uploaded, work

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


@pytest.fixture(scope="module")
def pages_url(module_database_url: str) -> str:
    """A database of each kind: these tests call every route, with the values that each driver returns."""
    return module_database_url


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
        self.import_id = self.upload()
        self.link_key_id = pages.administer(
            create_link_key, secret_keys=("k" * 32,), org_slug=self.slug
        ).details.link_key_id

    def upload(self) -> str:
        """Upload a file as an administrator; return the id of its import."""
        page = uploaded(
            self.browser("administrator"), self.slug, b"email\nann@example.com\nnobody\n", as_of="2020-01-01"
        )
        return next(form.action for form in page.forms if form.action.startswith("/settings/imports/")).split("/")[3]

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
            "link_key_id": self.link_key_id,
            "import_id": self.import_id,
            "email:path": self.email,
        }
        for name, value in values.items():
            template = template.replace(f"{{{name}}}", value)
        assert "{" not in template, template
        return template


class RouteRow(NamedTuple):
    """The expected statuses; for a post, the page with the form (the same path if empty) and the values to fill in.

    `before` prepares the sample as an administrator.
    """

    expected: str
    page: str = ""
    filled: Callable[[Sample], dict[str, Any]] = lambda sample: {}
    before: Callable[[Sample], None] = lambda sample: None

    def status_for(self, caller: str) -> str:
        return self.expected.split()[CALLERS.index(caller)]


def posts(
    expected: str, page: str = "", before: Callable[[Sample], None] = lambda sample: None, **filled: Any
) -> RouteRow:
    """Return the row of a post that answers with a redirect on success; values may be functions of the sample."""
    codes = " ".join(STATUS_OF_POST.get(code, code) for code in expected.split())
    return RouteRow(codes, page, lambda sample: {k: v(sample) if callable(v) else v for k, v in filled.items()}, before)


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


def checked(sample: Sample) -> None:
    step(sample, IMPORT, "/options")
    work(sample.pages)


def started(sample: Sample) -> None:
    checked(sample)
    step(sample, IMPORT, "/start")


def without_upload(sample: Sample) -> None:
    """An unfinished upload for the same feed is in the way of an erasure."""
    post(sample, f"{IMPORT}/discard")


def of_ann(sample: Sample) -> dict[str, Any]:
    """Return the fields that name the person of the sample."""
    return {"address": "ann@example.com", "channel": "email"}


def stopped(sample: Sample) -> None:
    started(sample)
    step(sample, IMPORT, "/stop")


def done(sample: Sample) -> None:
    started(sample)
    work(sample.pages)


def counted(sample: Sample) -> None:
    done(sample)
    step(sample, f"{IMPORT}/reverse", "/count")
    work(sample.pages)


def step(sample: Sample, page: str, end: str) -> None:
    """Send one of the forms of a page of the import as an administrator."""
    browser = sample.browser("administrator")
    (form,) = [form for form in browser.get(sample.path(page)).forms if form.action.endswith(end)]
    assert browser.send(form).status == 303


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
IMPORT = "/settings/imports/{import_id}"
GROUP = ORG + "/groups/{group_id}"
MARK = "/unsubscribes/propagation/{org_slug}/{channel}/{client_id}"
LINK_KEY = ORG + "/links/{link_key_id}"
PERSON = "/settings/people/{email:path}"
MEMBER = ORG + "/people/{email:path}"
ACCOUNT = "/settings/account"


def of_sample(sample: Sample) -> dict[str, Any]:
    return {"org_slug": sample.slug}


def invited(sample: Sample) -> None:
    form = form_to(sample.browser("admin").get(sample.path(f"{ORG}/people/new")), sample.path(f"{ORG}/people/new"))
    assert sample.browser("admin").send(form, email="invited@example.org", role="viewer").status == 200


ROWS: dict[str, RouteRow] = {
    f"GET {SIGN_IN_PATH}": RouteRow("303 303 303 303 303 303 200"),
    f"POST {SIGN_IN_PATH}": RouteRow("422 422 422 422 422 422 422", "-", lambda sample: {"email": "x@example.com"}),
    f"POST {SIGN_IN_PATH}/code": RouteRow(
        "422 422 422 422 422 422 422", "-", lambda sample: {"ticket": "x", "code": "1"}
    ),
    "POST /settings/sign-out": RouteRow("303 303 303 303 303 303 in", "-"),
    f"GET {SIGN_IN_LINK_PATH}": RouteRow("404 404 404 404 404 404 404"),
    f"POST {SIGN_IN_LINK_PATH}": RouteRow("404 404 404 404 404 404 404", "-", lambda sample: {"token": "x"}),
    f"GET {INVITATION_PATH}": RouteRow("404 404 404 404 404 404 404"),
    f"POST {INVITATION_PATH}": RouteRow("404 404 404 404 404 404 404", "-", lambda sample: {"token": "x"}),
    "GET /": RouteRow(SIGNED_IN),
    "GET /audit": RouteRow(AUDITORS),
    "GET /audit/export": RouteRow(AUDITORS),
    "GET /settings": RouteRow(SIGNED_IN),
    "GET /settings/keys": RouteRow(SIGNED_IN),
    "GET /settings/keys/new": RouteRow(SIGNED_IN),
    "POST /settings/keys/new": RouteRow(
        "200 200 422 200 404 422 in",  # a person without such a form sends that of another
        "/settings/keys/new",
        lambda sample: {
            "label": "New",
            "organizations": [sample.slug],
            "default_organization": sample.slug,
            "permissions": ["read"],
        },
    ),
    f"GET {KEY}": RouteRow(MEMBERS),
    f"GET {KEY}/sheet": RouteRow(MEMBERS),
    f"GET {KEY}/edit": RouteRow(ADMINS),
    f"POST {KEY}/edit": posts(ADMINS, label="Another"),
    f"POST {KEY}/limits": posts(ADMINISTRATORS, f"{KEY}/edit", api_per_minute="100"),
    f"GET {KEY}/replace": RouteRow(ADMINS),
    f"POST {KEY}/replace": RouteRow(ADMINS),
    f"GET {KEY}/rotate": RouteRow(ADMINS),
    f"POST {KEY}/rotate": RouteRow(ADMINS),
    f"GET {KEY}/revoke": RouteRow(ADMINS),
    f"POST {KEY}/revoke": posts(ADMINS),
    f"GET {KEY}/deactivate": RouteRow(ADMINS),
    f"POST {KEY}/deactivate": posts(ADMINS),
    f"GET {KEY}/activate": RouteRow(ADMINS),
    f"POST {KEY}/activate": posts(ADMINS, before=deactivated),
    "GET /unsubscribes": RouteRow(SIGNED_IN),
    "POST /unsubscribes": RouteRow(SIGNED_IN, "-", lambda sample: {"address": "ann@example.com"}),
    "GET /unsubscribes/person": RouteRow(SIGNED_IN),
    "POST /unsubscribes/person": RouteRow(SIGNED_IN, "", of_ann),
    "POST /unsubscribes/person/file": RouteRow(SIGNED_IN, "-", of_ann),
    "GET /unsubscribes/erase": RouteRow(AUDITORS),
    "POST /unsubscribes/erase": RouteRow(
        "303 303 403 303 404 403 in",
        "-",
        lambda sample: of_ann(sample) | {"word": "erase", "where": sample.slug, "all_upgraded": "yes"},
        without_upload,
    ),
    "GET /unsubscribes/submissions": RouteRow(SIGNED_IN),
    "GET /unsubscribes/propagation": RouteRow(SIGNED_IN),
    f"GET {MARK}": RouteRow(ADMINS),
    f"POST {MARK}": posts(ADMINS, mark="stopped"),
    "GET /unsubscribes/{submission_id}": RouteRow(MEMBERS),
    "GET /unsubscribes/{submission_id}/reverse": RouteRow(VISIBLE_TO_MEMBERS),
    "POST /unsubscribes/{submission_id}/reverse": RouteRow(VISIBLE_TO_MEMBERS.replace("200", "303")),
    f"GET {FEED}": RouteRow(MEMBERS),
    f"GET {FEED}/add": RouteRow(ADMINS),
    f"POST {FEED}/add": posts(ADMINS, address="bob@example.com", stated_reason="A phone call."),
    f"GET {FEED}/export": RouteRow(ADMINS),
    f"GET {FEED}/export/file": RouteRow(ADMINS),
    f"GET {FEED}/import": RouteRow(ADMINS),
    # Not such a form: test_imports.py uploads files. What is refused for its sender is refused before it is read.
    f"POST {FEED}/import": RouteRow("400 400 403 400 404 404 in", "-"),
    "GET /settings/imports": RouteRow(SIGNED_IN),
    "GET /settings/imports/new": RouteRow("200 200 403 200 200 403 in"),
    f"GET {IMPORT}": RouteRow(ADMINS),
    f"POST {IMPORT}/options": posts(ADMINS, IMPORT, check=None),
    f"POST {IMPORT}/start": posts(ADMINS, IMPORT, before=checked),
    f"POST {IMPORT}/stop": posts(ADMINS, IMPORT, before=started),
    f"POST {IMPORT}/resume": posts(ADMINS, IMPORT, before=stopped),
    f"GET {IMPORT}/discard": RouteRow(ADMINS),
    f"POST {IMPORT}/discard": posts(ADMINS),
    f"GET {IMPORT}/rejects": RouteRow(ADMINS, before=done),
    f"GET {IMPORT}/reverse": RouteRow(VISIBLE_TO_MEMBERS, before=done),
    f"POST {IMPORT}/reverse/count": posts(VISIBLE_TO_MEMBERS, f"{IMPORT}/reverse", before=done),
    f"POST {IMPORT}/reverse": posts(VISIBLE_TO_MEMBERS, before=counted),
    f"GET {FEED}/{{seq}}": RouteRow(MEMBERS),
    f"GET {FEED}/{{seq}}/unsubscribe": RouteRow(ADMINS),
    f"POST {FEED}/{{seq}}/unsubscribe": posts(ADMINS, stated_reason="A phone call."),
    f"GET {FEED}/{{seq}}/person": RouteRow(MEMBERS),
    f"GET {FEED}/{{seq}}/person/file": RouteRow(MEMBERS),
    f"GET {FEED}/{{seq}}/erase": RouteRow(ADMINS),
    f"POST {FEED}/{{seq}}/erase": posts(ADMINS, before=without_upload, word="erase", all_upgraded="yes"),
    f"GET {FEED}/{{seq}}/resubscribe": RouteRow(ADMINS),
    f"POST {FEED}/{{seq}}/resubscribe": posts(ADMINS, stated_reason="A letter.", occurred_at="2047-01-15T07:00"),
    "GET /organizations": RouteRow(SIGNED_IN),
    "GET /organizations/_new": RouteRow(ADMINISTRATORS),
    "POST /organizations/_new": posts(ADMINISTRATORS, slug=lambda sample: new_name(), name="New", default_group=""),
    f"GET {ORG}": RouteRow(MEMBERS),
    f"GET {ORG}/rename": RouteRow(ADMINS),
    f"POST {ORG}/rename": posts(ADMINS, name="Another"),
    f"GET {ORG}/close": RouteRow(ADMINISTRATORS),
    f"POST {ORG}/close": posts(ADMINISTRATORS),
    f"GET {ORG}/groups/new": RouteRow(ADMINS),
    f"POST {ORG}/groups/new": posts(ADMINS, name="Offers"),
    f"GET {ORG}/links": RouteRow(MEMBERS),
    f"GET {ORG}/links/page": RouteRow(ADMINS),
    f"POST {ORG}/links/page": posts(ADMINS, contact_line="privacy@example.com", accent_colour="#0A66C2"),
    f"GET {ORG}/links/new": RouteRow(ADMINS),
    f"POST {ORG}/links/new": RouteRow(ADMINS),
    f"GET {LINK_KEY}": RouteRow(MEMBERS),
    f"GET {LINK_KEY}/retire": RouteRow(ADMINS),
    f"POST {LINK_KEY}/retire": posts(ADMINS),
    f"GET {LINK_KEY}/revoke": RouteRow(ADMINS),
    f"POST {LINK_KEY}/revoke": posts(ADMINS, word="revoke"),
    f"GET {GROUP}/rename": RouteRow(ADMINS),
    f"POST {GROUP}/rename": posts(ADMINS, name="News"),
    f"GET {GROUP}/retire": RouteRow(ADMINS),
    f"POST {GROUP}/retire": posts(ADMINS),
    f"GET {GROUP}/default": RouteRow(ADMINS),
    f"POST {GROUP}/default": posts(ADMINS, before=another_group),
    f"GET {ORG}/no-default": RouteRow(ADMINS),
    f"POST {ORG}/no-default": posts(ADMINS),
    f"GET {ORG}/people/new": RouteRow(ADMINS),
    f"POST {ORG}/people/new": RouteRow(ADMINS, "", lambda sample: {"email": new_address(), "role": "viewer"}),
    f"POST {ORG}/withdraw-invitation": RouteRow(
        ADMINS.replace("200", "303"), "-", lambda sample: {"email": "invited@example.org"}, invited
    ),
    f"GET {MEMBER}": RouteRow(ADMINS),
    f"POST {MEMBER}/role": posts(ADMINS, MEMBER, role="admin"),
    f"GET {MEMBER}/remove": RouteRow(ADMINS),
    f"POST {MEMBER}/remove": posts(ADMINS),
    f"GET {MEMBER}/link": RouteRow(ADMINS),
    # This person has a password: a link would open their account.
    f"POST {MEMBER}/link": RouteRow("200 403 404 403 404 404 in"),
    "GET /settings/people": RouteRow(ADMINISTRATORS),
    "GET /settings/people/new": RouteRow(ADMINISTRATORS),
    "POST /settings/people/new": RouteRow(
        ADMINISTRATORS, "", lambda sample: {"email": new_address(), "org_slug": sample.slug, "role": "viewer"}
    ),
    f"GET {PERSON}": RouteRow(ADMINISTRATORS),
    f"POST {PERSON}/role": posts(ADMINISTRATORS, PERSON, org_slug="bolt", role="admin"),
    f"POST {PERSON}/end-session": posts(ADMINISTRATORS, PERSON),
    f"GET {PERSON}/link": RouteRow(ADMINISTRATORS),
    f"POST {PERSON}/link": RouteRow("200 403 404 403 404 404 in"),
    f"GET {PERSON}/administrator": RouteRow(ADMINISTRATORS),
    f"POST {PERSON}/administrator": posts(ADMINISTRATORS),
    f"GET {PERSON}/no-administrator": RouteRow(ADMINISTRATORS),
    f"POST {PERSON}/no-administrator": posts(ADMINISTRATORS, before=an_administrator),
    f"GET {PERSON}/disable": RouteRow(ADMINISTRATORS),
    f"POST {PERSON}/disable": posts(ADMINISTRATORS),
    f"GET {PERSON}/enable": RouteRow(ADMINISTRATORS),
    f"POST {PERSON}/enable": posts(ADMINISTRATORS, before=disabled),
    f"GET {ACCOUNT}": RouteRow(SIGNED_IN),
    f"POST {ACCOUNT}/password": posts(
        SIGNED_IN, ACCOUNT, current=PASSWORD, new="another pass phrase", repeated="another pass phrase"
    ),
    # The session of another person.
    f"POST {ACCOUNT}/end-session": RouteRow(
        "303 404 404 404 404 404 in", "-", lambda sample: {"session_id": sample.session}
    ),
    # Without an invitation there is nothing to answer.
    f"POST {ACCOUNT}/accept-invitation": RouteRow("404 404 404 404 404 404 in", "-", of_sample),
    f"POST {ACCOUNT}/decline-invitation": RouteRow("404 404 404 404 404 404 in", "-", of_sample),
    f"POST {ACCOUNT}/end-other-sessions": posts(SIGNED_IN, "-"),
    f"GET {ACCOUNT}/two-step": RouteRow(SIGNED_IN),
    f"POST {ACCOUNT}/two-step": RouteRow("422 422 422 422 422 422 in", "", lambda sample: {"code": "000000"}),
    f"GET {ACCOUNT}/two-step-off": RouteRow(SIGNED_IN),
    f"POST {ACCOUNT}/two-step-off": RouteRow("303 303 303 303 303 303 in", "-", lambda sample: {"password": PASSWORD}),
    f"GET {ACCOUNT}/recovery-codes": RouteRow(SIGNED_IN),
    f"POST {ACCOUNT}/recovery-codes": RouteRow(
        "422 422 422 422 422 422 in", "-", lambda sample: {"password": PASSWORD}
    ),
}


def test_every_route_has_a_row() -> None:
    """So that access to every new page is decided."""
    assert sorted(f"{route.method} {route.path}" for route in ROUTES) == sorted(ROWS)


@pytest.mark.parametrize("route", ROWS)
def test_routes_are_open_to_the_right_callers(pages: Pages, route: str) -> None:
    """The form that an administrator would send does nothing for somebody without the right."""
    row, sample = ROWS[route], None
    answers: dict[str, str] = {}
    # The rights do not depend on the database: on PostgreSQL an administrator alone meets every route.
    callers = CALLERS if pages.app.database.kind == "sqlite" else CALLERS[:1]
    # Callers that are refused come first: they leave the sample unchanged for the next one.
    for caller in reversed(callers):
        sample = sample or new_sample(pages, row)
        answers[caller] = outcome(send(route, row, sample, sample.browser(caller)))
        if route.startswith("POST") and answers[caller] in ("200", "303"):
            sample = None
    assert answers == {caller: row.status_for(caller) for caller in callers}


def new_sample(pages: Pages, row: RouteRow) -> Sample:
    sample = Sample(pages)
    row.before(sample)
    return sample


def send(route: str, row: RouteRow, sample: Sample, browser: Browser) -> PageResponse:
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
        "/organizations/bolt/links/{link_key_id}/revoke",
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

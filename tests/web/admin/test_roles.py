"""Every way into the pages, tried by every role, by nobody, and by the admin of another organization with these ids.

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
from tests.web.admin.newcomers import groups, new_address, new_name, newcomer, organization
from tests.web.admin.pages import PASSWORD, Browser, Form, Pages, Shown

# What browsers and pages do is the same whatever the interpreter.
pytestmark = pytest.mark.slow

WHO = ("administrator", "admin", "viewer", "both", "other", "nobody", "stranger")
"""`admin` and `viewer` are of the organization whose ids are tried; `both` is its admin and viewer of another; `other`
is admin of another; `nobody` has signed in and has no role; `stranger` has not signed in."""

# What the seven are answered. `in`: asked to sign in.
ANYBODY = "200 200 200 200 200 200 200"
SIGNED_IN = "200 200 200 200 200 200 in"
SEERS = "200 200 200 200 404 404 in"
ADMINS = "200 200 403 200 404 404 in"
OPERATORS = "200 403 403 403 403 403 in"
OPERATORS_OF_IT = "200 403 403 403 404 404 in"
AUDITORS = "200 200 403 200 200 403 in"
DOES = {"200": "303"}


class Sample:
    """An organization of its own with a key, a group, an opt-out, and a person."""

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
        self.person = newcomer(pages, roles={self.slug: "viewer"})
        self.email = self.person.email.replace("@", "%40")
        self.session = session_of(self.person.browser)

    def browser(self, who: str) -> Browser:
        """The browser of one of WHO; a person is made for it."""
        if who == "stranger":
            return self.pages.stranger()
        roles: dict[str, Any] = {
            "admin": {self.slug: "admin"},
            "viewer": {self.slug: "viewer"},
            "both": {self.slug: "admin", "bolt": "viewer"},
            "other": {"bolt": "admin"},
        }
        return newcomer(self.pages, is_administrator=who == "administrator", roles=roles.get(who)).browser

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
    """What the seven are answered; for a post, the page with its form (the same path if empty) and what is filled in.

    `before` is done first by an administrator.
    """

    expected: str
    page: str = ""
    filled: Callable[[Sample], dict[str, Any]] = lambda sample: {}
    before: Callable[[Sample], None] = lambda sample: None

    def of(self, who: str) -> str:
        return self.expected.split()[WHO.index(who)]


def does(expected: str, page: str = "", before: Callable[[Sample], None] = lambda sample: None, **filled: Any) -> Row:
    """A post that is answered by a redirect where it is done; values may be functions of the sample."""
    codes = " ".join(DOES.get(code, code) for code in expected.split())
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
    """What names the session of this browser, found in the database: pages offer to end others alone."""
    found: str = browser.app.value(
        "SELECT session_id FROM sessions WHERE session_hash = :hash", hash=ids.hash_secret(browser.token)
    )
    return found


def form_to(page: Shown, path: str) -> Form:
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
        "200 200 422 200 404 422 in",  # whoever has no such form sends another's
        "/settings/keys/new",
        lambda sample: {
            "label": "New",
            "organizations": [sample.slug],
            "default_organization": sample.slug,
            "permissions": ["read"],
        },
    ),
    f"GET {KEY}": Row(SEERS),
    f"GET {KEY}/sheet": Row(SEERS),
    f"GET {KEY}/edit": Row(ADMINS),
    f"POST {KEY}/edit": does(ADMINS, label="Another"),
    f"POST {KEY}/limits": does(OPERATORS, f"{KEY}/edit", api_per_minute="100"),
    f"GET {KEY}/replace": Row(ADMINS),
    f"POST {KEY}/replace": Row(ADMINS),
    f"GET {KEY}/rotate": Row(ADMINS),
    f"POST {KEY}/rotate": Row(ADMINS),
    f"GET {KEY}/revoke": Row(ADMINS),
    f"POST {KEY}/revoke": does(ADMINS),
    f"GET {KEY}/deactivate": Row(ADMINS),
    f"POST {KEY}/deactivate": does(ADMINS),
    f"GET {KEY}/activate": Row(ADMINS),
    f"POST {KEY}/activate": does(ADMINS, before=deactivated),
    "GET /unsubscribes": Row(SIGNED_IN),
    "POST /unsubscribes": Row(SIGNED_IN, "-", lambda sample: {"address": "ann@example.com"}),
    "GET /unsubscribes/{submission_id}": Row(SEERS),
    "GET /unsubscribes/{submission_id}/reverse": Row(OPERATORS_OF_IT),
    "POST /unsubscribes/{submission_id}/reverse": Row(OPERATORS_OF_IT.replace("200", "303")),
    f"GET {FEED}": Row(SEERS),
    f"GET {FEED}/add": Row(ADMINS),
    f"POST {FEED}/add": does(ADMINS, address="bob@example.com", stated_reason="He called."),
    f"GET {FEED}/{{seq}}": Row(SEERS),
    f"GET {FEED}/{{seq}}/unsubscribe": Row(ADMINS),
    f"POST {FEED}/{{seq}}/unsubscribe": does(ADMINS, stated_reason="She called."),
    f"GET {FEED}/{{seq}}/resubscribe": Row(ADMINS),
    f"POST {FEED}/{{seq}}/resubscribe": does(ADMINS, stated_reason="She wrote.", occurred_at="2047-01-15T07:00"),
    "GET /organizations": Row(SIGNED_IN),
    "GET /organizations/_new": Row(OPERATORS),
    "POST /organizations/_new": does(OPERATORS, slug=lambda sample: new_name(), name="New", default_group=""),
    f"GET {ORG}": Row(SEERS),
    f"GET {ORG}/rename": Row(ADMINS),
    f"POST {ORG}/rename": does(ADMINS, name="Another"),
    f"GET {ORG}/close": Row(OPERATORS),
    f"POST {ORG}/close": does(OPERATORS),
    f"GET {ORG}/groups/new": Row(ADMINS),
    f"POST {ORG}/groups/new": does(ADMINS, name="Offers"),
    f"GET {GROUP}/rename": Row(ADMINS),
    f"POST {GROUP}/rename": does(ADMINS, name="News"),
    f"GET {GROUP}/retire": Row(ADMINS),
    f"POST {GROUP}/retire": does(ADMINS),
    f"GET {GROUP}/default": Row(ADMINS),
    f"POST {GROUP}/default": does(ADMINS, before=another_group),
    f"GET {ORG}/no-default": Row(ADMINS),
    f"POST {ORG}/no-default": does(ADMINS),
    f"GET {ORG}/people/new": Row(ADMINS),
    f"POST {ORG}/people/new": Row(ADMINS, "", lambda sample: {"email": new_address(), "role": "viewer"}),
    f"GET {MEMBER}": Row(ADMINS),
    f"POST {MEMBER}/role": does(ADMINS, MEMBER, role="admin"),
    f"GET {MEMBER}/remove": Row(ADMINS),
    f"POST {MEMBER}/remove": does(ADMINS),
    f"GET {MEMBER}/link": Row(ADMINS),
    # Somebody who has a password: a link would open that account.
    f"POST {MEMBER}/link": Row("200 403 404 403 404 404 in"),
    "GET /settings/people": Row(OPERATORS),
    "GET /settings/people/new": Row(OPERATORS),
    "POST /settings/people/new": Row(
        OPERATORS, "", lambda sample: {"email": new_address(), "org_slug": sample.slug, "role": "viewer"}
    ),
    f"GET {PERSON}": Row(OPERATORS),
    f"POST {PERSON}/role": does(OPERATORS, PERSON, org_slug="bolt", role="admin"),
    f"POST {PERSON}/end-session": does(OPERATORS, PERSON),
    f"GET {PERSON}/link": Row(OPERATORS),
    f"POST {PERSON}/link": Row("200 403 404 403 404 404 in"),
    f"GET {PERSON}/administrator": Row(OPERATORS),
    f"POST {PERSON}/administrator": does(OPERATORS),
    f"GET {PERSON}/no-administrator": Row(OPERATORS),
    f"POST {PERSON}/no-administrator": does(OPERATORS, before=an_administrator),
    f"GET {PERSON}/disable": Row(OPERATORS),
    f"POST {PERSON}/disable": does(OPERATORS),
    f"GET {PERSON}/enable": Row(OPERATORS),
    f"POST {PERSON}/enable": does(OPERATORS, before=disabled),
    f"GET {ACCOUNT}": Row(SIGNED_IN),
    f"POST {ACCOUNT}/password": does(
        SIGNED_IN, ACCOUNT, current=PASSWORD, new="another pass phrase", repeated="another pass phrase"
    ),
    # The session of somebody else.
    f"POST {ACCOUNT}/end-session": Row(
        "303 404 404 404 404 404 in", "-", lambda sample: {"session_id": sample.session}
    ),
    f"POST {ACCOUNT}/end-other-sessions": does(SIGNED_IN, "-"),
    f"GET {ACCOUNT}/two-step": Row(SIGNED_IN),
    f"POST {ACCOUNT}/two-step": Row("422 422 422 422 422 422 in", "", lambda sample: {"code": "000000"}),
    f"GET {ACCOUNT}/two-step-off": Row(SIGNED_IN),
    f"POST {ACCOUNT}/two-step-off": Row("303 303 303 303 303 303 in", "-", lambda sample: {"password": PASSWORD}),
    f"GET {ACCOUNT}/recovery-codes": Row(SIGNED_IN),
    f"POST {ACCOUNT}/recovery-codes": Row("422 422 422 422 422 422 in", "-", lambda sample: {"password": PASSWORD}),
}


def test_every_way_in_has_a_row() -> None:
    """A page that nobody thought about who may see it cannot be there."""
    assert sorted(f"{way.method} {way.path}" for way in ROUTES) == sorted(ROWS)


@pytest.mark.parametrize("way", ROWS)
def test_a_way_in_is_open_to_whom_it_should_be(pages: Pages, way: str) -> None:
    """Even the form that an administrator would send does nothing for somebody who may not."""
    row, sample = ROWS[way], None
    answers: dict[str, str] = {}
    # Those who are refused first: they leave everything as it was for the next one.
    for who in reversed(WHO):
        sample = sample or fresh(pages, row)
        answers[who] = said(asked(way, row, sample, sample.browser(who)))
        if way.startswith("POST") and answers[who] in ("200", "303"):
            sample = None
    assert answers == {who: row.of(who) for who in WHO}


def fresh(pages: Pages, row: Row) -> Sample:
    sample = Sample(pages)
    row.before(sample)
    return sample


def asked(way: str, row: Row, sample: Sample, browser: Browser) -> Shown:
    """The answer to this browser."""
    method, template = way.split()
    path = sample.path(template)
    if method == "GET":
        return browser.get(path)
    values = row.filled(sample)
    if row.page == "-":
        return browser.post(path, values)
    return browser.send(form_of(browser, sample, row.page or template, path), **values)


def form_of(browser: Browser, sample: Sample, page: str, path: str) -> Form:
    """The form as this person has it; as an administrator has it, where this person has none."""
    for somebody in (browser, sample.browser("administrator")):
        found = [form for form in somebody.get(sample.path(page)).forms if form.action.replace("@", "%40") == path]
        if found:
            return found[0]
    raise AssertionError(f"{page} has no form for {path}")


def said(answer: Shown) -> str:
    """The status, or `in` where the answer is to sign in."""
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
def test_ids_of_another_organization_are_not_reached_by_way_of_ones_own(pages: Pages, template: str) -> None:
    """The path says `bolt`, of which this person is admin; the id is another's."""
    sample = Sample(pages)
    browser = sample.browser("other")
    path = sample.path(template)
    assert browser.get(path).status == 404
    if not path.endswith(sample.email):
        assert browser.post(path, {"name": "Taken"}).status in (403, 404)


def test_a_role_that_is_taken_away_is_gone_with_the_next_request(pages: Pages) -> None:
    """The session goes on; what it may does not."""
    sample = Sample(pages)
    browser = sample.person.browser
    assert browser.get(f"/organizations/{sample.slug}").status == 200
    pages.administer(set_role, email=sample.person.email, org_slug=sample.slug, role=None)
    assert browser.get(f"/organizations/{sample.slug}").status == 404

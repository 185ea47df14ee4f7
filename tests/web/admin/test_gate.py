"""Rules for every page: sessions, posts of other sites, headers, malformed requests. docs/interface.md D10, D11."""

import pytest

from stoplist import ids
from stoplist.actor import Role
from stoplist.staff.links import use_link
from stoplist.staff.model import StaffStores
from stoplist.staff.people import create_person, disable_person, new_link
from stoplist.web.admin.cookies import NAME
from stoplist.web.request_context import SIGN_IN_PATH
from tests.builders import ADMINISTRATOR
from tests.web.admin.creation import new_person
from tests.web.admin.opt_outs import new_organization
from tests.web.admin.pages import PASSWORD, QUICK, SECRET_KEYS, Browser, Pages, email, read
from tests.web.application import BASE_URL, FORM

A_PAGE = "/settings/keys"
RIGHT_TO_LEFT = "\u202egnissal\u202c"


def key_with_label(pages: Pages, label: str) -> str:
    """Create a key on the page and return its client_id."""
    browser = pages.signed_in("administrator")
    form = browser.get("/settings/keys/new").form("/settings/keys/new")
    made = browser.send(form, label=label, organizations=["acme"], default_organization="acme", permissions=["read"])
    assert made.status == 200, made.text
    return dict(form.values)["client_id"].partition(".")[0]


@pytest.mark.parametrize("target", [A_PAGE, "/", SIGN_IN_PATH, "/settings/nothing", "/organizations/none-such"])
def test_every_page_has_the_security_headers(pages: Pages, target: str) -> None:
    """No caching, inline code, foreign content or framing; errors included."""
    shown = pages.signed_in("administrator").get(target)
    policy = shown.header("content-security-policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert shown.header("cache-control") == "no-store"
    assert shown.header("x-frame-options") == "DENY"
    assert shown.header("referrer-policy") == "same-origin"
    for forbidden in (" style=", "<style", " onclick=", "javascript:", "http://"):
        assert forbidden not in shown.html


def test_sign_in_leads_back_to_the_requested_page(pages: Pages) -> None:
    stranger = pages.stranger()
    sent = stranger.get(A_PAGE)
    assert (sent.status, sent.location) == (303, f"{SIGN_IN_PATH}?next=%2Fsettings%2Fkeys")
    form = stranger.follow(sent).form(SIGN_IN_PATH)
    inside = stranger.send(form, email=email("viewer"), password=PASSWORD)
    assert (inside.status, inside.location) == (303, A_PAGE)
    assert "API Keys" in stranger.follow(inside).title


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example/",
        "//evil.example/",
        "//[",
        "/\\evil.example",
        "evil",
        "/settings/sign-in",
        "/\t/evil.example",
    ],
)
def test_sign_in_never_leads_to_another_site(pages: Pages, elsewhere: str) -> None:
    stranger = pages.stranger()
    inside = stranger.submit_form(SIGN_IN_PATH, email=email("viewer"), password=PASSWORD, next=elsewhere)
    assert (inside.status, inside.location) == (303, "/")


def test_the_session_cookie_is_bound_to_this_host(pages: Pages) -> None:
    """`__Host-`, Secure, HttpOnly, SameSite (RFC 6265bis)."""
    stranger = pages.stranger()
    inside = stranger.submit_form(SIGN_IN_PATH, email=email("viewer"), password=PASSWORD)
    cookie = inside.header("set-cookie")
    assert cookie is not None
    name, _, attributes = cookie.partition("=")
    assert name.startswith("__Host-")
    assert {"Secure", "HttpOnly", "SameSite=Lax", "Path=/"} <= set(attributes.split("; "))
    assert "Domain" not in cookie


def test_sign_in_replaces_a_planted_session(pages: Pages) -> None:
    """Against session fixation: the token is always new, and the earlier session ends."""
    attacker = pages.stranger()
    first = attacker.get(SIGN_IN_PATH).form(SIGN_IN_PATH)
    attacker.send(first, email=email("other"), password=PASSWORD)
    planted = attacker.token
    victim = Browser(pages.app, planted)
    form = first
    victim.send(form, email=email("viewer"), password=PASSWORD)
    assert victim.token
    assert victim.token != planted
    assert Browser(pages.app, planted).get(A_PAGE).status == 303


def test_sign_out_ends_the_session(pages: Pages) -> None:
    """A copy of the cookie is worthless."""
    browser = pages.stranger()
    browser.submit_form(SIGN_IN_PATH, email=email("viewer"), password=PASSWORD)
    token = browser.token
    out = browser.post("/settings/sign-out")
    assert out.status == 303
    assert browser.token == ""
    assert Browser(pages.app, token).get(A_PAGE).status == 303


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none", "SAME-ORIGIN", "same-origin,cross-site"])
def test_a_post_of_another_site_is_refused(pages: Pages, site: str) -> None:
    """According to `Sec-Fetch-Site`; a sibling subdomain is another site."""
    browser = pages.signed_in("administrator")
    client_id = key_with_label(pages, "To be kept")
    refused = browser.post(f"/settings/keys/{client_id}/deactivate", site=site)
    assert refused.status == 403
    assert "was not sent from" in refused.text
    assert "Active" in browser.get(f"/settings/keys/{client_id}").text


@pytest.mark.parametrize(
    ("origin", "status"),
    [(BASE_URL, 303), ("https://evil.example", 403), ("null", 403), (f"{BASE_URL}.evil.example", 403), (None, 403)],
)
def test_without_fetch_metadata_the_origin_decides(pages: Pages, origin: str | None, status: int) -> None:
    """Older browsers send only `Origin`; a request with neither is refused."""
    browser = pages.signed_in("administrator")
    headers = [FORM] if origin is None else [FORM, ("origin", origin)]
    answer = browser.request("POST", f"/settings/keys/{key_with_label(pages, 'Another')}/revoke", *headers)
    assert answer.status == status


def test_an_access_token_opens_no_page(pages: Pages) -> None:
    """It is refused as a bearer token and in the cookie."""
    token = pages.app.pair(pages.app.new_key())["access_token"]
    assert pages.stranger().get(A_PAGE, ("authorization", f"Bearer {token}")).status == 303
    assert Browser(pages.app, token).get(A_PAGE).status == 303


def test_a_session_does_not_open_the_api(pages: Pages) -> None:
    """It is refused as a cookie and as a bearer token."""
    browser = pages.signed_in("administrator")
    operation = "/api/v1/unsubscribe/email"
    assert browser.request("GET", operation).status == 401
    assert pages.app.call(browser.token, operation).status == 401


def test_unknown_session_tokens_are_refused(pages: Pages) -> None:
    """Made-up, malformed and doubled."""
    for token in (ids.new_secret(ids.SESSION), "x", f"a; {NAME}=b", "\x80"):
        assert Browser(pages.app, token).get(A_PAGE).status == 303


@pytest.mark.parametrize(
    "label", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}", "a & b"]
)
def test_labels_are_escaped(pages: Pages, label: str) -> None:
    """Titles and attributes are, too."""
    client_id = key_with_label(pages, label)
    browser = pages.signed_in("administrator")
    for page in ("", "/edit", "/sheet", "/deactivate"):
        shown = browser.get(f"/settings/keys/{client_id}{page}")
        assert shown.status == 200
        assert label in shown.text
        assert label in shown.title or page == "/edit"
        assert "<script>alert" not in shown.html
        assert "<img src=x" not in shown.html


@pytest.mark.parametrize("label", ["x" * 10_000, RIGHT_TO_LEFT, "two\nlines", " "])
def test_an_invalid_label_is_refused_and_kept(pages: Pages, label: str) -> None:
    """10 000 characters, text direction marks, several lines."""
    browser = pages.signed_in("administrator")
    refused = browser.submit_form("/settings/keys/new", label=label, organizations=["acme"], permissions=["read"])
    assert refused.status == 422
    assert 'id="label-problem"' in refused.html
    assert 'aria-invalid="true"' in refused.html
    kept = dict(refused.form("/settings/keys/new").values)["label"]
    assert kept.split() == label.split()


def test_two_different_session_cookies_are_refused(pages: Pages) -> None:
    """Either of them could be planted."""
    token = pages.signed_in("viewer").token
    assert Browser(pages.app, token).get(A_PAGE).status == 200
    assert Browser(pages.app, f"{token}; {NAME}={token}").get(A_PAGE).status == 200
    assert Browser(pages.app, f"{token}; {NAME}={pages.signed_in('admin').token}").get(A_PAGE).status == 303


def test_a_session_inside_another_cookie_is_ignored(pages: Pages) -> None:
    """A sibling host may set other cookies for this one; what they hide signs nobody in."""
    planted = pages.signed_in("other").token
    for hidden in (f"x=1,{NAME}={planted}", f"x=1\x0b;\x0b{NAME}={planted}", f"x={NAME}={planted}"):
        assert read(pages.stranger().request("GET", A_PAGE, ("cookie", hidden))).status == 303


def test_several_cookie_fields_are_joined(pages: Pages) -> None:
    """HTTP/2 splits the field at its semicolons (RFC 9113 section 8.2.3)."""
    token = pages.signed_in("viewer").token
    shown = pages.stranger().get(A_PAGE, ("cookie", "a=b"), ("cookie", f"{NAME}={token}"))
    assert shown.status == 200


def test_rights_are_checked_after_a_form_has_arrived(pages: Pages) -> None:
    """A form may take a minute: the session and rights at its end count."""
    pages.administer(create_person, email="boss@people.example", is_administrator=True)
    link = pages.administer(new_link, email="boss@people.example")
    stores = StaffStores(pages.app.database, pages.app.clock, SECRET_KEYS, QUICK)
    using = use_link(ADMINISTRATOR, stores, link_token=link.link_token, password=PASSWORD, user_agent="a test")
    token = pages.app.run(using).session_token

    async def disable() -> None:
        await disable_person(ADMINISTRATOR, pages.app.database, pages.app.clock, email="boss@people.example")

    headers: list[tuple[str, str | bytes]] = [("sec-fetch-site", "same-origin"), ("cookie", f"{NAME}={token}")]
    body = b"email=back@people.example&role=administrator"
    answer = pages.app.request("POST", "/settings/people/new", headers=[FORM, *headers], body=body, meanwhile=disable)
    assert (answer.status, answer.header("location")) == (303, SIGN_IN_PATH)
    assert pages.app.value("SELECT COUNT(*) AS n FROM people WHERE email = 'back@people.example'") == 0


def test_a_form_of_another_content_type_is_refused(pages: Pages) -> None:
    """Another site could send text/plain without a preflight."""
    browser = pages.signed_in("administrator")
    plain = ("content-type", "text/plain")
    answer = browser.request("POST", "/settings/keys/new", plain, ("sec-fetch-site", "same-origin"), body=b"label=x")
    assert answer.status == 422
    assert b"unsupported format" in answer.body


def test_an_unsupported_method_is_refused(pages: Pages) -> None:
    """405 with `Allow`, as a page."""
    answer = pages.signed_in("viewer").request("DELETE", A_PAGE)
    assert answer.status == 405
    assert answer.header("allow") == "GET, HEAD"


def test_an_unknown_path_is_a_page_with_links(pages: Pages) -> None:
    shown = pages.signed_in("viewer").get("/organizations/acme/none/such/page")
    assert shown.status == 404
    assert "/" in shown.links


@pytest.mark.parametrize("body", [b"label=%ff", b"label=a%00b", b"&".join([b"a=b"] * 2000), b"label=" + b"x" * 300_000])
def test_a_malformed_form_is_refused(pages: Pages, body: bytes) -> None:
    """Undecodable bytes, NUL, too many fields, too much."""
    browser = pages.signed_in("administrator")
    answer = browser.request("POST", "/settings/keys/new", FORM, ("sec-fetch-site", "same-origin"), body=body)
    assert answer.status == 400
    assert b"<!doctype html>" in answer.body


def test_the_log_names_the_person_who_is_signed_in(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    browsers = pages.signed_in("viewer"), pages.stranger()
    people: list[str | None] = []
    monkeypatch.setattr("stoplist.log.log_request", lambda **line: people.append(line["person"]))
    for browser in browsers:
        browser.get(A_PAGE)
    assert people == [email("viewer"), None]


def test_a_stranger_may_send_a_small_form_alone(pages: Pages) -> None:
    """A form that is never finished is held for a minute: before signing in it may be 8 KiB, not 256."""
    body = b"email=a%40b.example&password=" + b"x" * 9_000
    answer = pages.stranger().request("POST", SIGN_IN_PATH, FORM, ("sec-fetch-site", "same-origin"), body=body)
    assert answer.status == 400
    assert b"larger than 8 KiB" in answer.body


def test_assets_are_cached_for_ever(pages: Pages) -> None:
    """Their path changes with their content."""
    shown = pages.stranger().get(SIGN_IN_PATH)
    (style,) = [
        part.split('"')[0]
        for part in shown.html.split('href="')
        if part.startswith("/settings/assets/") and ".css" in part
    ]
    answer = pages.stranger().request("GET", style)
    assert answer.status == 200
    assert answer.header("content-type") == "text/css; charset=utf-8"
    assert "immutable" in (answer.header("cache-control") or "")


@pytest.mark.parametrize("role", ["viewer", "admin"])
def test_no_link_leads_to_what_the_person_may_not_do(pages: Pages, role: Role) -> None:
    """Section D11: pages offer nothing that they would refuse."""
    partner = new_organization(pages)
    partner.submit("a@example.com", {"address": "b@example.com", "reason": "complaint"})
    browser = new_person(pages, roles={partner.slug: role}).browser
    seen, to_visit = {"/"}, ["/"]
    while to_visit:
        path = to_visit.pop()
        shown = browser.get(path)
        assert shown.status == 200, path
        links = {link.partition("#")[0] for link in shown.links if link.startswith(("/", f"{path}?"))}
        new = {link for link in links if not link.startswith(("/docs", "/openapi", "/assets"))} - seen
        seen |= new
        to_visit += sorted(new)
    assert len(seen) > 10

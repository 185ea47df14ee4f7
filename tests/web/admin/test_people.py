"""Settings → People, for administrators: who there is, and what each may. docs/interface.md section D11."""

from urllib.parse import quote

import pytest

from stoplist.staff.people import disable_person
from tests.web.admin.creation import (
    NewPerson,
    link_path,
    new_address,
    new_person,
    organization,
    person,
    sign_in,
    turn_two_step_on,
    use_shown_link,
)
from tests.web.admin.pages import PASSWORD, Browser, Pages, email
from tests.web.application import FORM

PEOPLE, NEW = "/settings/people", "/settings/people/new"


def row_of(browser: Browser, address: str) -> str:
    """Return the HTML of one person's row in the table."""
    html = browser.get(PEOPLE).html
    return html.partition(f'href="{PEOPLE}/{quote(address, safe="")}"')[2].partition("</tr>")[0]


def test_an_administrator_sees_everyone(pages: Pages) -> None:
    browser, known = pages.signed_in("administrator"), new_person(pages, roles={"acme": "admin", "bolt": "viewer"})
    row = row_of(browser, known.email)
    for text in (">acme</a> (admin)", ">bolt</a> (viewer)", "Active", "UTC", "Off"):
        assert text in row
    pages.administer(disable_person, email=known.email)
    assert "Disabled" in row_of(browser, known.email)


@pytest.mark.parametrize("name", ["admin", "viewer", "nobody"])
@pytest.mark.parametrize(
    "path", ["", "/new", "/PERSON", "/PERSON/link", "/PERSON/disable", "/PERSON/enable", "/PERSON/administrator"]
)
def test_only_administrators_reach_these_pages(pages: Pages, name: str, path: str) -> None:
    """Pages and forms are refused, for others or themselves, and whether or not the person exists."""
    browser = pages.signed_in(name)
    for address in (email("viewer"), email(name), new_address()):
        target = PEOPLE + path.replace("PERSON", quote(address))
        assert browser.get(target).status == 403
    for action in ("administrator", "no-administrator", "disable", "enable", "role", "end-session"):
        target = f"{PEOPLE}/{quote(email(name))}/{action}"
        assert browser.post(target, {"org_slug": "acme", "role": "admin"}).status == 403
    assert PEOPLE not in browser.get("/settings/account").links


def test_a_new_person_gets_a_link_that_is_shown_once(pages: Pages) -> None:
    """Sending the form twice shows no link and creates no second person."""
    browser, address = pages.signed_in("administrator"), new_address()
    form = browser.get(NEW).form(NEW)
    made = browser.send(form, email=address, role="admin", org_slug="acme")
    assert made.status == 200
    assert made.header("cache-control") == "no-store"
    token = link_path(made).partition("token=")[2]
    again = browser.send(form, email=address, role="admin", org_slug="acme")
    assert again.status == 422
    assert 'id="email-problem"' in again.html
    assert token not in again.html
    assert "Invited" in row_of(browser, address)
    assert token not in browser.get(f"{PEOPLE}/{quote(address)}").html
    assert use_shown_link(pages, made).status == 303
    assert person(pages, address).roles == {"acme": "admin"}


def test_a_person_may_start_as_administrator_or_without_access(pages: Pages) -> None:
    """The form's organization is then ignored."""
    browser, address, other = pages.signed_in("administrator"), new_address(), new_address()
    assert browser.submit_form(NEW, email=address, role="administrator", org_slug="acme").status == 200
    assert browser.submit_form(NEW, email=other, role="none", org_slug="acme").status == 200
    assert (person(pages, address).is_administrator, person(pages, address).roles) == (True, {})
    assert (person(pages, other).is_administrator, person(pages, other).roles) == (False, {})


@pytest.mark.parametrize(
    ("field", "value"),
    [("email", "nobody"), ("email", email("admin")), ("role", "owner"), ("org_slug", "")],
)
def test_an_invalid_value_is_refused_and_kept(pages: Pages, field: str, value: str) -> None:
    typed = {"email": new_address(), "role": "viewer", "org_slug": "acme"} | {field: value}
    refused = pages.signed_in("administrator").submit_form(NEW, **typed)
    assert refused.status == 422
    assert f'id="{field}-problem"' in refused.html
    kept = dict(refused.form(NEW).values)
    assert {name: kept[name] for name in typed if name != "role"} == {
        name: text for name, text in typed.items() if name != "role"
    }


def test_an_unknown_address_is_not_found(pages: Pages) -> None:
    assert pages.signed_in("administrator").get(f"{PEOPLE}/{quote(new_address())}").status == 404
    assert pages.signed_in("administrator").get(f"{PEOPLE}/none").status == 404


def test_a_role_is_added_and_applies_at_once(pages: Pages) -> None:
    """Only organizations in which the person has no role are offered."""
    browser, other, slug = pages.signed_in("administrator"), new_person(pages), organization(pages)
    assert other.browser.get(f"/organizations/{slug}").status == 404
    form = browser.get(other.page).form(f"{other.page}/role")
    done = browser.send(form, org_slug=slug, role="viewer")
    assert done.location == f"{other.page}?note=role-set"
    assert other.browser.get(f"/organizations/{slug}").status == 200
    shown = browser.follow(done)
    assert other.page_in(slug) in shown.links
    assert f'<option value="{slug}"' not in shown.html


@pytest.mark.parametrize(("field", "value"), [("org_slug", ""), ("role", "owner")])
def test_an_invalid_role_is_refused_and_named(pages: Pages, field: str, value: str) -> None:
    browser, other = pages.signed_in("administrator"), new_person(pages)
    typed = {"org_slug": "acme", "role": "viewer"} | {field: value}
    refused = browser.send(browser.get(other.page).form(f"{other.page}/role"), **typed)
    assert refused.status == 422
    assert f'id="{field}-problem"' in refused.html
    assert person(pages, other.email).roles == {}


def test_administrators_are_added_and_removed(pages: Pages) -> None:
    """A page states the consequences first; the change applies to the next page the person opens."""
    browser, other = pages.signed_in("administrator"), new_person(pages)
    path = f"{other.page}/administrator"
    assert path in browser.get(other.page).links
    assert "full access" in browser.get(path).text
    done = browser.submit_form(path)
    assert done.location == f"{other.page}?note=administrator-made"
    assert other.browser.get(PEOPLE).status == 200
    path = f"{other.page}/no-administrator"
    assert path in browser.follow(done).links
    assert browser.submit_form(path).location == f"{other.page}?note=administrator-unmade"
    assert other.browser.get(PEOPLE).status == 403


def test_an_account_is_disabled_and_enabled(pages: Pages) -> None:
    """Disabling ends sessions and links at once; enabling restores no session."""
    browser, other = pages.signed_in("administrator"), new_person(pages)
    link = browser.submit_form(f"{other.page}/link")
    path = f"{other.page}/disable"
    assert "sessions end immediately" in browser.get(path).text
    done = browser.submit_form(path)
    assert done.location == f"{other.page}?note=person-disabled"
    assert other.browser.get("/organizations").status == 303
    assert pages.stranger().get(link_path(link)).status == 404
    assert sign_in(pages, other.email)[1].status == 422
    shown = browser.follow(done)
    assert f"{other.page}/link" not in shown.links
    refused = browser.post(f"{other.page}/link")
    assert refused.status == 422
    assert "Enable it first" in refused.text
    assert browser.submit_form(f"{other.page}/enable").location == f"{other.page}?note=person-enabled"
    assert other.browser.get("/organizations").status == 303
    assert sign_in(pages, other.email)[1].status == 303


@pytest.mark.parametrize("action", ["no-administrator", "disable"])
def test_administrators_cannot_lock_themselves_out(pages: Pages, action: str) -> None:
    """Somebody who can undo it must remain."""
    me = new_person(pages, is_administrator=True)
    assert f"{me.page}/{action}" not in me.browser.get(me.page).links
    refused = me.browser.post(f"{me.page}/{action}")
    assert refused.status == 403
    assert "Ask another administrator" in refused.text


def test_a_new_link_replaces_earlier_ones(pages: Pages) -> None:
    """It is shown once, and the password stays valid until the link is used."""
    browser, other = pages.signed_in("administrator"), new_person(pages)
    path = f"{other.page}/link"
    before = browser.get(path)
    assert "Earlier links stop working" in before.text
    assert "Turn off when" not in before.text
    first = browser.send(before.form(path))
    second = browser.send(before.form(path))
    assert link_path(first) != link_path(second)
    assert link_path(first) not in second.html
    assert "24 hours" in before.text
    assert "It will not be shown again" in second.text
    assert pages.stranger().get(link_path(first)).status == 404
    assert other.browser.get("/organizations").status == 200
    assert use_shown_link(pages, second, repeated=PASSWORD + " ").status == 422
    assert use_shown_link(pages, second).status == 303
    assert other.browser.get("/organizations").status == 303
    assert pages.stranger().get(link_path(second)).status == 404


def test_a_link_turns_two_step_sign_in_off_on_request(pages: Pages) -> None:
    """Otherwise the code is asked for after the new password."""
    browser, other = pages.signed_in("administrator"), new_person(pages)
    turn_two_step_on(pages, other.browser)
    path = f"{other.page}/link"
    assert "lost both the authenticator app and the recovery codes" in browser.get(path).text
    asked = use_shown_link(pages, browser.submit_form(path))
    assert asked.status == 200
    assert "Enter your code" in asked.title
    assert person(pages, other.email).has_two_step
    assert use_shown_link(pages, browser.submit_form(path, without_two_step="yes")).status == 303
    assert not person(pages, other.email).has_two_step


def test_an_administrator_ends_a_persons_session(pages: Pages) -> None:
    browser, other = pages.signed_in("administrator"), new_person(pages)
    second, _ = sign_in(pages, other.email)
    forms = [form for form in browser.get(other.page).forms if form.action == f"{other.page}/end-session"]
    assert len(forms) == 2
    done = browser.send(forms[0])
    assert done.location == f"{other.page}?note=session-ended"
    assert sorted(one.get("/organizations").status for one in (other.browser, second)) == [200, 303]
    assert browser.send(forms[0]).status == 404


def test_an_admin_of_an_organization_ends_no_sessions(pages: Pages) -> None:
    """The person's page refuses it, and so does the admin's own account."""
    other = new_person(pages, roles={"acme": "viewer"})
    forms = pages.signed_in("administrator").get(other.page).forms
    (form,) = [form for form in forms if form.action == f"{other.page}/end-session"]
    admin = pages.signed_in("admin")
    assert admin.send(form).status == 403
    assert admin.post("/settings/account/end-session", form.values).status == 404
    assert other.browser.get("/organizations").status == 200


def sign_in_with(pages: Pages, person: NewPerson, user_agent: str) -> None:
    browser = pages.stranger()
    form = browser.get("/settings/sign-in").form("/settings/sign-in")
    body = "&".join(f"{name}={quote(value)}" for name, value in form.filled(email=person.email, password=PASSWORD))
    headers = (FORM, ("sec-fetch-site", "same-origin"), ("user-agent", user_agent))
    browser.request("POST", form.action, *headers, body=body.encode())


def test_a_session_shows_browser_and_system_in_words(pages: Pages) -> None:
    """The text that the browser sent is in the title."""
    person = new_person(pages)
    sign_in_with(pages, person, "Mozilla/5.0 (Windows NT 10.0; rv:128.0) Gecko/20100101 Firefox/128.0")
    shown = pages.signed_in("administrator").get(person.page)
    assert "Firefox 128 on Windows" in shown.text
    assert 'title="Mozilla/5.0 (Windows NT 10.0; rv:128.0)' in shown.html


def test_user_agents_are_escaped(pages: Pages) -> None:
    other = new_person(pages)
    sign_in_with(pages, other, "<script>alert(1)</script>")
    shown = pages.signed_in("administrator").get(other.page)
    assert "<script>alert(1)</script>" in shown.text
    assert "<script>alert" not in shown.html

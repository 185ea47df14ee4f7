"""Settings → People, for administrators: who there is, and what each may. docs/interface.md section D11."""

from urllib.parse import quote

import pytest

from stoplist.staff.people import disable_person
from tests.web.admin.newcomers import (
    Newcomer,
    link_path,
    new_address,
    newcomer,
    organization,
    person,
    sign_in,
    turn_two_step_on,
    use_shown_link,
)
from tests.web.admin.pages import PASSWORD, Browser, Pages, Shown, email
from tests.web.application import FORM

PEOPLE, NEW = "/settings/people", "/settings/people/new"


def sent(browser: Browser, path: str, **changes: str | None) -> Shown:
    """The answer to the form of that page, filled in."""
    return browser.send(browser.get(path).form(path), **changes)


def row_of(browser: Browser, address: str) -> str:
    """What the table of people says of one."""
    html = browser.get(PEOPLE).html
    return html.partition(f'href="{PEOPLE}/{quote(address, safe="")}"')[2].partition("</tr>")[0]


def test_an_administrator_sees_everybody(pages: Pages) -> None:
    """Right, roles, two-step sign-in, last sign-in, state."""
    browser, known = pages.signed_in("administrator"), newcomer(pages, roles={"acme": "admin", "bolt": "viewer"})
    row = row_of(browser, known.email)
    for text in (">acme</a> (admin)", ">bolt</a> (viewer)", "Active", "UTC", "Off"):
        assert text in row
    pages.administer(disable_person, email=known.email)
    assert "Disabled" in row_of(browser, known.email)


@pytest.mark.parametrize("name", ["admin", "viewer", "nobody"])
@pytest.mark.parametrize(
    "path", ["", "/new", "/PERSON", "/PERSON/link", "/PERSON/disable", "/PERSON/enable", "/PERSON/administrator"]
)
def test_nobody_else_gets_there(pages: Pages, name: str, path: str) -> None:
    """Neither pages nor forms, of others nor of oneself; and nobody learns who there is."""
    browser = pages.signed_in(name)
    for address in (email("viewer"), email(name), new_address()):
        target = PEOPLE + path.replace("PERSON", quote(address))
        assert browser.get(target).status == 403
    for way in ("administrator", "no-administrator", "disable", "enable", "role", "end-session"):
        target = f"{PEOPLE}/{quote(email(name))}/{way}"
        assert browser.post(target, {"org_slug": "acme", "role": "admin"}).status == 403
    assert PEOPLE not in browser.get("/settings/account").links


def test_somebody_new_is_added_with_a_link_that_is_shown_once(pages: Pages) -> None:
    """The form that is sent twice shows none and makes no second person."""
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
    assert "Link not used yet" in row_of(browser, address)
    assert token not in browser.get(f"{PEOPLE}/{quote(address)}").html
    assert use_shown_link(pages, made).status == 303
    assert person(pages, address).roles == {"acme": "admin"}


def test_an_administrator_can_be_added_and_so_can_somebody_without_a_right(pages: Pages) -> None:
    """An organization that stays chosen in the form means nothing then."""
    browser, address, other = pages.signed_in("administrator"), new_address(), new_address()
    assert sent(browser, NEW, email=address, role="administrator", org_slug="acme").status == 200
    assert sent(browser, NEW, email=other, role="none", org_slug="acme").status == 200
    assert (person(pages, address).is_administrator, person(pages, address).roles) == (True, {})
    assert (person(pages, other).is_administrator, person(pages, other).roles) == (False, {})


@pytest.mark.parametrize(
    ("field", "value"),
    [("email", "nobody"), ("email", email("admin")), ("role", "owner"), ("org_slug", "")],
)
def test_what_cannot_be_is_refused_beside_its_field_and_stays_in_it(pages: Pages, field: str, value: str) -> None:
    """The form comes back as it was typed."""
    typed = {"email": new_address(), "role": "viewer", "org_slug": "acme"} | {field: value}
    refused = sent(pages.signed_in("administrator"), NEW, **typed)
    assert refused.status == 422
    assert f'id="{field}-problem"' in refused.html
    kept = dict(refused.form(NEW).values)
    assert {name: kept[name] for name in typed if name != "role"} == {
        name: text for name, text in typed.items() if name != "role"
    }


def test_an_address_of_nobody_has_no_page(pages: Pages) -> None:
    """404."""
    assert pages.signed_in("administrator").get(f"{PEOPLE}/{quote(new_address())}").status == 404
    assert pages.signed_in("administrator").get(f"{PEOPLE}/none").status == 404


def test_a_role_is_given_on_the_persons_page_and_holds_at_once(pages: Pages) -> None:
    """Only organizations in which there is none yet are offered."""
    browser, other, slug = pages.signed_in("administrator"), newcomer(pages), organization(pages)
    assert other.browser.get(f"/organizations/{slug}").status == 404
    form = browser.get(other.page).form(f"{other.page}/role")
    done = browser.send(form, org_slug=slug, role="viewer")
    assert done.location == f"{other.page}?note=role-set"
    assert other.browser.get(f"/organizations/{slug}").status == 200
    shown = browser.follow(done)
    assert other.page_in(slug) in shown.links
    assert f'<option value="{slug}"' not in shown.html


@pytest.mark.parametrize(("field", "value"), [("org_slug", ""), ("role", "owner")])
def test_a_role_that_is_none_is_refused_beside_its_field(pages: Pages, field: str, value: str) -> None:
    """The page comes back with the message."""
    browser, other = pages.signed_in("administrator"), newcomer(pages)
    typed = {"org_slug": "acme", "role": "viewer"} | {field: value}
    refused = browser.send(browser.get(other.page).form(f"{other.page}/role"), **typed)
    assert refused.status == 422
    assert f'id="{field}-problem"' in refused.html
    assert person(pages, other.email).roles == {}


def test_an_administrator_is_made_and_unmade_after_pages_that_say_so(pages: Pages) -> None:
    """Either holds from the person's next page on."""
    browser, other = pages.signed_in("administrator"), newcomer(pages)
    path = f"{other.page}/administrator"
    assert path in browser.get(other.page).links
    assert "may do everything" in browser.get(path).text
    done = sent(browser, path)
    assert done.location == f"{other.page}?note=administrator-made"
    assert other.browser.get(PEOPLE).status == 200
    path = f"{other.page}/no-administrator"
    assert path in browser.follow(done).links
    assert sent(browser, path).location == f"{other.page}?note=administrator-unmade"
    assert other.browser.get(PEOPLE).status == 403


def test_a_person_is_disabled_and_enabled_after_pages_that_say_so(pages: Pages) -> None:
    """Disabling ends sessions and links at once; enabling brings no session back."""
    browser, other = pages.signed_in("administrator"), newcomer(pages)
    link = sent(browser, f"{other.page}/link")
    path = f"{other.page}/disable"
    assert "sessions end at once" in browser.get(path).text
    done = sent(browser, path)
    assert done.location == f"{other.page}?note=person-disabled"
    assert other.browser.get("/organizations").status == 303
    assert pages.stranger().get(link_path(link)).status == 404
    assert sign_in(pages, other.email)[1].status == 422
    shown = browser.follow(done)
    assert f"{other.page}/link" not in shown.links
    refused = browser.post(f"{other.page}/link")
    assert refused.status == 422
    assert "enable the account first" in refused.text
    assert sent(browser, f"{other.page}/enable").location == f"{other.page}?note=person-enabled"
    assert other.browser.get("/organizations").status == 303
    assert sign_in(pages, other.email)[1].status == 303


@pytest.mark.parametrize("way", ["no-administrator", "disable"])
def test_nobody_closes_the_door_to_himself(pages: Pages, way: str) -> None:
    """It is not offered, and refused: somebody who can undo it must remain."""
    me = newcomer(pages, is_administrator=True)
    assert f"{me.page}/{way}" not in me.browser.get(me.page).links
    refused = me.browser.post(f"{me.page}/{way}")
    assert refused.status == 403
    assert "ask another administrator" in refused.text


def test_a_new_link_replaces_the_one_before_and_is_shown_once(pages: Pages) -> None:
    """The page says so; the password is good until the link is used."""
    browser, other = pages.signed_in("administrator"), newcomer(pages)
    path = f"{other.page}/link"
    before = browser.get(path)
    assert "A link that was made before is dead from then on" in before.text
    assert "Turn it off" not in before.text
    first = browser.send(before.form(path))
    second = browser.send(before.form(path))
    assert link_path(first) != link_path(second)
    assert link_path(first) not in second.html
    assert "24 hours" in before.text
    assert "it is not shown again" in second.text
    assert pages.stranger().get(link_path(first)).status == 404
    assert other.browser.get("/organizations").status == 200
    assert use_shown_link(pages, second).status == 303
    assert other.browser.get("/organizations").status == 303
    assert pages.stranger().get(link_path(second)).status == 404


def test_a_link_can_turn_two_step_sign_in_off_where_an_administrator_says_so(pages: Pages) -> None:
    """Not otherwise: then the code is asked for after the new password."""
    browser, other = pages.signed_in("administrator"), newcomer(pages)
    turn_two_step_on(pages, other.browser)
    path = f"{other.page}/link"
    assert "lost both the authenticator app and the recovery codes" in browser.get(path).text
    asked = use_shown_link(pages, sent(browser, path))
    assert asked.status == 200
    assert "Enter the code" in asked.title
    assert person(pages, other.email).has_two_step
    assert use_shown_link(pages, sent(browser, path, without_two_step="yes")).status == 303
    assert not person(pages, other.email).has_two_step


def test_an_administrator_sees_and_ends_a_persons_sessions(pages: Pages) -> None:
    """At once; the others go on."""
    browser, other = pages.signed_in("administrator"), newcomer(pages)
    second, _ = sign_in(pages, other.email)
    forms = [form for form in browser.get(other.page).forms if form.action == f"{other.page}/end-session"]
    assert len(forms) == 2
    done = browser.send(forms[0])
    assert done.location == f"{other.page}?note=session-ended"
    assert sorted(one.get("/organizations").status for one in (other.browser, second)) == [200, 303]
    assert browser.send(forms[0]).status == 404


def test_an_organizations_admin_ends_nobodys_session(pages: Pages) -> None:
    """Neither there nor by way of his own account."""
    other = newcomer(pages, roles={"acme": "viewer"})
    forms = pages.signed_in("administrator").get(other.page).forms
    (form,) = [form for form in forms if form.action == f"{other.page}/end-session"]
    admin = pages.signed_in("admin")
    assert admin.send(form).status == 403
    assert admin.post("/settings/account/end-session", form.values).status == 404
    assert other.browser.get("/organizations").status == 200


def test_what_a_browser_says_of_itself_is_escaped(pages: Pages) -> None:
    """It comes from whoever signs in."""
    other: Newcomer = newcomer(pages)
    browser = pages.stranger()
    form = browser.get("/settings/sign-in").form("/settings/sign-in")
    body = "&".join(f"{name}={quote(value)}" for name, value in form.filled(email=other.email, password=PASSWORD))
    agent = ("user-agent", "<script>alert(1)</script>")
    browser.request("POST", form.action, FORM, ("sec-fetch-site", "same-origin"), agent, body=body.encode())
    shown = pages.signed_in("administrator").get(other.page)
    assert "<script>alert(1)</script>" in shown.text
    assert "<script>alert" not in shown.html

"""An organization's page: its groups, its people, its name and its end. docs/interface.md sections D5 and D11."""

import pytest

from stoplist.organizations.groups import create_group
from stoplist.organizations.organizations import close_organization
from tests.web.admin.newcomers import (
    Newcomer,
    groups,
    link_path,
    new_address,
    newcomer,
    organization,
    person,
    use_shown_link,
)
from tests.web.admin.pages import Browser, Pages, Shown, email


def sent(browser: Browser, path: str, **changes: str | None) -> Shown:
    """The answer to the form of that page, filled in."""
    return browser.send(browser.get(path).form(path), **changes)


def admin_of(pages: Pages, slug: str) -> Newcomer:
    return newcomer(pages, roles={slug: "admin"})


# What it shows, and to whom.


def test_a_viewer_sees_groups_and_ways_but_no_people_and_no_buttons(pages: Pages) -> None:
    """What a person cannot do is not offered."""
    shown = pages.signed_in("viewer").get("/organizations/acme")
    assert shown.status == 200
    assert "Newsletter" in shown.text
    assert {f"/unsubscribes/acme/{channel}" for channel in ("email", "sms", "phone")} <= set(shown.links)
    assert "/settings/keys" in shown.links
    assert [link for link in shown.links if link.startswith("/organizations/acme/")] == []
    assert [form.action for form in shown.forms] == ["/settings/sign-out"]
    assert email("admin") not in shown.text


def test_an_admin_sees_who_has_which_role(pages: Pages) -> None:
    """Those of the organization, and their roles there."""
    shown = pages.signed_in("admin").get("/organizations/acme")
    assert email("viewer") in shown.text
    assert email("other") not in shown.text
    assert "/organizations/acme/people/viewer%40people.example" in shown.links


@pytest.mark.parametrize(
    "path",
    ["", "/rename", "/close", "/groups/new", "/no-default", "/people/new", "/people/admin%40people.example"],
)
def test_another_organization_is_as_one_that_does_not_exist(pages: Pages, path: str) -> None:
    """Nobody learns of it by its slug."""
    browser = pages.signed_in("other")
    assert browser.get(f"/organizations/acme{path}").status in (403, 404)
    assert browser.get(f"/organizations/acme{path}").status == browser.get(f"/organizations/none-such{path}").status


@pytest.mark.parametrize(
    "path", ["/rename", "/groups/new", "/no-default", "/people/new", "/people/admin%40people.example"]
)
def test_a_viewer_is_refused_what_only_admins_do(pages: Pages, path: str) -> None:
    """403: the organization is seen, the change is not theirs."""
    assert pages.signed_in("viewer").get(f"/organizations/acme{path}").status == 403


@pytest.mark.parametrize("way", ["rename", "retire", "default"])
def test_a_viewer_changes_no_group(pages: Pages, way: str) -> None:
    """Neither the page nor the form."""
    known = groups(pages, "acme")
    path = f"/organizations/acme/groups/{known['Reminders'].group_id}/{way}"
    assert pages.signed_in("viewer").get(path).status == 403
    assert pages.signed_in("viewer").post(path, {"name": "Mine"}).status == 403
    assert groups(pages, "acme") == known


# Name and end.


def test_an_admin_renames_the_organization(pages: Pages) -> None:
    """The slug stays."""
    slug = organization(pages)
    browser = admin_of(pages, slug).browser
    done = sent(browser, f"/organizations/{slug}/rename", name="Other & Sons")
    assert done.location == f"/organizations/{slug}?note=organization-renamed"
    assert browser.follow(done).title == "Other & Sons · Stoplist"


def test_a_name_that_cannot_be_one_is_refused_beside_its_field(pages: Pages) -> None:
    """And stays in it."""
    slug = organization(pages)
    refused = sent(admin_of(pages, slug).browser, f"/organizations/{slug}/rename", name="")
    assert refused.status == 422
    assert 'id="name-problem"' in refused.html


def test_closing_says_beforehand_what_stops_and_for_which_keys(pages: Pages) -> None:
    """Then the organization is closed for good, and the page offers nothing more."""
    slug = organization(pages, default_group="News")
    pages.app.new_key(label="Nightly import", organizations=(slug,))
    browser, path = pages.signed_in("administrator"), f"/organizations/{slug}/close"
    assert path in browser.get(f"/organizations/{slug}").links
    before = browser.get(path)
    assert "cannot be undone" in before.text
    assert "unauthorized_organization" in before.text
    assert "One active key covers" in before.text
    assert "Nightly import" in before.text
    done = browser.send(before.form(path))
    assert done.location == f"/organizations/{slug}?note=organization-closed"
    shown = browser.follow(done)
    assert "Closed" in shown.text
    assert [link for link in shown.links if link.startswith(f"/organizations/{slug}/") and "/people/" not in link] == []
    again = browser.post(path)
    assert again.status == 422
    assert "is closed, and stays as it is" in again.text
    assert browser.get(path).forms[1:] == []


def test_an_organizations_admin_does_not_close_it(pages: Pages) -> None:
    """That is an administrator's."""
    slug = organization(pages)
    browser, path = admin_of(pages, slug).browser, f"/organizations/{slug}/close"
    assert path not in browser.get(f"/organizations/{slug}").links
    assert browser.get(path).status == 403
    assert browser.post(path).status == 403


def test_in_a_closed_organization_every_change_is_refused_in_words(pages: Pages) -> None:
    """A page that was open while it was closed says so."""
    slug = organization(pages, default_group="News")
    group_id = groups(pages, slug)["News"].group_id
    browser = admin_of(pages, slug).browser
    pages.administer(close_organization, slug=slug)
    for path in ("rename", "groups/new", "no-default", f"groups/{group_id}/rename", f"groups/{group_id}/retire"):
        refused = browser.post(f"/organizations/{slug}/{path}", {"name": "Another"})
        assert refused.status == 422, path
        assert "is closed, and stays as it is" in refused.text


# Groups.


def test_an_admin_creates_a_group_and_makes_it_the_default(pages: Pages) -> None:
    """The first one is offered as the default."""
    slug = organization(pages)
    browser, path = admin_of(pages, slug).browser, f"/organizations/{slug}/groups/new"
    assert "default_group_not_configured" in browser.get(f"/organizations/{slug}").text
    done = sent(browser, path, name="News")
    assert done.location == f"/organizations/{slug}?note=group-created"
    shown = browser.follow(done)
    assert groups(pages, slug)["News"].is_default
    assert f'data-copies="{groups(pages, slug)["News"].group_id}"' in shown.html
    assert "default_group_not_configured" not in shown.text
    sent(browser, path, name="Reminders")
    assert not groups(pages, slug)["Reminders"].is_default


def test_a_name_that_is_taken_is_refused_beside_its_field(pages: Pages) -> None:
    """What was typed and ticked is kept; so a form that is sent twice makes one group."""
    slug = organization(pages, default_group="News")
    browser, path = admin_of(pages, slug).browser, f"/organizations/{slug}/groups/new"
    refused = sent(browser, path, name="News", is_default="yes")
    assert refused.status == 422
    assert 'id="name-problem"' in refused.html
    assert dict(refused.form(path).values) == {"name": "News", "is_default": "yes"}
    assert list(groups(pages, slug)) == ["News"]


def test_an_admin_renames_a_group(pages: Pages) -> None:
    """Its id stays; a name that is taken is refused."""
    slug = organization(pages, default_group="News")
    pages.administer(create_group, org_slug=slug, name="Reminders")
    group_id = groups(pages, slug)["News"].group_id
    browser, path = admin_of(pages, slug).browser, f"/organizations/{slug}/groups/{group_id}/rename"
    assert 'id="name-problem"' in sent(browser, path, name="Reminders").html
    done = sent(browser, path, name="Weekly")
    assert done.location == f"/organizations/{slug}?note=group-renamed"
    assert groups(pages, slug)["Weekly"].group_id == group_id


def test_to_retire_the_default_group_warns_of_what_happens_without_one(pages: Pages) -> None:
    """Any other group has no such warning."""
    slug = organization(pages, default_group="News")
    pages.administer(create_group, org_slug=slug, name="Reminders")
    browser, known = admin_of(pages, slug).browser, groups(pages, slug)
    path = f"/organizations/{slug}/groups/{known['Reminders'].group_id}/retire"
    assert "default_group_not_configured" not in browser.get(path).text
    assert "cannot be undone" in browser.get(path).text
    path = f"/organizations/{slug}/groups/{known['News'].group_id}/retire"
    assert "default_group_not_configured" in browser.get(path).text
    done = sent(browser, path)
    assert done.location == f"/organizations/{slug}?note=group-retired"
    assert "There is no default group." in browser.follow(done).text
    assert groups(pages, slug)["News"].retired_ms is not None
    assert "retired already" in browser.post(path).text
    assert browser.get(path).forms[1:] == []


def test_another_group_becomes_the_default_after_a_page_that_says_what_goes_where(pages: Pages) -> None:
    """The one before is named."""
    slug = organization(pages, default_group="News")
    pages.administer(create_group, org_slug=slug, name="Reminders")
    browser, known = admin_of(pages, slug).browser, groups(pages, slug)
    path = f"/organizations/{slug}/groups/{known['Reminders'].group_id}/default"
    assert "instead of News" in browser.get(path).text
    done = sent(browser, path)
    assert done.location == f"/organizations/{slug}?note=group-default"
    assert groups(pages, slug)["Reminders"].is_default
    assert browser.get(path).forms[1:] == []


def test_an_organization_can_go_without_a_default_group(pages: Pages) -> None:
    """The page says beforehand which submissions are then refused."""
    slug = organization(pages, default_group="News")
    browser, path = admin_of(pages, slug).browser, f"/organizations/{slug}/no-default"
    assert "default_group_not_configured" in browser.get(path).text
    done = sent(browser, path)
    assert "There is no default group." in browser.follow(done).text
    assert not groups(pages, slug)["News"].is_default
    assert path not in browser.get(f"/organizations/{slug}").links


def test_a_group_of_another_organization_is_none_of_this_one(pages: Pages) -> None:
    """Neither by the path of the other organization nor of one's own."""
    slug, others = organization(pages), groups(pages, "bolt")
    browser, group_id = admin_of(pages, slug).browser, others["Newsletter"].group_id
    for way in ("rename", "retire", "default"):
        for place in (slug, "bolt"):
            assert browser.get(f"/organizations/{place}/groups/{group_id}/{way}").status == 404
            assert browser.post(f"/organizations/{place}/groups/{group_id}/{way}", {"name": "Mine"}).status == 404
    assert groups(pages, "bolt") == others


# People.


def test_whoever_is_new_is_added_with_a_link_that_is_shown_once(pages: Pages) -> None:
    """The link lets in; no page shows it afterwards, nor does the form when it is sent again."""
    slug, address = organization(pages), new_address()
    browser, path = admin_of(pages, slug).browser, f"/organizations/{slug}/people/new"
    form = browser.get(path).form(path)
    made = browser.send(form, email=address, role="admin")
    assert made.status == 200
    assert made.header("cache-control") == "no-store"
    assert "it is not shown again" in made.text
    token = link_path(made).partition("token=")[2]
    again = browser.send(form, email=address, role="admin")
    assert again.status == 303
    after = browser.follow(again)
    assert "no sign-in link was made" in after.text
    assert token not in after.html
    assert token not in browser.get(f"/organizations/{slug}").html
    assert person(pages, address).roles == {slug: "admin"}
    assert use_shown_link(pages, made).status == 303


def test_whoever_has_an_account_gets_the_role_and_no_link(pages: Pages) -> None:
    """A link would open the account to the admin who made it."""
    slug, known = organization(pages), newcomer(pages, roles={"bolt": "viewer"})
    browser = admin_of(pages, slug).browser
    done = sent(browser, f"/organizations/{slug}/people/new", email=known.email.upper(), role="viewer")
    assert done.location == f"{known.page_in(slug)}?note=role-set-known"
    assert person(pages, known.email).roles == {"bolt": "viewer", slug: "viewer"}
    shown = browser.follow(done)
    assert "bolt" not in shown.text
    assert f"{known.page_in(slug)}/link" not in shown.links


@pytest.mark.parametrize(("field", "value"), [("email", "nobody"), ("email", ""), ("role", "owner"), ("role", None)])
def test_an_address_or_role_that_is_none_is_refused_beside_its_field(
    pages: Pages, field: str, value: str | None
) -> None:
    """Nobody is added."""
    slug = organization(pages)
    browser, path = admin_of(pages, slug).browser, f"/organizations/{slug}/people/new"
    typed: dict[str, str | None] = {"email": new_address(), "role": "admin"}
    refused = sent(browser, path, **(typed | {field: value}))
    assert refused.status == 422
    assert f'id="{field}-problem"' in refused.html
    assert browser.get(f"/organizations/{slug}").html.count(f"/organizations/{slug}/people/") == 2


def test_an_admin_changes_a_role_and_it_holds_at_once(pages: Pages) -> None:
    """From the other person's next page on."""
    slug = organization(pages)
    browser, other = admin_of(pages, slug).browser, newcomer(pages, roles={slug: "viewer"})
    assert other.browser.get(f"/organizations/{slug}/rename").status == 403
    form = browser.get(other.page_in(slug)).form(f"{other.page_in(slug)}/role")
    assert dict(form.values) == {"role": "viewer"}
    done = browser.send(form, role="admin")
    assert done.location == f"{other.page_in(slug)}?note=role-set"
    assert other.browser.get(f"/organizations/{slug}/rename").status == 200
    assert 'id="role-problem"' in browser.send(form, role="owner").html


def test_an_admin_takes_a_role_away_after_a_page_that_says_so(pages: Pages) -> None:
    """The person sees nothing of the organization any more."""
    slug = organization(pages)
    browser, other = admin_of(pages, slug).browser, newcomer(pages, roles={slug: "viewer"})
    path = f"{other.page_in(slug)}/remove"
    assert path in browser.get(other.page_in(slug)).links
    assert "sees nothing of this organization" in browser.get(path).text
    done = sent(browser, path)
    assert done.location == f"/organizations/{slug}?note=role-removed"
    assert other.browser.get(f"/organizations/{slug}").status == 404
    assert browser.get(other.page_in(slug)).status == 404
    assert browser.post(path).status == 404


def test_nobody_lowers_their_own_role(pages: Pages) -> None:
    """The page does not offer it, and the operation refuses it."""
    slug = organization(pages)
    me = admin_of(pages, slug)
    shown = me.browser.get(me.page_in(slug))
    assert "This is you" in shown.text
    assert shown.forms[1:] == []
    assert me.browser.get(f"{me.page_in(slug)}/remove").forms[1:] == []
    assert me.browser.post(f"{me.page_in(slug)}/remove").status == 403
    assert me.browser.post(f"{me.page_in(slug)}/role", {"role": "viewer"}).status == 403


def test_an_admin_makes_another_link_for_somebody_who_was_never_in(pages: Pages) -> None:
    """The one before is dead from then on."""
    slug, address = organization(pages), new_address()
    browser = admin_of(pages, slug).browser
    first = sent(browser, f"/organizations/{slug}/people/new", email=address, role="viewer")
    here = f"/organizations/{slug}/people/{address.replace('@', '%40')}"
    assert f"{here}/link" in browser.get(here).links
    second = sent(browser, f"{here}/link")
    assert second.status == 200
    assert pages.stranger().get(link_path(first)).status == 404
    assert use_shown_link(pages, second).status == 303
    assert f"{here}/link" not in browser.get(here).links
    assert "only an administrator can make a link" in browser.get(f"{here}/link").text
    assert browser.post(f"{here}/link").status == 403


def test_people_of_another_organization_are_not_to_be_found(pages: Pages) -> None:
    """By no page of one's own organization, and with no form."""
    slug, stranger = organization(pages), newcomer(pages, roles={"bolt": "viewer"})
    browser, here = admin_of(pages, slug).browser, stranger.page_in(slug)
    for path in (here, f"{here}/remove", f"{here}/link"):
        assert browser.get(path).status == 404, path
    for path in (f"{here}/role", f"{here}/remove", f"{here}/link"):
        assert browser.post(path, {"role": "admin"}).status == 404, path
    assert person(pages, stranger.email).roles == {"bolt": "viewer"}


def test_an_address_with_a_slash_in_it_has_its_page(pages: Pages) -> None:
    """RFC 5321 lets one stand before the @, and much else that a path gives a meaning to."""
    slug, address = organization(pages), f"a/b?c#d&e%f+g-{new_address()}"
    browser = admin_of(pages, slug).browser
    made = sent(browser, f"/organizations/{slug}/people/new", email=address, role="viewer")
    assert made.status == 200
    (here,) = {link for link in made.links if "/people/" in link}
    assert address in browser.get(here).text
    form = browser.get(here).form(f"{here}/role")
    assert address in browser.follow(browser.send(form, role="admin")).text

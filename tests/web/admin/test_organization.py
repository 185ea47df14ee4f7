"""The page of an organization: name, closing, groups and people. docs/interface.md sections D5 and D11."""

import pytest

from stoplist.organizations.groups import create_group
from stoplist.organizations.organizations import close_organization
from stoplist.web.request_context import INVITATION_PATH
from tests.web.admin.creation import (
    admin_of,
    groups,
    link_path,
    new_address,
    new_person,
    organization,
    person,
    sign_in,
    use_shown_link,
)
from tests.web.admin.pages import PASSWORD, Pages, email

# Access.


def test_a_viewer_sees_no_people_and_no_actions(pages: Pages) -> None:
    shown = pages.signed_in("viewer").get("/organizations/acme")
    assert shown.status == 200
    assert "Newsletter" in shown.text
    assert {f"/unsubscribes/acme/{channel}" for channel in ("email", "sms", "phone")} <= set(shown.links)
    assert "/settings/keys" in shown.links
    inner = [link for link in shown.links if link.startswith("/organizations/acme/")]
    assert inner == ["/organizations/acme/links"]
    assert [form.action for form in shown.forms] == ["/settings/sign-out"]
    assert email("admin") not in shown.text


def test_an_admin_sees_people_and_roles(pages: Pages) -> None:
    shown = pages.signed_in("admin").get("/organizations/acme")
    assert email("viewer") in shown.text
    assert email("other") not in shown.text
    assert "/organizations/acme/people/viewer%40people.example" in shown.links


@pytest.mark.parametrize(
    "path",
    ["", "/rename", "/close", "/groups/new", "/no-default", "/people/new", "/people/admin%40people.example"],
)
def test_another_organization_looks_like_a_missing_one(pages: Pages, path: str) -> None:
    """Its slug reveals nothing."""
    browser = pages.signed_in("other")
    assert browser.get(f"/organizations/acme{path}").status in (403, 404)
    assert browser.get(f"/organizations/acme{path}").status == browser.get(f"/organizations/none-such{path}").status


@pytest.mark.parametrize(
    "path", ["/rename", "/groups/new", "/no-default", "/people/new", "/people/admin%40people.example"]
)
def test_a_viewer_cannot_change_an_organization(pages: Pages, path: str) -> None:
    assert pages.signed_in("viewer").get(f"/organizations/acme{path}").status == 403


@pytest.mark.parametrize("action", ["rename", "retire", "default"])
def test_a_viewer_cannot_change_groups(pages: Pages, action: str) -> None:
    known = groups(pages, "acme")
    path = f"/organizations/acme/groups/{known['Reminders'].group_id}/{action}"
    assert pages.signed_in("viewer").get(path).status == 403
    assert pages.signed_in("viewer").post(path, {"name": "Mine"}).status == 403
    assert groups(pages, "acme") == known


# Renaming and closing.


def test_an_admin_renames_the_organization(pages: Pages) -> None:
    """The slug stays."""
    slug = organization(pages)
    browser = admin_of(pages, slug).browser
    done = browser.submit_form(f"/organizations/{slug}/rename", name="Other & Sons")
    assert done.location == f"/organizations/{slug}?note=organization-renamed"
    assert browser.follow(done).title == "Other & Sons · Stoplist"


def test_an_invalid_name_is_refused(pages: Pages) -> None:
    slug = organization(pages)
    refused = admin_of(pages, slug).browser.submit_form(f"/organizations/{slug}/rename", name="")
    assert refused.status == 422
    assert 'id="name-problem"' in refused.html


def test_closing_states_the_consequences_first(pages: Pages) -> None:
    """Then the organization is closed for good, and its page offers no changes."""
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
    inner = [link for link in shown.links if link.startswith(f"/organizations/{slug}/") and "/people/" not in link]
    assert inner == [f"/organizations/{slug}/links"]
    again = browser.post(path)
    assert again.status == 422
    assert "is closed and cannot be changed" in again.text
    assert browser.get(path).forms[1:] == []


def test_an_admin_cannot_close_the_organization(pages: Pages) -> None:
    slug = organization(pages)
    browser, path = admin_of(pages, slug).browser, f"/organizations/{slug}/close"
    assert path not in browser.get(f"/organizations/{slug}").links
    assert browser.get(path).status == 403
    assert browser.post(path).status == 403


def test_a_closed_organization_refuses_changes(pages: Pages) -> None:
    """A page that was opened before changes nothing either."""
    slug = organization(pages, default_group="News")
    group_id = groups(pages, slug)["News"].group_id
    browser = admin_of(pages, slug).browser
    pages.administer(close_organization, slug=slug)
    for path in ("rename", "groups/new", "no-default", f"groups/{group_id}/rename", f"groups/{group_id}/retire"):
        refused = browser.post(f"/organizations/{slug}/{path}", {"name": "Another"})
        assert refused.status == 422, path
        assert "is closed and cannot be changed" in refused.text


# Groups.


def test_an_admin_creates_a_default_group(pages: Pages) -> None:
    """The first group is the default unless unticked."""
    slug = organization(pages)
    browser, path = admin_of(pages, slug).browser, f"/organizations/{slug}/groups/new"
    assert "default_group_not_configured" in browser.get(f"/organizations/{slug}").text
    done = browser.submit_form(path, name="News")
    assert done.location == f"/organizations/{slug}?note=group-created"
    shown = browser.follow(done)
    assert groups(pages, slug)["News"].is_default
    assert f'data-copies="{groups(pages, slug)["News"].group_id}"' in shown.html
    assert "default_group_not_configured" not in shown.text
    browser.submit_form(path, name="Reminders")
    assert not groups(pages, slug)["Reminders"].is_default


def test_a_taken_group_name_is_refused(pages: Pages) -> None:
    """So a form sent twice creates one group."""
    slug = organization(pages, default_group="News")
    browser, path = admin_of(pages, slug).browser, f"/organizations/{slug}/groups/new"
    refused = browser.submit_form(path, name="News", is_default="yes")
    assert refused.status == 422
    assert 'id="name-problem"' in refused.html
    assert dict(refused.form(path).values) == {"name": "News", "is_default": "yes"}
    assert list(groups(pages, slug)) == ["News"]


def test_an_admin_renames_a_group(pages: Pages) -> None:
    """Its id stays; a taken name is refused."""
    slug = organization(pages, default_group="News")
    pages.administer(create_group, org_slug=slug, name="Reminders")
    group_id = groups(pages, slug)["News"].group_id
    browser, path = admin_of(pages, slug).browser, f"/organizations/{slug}/groups/{group_id}/rename"
    assert 'id="name-problem"' in browser.submit_form(path, name="Reminders").html
    done = browser.submit_form(path, name="Weekly")
    assert done.location == f"/organizations/{slug}?note=group-renamed"
    assert groups(pages, slug)["Weekly"].group_id == group_id


def test_retiring_the_default_group_warns(pages: Pages) -> None:
    slug = organization(pages, default_group="News")
    pages.administer(create_group, org_slug=slug, name="Reminders")
    browser, known = admin_of(pages, slug).browser, groups(pages, slug)
    path = f"/organizations/{slug}/groups/{known['Reminders'].group_id}/retire"
    assert "default_group_not_configured" not in browser.get(path).text
    assert "cannot be undone" in browser.get(path).text
    path = f"/organizations/{slug}/groups/{known['News'].group_id}/retire"
    assert "default_group_not_configured" in browser.get(path).text
    done = browser.submit_form(path)
    assert done.location == f"/organizations/{slug}?note=group-retired"
    assert "There is no default group." in browser.follow(done).text
    assert groups(pages, slug)["News"].retired_ms is not None
    assert "retired already" in browser.post(path).text
    assert browser.get(path).forms[1:] == []


def test_another_group_becomes_the_default(pages: Pages) -> None:
    """The page names the current default first."""
    slug = organization(pages, default_group="News")
    pages.administer(create_group, org_slug=slug, name="Reminders")
    browser, known = admin_of(pages, slug).browser, groups(pages, slug)
    path = f"/organizations/{slug}/groups/{known['Reminders'].group_id}/default"
    assert "instead of News" in browser.get(path).text
    done = browser.submit_form(path)
    assert done.location == f"/organizations/{slug}?note=group-default"
    assert groups(pages, slug)["Reminders"].is_default
    assert browser.get(path).forms[1:] == []


def test_the_default_group_can_be_removed(pages: Pages) -> None:
    """The page states which submissions are then refused."""
    slug = organization(pages, default_group="News")
    browser, path = admin_of(pages, slug).browser, f"/organizations/{slug}/no-default"
    assert "default_group_not_configured" in browser.get(path).text
    done = browser.submit_form(path)
    assert "There is no default group." in browser.follow(done).text
    assert not groups(pages, slug)["News"].is_default
    assert path not in browser.get(f"/organizations/{slug}").links


def test_groups_of_another_organization_are_not_found(pages: Pages) -> None:
    """The other organization's path does not find them, nor does that of one's own."""
    slug, others = organization(pages), groups(pages, "bolt")
    browser, group_id = admin_of(pages, slug).browser, others["Newsletter"].group_id
    for action in ("rename", "retire", "default"):
        for place in (slug, "bolt"):
            assert browser.get(f"/organizations/{place}/groups/{group_id}/{action}").status == 404
            assert browser.post(f"/organizations/{place}/groups/{group_id}/{action}", {"name": "Mine"}).status == 404
    assert groups(pages, "bolt") == others


# People.


def test_an_admin_invites_a_new_person_by_a_link(pages: Pages) -> None:
    """No page shows it afterwards. The person chooses a password, and has the role."""
    slug, address = organization(pages), new_address()
    browser, path = admin_of(pages, slug).browser, f"/organizations/{slug}/people/new"
    made = browser.submit_form(path, email=address, role="admin")
    assert (made.status, made.header("cache-control")) == (200, "no-store")
    assert "It will not be shown again" in made.text
    link = link_path(made, INVITATION_PATH)
    listed = browser.get(f"/organizations/{slug}")
    assert address in listed.text
    assert link not in listed.html
    stranger = pages.stranger()
    form = stranger.get(link).form(INVITATION_PATH)
    assert stranger.send(form, password=PASSWORD, repeated="another pass phrase").status == 422
    assert stranger.send(form, password=PASSWORD, repeated=PASSWORD).status == 303
    assert person(pages, address).roles == {slug: "admin"}
    assert stranger.get(link).status == 404


def test_an_invitation_tells_the_admin_nothing_of_an_account(pages: Pages) -> None:
    """Its pages are the same for an unknown address. The person declines the first one and accepts the second."""
    slug, known = organization(pages), new_person(pages, roles={"bolt": "viewer"})
    browser, path = admin_of(pages, slug).browser, f"/organizations/{slug}/people/new"
    shown = {}
    for address in (known.email, new_address()):
        made = browser.submit_form(path, email=address.upper(), role="viewer")
        assert made.status == 200
        opened = pages.stranger().get(link_path(made, INVITATION_PATH))
        link = link_path(made, INVITATION_PATH)
        shown[address] = [page.text.replace(address, "A").replace(link, "L") for page in (made, opened)]
    first, second = shown.values()
    assert first == second
    assert browser.get(known.page_in(slug)).status == 404
    assert person(pages, known.email).roles == {"bolt": "viewer"}
    account = known.browser.get("/settings/account")
    assert "invites you as viewer" in account.text
    assert known.browser.send(account.form("/settings/account/decline-invitation")).status == 303
    again = browser.submit_form(path, email=known.email, role="viewer")
    assert again.status == 200
    assert sign_in(pages, known.email)[1].location == "/settings/account", "before the overview"
    accepted = known.browser.send(known.browser.get("/settings/account").form("/settings/account/accept-invitation"))
    assert accepted.location == "/settings/account?note=invitation-accepted"
    assert person(pages, known.email).roles == {"bolt": "viewer", slug: "viewer"}
    assert "bolt" not in browser.get(known.page_in(slug)).text


def test_an_admin_withdraws_an_invitation(pages: Pages) -> None:
    slug, address = organization(pages), new_address()
    browser = admin_of(pages, slug).browser
    made = browser.submit_form(f"/organizations/{slug}/people/new", email=address, role="viewer")
    form = browser.get(f"/organizations/{slug}").form(f"/organizations/{slug}/withdraw-invitation")
    assert browser.send(form).location == f"/organizations/{slug}?note=invitation-withdrawn"
    assert pages.stranger().get(link_path(made, INVITATION_PATH)).status == 404
    assert browser.send(form).status == 404


@pytest.mark.parametrize(("field", "value"), [("email", "nobody"), ("email", ""), ("role", "owner"), ("role", None)])
def test_an_invalid_address_or_role_is_refused(pages: Pages, field: str, value: str | None) -> None:
    slug = organization(pages)
    browser, path = admin_of(pages, slug).browser, f"/organizations/{slug}/people/new"
    typed: dict[str, str | None] = {"email": new_address(), "role": "admin"}
    refused = browser.submit_form(path, **(typed | {field: value}))
    assert refused.status == 422
    assert f'id="{field}-problem"' in refused.html
    assert browser.get(f"/organizations/{slug}").html.count(f"/organizations/{slug}/people/") == 2


def test_an_admin_changes_a_role_at_once(pages: Pages) -> None:
    """It applies to the next page the person opens."""
    slug = organization(pages)
    browser, other = admin_of(pages, slug).browser, new_person(pages, roles={slug: "viewer"})
    assert other.browser.get(f"/organizations/{slug}/rename").status == 403
    form = browser.get(other.page_in(slug)).form(f"{other.page_in(slug)}/role")
    assert dict(form.values) == {"role": "viewer"}
    done = browser.send(form, role="admin")
    assert done.location == f"{other.page_in(slug)}?note=role-set"
    assert other.browser.get(f"/organizations/{slug}/rename").status == 200
    assert 'id="role-problem"' in browser.send(form, role="owner").html


def test_an_admin_removes_a_role(pages: Pages) -> None:
    """A page that states the consequences comes first."""
    slug = organization(pages)
    browser, other = admin_of(pages, slug).browser, new_person(pages, roles={slug: "viewer"})
    path = f"{other.page_in(slug)}/remove"
    assert path in browser.get(other.page_in(slug)).links
    assert "can no longer view or change anything in this organization" in browser.get(path).text
    done = browser.submit_form(path)
    assert done.location == f"/organizations/{slug}?note=role-removed"
    assert other.browser.get(f"/organizations/{slug}").status == 404
    assert browser.get(other.page_in(slug)).status == 404
    assert browser.post(path).status == 404


def test_nobody_lowers_their_own_role(pages: Pages) -> None:
    slug = organization(pages)
    me = admin_of(pages, slug)
    shown = me.browser.get(me.page_in(slug))
    assert "This is your account" in shown.text
    assert shown.forms[1:] == []
    assert me.browser.get(f"{me.page_in(slug)}/remove").forms[1:] == []
    assert me.browser.post(f"{me.page_in(slug)}/remove").status == 403
    assert me.browser.post(f"{me.page_in(slug)}/role", {"role": "viewer"}).status == 403


def test_an_admin_replaces_an_unused_link(pages: Pages) -> None:
    """Once the link was used, only administrators can create another."""
    slug, address = organization(pages), new_address()
    browser = admin_of(pages, slug).browser
    first = pages.signed_in("administrator").submit_form(
        f"/organizations/{slug}/people/new", email=address, role="viewer"
    )
    here = f"/organizations/{slug}/people/{address.replace('@', '%40')}"
    assert f"{here}/link" in browser.get(here).links
    second = browser.submit_form(f"{here}/link")
    assert second.status == 200
    assert pages.stranger().get(link_path(first)).status == 404
    assert use_shown_link(pages, second).status == 303
    assert f"{here}/link" not in browser.get(here).links
    assert "Only an administrator can create a link" in browser.get(f"{here}/link").text
    assert browser.post(f"{here}/link").status == 403


def test_people_of_another_organization_are_not_found(pages: Pages) -> None:
    slug, stranger = organization(pages), new_person(pages, roles={"bolt": "viewer"})
    browser, here = admin_of(pages, slug).browser, stranger.page_in(slug)
    for path in (here, f"{here}/remove", f"{here}/link"):
        assert browser.get(path).status == 404, path
    for path in (f"{here}/role", f"{here}/remove", f"{here}/link"):
        assert browser.post(path, {"role": "admin"}).status == 404, path
    assert person(pages, stranger.email).roles == {"bolt": "viewer"}


def test_an_address_with_a_slash_has_its_page(pages: Pages) -> None:
    """RFC 5321 allows one before the @, and other characters with a meaning in paths."""
    slug, address = organization(pages), f"a/b?c#d&e%f+g-{new_address()}"
    browser = pages.signed_in("administrator")
    made = browser.submit_form(f"/organizations/{slug}/people/new", email=address, role="viewer")
    assert made.status == 200
    (here,) = {link for link in made.links if "/people/" in link}
    assert address in browser.get(here).text
    form = browser.get(here).form(f"{here}/role")
    assert address in browser.follow(browser.send(form, role="admin")).text

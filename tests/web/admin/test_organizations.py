"""The list of organizations, and creating one. docs/interface.md sections D5 and D11."""

import pytest

from stoplist.organizations.organizations import close_organization
from tests.web.admin.creation import groups, new_name, new_person, organization
from tests.web.admin.pages import Pages

NEW = "/organizations/_new"


def test_administrators_see_all_others_their_own(pages: Pages) -> None:
    slug = organization(pages)
    assert {"Acme Shoes", "Bolt & Nut", slug} <= set(listed_names(pages, "administrator", slug))
    assert "/organizations/acme" in pages.signed_in("viewer").get("/organizations").links
    assert "/organizations/bolt" not in pages.signed_in("viewer").get("/organizations").links
    assert {"/organizations/acme", "/organizations/bolt"} <= set(pages.signed_in("both").get("/organizations").links)


def listed_names(pages: Pages, name: str, slug: str) -> list[str]:
    """Return the names on this person's list, out of those that tests use."""
    text = pages.signed_in(name).get("/organizations").text
    return [one for one in ("Acme Shoes", "Bolt & Nut", slug) if one in text]


def test_a_person_without_a_role_is_told_whom_to_ask(pages: Pages) -> None:
    shown = pages.signed_in("nobody").get("/organizations")
    assert shown.status == 200
    assert "Ask an administrator" in shown.text


def test_a_closed_organization_stays_in_the_list(pages: Pages) -> None:
    slug = organization(pages)
    pages.administer(close_organization, slug=slug)
    shown = pages.signed_in("administrator").get("/organizations")
    row = shown.html.partition(f'href="/organizations/{slug}"')[2].partition("</tr>")[0]
    assert "Closed" in row


def test_an_administrator_creates_an_organization(pages: Pages) -> None:
    """One form creates it with its default group."""
    browser, slug = pages.signed_in("administrator"), new_name()
    assert NEW in browser.get("/organizations").links
    made = browser.submit_form(NEW, name=" Chair & Co ", slug=slug, default_group="News")
    assert (made.status, made.location) == (303, f"/organizations/{slug}?note=organization-created")
    shown = browser.follow(made)
    assert "The organization was created." in shown.text
    assert shown.title == "Chair & Co · Stoplist"
    assert groups(pages, slug)["News"].is_default


def test_the_default_group_is_optional(pages: Pages) -> None:
    """Submissions without a group are then refused, never applied to all groups. docs/interface.md section D5."""
    browser, slug = pages.signed_in("administrator"), new_name()
    assert "default_group_not_configured" in browser.get(NEW).text
    shown = browser.follow(browser.submit_form(NEW, name="Chair", slug=slug, default_group=" "))
    assert "There is no default group." in shown.text
    assert groups(pages, slug) == {}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slug", "Chair Co"),
        ("slug", ""),
        ("slug", "acme"),
        ("name", ""),
        ("name", "x" * 201),
        ("default_group", "\u202e"),
    ],
)
def test_an_invalid_value_is_refused_and_kept(pages: Pages, field: str, value: str) -> None:
    browser = pages.signed_in("administrator")
    typed = {"name": "Chair", "slug": new_name(), "default_group": "News"} | {field: value}
    refused = browser.submit_form(NEW, **typed)
    assert refused.status == 422
    assert f'id="{field}-problem"' in refused.html
    assert dict(refused.form(NEW).values) == typed


@pytest.mark.parametrize("name", ["admin", "viewer", "nobody"])
def test_only_administrators_create_organizations(pages: Pages, name: str) -> None:
    browser = pages.signed_in(name)
    assert NEW not in browser.get("/organizations").links
    assert browser.get(NEW).status == 403
    assert browser.post(NEW, {"name": "Chair", "slug": new_name()}).status == 403


def test_sending_the_form_twice_creates_one_organization(pages: Pages) -> None:
    browser, slug = pages.signed_in("administrator"), new_name()
    form = browser.get(NEW).form(NEW)
    assert browser.send(form, name="Chair", slug=slug).status == 303
    again = browser.send(form, name="Chair", slug=slug)
    assert again.status == 422
    assert 'id="slug-problem"' in again.html


def test_the_list_is_not_cached(pages: Pages) -> None:
    """Another person at the same computer finds no trace of it."""
    reader = new_person(pages, roles={"acme": "viewer"})
    assert reader.browser.get("/organizations").header("cache-control") == "no-store"

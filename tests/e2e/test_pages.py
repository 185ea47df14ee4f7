"""Accessibility of every page in a real browser: on a wide screen, at phone width, in light and dark.

test_pages_at_work.py covers what people do on the pages.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.e2e.pages_browser import (
    Site,
    assert_accessible,
    assert_printable,
    bearer,
    find_faults,
    get_token,
    link_of,
    opened_site,
    sign_in,
)
from tests.e2e.server_process import Installation

# The result does not depend on the interpreter.
pytestmark = pytest.mark.slow

SECTIONS = {
    "/": 1,
    "/unsubscribes": 7,
    "/settings/imports": 2,
    "/organizations": 9,
    "/audit": 1,
    "/settings/keys": 9,
    "/settings/people": 5,
    "/settings/account": 2,
}
"""Start of each section, and the least number of kinds of page that the demo has there."""

LINKS = "all => all.map((one) => one.getAttribute('href'))"


@pytest.fixture(scope="module")
def site(chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with the demo."""
    with opened_site(chromium, Installation(tmp_path_factory.mktemp("pages")), "--demo") as opened:
        link_of(opened.installation, opened.server, "ann@people.example", "--org", "demo", "--role", "viewer")
        yield opened


def kind_of(path: str) -> str:
    """Return the path with placeholders for its ids."""
    path = re.sub(r"svc_ci_\w+", "KEY", path)
    path = re.sub(r"sub_\w+", "SUBMISSION", path)
    path = re.sub(r"grp_\w+", "GROUP", path)
    path = re.sub(r"/people/[^/]*(%40|@)[^/]*", "/people/PERSON", path)
    path = re.sub(r"/(unsubscribes|organizations)/(?!_new)[a-z0-9-]+(?=/|$)", r"/\1/ORG", path)
    path = re.sub(r"/(email|sms|phone)/\d+", r"/\1/SEQ", path)
    path = re.sub(r"/ORG/(email|sms|phone)", "/ORG/CHANNEL", path)
    return path.strip("/").replace("/", "-") or "overview"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_linked_page_is_accessible(site: Site, section: str) -> None:
    """Axe finds nothing, nothing overflows, and no two titles are the same."""

    async def steps(page: Page) -> None:
        titles: dict[str, str] = {}
        found: list[str] = []
        waiting = [section]
        while waiting:
            path = waiting.pop(0)
            if (kind := kind_of(path)) in titles:
                continue
            answer = await page.goto(path)
            assert answer is not None
            assert answer.status == 200, path
            titles[kind] = await page.title()
            links = await page.eval_on_selector_all("main a[href^='/']", LINKS)
            waiting += [bare for link in links if (bare := link.partition("?")[0]).startswith(f"{section}/")]
            waiting = [bare for bare in waiting if bare != "/audit/export"]
            found += await find_faults(page, kind)
        assert found == []
        assert len(titles) >= SECTIONS[section], titles
        assert len(set(titles.values())) == len(titles), titles

    site.visit(steps)


def test_signing_in_is_accessible(site: Site) -> None:
    """The form, its refusal, a sign-in link, and an invalid link."""
    link = link_of(site.installation, site.server, "link@people.example", "--org", "demo", "--role", "viewer")

    async def steps(page: Page) -> None:
        await page.goto("/audit")
        await expect(page).to_have_title(re.compile("Sign in"))
        await assert_accessible(page, "sign-in")
        await sign_in(page, "somebody@people.example", "not the password")
        await expect(page.get_by_label("E-mail address")).to_have_value("somebody@people.example")
        await expect(page.get_by_label("Password")).to_have_value("")
        await assert_accessible(page, "sign-in-refused")
        await page.goto(link)
        await expect(page.locator("main")).to_contain_text("link@people.example")
        await assert_accessible(page, "sign-in-link")
        await page.goto(link[:-6] + "aaaaaa")
        await assert_accessible(page, "sign-in-link-refused")

    site.visit_signed_out(steps)


def test_a_search_is_accessible(site: Site) -> None:
    """It has results or none, or an invalid address, which stays in the field beside its problem."""

    async def steps(page: Page) -> None:
        for address, name in (("Carla@Example.org", "search-found"), ("nobody@example.org", "search-not-found")):
            await page.goto("/unsubscribes")
            await page.get_by_label("Search").fill(address)
            await page.get_by_role("button", name="Search").click()
            await expect(page.locator("main")).to_contain_text(address.lower())
            await assert_accessible(page, name)
        box = page.get_by_label("Search")
        await box.fill("not an address")
        await page.get_by_role("button", name="Search").click()
        await expect(box).to_have_attribute("aria-invalid", "true")
        await expect(box).to_have_value("not an address")
        await expect(box).to_be_focused()
        await expect(page.locator("#address-problem")).to_be_visible()
        assert "address-problem" in (await box.get_attribute("aria-describedby") or "")
        await assert_accessible(page, "search-refused")

    site.visit(steps)


def test_errors_are_accessible(site: Site) -> None:
    """404 and 403."""
    link = link_of(site.installation, site.server, "admin@people.example", "--org", "demo", "--role", "admin")

    async def nothing(page: Page) -> None:
        answer = await page.goto("/settings/keys/svc_ci_nothing")
        assert answer is not None
        assert answer.status == 404
        await assert_accessible(page, "error-404")

    async def others(page: Page) -> None:
        await page.goto(link)
        await page.get_by_label("Password", exact=True).fill("one two three four")
        await page.get_by_label("Repeat password").fill("one two three four")
        await page.get_by_role("button", name="Set password").click()
        await expect(page.get_by_role("navigation", name="Main")).to_be_visible()
        answer = await page.goto("/settings/people")
        assert answer is not None
        assert answer.status == 403
        await assert_accessible(page, "error-403")

    site.visit(nothing)
    site.visit_signed_out(others)


def test_an_alarm_is_accessible(site: Site) -> None:
    """A refresh token that is used twice raises a banner on the key's page and a mark in both lists."""
    key = site.installation.json("key", "create", "--label", "Reused", "--org", "demo")
    client_id = key["client_id"]
    with site.server.client() as client:
        first = get_token(client, client_id, key["client_secret"]).json()["refresh_token"]
        form = {"grant_type": "refresh_token", "refresh_token": first}
        for status in (200, 400):
            answer = client.post("/oauth/token", data=form, auth=(client_id, key["client_secret"]))
            assert answer.status_code == status

    async def steps(page: Page) -> None:
        await page.goto(f"/settings/keys/{client_id}")
        await expect(page.get_by_role("alert")).to_contain_text("A refresh token was used twice")
        await assert_accessible(page, "key-alarm")
        await page.goto("/settings/keys")
        await expect(page.get_by_role("row", name="Reused")).to_contain_text("Alarm")
        await page.goto("/")
        await expect(page.get_by_role("listitem").filter(has_text="Reused")).to_contain_text("Alarm")

    site.visit(steps)


def test_tables_keep_their_meaning_on_phones(site: Site) -> None:
    """Rows are shown as cards, and screen readers still meet a table with its headers, with the name of each column."""

    async def roles(page: Page) -> Counter[str]:
        session = await page.context.new_cdp_session(page)
        tree = await session.send("Accessibility.getFullAXTree")
        return Counter(node["role"]["value"] for node in tree["nodes"] if not node.get("ignored"))

    async def steps(page: Page) -> None:
        await page.goto("/unsubscribes/lantern-books/email")
        wide = await roles(page)
        await page.set_viewport_size({"width": 390, "height": 1000})
        narrow = await roles(page)
        for role in ("table", "row", "columnheader", "rowheader", "cell"):
            assert narrow[role] == wide[role] > 0, role
        row = page.get_by_role("row").nth(1)
        for column in ("Recorded", "Status"):
            cell = row.locator(f"[data-label='{column}']")
            await expect(cell).to_be_in_viewport()
            shown = await cell.evaluate("cell => getComputedStyle(cell, '::before').content")
            assert "attr(data-label)" in shown or column in shown

    site.visit(steps)


def test_filters_fold_on_phones_alone(site: Site) -> None:
    """The list begins on the first screen; elsewhere the fields are reached without a click."""

    async def steps(page: Page) -> None:
        await page.goto("/unsubscribes/lantern-books/email?status=unsubscribed")
        status, folded = page.get_by_label("Status"), page.get_by_text("Filters: 1 set")
        await expect(status).to_be_in_viewport()
        await expect(folded).to_be_hidden()
        await status.focus()
        await expect(status).to_be_focused()
        await page.set_viewport_size({"width": 390, "height": 844})
        assert not await status.evaluate("field => field.checkVisibility({contentVisibilityAuto: true})")
        await expect(page.get_by_role("rowheader").first).to_be_in_viewport()
        await folded.focus()
        await page.keyboard.press("Enter")
        await expect(status).to_be_in_viewport()
        await assert_accessible(page, "filters")

    site.visit(steps)


@pytest.mark.parametrize("has_script", [True, False])
def test_the_values_of_a_chart_are_shown_on_hover_and_focus(site: Site, has_script: bool) -> None:
    """One stop for Tab, then the arrow keys, also without script. Else the total is shown."""

    async def steps(page: Page) -> None:
        await page.goto("/?organization=lantern-books&days=90")
        values, total = page.locator(".values .value"), page.locator(".plot .total")
        await expect(total).to_contain_text("90 days before: ")
        days = page.get_by_role("radio")
        assert await days.count() == 90
        await page.get_by_role("link", name="1 year").focus()
        await page.keyboard.press("Tab")
        await expect(days.last).to_be_focused()
        await expect(total).to_be_hidden()
        await page.keyboard.press("ArrowLeft")
        await expect(days.nth(88)).to_be_focused()
        await expect(values.nth(88)).to_be_in_viewport()
        assert [box["width"] > 1 for box in await boxes(page)].count(True) == 1
        await days.nth(40).hover()
        shown = await boxes(page)
        assert [at for at, box in enumerate(shown) if box["width"] > 1] == [40]
        if has_script:  # axe needs it
            await assert_accessible(page, "chart-values")
        await page.keyboard.press("Tab")
        await expect(page.locator("summary").first).to_be_focused()

    async def boxes(page: Page) -> list[dict[str, float]]:
        found: list[dict[str, float]] = await page.eval_on_selector_all(
            ".values .value", "all => all.map((one) => one.getBoundingClientRect().toJSON())"
        )
        return found

    site.visit(steps, java_script_enabled=has_script)


def test_local_times_stand_beside_utc(site: Site) -> None:
    """The date is added where it differs; nothing is added where the clock shows UTC, or on paper."""

    async def steps(page: Page) -> None:
        await page.goto("/unsubscribes/demo/email")
        await page.get_by_role("link", name="carla@example.org").click()
        await expect(page.locator("dt:text('Occurred') + dd")).to_have_text("2026-03-01 09:30:00 UTC (23:30 GMT+14)")
        await expect(page.locator("footer")).to_contain_text("(Pacific/Kiritimati)")
        await assert_printable(page, "record-local")
        await page.emulate_media(media="print")
        await expect(page.locator(".local").first).to_be_hidden()
        await page.emulate_media(media="screen")
        await page.get_by_role("link", name="Resubscribe manually").click()
        await page.get_by_label("Occurred at (UTC)").fill("2026-03-02T12:00")
        await expect(page.locator("input + .local")).to_have_text("(2026-03-03 02:00 GMT+14)")

    async def in_utc(page: Page) -> None:
        await page.goto("/unsubscribes/demo/email")
        await expect(page.locator("time").first).to_contain_text("UTC")
        assert await page.locator(".local").count() == 0

    site.visit(steps, timezone_id="Pacific/Kiritimati")
    site.visit(in_utc, timezone_id="UTC")


def test_a_record_and_partner_instructions_are_printable(site: Site) -> None:
    """They are printed without navigation and buttons; a record also states who printed it and when."""

    async def steps(page: Page) -> None:
        await page.goto("/unsubscribes/demo/email")
        await page.get_by_role("link", name="carla@example.org").click()
        await expect(page.locator("main")).to_contain_text("History")
        await expect(page.locator(".sheet-only")).to_be_hidden()
        await assert_printable(page, "record")
        await page.emulate_media(media="print")
        await expect(page.locator(".sheet-only")).to_contain_text("root@people.example")
        await page.emulate_media(media="screen")
        await page.goto("/settings/keys")
        await page.get_by_role("link", name="Demo", exact=True).click()
        await page.get_by_role("link", name="Partner instructions").click()
        assert "svc_cs_" in await page.locator("#sheet").inner_text()
        await assert_printable(page, "key-sheet")

    site.visit(steps)


def test_an_empty_deployment_names_the_next_step(chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each page links to the next step: an organization, then a key, then the first opt-out."""
    installation = Installation(tmp_path_factory.mktemp("nothing"))

    async def steps(page: Page) -> None:
        for path in ("/unsubscribes", "/organizations", "/settings/keys", "/settings/keys/new", "/"):
            await page.goto(path)
            await expect(page.locator(".empty")).to_be_visible()
            await assert_accessible(page, f"empty-{kind_of(path)}")
        await page.get_by_role("link", name="Create organization").click()
        await page.get_by_label("Name", exact=True).fill("Acme Shoes")
        await page.get_by_label("Slug").fill("acme-shoes")
        await page.get_by_role("button", name="Create organization").click()
        await expect(page.get_by_role("heading", name="No groups yet")).to_be_visible()
        await assert_accessible(page, "empty-organization")
        await page.goto("/")
        await page.get_by_role("link", name="Create API key").click()
        await expect(page).to_have_url(re.compile("/settings/keys/new$"))
        await page.goto("/unsubscribes/acme-shoes/email")
        await expect(page.get_by_role("heading", name="No opt-outs yet")).to_be_visible()
        await assert_accessible(page, "empty-feed")

    with opened_site(chromium, installation) as empty:
        empty.visit(steps)
        with empty.server.client() as client:
            key = installation.json("key", "create", "--label", "First", "--org", "acme-shoes")
            body = {"all_groups": True, "items": [{"address": "first@example.org"}]}
            call = bearer(client, key["client_id"], key["client_secret"])
            assert client.post("/api/v1/unsubscribe/email", json=body, headers=call).status_code == 200

        async def first(page: Page) -> None:
            await page.goto("/")
            await expect(page.locator("figure").first).to_contain_text("Opt-outs per day")

        empty.visit(first)


def test_many_organizations_are_searched_accessibly(chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Lists, suggestions, and boxes that shorten while somebody types; Enter in that field sends nothing."""

    async def steps(page: Page) -> None:
        await page.goto("/organizations/_new")
        for number in range(60):
            form: dict[str, str | float | bool] = {
                "name": f"Chain Store {number}",
                "slug": f"chain-{number}",
                "default_group": "News",
            }
            answer = await page.request.post(
                "/organizations/_new", form=form, headers={"sec-fetch-site": "same-origin"}
            )
            assert answer.status == 200, await answer.text()
        for path in ("/organizations", "/unsubscribes", "/settings/keys/new"):
            await page.goto(path)
            await assert_accessible(page, f"many-{kind_of(path)}")
        boxes = page.get_by_role("group", name="Organizations").get_by_role("checkbox")
        await expect(boxes).to_have_count(60)
        await page.get_by_label("Find in Organizations").fill("STORE 57")
        await expect(boxes).to_have_count(1)
        await page.keyboard.press("Enter")
        await expect(page).to_have_title(re.compile("Create API key"))
        await page.keyboard.press("Tab")
        await page.keyboard.press("Space")
        await page.get_by_label("Find in Organizations").fill("")
        await expect(page.get_by_label("Chain Store 57")).to_be_checked()
        await expect(boxes).to_have_count(60)

    with opened_site(chromium, Installation(tmp_path_factory.mktemp("many"))) as many:
        many.visit(steps)

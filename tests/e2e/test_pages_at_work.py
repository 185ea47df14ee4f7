"""What people do on the pages, in a real browser, by clicking and typing: each main path, and where it refuses."""

import csv
import io
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyotp
import pytest
from playwright.async_api import Download, Page, expect

from tests.e2e import load
from tests.e2e.pages_browser import (
    PASSWORD,
    Site,
    bearer,
    fit,
    get_token,
    heard,
    link_of,
    listen,
    opened_site,
    set_password,
    sign_in,
)
from tests.e2e.running import Key, Place
from tests.e2e.test_workers import worker_of
from tests.server.serving import Connection

# What browsers and pages do is the same whatever the interpreter.
pytestmark = pytest.mark.slow

EMAIL_PATH = "/api/v1/unsubscribe/email"
FOCUSED_NAME = """
() => ((at) => (at.labels?.[0] ?? at).innerText.split(/\\s+/).join(" ").trim())(document.activeElement)
"""
FOCUS_IS_SHOWN = """
() => ((at, style) => at === document.body || (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2))(
  document.activeElement, getComputedStyle(document.activeElement))
"""


@pytest.fixture(scope="module")
def site(chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A process on SQLite, with the organizations `acme` and `bolt`."""
    place = Place(tmp_path_factory.mktemp("at-work"))
    with opened_site(chromium, place) as opened:
        place.ok("org", "create", "acme", "--name", "Acme Shoes", "--default-group", "Newsletter")
        place.ok("org", "create", "bolt", "--name", "Bolt and Nut")
        yield opened


@pytest.fixture(scope="module")
def scaled_site(chromium: Path, scaled: Place) -> Iterator[Site]:
    """Two workers on PostgreSQL and Valkey, with an organization `acme`."""
    with opened_site(chromium, scaled) as opened:
        scaled.ok("org", "create", "acme", "--name", "Acme Shoes", "--default-group", "Newsletter")
        yield opened


@pytest.fixture(params=["site", "scaled_site"])
def either(request: pytest.FixtureRequest) -> Site:
    """Each of the two."""
    opened: Site = request.getfixturevalue(request.param)
    return opened


def submitted(site: Site, key: Key, *addresses: str, at: str | None = None) -> str:
    """The submission_id of these opt-outs, sent as a partner's program sends them."""
    when = {} if at is None else {"occurred_at": f"{at}Z"}
    with site.server.client() as client:
        body = {"items": [{"address": address} | when for address in addresses]}
        answer = client.post(EMAIL_PATH, json=body, headers=bearer(client, *key))
        assert answer.status_code == 200, answer.text
        return str(answer.json()["submission_id"])


def days_from_now(days: int) -> str:
    """As a field for a moment takes it."""
    return f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%dT%H:%M:%S}"


async def press(page: Page, name: str) -> None:
    await page.get_by_role("button", name=name, exact=True).click()


async def follow(page: Page, name: str) -> None:
    await page.get_by_role("link", name=name, exact=True).click()


async def said(page: Page, text: str) -> None:
    """The page says at its top that this was done."""
    await expect(page.get_by_role("status")).to_contain_text(text)


def test_a_key_from_its_making_to_its_end(either: Site) -> None:
    """Make a key, use it, see Last used fill in, deactivate it, and see the next call refused."""

    async def watch(page: Page) -> None:
        await page.goto("/")
        await follow(page, "Settings")
        await page.get_by_role("link", name="Create API key").click()
        await page.get_by_label("Label").fill("Made in a browser")
        await page.get_by_label("Acme Shoes").check()
        await press(page, "Create API key")
        key = Key(await page.locator("#client-id").inner_text(), await page.locator("#client-secret").inner_text())
        await page.reload()  # the browser sends the form again
        assert key.secret not in await page.content()
        await page.go_back()
        assert key.secret not in await page.content()
        with either.server.client() as client:
            call = bearer(client, *key)
            assert client.get(EMAIL_PATH, headers=call).status_code == 200
            await page.goto("/settings/keys")
            await follow(page, "Made in a browser")
            # Of several processes each writes down once a minute what it has counted.
            if either.place.variables.get("STOPLIST_WORKERS", "1") == "1":
                await expect(page.locator("dt:text('Last used') + dd")).to_contain_text("UTC")
            await follow(page, "Deactivate")
            await expect(page.locator("main")).to_contain_text("every token that it has stops working at once")
            await press(page, "Deactivate")
            await said(page, "was deactivated")
            assert client.get(EMAIL_PATH, headers=call).status_code == 401
            assert get_token(client, *key).json()["error"] == "invalid_client"

    either.visit(watch)


def test_why_somebody_was_not_written_to(either: Site) -> None:
    """Search a person in another spelling, read the history, and resubscribe by hand; the address is in no URL."""
    key = either.place.new_key(organization="acme")
    submitted(either, key, "why@example.org", at=days_from_now(-2))
    seen: list[str] = []

    async def watch(page: Page) -> None:
        page.on("framenavigated", lambda frame: seen.append(frame.url))
        await page.goto("/unsubscribes")
        await page.get_by_label("Why did we not write to her?").fill(" WHY@Example.org")
        await press(page, "Search")
        await expect(page.get_by_role("row", name="Acme Shoes")).to_have_count(2)
        await page.get_by_role("link", name="E-mail: Newsletter of Acme Shoes").click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("why@example.org")
        await expect(page.get_by_role("region", name="History, newest first").get_by_role("row")).to_have_count(2)
        await follow(page, "Resubscribe by hand")
        # Before the opt-out: that one stands, and the page says so.
        await page.get_by_label("When it happened (UTC)").fill(days_from_now(-3))
        await page.get_by_label("Stated reason").fill("An earlier letter")
        await press(page, "Resubscribe")
        await said(page, "Nothing was changed")
        await follow(page, "Resubscribe by hand")
        await page.get_by_label("When it happened (UTC)").fill(days_from_now(1))
        await page.get_by_label("Stated reason").fill("She wrote to us")
        await press(page, "Resubscribe")
        await expect(page.get_by_label("When it happened (UTC)")).to_have_attribute("aria-invalid", "true")
        await expect(page.get_by_label("Stated reason")).to_have_value("She wrote to us")
        await fit(page, "resubscribe-refused")
        await page.get_by_label("When it happened (UTC)").fill(days_from_now(-1))
        await press(page, "Resubscribe")
        await said(page, "The resubscription was recorded")
        await expect(page.get_by_role("heading", level=1)).to_contain_text("Resubscribed")
        await expect(page.get_by_role("region", name="History, newest first")).to_contain_text("She wrote to us")

    either.visit(watch)
    assert [url for url in seen if "why" in url.lower()] == []
    assert "why@" not in either.server.log.text.lower()


def test_a_submission_is_reversed(site: Site) -> None:
    """The counts first; then what stood on it alone is resubscribed, and what was sent again is left."""
    key = site.place.new_key(organization="acme")
    mistaken = submitted(site, key, "first@example.org", "second@example.org")
    submitted(site, key, "second@example.org")

    async def watch(page: Page) -> None:
        await page.goto("/unsubscribes/acme/email")
        await follow(page, "first@example.org")
        await page.get_by_role("link", name=mistaken).click()
        await follow(page, "Reverse")
        await fit(page, "reverse-counts")
        await press(page, "Reverse 1 record")
        await said(page, "The submission was reversed")
        await fit(page, "reverse-done")
        await page.goto("/unsubscribes/acme/email")
        await expect(page.get_by_role("row", name="first@example.org")).to_contain_text("Resubscribed")
        await expect(page.get_by_role("row", name="second@example.org")).to_contain_text("Unsubscribed")

    site.visit(watch)


def test_a_person_sees_one_organization_until_she_is_disabled(site: Site) -> None:
    """Her link is shown once; she chooses a password and sees what is hers; disabled, she is out at the next click."""

    async def watch(page: Page) -> None:
        await page.goto("/organizations")
        await follow(page, "Acme Shoes")
        await follow(page, "Add person")
        await page.get_by_label("E-mail address").fill("ann@acme.example")
        await press(page, "Add")
        link = await page.locator("#sign-in-link").inner_text()
        await fit(page, "sign-in-link-made")
        async with site.stranger() as hers:
            await hers.goto(link)
            await set_password(hers)
            await follow(hers, "Organizations")
            await expect(hers.locator("main")).to_contain_text("Acme Shoes")
            assert "Bolt and Nut" not in await hers.content()
            answer = await hers.goto("/organizations/bolt")
            assert answer is not None
            assert answer.status == 404
            await disable(page, "ann@acme.example")
            await follow(hers, "Organizations")
            await expect(hers).to_have_title(re.compile("Sign in"))
            await sign_in(hers, "ann@acme.example")
            await expect(hers.get_by_role("alert")).to_be_visible()

    site.visit(watch)


async def disable(page: Page, email: str) -> None:
    """An administrator shuts this person out."""
    await page.goto("/settings/people")
    await follow(page, email)
    await follow(page, "Disable")
    await press(page, "Disable")
    await said(page, "was disabled")


def test_a_disabled_person_is_out_at_once_at_every_worker(scaled_site: Site) -> None:
    """On connections that were open before, to each of the two."""
    server = scaled_site.server
    link = link_of(scaled_site.place, server, "out@acme.example", "--org", "acme", "--role", "viewer")

    async def watch(page: Page) -> None:
        async with AsyncExitStack() as stack:
            hers = await stack.enter_async_context(scaled_site.stranger())
            await hers.goto(link)
            await set_password(hers)
            (cookie,) = await hers.context.cookies()
            request = (
                f"GET / HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie['name']}={cookie['value']}\r\n\r\n".encode()
            )
            lines: dict[int, Connection] = {}
            while len(lines) < 2:
                line = await stack.enter_async_context(load.connection(server))
                lines.setdefault(worker_of(server, line).pid, line)
            assert {(await load.acquire(line, request)).status for line in lines.values()} == {200}
            await disable(page, "out@acme.example")
            assert {(await load.acquire(line, request)).status for line in lines.values()} == {303}
            await hers.reload()
            await expect(hers).to_have_title(re.compile("Sign in"))

    scaled_site.visit(watch)


def test_a_second_step_from_turning_it_on_to_a_recovery_code(site: Site) -> None:
    """An app is told the secret and proves it; from then on a code is asked for, or a recovery code, once."""
    link = link_of(site.place, site.server, "two@acme.example", "--org", "acme", "--role", "viewer")

    async def watch(page: Page) -> None:
        await page.goto(link)
        await set_password(page)
        await follow(page, "two@acme.example")
        await follow(page, "Turn on")
        totp = pyotp.TOTP(await page.locator("#totp-secret").inner_text())
        await page.get_by_label("Code", exact=True).fill("000000 no")
        await page.get_by_label("Your password").fill(PASSWORD)
        await press(page, "Turn on")
        await expect(page.get_by_label("Code", exact=True)).to_have_attribute("aria-invalid", "true")
        assert await page.locator("#totp-secret").inner_text() == totp.secret
        await fit(page, "two-step-refused")
        await page.get_by_label("Code", exact=True).fill(totp.now())
        await page.get_by_label("Your password").fill(PASSWORD)
        await press(page, "Turn on")
        codes = (await page.locator("#recovery-codes").inner_text()).split()
        assert len(codes) == 10
        await fit(page, "recovery-codes")
        await sign_out(page)
        await sign_in(page, "two@acme.example")
        await expect(page.get_by_role("heading", name="Enter the code")).to_be_visible()
        await fit(page, "second-step")
        # The present one has been used; the one after it is good too, also when its time has come meanwhile.
        await enter(page, totp.at(datetime.now(UTC) + timedelta(seconds=totp.interval)))
        await expect(page).to_have_title(re.compile("Overview"))
        for code, is_good in ((codes[0], True), (codes[0], False), (codes[1], True)):
            await sign_out(page)
            await sign_in(page, "two@acme.example")
            await enter(page, code)
            await expect(page).to_have_title(re.compile("Overview" if is_good else "Enter the code|Sign in"))
            if not is_good:
                await fit(page, "second-step-refused")

    site.arrive(watch)


async def enter(page: Page, code: str) -> None:
    await page.get_by_label("Code", exact=True).fill(code)
    await press(page, "Go on")


async def sign_out(page: Page) -> None:
    await page.wait_for_load_state()
    if await page.get_by_role("button", name="Sign out").count():
        await press(page, "Sign out")
        await said(page, "You have signed out")


def test_the_audit_is_filtered_and_taken_along(site: Site) -> None:
    """A filter leaves what it says, in the list and in the file; one that is none is refused beside its field."""
    site.place.ok("org", "create", "audited", "--name", "=1+1")

    async def watch(page: Page) -> None:
        await page.goto("/")
        await follow(page, "Audit")
        await page.get_by_label("To what").fill("audited")
        await press(page, "Filter")
        rows = page.get_by_role("region", name="Entries").get_by_role("row")
        await expect(rows).to_have_count(2)
        await expect(rows.last).to_contain_text("=1+1")
        async with page.expect_download() as coming:
            await page.get_by_role("link", name="Download as CSV").click()
        download: Download = await coming.value
        lines = list(csv.reader(io.StringIO((await download.path()).read_text(encoding="utf-8-sig"))))
        assert download.suggested_filename.startswith("stoplist-audit-")
        assert [line[5] for line in lines] == ["target", "audited"]
        assert [cell for cell in lines[1] if cell.startswith(("=", "+", "-", "@"))] == []
        await page.goto("/audit?target=nothing")
        await expect(page.get_by_role("heading", name="No entry passes the filters")).to_be_visible()
        await fit(page, "audit-nothing")
        await page.goto("/audit?from=2026-02-02&until=2026-01-01")
        await expect(page.locator(".problem")).to_be_visible()
        await fit(page, "audit-refused")

    site.visit(watch)


def test_groups_and_an_organization_from_making_to_closing(site: Site) -> None:
    """Create both, make a group the default, retire it with the warning, close the organization for good."""

    async def watch(page: Page) -> None:
        await page.goto("/organizations")
        await follow(page, "Create organization")
        await page.get_by_label("Name", exact=True).fill("Short Lived")
        await page.get_by_label("Slug").fill("Not A Slug")
        await press(page, "Create organization")
        await expect(page.locator("#slug-problem")).to_be_visible()
        await expect(page.get_by_label("Name", exact=True)).to_have_value("Short Lived")
        await fit(page, "organization-refused")
        await page.get_by_label("Slug").fill("short-lived")
        await press(page, "Create organization")
        await expect(page.locator(".warning")).to_contain_text("There is no default group")
        for name in ("First", "Second"):
            await follow(page, "Create group")
            await page.get_by_label("Name", exact=True).fill(name)
            await page.get_by_label("Make it the default group").set_checked(False)
            await press(page, "Create group")
            await said(page, "The group was created")
        groups = page.get_by_role("region", name="Groups")
        await page.get_by_role("link", name="Make default : Second").click()
        await press(page, "Make it the default")
        await expect(groups.get_by_role("row", name="Second")).to_contain_text("Default")
        await page.get_by_role("link", name="Retire Second").click()
        await expect(page.locator("main form")).to_contain_text("This is the default group")
        await fit(page, "retire-the-default")
        await press(page, "Retire for good")
        await expect(groups.get_by_role("row", name="Second")).to_contain_text("Retired")
        await expect(page.locator(".warning")).to_contain_text("There is no default group")
        await follow(page, "Close")
        await expect(page.locator("main")).to_contain_text("This cannot be undone")
        await press(page, "Close for good")
        await said(page, "The organization was closed")
        await expect(page.get_by_role("heading", level=1)).to_contain_text("Closed")
        await fit(page, "organization-closed")

    site.visit(watch)


def test_the_keyboard_alone_makes_a_key(site: Site) -> None:
    """Tab and Enter lead past the bar, through it, and through a form; what has the focus always shows it."""

    async def watch(page: Page) -> None:
        async def tab_to(name: str) -> None:
            await page.wait_for_load_state()
            for _ in range(40):
                await page.keyboard.press("Tab")
                assert await page.evaluate(FOCUS_IS_SHOWN), await page.evaluate("document.activeElement.outerHTML")
                if await page.evaluate(FOCUSED_NAME) == name:
                    return
            raise AssertionError(f"Tab does not lead to {name}")

        await page.goto("/settings/keys")
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        await expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.closest('main') !== null")
        await page.goto("/")
        await tab_to("Settings")
        await page.keyboard.press("Enter")
        await expect(page).to_have_title(re.compile("API Keys"))
        await tab_to("Create API key Beta")
        await page.keyboard.press("Enter")
        await expect(page).to_have_title(re.compile("Create API key"))
        await tab_to("Label")
        await page.keyboard.type("By keyboard")
        await tab_to("Acme Shoes acme")
        await page.keyboard.press("Space")
        await tab_to("Create API key")
        await page.keyboard.press("Enter")
        await expect(page.locator("#client-secret")).to_contain_text("svc_cs_")
        await fit(page, "key-secret")

    site.visit(watch)


def test_a_refused_form_keeps_what_was_typed(site: Site) -> None:
    """A key without an organization: the problem stands beside its field, and the rest is as it was."""

    async def watch(page: Page) -> None:
        await page.goto("/settings/keys/new")
        await page.get_by_label("Label").fill("Of nobody")
        for box in await page.get_by_role("group", name="Organizations").get_by_role("checkbox").all():
            await box.uncheck()
        await page.get_by_label("API requests in 60 s").fill("77")
        await press(page, "Create API key")
        await expect(page.get_by_role("group", name="Organizations").locator(".problem")).to_be_visible()
        await expect(page.get_by_label("Label")).to_have_value("Of nobody")
        await expect(page.get_by_label("API requests in 60 s")).to_have_value("77")
        await fit(page, "key-refused")

    site.visit(watch)


def test_the_pages_work_without_script(site: Site) -> None:
    """A browser that runs none can do all: here it makes a key."""

    async def watch(page: Page) -> None:
        await page.goto("/settings/keys/new")
        await page.get_by_label("Label").fill("Without script")
        await page.get_by_label("Acme Shoes").check()
        await press(page, "Create API key")
        await expect(page.locator("#client-secret")).to_contain_text("svc_cs_")
        assert not await page.locator("button[data-copies]").first.is_visible()

    site.visit(watch, java_script_enabled=False)


def test_a_secret_is_copied_by_one_press(site: Site) -> None:
    """The button says that it did."""

    async def watch(page: Page) -> None:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await page.goto("/settings/keys/new")
        await page.get_by_label("Label").fill("Copied")
        await page.get_by_label("Acme Shoes").check()
        await press(page, "Create API key")
        await listen(page)
        await page.get_by_role("button", name="Copy client_secret").click()
        await heard(page, "button: Copied")
        copied = await page.evaluate("navigator.clipboard.readText()")
        assert copied == await page.locator("#client-secret").inner_text()

    site.visit(watch)

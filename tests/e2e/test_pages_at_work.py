"""The main tasks on the pages in a real browser, with their refusals."""

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
    assert_accessible,
    bearer,
    get_token,
    link_of,
    opened_site,
    record_changes,
    set_password,
    sign_in,
    wait_for_changes,
)
from tests.e2e.server_process import Installation
from tests.e2e.test_workers import worker_of
from tests.keys import Key
from tests.server.serving import RawConnection

# The result does not depend on the interpreter.
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
    """A server on SQLite with the organizations `acme` and `bolt`."""
    installation = Installation(tmp_path_factory.mktemp("at-work"))
    with opened_site(chromium, installation) as opened:
        installation.ok("org", "create", "acme", "--name", "Acme Shoes", "--default-group", "Newsletter")
        installation.ok("org", "create", "bolt", "--name", "Bolt and Nut")
        yield opened


@pytest.fixture(scope="module")
def scaled_site(chromium: Path, scaled: Installation) -> Iterator[Site]:
    """Two workers on PostgreSQL and Valkey with the organization `acme`."""
    with opened_site(chromium, scaled) as opened:
        scaled.ok("org", "create", "acme", "--name", "Acme Shoes", "--default-group", "Newsletter")
        yield opened


@pytest.fixture(params=["site", "scaled_site"])
def either(request: pytest.FixtureRequest) -> Site:
    """Each of the two sites."""
    opened: Site = request.getfixturevalue(request.param)
    return opened


def submit(site: Site, key: Key, *addresses: str, at: str | None = None) -> str:
    """Submit opt-outs as a partner's program does; return the submission_id."""
    when = {} if at is None else {"occurred_at": f"{at}Z"}
    with site.server.client() as client:
        body = {"items": [{"address": address} | when for address in addresses]}
        answer = client.post(EMAIL_PATH, json=body, headers=bearer(client, *key))
        assert answer.status_code == 200, answer.text
        return str(answer.json()["submission_id"])


def days_from_now(days: int) -> str:
    """Return a time as a datetime-local field takes it."""
    return f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%dT%H:%M:%S}"


async def click_button(page: Page, name: str) -> None:
    await page.get_by_role("button", name=name, exact=True).click()


async def click_link(page: Page, name: str) -> None:
    await page.get_by_role("link", name=name, exact=True).click()


async def expect_status(page: Page, text: str) -> None:
    """Expect this text in the message at the top of the page."""
    await expect(page.get_by_role("status")).to_contain_text(text)


def test_a_key_is_created_used_and_deactivated(either: Site) -> None:
    """Last used is filled in, and the call after the deactivation is refused."""

    async def steps(page: Page) -> None:
        await page.goto("/")
        await click_link(page, "Settings")
        await page.get_by_role("link", name="Create API key").click()
        await page.get_by_label("Label").fill("Made in a browser")
        await page.get_by_label("Acme Shoes").check()
        await click_button(page, "Create API key")
        key = Key(await page.locator("#client-id").inner_text(), await page.locator("#client-secret").inner_text())
        await page.reload()  # sends the form again
        assert key.client_secret not in await page.content()
        await page.go_back()
        assert key.client_secret not in await page.content()
        with either.server.client() as client:
            call = bearer(client, *key)
            assert client.get(EMAIL_PATH, headers=call).status_code == 200
            await page.goto("/settings/keys")
            await click_link(page, "Made in a browser")
            # With several processes, each writes its counts once a minute.
            if either.installation.variables.get("STOPLIST_WORKERS", "1") == "1":
                await expect(page.locator("dt:text('Last used') + dd")).to_contain_text("UTC")
            await click_link(page, "Deactivate")
            await expect(page.locator("main")).to_contain_text("tokens stop working immediately")
            await click_button(page, "Deactivate")
            await expect_status(page, "was deactivated")
            assert client.get(EMAIL_PATH, headers=call).status_code == 401
            assert get_token(client, *key).json()["error"] == "invalid_client"

    either.visit(steps)


def test_an_address_is_searched_and_resubscribed(either: Site) -> None:
    """Another spelling leads there by way of the history; the address is in no URL and no log."""
    key = either.installation.new_key(organization="acme")
    submit(either, key, "why@example.org", at=days_from_now(-2))
    seen: list[str] = []

    async def steps(page: Page) -> None:
        page.on("framenavigated", lambda frame: seen.append(frame.url))
        await page.goto("/unsubscribes")
        await page.get_by_label("Search").fill(" WHY@Example.org")
        await click_button(page, "Search")
        await expect(page.get_by_role("row", name="Acme Shoes")).to_have_count(2)
        await page.get_by_role("link", name="E-mail: Newsletter of Acme Shoes").click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("why@example.org")
        await expect(page.get_by_role("region", name="History, newest first").get_by_role("row")).to_have_count(2)
        await click_link(page, "Resubscribe manually")
        # Before the opt-out, which therefore takes precedence.
        await page.get_by_label("Occurred at (UTC)").fill(days_from_now(-3))
        await page.get_by_label("Stated reason").fill("An earlier letter")
        await click_button(page, "Resubscribe")
        await expect_status(page, "Nothing changed")
        await click_link(page, "Resubscribe manually")
        await page.get_by_label("Occurred at (UTC)").fill(days_from_now(1))
        await page.get_by_label("Stated reason").fill("A letter to us")
        await click_button(page, "Resubscribe")
        await expect(page.get_by_label("Occurred at (UTC)")).to_have_attribute("aria-invalid", "true")
        await expect(page.get_by_label("Stated reason")).to_have_value("A letter to us")
        await assert_accessible(page, "resubscribe-refused")
        await page.get_by_label("Occurred at (UTC)").fill(days_from_now(-1))
        await click_button(page, "Resubscribe")
        await expect_status(page, "The resubscription was recorded")
        await expect(page.get_by_role("heading", level=1)).to_contain_text("Resubscribed")
        await expect(page.get_by_role("region", name="History, newest first")).to_contain_text("A letter to us")

    either.visit(steps)
    assert [url for url in seen if "why" in url.lower()] == []
    assert "why@" not in either.server.log.text.lower()


def test_a_submission_is_reversed(site: Site) -> None:
    """Records that only this submission had changed are withdrawn; those submitted again are left out."""
    key = site.installation.new_key(organization="acme")
    mistaken = submit(site, key, "first@example.org", "second@example.org")
    submit(site, key, "second@example.org")

    async def steps(page: Page) -> None:
        await page.goto("/unsubscribes/acme/email")
        await click_link(page, "first@example.org")
        await page.get_by_role("link", name=mistaken).click()
        await click_link(page, "Reverse")
        await assert_accessible(page, "reverse-counts")
        await click_button(page, "Reverse 1 record")
        await expect_status(page, "The submission was reversed")
        await assert_accessible(page, "reverse-done")
        await page.goto("/unsubscribes/acme/email")
        await expect(page.get_by_role("row", name="first@example.org")).to_contain_text("Withdrawn")
        await expect(page.get_by_role("row", name="second@example.org")).to_contain_text("Unsubscribed")

    site.visit(steps)


def test_a_person_sees_one_organization_until_disabled(site: Site) -> None:
    """The test goes from the sign-in link to the first page refused after the account was disabled."""

    async def steps(page: Page) -> None:
        await page.goto("/organizations")
        await click_link(page, "Acme Shoes")
        await click_link(page, "Add person")
        await page.get_by_label("E-mail address").fill("ann@acme.example")
        await click_button(page, "Add person")
        link = await page.locator("#sign-in-link").inner_text()
        await assert_accessible(page, "sign-in-link-made")
        async with site.other_window() as window:
            await window.goto(link)
            await set_password(window)
            await click_link(window, "Organizations")
            await expect(window.locator("main")).to_contain_text("Acme Shoes")
            assert "Bolt and Nut" not in await window.content()
            answer = await window.goto("/organizations/bolt")
            assert answer is not None
            assert answer.status == 404
            await disable(page, "ann@acme.example")
            await click_link(window, "Organizations")
            await expect(window).to_have_title(re.compile("Sign in"))
            await sign_in(window, "ann@acme.example")
            await expect(window.get_by_role("alert")).to_be_visible()

    site.visit(steps)


async def disable(page: Page, email: str) -> None:
    """Disable an account as an administrator."""
    await page.goto("/settings/people")
    await click_link(page, email)
    await click_link(page, "Disable")
    await click_button(page, "Disable")
    await expect_status(page, "was disabled")


def test_disabling_takes_effect_at_every_worker(scaled_site: Site) -> None:
    """Connections that were open before are affected at once."""
    server = scaled_site.server
    link = link_of(scaled_site.installation, server, "out@acme.example", "--org", "acme", "--role", "viewer")

    async def steps(page: Page) -> None:
        async with AsyncExitStack() as stack:
            window = await stack.enter_async_context(scaled_site.other_window())
            await window.goto(link)
            await set_password(window)
            (cookie,) = await window.context.cookies()
            request = (
                f"GET / HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie['name']}={cookie['value']}\r\n\r\n".encode()
            )
            lines: dict[int, RawConnection] = {}
            while len(lines) < 2:
                line = await stack.enter_async_context(load.connection(server))
                lines.setdefault(worker_of(server, line).pid, line)
            assert {(await load.send_once(line, request)).status for line in lines.values()} == {200}
            await disable(page, "out@acme.example")
            assert {(await load.send_once(line, request)).status for line in lines.values()} == {303}
            await window.reload()
            await expect(window).to_have_title(re.compile("Sign in"))

    scaled_site.visit(steps)


def test_two_step_sign_in_and_recovery_codes(site: Site) -> None:
    """It is turned on with a code; sign-in then needs a code, or a recovery code, which works once."""
    link = link_of(site.installation, site.server, "two@acme.example", "--org", "acme", "--role", "viewer")

    async def steps(page: Page) -> None:
        await page.goto(link)
        await set_password(page)
        await click_link(page, "two@acme.example")
        await click_link(page, "Turn on")
        totp = pyotp.TOTP(await page.locator("#totp-secret").inner_text())
        await page.get_by_label("Code", exact=True).fill("000000 no")
        await page.get_by_label("Your password").fill(PASSWORD)
        await click_button(page, "Turn on")
        await expect(page.get_by_label("Code", exact=True)).to_have_attribute("aria-invalid", "true")
        assert await page.locator("#totp-secret").inner_text() == totp.secret
        await assert_accessible(page, "two-step-refused")
        await page.get_by_label("Code", exact=True).fill(totp.now())
        await page.get_by_label("Your password").fill(PASSWORD)
        await click_button(page, "Turn on")
        codes = (await page.locator("#recovery-codes").inner_text()).split()
        assert len(codes) == 10
        await assert_accessible(page, "recovery-codes")
        await sign_out(page)
        await sign_in(page, "two@acme.example")
        await expect(page.get_by_role("heading", name="Enter your code")).to_be_visible()
        await assert_accessible(page, "second-step")
        # The current code was used. The next one is valid too, even if it has become the current one meanwhile.
        await enter_code(page, totp.at(datetime.now(UTC) + timedelta(seconds=totp.interval)))
        await expect(page).to_have_title(re.compile("Overview"))
        for code, is_good in ((codes[0], True), (codes[0], False), (codes[1], True)):
            await sign_out(page)
            await sign_in(page, "two@acme.example")
            await enter_code(page, code)
            await expect(page).to_have_title(re.compile("Overview" if is_good else "Enter your code|Sign in"))
            if not is_good:
                await assert_accessible(page, "second-step-refused")

    site.visit_signed_out(steps)


async def enter_code(page: Page, code: str) -> None:
    await page.get_by_label("Code", exact=True).fill(code)
    await click_button(page, "Continue")


async def sign_out(page: Page) -> None:
    await page.wait_for_load_state()
    if await page.get_by_role("button", name="Sign out").count():
        await click_button(page, "Sign out")
        await expect_status(page, "You have signed out")


def test_the_audit_is_filtered_and_exported(site: Site) -> None:
    """Filters apply to the list and the file; an invalid one is refused beside its field."""
    site.installation.ok("org", "create", "audited", "--name", "=1+1")

    async def steps(page: Page) -> None:
        await page.goto("/")
        await click_link(page, "Audit log")
        await page.get_by_label("Target").fill("audited")
        await click_button(page, "Filter")
        rows = page.get_by_role("region", name="Entries").get_by_role("row")
        await expect(rows).to_have_count(2)
        await expect(rows.last).to_contain_text("=1+1")
        async with page.expect_download() as coming:
            await page.get_by_role("link", name="Download CSV").click()
        download: Download = await coming.value
        lines = list(csv.reader(io.StringIO((await download.path()).read_text(encoding="utf-8-sig"))))
        assert download.suggested_filename.startswith("stoplist-audit-")
        assert [line[5] for line in lines] == ["target", "audited"]
        assert [cell for cell in lines[1] if cell.startswith(("=", "+", "-", "@"))] == []
        await page.goto("/audit?target=nothing")
        await expect(page.get_by_role("heading", name="No entries match the filters")).to_be_visible()
        await assert_accessible(page, "audit-nothing")
        await page.goto("/audit?from=2026-02-02&until=2026-01-01")
        await expect(page.locator(".problem")).to_be_visible()
        await assert_accessible(page, "audit-refused")

    site.visit(steps)


def test_an_organization_is_created_and_closed(site: Site) -> None:
    """It has groups: one becomes the default and is retired after a warning."""

    async def steps(page: Page) -> None:
        await page.goto("/organizations")
        await click_link(page, "Create organization")
        await page.get_by_label("Name", exact=True).fill("Short Lived")
        await page.get_by_label("Slug").fill("Not A Slug")
        await click_button(page, "Create organization")
        await expect(page.locator("#slug-problem")).to_be_visible()
        await expect(page.get_by_label("Name", exact=True)).to_have_value("Short Lived")
        await assert_accessible(page, "organization-refused")
        await page.get_by_label("Slug").fill("short-lived")
        await click_button(page, "Create organization")
        await expect(page.locator(".warning")).to_contain_text("There is no default group")
        for name in ("First", "Second"):
            await click_link(page, "Create group")
            await page.get_by_label("Name", exact=True).fill(name)
            await page.get_by_label("Make this the default group").set_checked(False)
            await click_button(page, "Create group")
            await expect_status(page, "The group was created")
        groups = page.get_by_role("region", name="Groups")
        await page.get_by_role("link", name="Make default : Second").click()
        await click_button(page, "Make default")
        await expect(groups.get_by_role("row", name="Second")).to_contain_text("Default")
        await page.get_by_role("link", name="Retire Second").click()
        await expect(page.locator("main form")).to_contain_text("This is the default group")
        await assert_accessible(page, "retire-the-default")
        await click_button(page, "Retire group")
        await expect(groups.get_by_role("row", name="Second")).to_contain_text("Retired")
        await expect(page.locator(".warning")).to_contain_text("There is no default group")
        await click_link(page, "Close")
        await expect(page.locator("main")).to_contain_text("This cannot be undone")
        await click_button(page, "Close organization")
        await expect_status(page, "The organization was closed")
        await expect(page.get_by_role("heading", level=1)).to_contain_text("Closed")
        await assert_accessible(page, "organization-closed")

    site.visit(steps)


def test_a_key_is_created_by_keyboard(site: Site) -> None:
    """Tab and Enter lead past the navigation, through it and through a form; the focus is always visible."""

    async def steps(page: Page) -> None:
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
        await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        await expect(page.get_by_role("link", name="Skip to content")).to_be_in_viewport()
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
        await assert_accessible(page, "key-secret")

    site.visit(steps)


def test_a_refused_form_keeps_its_values(site: Site) -> None:
    """The problem of a key without an organization is shown beside its field."""

    async def steps(page: Page) -> None:
        await page.goto("/settings/keys/new")
        await page.get_by_label("Label").fill("Of nobody")
        for box in await page.get_by_role("group", name="Organizations").get_by_role("checkbox").all():
            await box.uncheck()
        await page.get_by_label("API requests").fill("77")
        await click_button(page, "Create API key")
        await expect(page.get_by_role("group", name="Organizations").locator(".problem")).to_be_visible()
        await expect(page.get_by_label("Label")).to_have_value("Of nobody")
        await expect(page.get_by_label("API requests")).to_have_value("77")
        await assert_accessible(page, "key-refused")

    site.visit(steps)


def test_the_pages_work_without_script(site: Site) -> None:

    async def steps(page: Page) -> None:
        await page.goto("/settings/keys/new")
        await page.get_by_label("Label").fill("Without script")
        await page.get_by_label("Acme Shoes").check()
        await click_button(page, "Create API key")
        await expect(page.locator("#client-secret")).to_contain_text("svc_cs_")
        assert not await page.locator("button[data-copies]").first.is_visible()

    site.visit(steps, java_script_enabled=False)


def test_a_button_copies_the_secret(site: Site) -> None:

    async def steps(page: Page) -> None:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await page.goto("/settings/keys/new")
        await page.get_by_label("Label").fill("Copied")
        await page.get_by_label("Acme Shoes").check()
        await click_button(page, "Create API key")
        await record_changes(page)
        await page.get_by_role("button", name="Copy client_secret").click()
        await wait_for_changes(page, "button: Copied")
        copied = await page.evaluate("navigator.clipboard.readText()")
        assert copied == await page.locator("#client-secret").inner_text()

    site.visit(steps)

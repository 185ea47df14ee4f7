"""Opens the pages in a real browser and checks that they are accessible.

`assert_accessible` and `assert_printable` save screenshots in build/pages/ if TEST_SCREENSHOTS is set.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, Page, StorageState, expect

from tests.constants import PATIENCE_S, ROOT
from tests.e2e.server_process import Installation, RunningServer
from tests.keys import CLIENT_CREDENTIALS
from tests.services.browser import launched

_SCREENSHOTS = ROOT / "build" / "pages"
PASSWORD = "four words nobody said"
ADMINISTRATOR = "root@people.example"
WIDE, PHONE, PAPER = 1600, 360, 718
"""Widths of windows, and of A4 paper between margins of 10 mm."""

_HEIGHT = 1000
expect.set_options(timeout=PATIENCE_S * 1000)
_COLOR_RULES = ["color-contrast", "link-in-text-block"]
# No rule that is on by default needs the style sheets that axe would load once more.
_VIOLATIONS = """
(rules) => axe.run({ resultTypes: ["violations"], preload: false, ...(rules && { runOnly: rules }) }).then((found) =>
  found.violations.map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" ")}`))
"""
_OVERFLOWS = """
() => {
  const width = document.documentElement.clientWidth;
  const wide = [...document.querySelectorAll("body *")].filter((one) =>
    !one.closest(".skip, .wide, .unseen") && one.checkVisibility() && one.getBoundingClientRect().right > width + 0.5)
    .map((one) => `wider than the window: ${one.outerHTML.slice(0, 160)}`);
  const over = document.documentElement.scrollWidth - width;
  return over ? [...wide, `the page is wider than the window by ${over}`] : wide;
}
"""

_SCROLLS = """
() => [...document.querySelectorAll(".wide")]
  .filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1)
  .map((one) => `scrolls on a phone: ${one.outerHTML.slice(0, 160)}`)
"""

_RECORD_CHANGES = """
() => {
  window.recorded = new Set();
  const note = ({target}) =>
    window.recorded.add(`${target.localName ?? target.parentElement.localName}: ${target.textContent}`);
  const observer = new MutationObserver((changes) => changes.forEach(note));
  observer.observe(document, {characterData: true, childList: true, subtree: true});
}
"""
_WAIT_FOR_CHANGES = """
async (texts) => {
  while (!texts.every((text) => window.recorded.has(text))) await new Promise(requestAnimationFrame);
  window.recorded.clear();
}
"""

Steps = Callable[[Page], Awaitable[None]]


class Site(NamedTuple):
    """A server, a browser, and the session of an administrator."""

    runner: asyncio.Runner
    browser: Browser
    server: RunningServer
    installation: Installation
    state: StorageState

    def visit(self, steps: Steps, **options: Any) -> None:
        """Run `steps` in a window of the administrator; browser complaints fail the test."""
        self._run(steps, {"storage_state": self.state} | options)

    def visit_signed_out(self, steps: Steps, **options: Any) -> None:
        """Run `steps` in a window without a session; browser complaints fail the test."""
        self._run(steps, options)

    def other_window(self) -> Any:
        """Open a second window, without a session."""
        return window(self.browser, self.server)

    def _run(self, steps: Steps, options: dict[str, Any]) -> None:
        async def run_in_window() -> None:
            async with window(self.browser, self.server, **options) as page:
                await steps(page)

        self.runner.run(run_in_window())


@contextmanager
def opened_site(chromium: Path, installation: Installation, *flags: str) -> Iterator[Site]:
    """Start a server of this installation and sign an administrator in."""
    with installation.serving(*flags) as server, asyncio.Runner() as runner:
        if "--demo" in flags:
            assert server.out.wait_for("Ctrl+C")
        link = link_of(installation, server, ADMINISTRATOR, "--administrator")
        stack = AsyncExitStack()
        browser = runner.run(stack.enter_async_context(launched(chromium)))
        try:
            yield Site(runner, browser, server, installation, runner.run(_signed_in(browser, server, link)))
        finally:
            runner.run(stack.aclose())


def link_of(installation: Installation, server: RunningServer, email: str, *options: str) -> str:
    """Create a person and return their sign-in link."""
    link = installation.json("user", "create", email, *options)["sign_in_url"]
    # The command assumes the default port; this server uses a free one.
    return re.sub(r"^https://[^/]*", server.base_url, link)


@asynccontextmanager
async def window(browser: Browser, server: RunningServer, **options: Any) -> AsyncIterator[Page]:
    """Open a window; browser complaints and requests to other hosts fail the test."""
    defaults: dict[str, Any] = {
        "ignore_https_errors": True,  # a development server has a certificate authority of its own
        "viewport": {"width": WIDE, "height": _HEIGHT},
        "base_url": server.base_url,
    }
    context: BrowserContext = await browser.new_context(**(defaults | options))
    context.set_default_timeout(PATIENCE_S * 1000)
    complaints: list[str] = []
    requested: list[str] = []
    try:
        page = await context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requested.append(request.url))
        yield page
    finally:
        await context.close()
    complaints = [text for text in complaints if not _is_expected_complaint(text)]
    assert not complaints, complaints
    elsewhere = [url for url in requested if not url.startswith(f"{server.base_url}/")]
    assert not elsewhere, elsewhere


async def assert_accessible(page: Page, name: str) -> None:
    """Assert that `find_faults` finds nothing."""
    found = await find_faults(page, name)
    assert not found, found


async def find_faults(page: Page, name: str) -> list[str]:
    """Return what axe finds in light, in dark (by the rules of colors) and in dark at phone width, and what overflows.

    On a phone tables may not scroll either. Screenshots get this name.
    """
    await page.evaluate(Axe().axe_script)
    found = [] if await page.locator("h1").count() == 1 else ["not one h1"]
    found += await _violations(page, "light")
    await save_screenshot(page, f"{name}-{WIDE}-light")
    found += await _violations(page, "dark", _COLOR_RULES)
    await page.set_viewport_size({"width": PHONE, "height": _HEIGHT})
    found += await _violations(page, "dark")
    found += await page.evaluate(_SCROLLS)
    await save_screenshot(page, f"{name}-{PHONE}-dark")
    await page.set_viewport_size({"width": WIDE, "height": _HEIGHT})
    return [f"{name}: {one}" for one in found]


async def assert_printable(page: Page, name: str) -> None:
    """Assert that the printed page fits the paper, black on white, without buttons and navigation."""
    await page.set_viewport_size({"width": PAPER, "height": _HEIGHT})
    await page.emulate_media(media="print")
    too_wide = await page.evaluate(_OVERFLOWS)
    assert not too_wide, too_wide
    assert await page.locator("button:visible, nav:visible, .crumbs:visible").count() == 0
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    await save_screenshot(page, f"{name}-paper")
    await page.emulate_media(media="screen")
    await page.set_viewport_size({"width": WIDE, "height": _HEIGHT})


async def save_screenshot(page: Page, name: str, *, full_page: bool = True) -> None:
    """Save a screenshot in build/pages/, only if TEST_SCREENSHOTS is set: that takes a fifth of the time of a page."""
    if "TEST_SCREENSHOTS" in os.environ:
        await page.screenshot(path=_SCREENSHOTS / f"{name}.png", full_page=full_page)


async def record_changes(page: Page) -> None:
    """Record every text change of an element from now on, for `wait_for_changes`."""
    await page.evaluate(_RECORD_CHANGES)


async def wait_for_changes(page: Page, *texts: str) -> None:
    """Wait until all these changes (`element: text`) were recorded, then clear the record.

    Some texts disappear after two seconds, before a test could look for them.
    """
    await page.evaluate(_WAIT_FOR_CHANGES, texts)


async def set_password(page: Page) -> None:
    """Set PASSWORD on the page of a sign-in link, which signs the person in."""
    await page.get_by_label("Password", exact=True).fill(PASSWORD)
    await page.get_by_label("Repeat password").fill(PASSWORD)
    await page.get_by_role("button", name="Set password").click()
    await expect(page).to_have_title(re.compile("Overview"))


async def sign_in(page: Page, email: str, password: str = PASSWORD) -> None:
    """Fill in and send the sign-in form."""
    await page.goto("/settings/sign-in")
    await page.get_by_label("E-mail address").fill(email)
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Sign in").click()


def get_token(client: httpx.Client, client_id: str, secret: str) -> httpx.Response:
    """Request a token with this key."""
    return client.post("/oauth/token", data=CLIENT_CREDENTIALS, auth=(client_id, secret))


def bearer(client: httpx.Client, client_id: str, secret: str) -> dict[str, str]:
    """Return the authorization header with a new token of this key."""
    return {"authorization": f"Bearer {get_token(client, client_id, secret).json()['access_token']}"}


def _is_expected_complaint(text: str) -> bool:
    """Return whether Chromium always reports this: answers of 400 and more, and what signing out clears."""
    return text.startswith(("Failed to load resource", "Clear-Site-Data header on"))


async def _signed_in(browser: Browser, server: RunningServer, link: str) -> StorageState:
    async with window(browser, server) as page:
        await page.goto(link)
        await set_password(page)
        return await page.context.storage_state()


async def _violations(page: Page, scheme: Literal["light", "dark"], rules: list[str] | None = None) -> list[str]:
    """Return what axe finds by these rules, or by all that are on by default, and what is wider than the window."""
    await page.emulate_media(color_scheme=scheme)
    found: list[str] = await page.evaluate(_VIOLATIONS, rules)
    too_wide: list[str] = await page.evaluate(_OVERFLOWS)
    return found + too_wide

"""The pages as a browser shows them: windows of people who have signed in, and what makes a page fit for everybody.

`fit` keeps pictures of what it looked at, in build/pages/.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, Page, StorageState, expect

from tests.e2e.running import PATIENCE_S, Place, Server
from tests.services.browser import launched

PICTURES = Path(__file__).parents[2] / "build" / "pages"
PASSWORD = "four words nobody said"
ADMINISTRATOR = "root@people.example"
WIDE, PHONE, PAPER = 1600, 360, 718
"""Widths of windows, and of what is printed on A4 between margins of 10 mm."""

_HEIGHT = 1000
expect.set_options(timeout=PATIENCE_S * 1000)
_VIOLATIONS = """
() => axe.run({ resultTypes: ["violations"] }).then((found) =>
  found.violations.map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" ")}`))
"""
_WIDER_THAN_THE_WINDOW = """
() => {
  const width = document.documentElement.clientWidth;
  const wide = [...document.querySelectorAll("body *")].filter((one) =>
    !one.closest(".skip, .wide, .unseen") && one.checkVisibility() && one.getBoundingClientRect().right > width + 0.5)
    .map((one) => `wider than the window: ${one.outerHTML.slice(0, 160)}`);
  const over = document.documentElement.scrollWidth - width;
  return over ? [...wide, `the page is wider than the window by ${over}`] : wide;
}
"""

_LISTEN = """
() => {
  window.heard = new Set();
  const hear = ({target}) =>
    window.heard.add(`${target.localName ?? target.parentElement.localName}: ${target.textContent}`);
  const observer = new MutationObserver((changes) => changes.forEach(hear));
  observer.observe(document, {characterData: true, childList: true, subtree: true});
}
"""
_HEARD = """
async (words) => {
  while (!words.every((text) => window.heard.has(text))) await new Promise(requestAnimationFrame);
  window.heard.clear();
}
"""

Watch = Callable[[Page], Awaitable[None]]


class Site(NamedTuple):
    """A server, a browser, and what the browser of an administrator who has signed in holds."""

    runner: asyncio.Runner
    browser: Browser
    server: Server
    place: Place
    state: StorageState

    def visit(self, watch: Watch, **options: Any) -> None:
        """Hand a page of the administrator's browser over; nothing may be complained about."""
        self._look(watch, {"storage_state": self.state} | options)

    def arrive(self, watch: Watch, **options: Any) -> None:
        """Hand a page of somebody's browser over who has not signed in."""
        self._look(watch, options)

    def stranger(self) -> Any:
        """A window of somebody else, beside the one that is open."""
        return window(self.browser, self.server)

    def _look(self, watch: Watch, options: dict[str, Any]) -> None:
        async def looked() -> None:
            async with window(self.browser, self.server, **options) as page:
                await watch(page)

        self.runner.run(looked())


@contextmanager
def opened_site(chromium: Path, place: Place, *flags: str) -> Iterator[Site]:
    """A server of this place, and an administrator who has signed in to it."""
    with place.serving(*flags) as server, asyncio.Runner() as runner:
        if "--demo" in flags:
            assert server.out.holds("Ctrl+C")
        link = link_of(place, server, ADMINISTRATOR, "--administrator")
        stack = AsyncExitStack()
        browser = runner.run(stack.enter_async_context(launched(chromium)))
        try:
            yield Site(runner, browser, server, place, runner.run(_signed_in(browser, server, link)))
        finally:
            runner.run(stack.aclose())


def link_of(place: Place, server: Server, email: str, *options: str) -> str:
    """The sign-in link of a new person."""
    link = place.json("user", "create", email, *options)["sign_in_url"]
    # The command knows the ordinary port; this server took a free one.
    return re.sub(r"^https://[^/]*", server.base_url, link)


@asynccontextmanager
async def window(browser: Browser, server: Server, **options: Any) -> AsyncIterator[Page]:
    """A window of its own; complaints of the browser and requests to other hosts fail the test."""
    known: dict[str, Any] = {
        "ignore_https_errors": True,  # the authority of a development server is in its data folder
        "viewport": {"width": WIDE, "height": _HEIGHT},
        "base_url": server.base_url,
    }
    context: BrowserContext = await browser.new_context(**(known | options))
    context.set_default_timeout(PATIENCE_S * 1000)
    complaints: list[str] = []
    asked_for: list[str] = []
    try:
        page = await context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked_for.append(request.url))
        yield page
    finally:
        await context.close()
    complaints = [text for text in complaints if not _is_told_anyway(text)]
    assert not complaints, complaints
    elsewhere = [url for url in asked_for if not url.startswith(f"{server.base_url}/")]
    assert not elsewhere, elsewhere


async def fit(page: Page, name: str) -> None:
    """What the window shows is fit for everybody: nothing is found against it."""
    found = await faults(page, name)
    assert not found, found


async def faults(page: Page, name: str) -> list[str]:
    """What axe finds in light, in dark and on a phone, and what does not fit in; pictures are kept by this name."""
    await page.evaluate(Axe().axe_script)
    found = [] if await page.locator("h1").count() == 1 else ["not one h1"]
    found += await _against(page, "light")
    await _picture(page, f"{name}-{WIDE}-light")
    found += await _against(page, "dark")
    await page.set_viewport_size({"width": PHONE, "height": _HEIGHT})
    found += await _against(page, "dark")
    await _picture(page, f"{name}-{PHONE}-dark")
    await page.set_viewport_size({"width": WIDE, "height": _HEIGHT})
    return [f"{name}: {one}" for one in found]


async def fit_on_paper(page: Page, name: str) -> None:
    """Printed, it is a sheet: it fits on the paper, in black on white, and nothing is there to be pressed."""
    await page.set_viewport_size({"width": PAPER, "height": _HEIGHT})
    await page.emulate_media(media="print")
    too_wide = await page.evaluate(_WIDER_THAN_THE_WINDOW)
    assert not too_wide, too_wide
    assert await page.locator("button:visible, nav:visible, .crumbs:visible").count() == 0
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    await _picture(page, f"{name}-paper")
    await page.emulate_media(media="screen")
    await page.set_viewport_size({"width": WIDE, "height": _HEIGHT})


async def listen(page: Page) -> None:
    """From here on it is noted what elements come to say, for `heard`."""
    await page.evaluate(_LISTEN)


async def heard(page: Page, *words: str) -> None:
    """The page has said all of this since it was last asked, each by an element and its text.

    Some of it disappears after two seconds, and those may be over before anybody looks.
    """
    await page.evaluate(_HEARD, words)


async def set_password(page: Page) -> None:
    """Whoever opened a link chooses the password of these tests, and is in."""
    await page.get_by_label("Password", exact=True).fill(PASSWORD)
    await page.get_by_label("The same again").fill(PASSWORD)
    await page.get_by_role("button", name="Set the password").click()
    await expect(page).to_have_title(re.compile("Overview"))


async def sign_in(page: Page, email: str, password: str = PASSWORD) -> None:
    """The form is filled in and sent."""
    await page.goto("/settings/sign-in")
    await page.get_by_label("E-mail address").fill(email)
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Sign in").click()


def get_token(client: httpx.Client, client_id: str, secret: str) -> httpx.Response:
    """What the token endpoint says to this key."""
    return client.post("/oauth/token", data={"grant_type": "client_credentials"}, auth=(client_id, secret))


def bearer(client: httpx.Client, client_id: str, secret: str) -> dict[str, str]:
    """The header of a call with a new token of this key."""
    return {"authorization": f"Bearer {get_token(client, client_id, secret).json()['access_token']}"}


def _is_told_anyway(text: str) -> bool:
    """Chromium says of every answer of 400 and more that it failed, and of signing out what it clears."""
    return text.startswith(("Failed to load resource", "Clear-Site-Data header on"))


async def _signed_in(browser: Browser, server: Server, link: str) -> StorageState:
    async with window(browser, server) as page:
        await page.goto(link)
        await set_password(page)
        return await page.context.storage_state()


async def _against(page: Page, scheme: Literal["light", "dark"]) -> list[str]:
    await page.emulate_media(color_scheme=scheme)
    found: list[str] = await page.evaluate(_VIOLATIONS)
    too_wide: list[str] = await page.evaluate(_WIDER_THAN_THE_WINDOW)
    return found + too_wide


async def _picture(page: Page, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=PICTURES / f"{name}.png", full_page=True)

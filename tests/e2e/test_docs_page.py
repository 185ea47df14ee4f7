"""`/docs` in a real browser: what a reader sees, hears and copies, on a screen, a phone and in the dark."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from playwright.async_api import Browser, Page, expect

from tests.constants import PATIENCE_S
from tests.e2e.pages_browser import record_changes, wait_for_changes
from tests.e2e.server_process import Installation, RunningServer
from tests.services.browser import launched

DOCS = "/docs"
WIDE, PHONE, SMALLEST = 1400, 390, 320
# WCAG 2.1 success criterion 1.4.3.
MIN_CONTRAST = 4.5

LOW_CONTRAST = """
(least) => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = parts(colour).slice(0, 3).map((one) => one / 255)
      .map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      const alpha = parts(colour)[3] ?? 1;
      if (alpha === 1) return colour;
      if (alpha !== 0) throw new Error(`half transparent: ${at.outerHTML}`);
    }
    throw new Error("no ground");
  };
  const seen = new Map();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility() || element.closest("script, style")) continue;
    const [text, back] = [getComputedStyle(element).color, ground(element)];
    const [low, high] = [light(text), light(back)].sort((a, b) => a - b);
    seen.set(`${element.className || element.localName}: ${text} on ${back}`, (high + 0.05) / (low + 0.05));
  }
  const pale = [...seen].filter(([, ratio]) => ratio < least);
  return { seen: seen.size, pale, ground: light(ground(document.body)) };
}
"""
UNFOLD_ALL = "() => { for (const one of document.querySelectorAll('details')) one.open = true; }"
OVERFLOWING = """
() => {
  const width = document.documentElement.clientWidth;
  const wide = [...document.querySelectorAll("body *")].filter((one) =>
    !one.closest("pre, .skip") && one.checkVisibility() && one.getBoundingClientRect().right > width + 0.5);
  return [document.documentElement.scrollWidth - width, wide.map((one) => one.outerHTML.slice(0, 120))];
}
"""


class OpenedPage(NamedTuple):
    """A page in a window, the browser's complaints, and the requests it made."""

    page: Page
    complaints: list[str]
    asked_for: list[str]


class Window:
    """A browser before a server; each call opens a new window."""

    def __init__(self, runner: asyncio.Runner, browser: Browser, server: RunningServer) -> None:
        self._runner, self._browser, self.server = runner, browser, server

    def open(
        self, watch: Callable[[OpenedPage], Awaitable[None]], *, at: str = DOCS, init: str = "", **options: Any
    ) -> None:
        """Open the page and pass it to `watch`. Any complaint of the browser fails the test."""

        async def looked() -> None:
            async with self._opened(init, options) as opened:
                answer = await opened.page.goto(self.server.base_url + at)
                assert answer is not None
                assert answer.status == 200
                await watch(opened)

        self._runner.run(looked())

    @asynccontextmanager
    async def _opened(self, init: str, options: dict[str, Any]) -> AsyncIterator[OpenedPage]:
        # A development server's authority is in its data folder; the browser does not know it.
        known: dict[str, Any] = {"ignore_https_errors": True, "viewport": {"width": WIDE, "height": 900}}
        context = await self._browser.new_context(**(known | options))
        context.set_default_timeout(PATIENCE_S * 1000)
        try:
            if init:
                await context.add_init_script(init)
            page = await context.new_page()
            opened = OpenedPage(page, [], [])
            page.on("console", lambda message: opened.complaints.append(message.text))
            page.on("pageerror", lambda error: opened.complaints.append(str(error)))
            page.on("request", lambda request: opened.asked_for.append(request.url))
            yield opened
        finally:
            await context.close()


@pytest.fixture(scope="module")
def window(chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    installation = Installation(tmp_path_factory.mktemp("docs"))
    with installation.serving() as server, asyncio.Runner() as runner:
        stack = AsyncExitStack()
        browser = runner.run(stack.enter_async_context(launched(chromium)))
        yield Window(runner, browser, server)
        runner.run(stack.aclose())


def sized(width: int) -> dict[str, int]:
    return {"width": width, "height": 844}


def test_it_loads_without_complaint_in_one_request(window: Window) -> None:
    """No complaint of the browser, its policy included, and one single request: the page itself."""

    async def watch(opened: OpenedPage) -> None:
        await opened.page.wait_for_load_state("networkidle")
        assert opened.complaints == []
        assert [url for url in opened.asked_for if not url.startswith("data:")] == [window.server.base_url + DOCS]
        assert await opened.page.title() == "Stoplist API"
        assert await opened.page.evaluate("getComputedStyle(document.querySelector('.top')).position") == "sticky"

    window.open(watch)


def test_the_policy_blocks_injected_content(window: Window) -> None:
    """An injected script, style or picture does nothing and requests nothing."""

    async def watch(opened: OpenedPage) -> None:
        kept_out = await opened.page.evaluate(
            """async () => {
              const kept = [];
              document.addEventListener("securitypolicyviolation", (event) => kept.push(event.effectiveDirective));
              const script = document.createElement("script");
              script.textContent = "window.gotIn = true";
              const style = document.createElement("style");
              style.textContent = "body { display: none }";
              const image = document.createElement("img");
              image.src = "/somewhere.png";
              document.body.setAttribute("onclick", "window.gotIn = true");
              document.body.append(script, style, image);
              document.body.click();
              await fetch("/openapi.json").catch(() => {});
              const enough = performance.now() + 60_000;
              while (new Set(kept).size < 5 && performance.now() < enough) await new Promise(requestAnimationFrame);
              return [[...new Set(kept)].sort(), window.gotIn ?? false, getComputedStyle(document.body).display];
            }"""
        )
        directives, got_in, display = kept_out
        assert directives == ["connect-src", "img-src", "script-src-attr", "script-src-elem", "style-src-elem"]
        assert (got_in, display) == (False, "block")

    window.open(watch)


# Copying


def test_a_button_copies_the_text_beside_it(window: Window) -> None:
    """Each program and each answer, exactly; and the button confirms it, to eye and ear."""
    with httpx.Client(verify=window.server.tls, base_url=window.server.base_url, trust_env=False) as client:
        document = client.get("/openapi.json").json()

    async def watch(opened: OpenedPage) -> None:
        page = opened.page
        await record_changes(page)
        assert await page.locator(".code").count() == await page.get_by_role("button", name="Copy: ").count() + (
            await page.locator("details:not([open]) .code").count()
        )
        for methods in document["paths"].values():
            for operation in methods.values():
                article = page.get_by_role("article", name=operation["summary"].replace("e-mail", "e\u2011mail"))
                for sample in operation["x-codeSamples"]:
                    button = article.get_by_role("button", name=f"Copy: {sample['label']}", exact=True)
                    await button.click()
                    await wait_for_changes(page, "button: Copied", "p: Copied")
                    assert await page.evaluate("navigator.clipboard.readText()") == sample["source"].rstrip()
        assert opened.complaints == []

    window.open(watch, permissions=["clipboard-read", "clipboard-write"])


def test_text_is_selected_if_copying_is_not_allowed(window: Window) -> None:
    """So that the reader's own keys can copy it."""

    async def watch(opened: OpenedPage) -> None:
        await record_changes(opened.page)
        await opened.page.get_by_role("button", name="Copy: Base address").click()
        await wait_for_changes(opened.page, "button: Selected", "p: Selected")
        assert await opened.page.evaluate("getSelection().toString().trim()") == window.server.base_url

    window.open(watch, init="navigator.clipboard.writeText = () => Promise.reject(new Error('no'));")


# Sizes and colours


@pytest.mark.parametrize("width", [SMALLEST, PHONE, 768, 1024, WIDE])
def test_nothing_is_wider_than_the_screen(window: Window, width: int) -> None:
    """Code scrolls in its own box; the page itself never scrolls sideways, even with everything unfolded."""

    async def watch(opened: OpenedPage) -> None:
        await opened.page.evaluate(UNFOLD_ALL)
        assert await opened.page.evaluate(OVERFLOWING) == [0, []]

    window.open(watch, viewport=sized(width))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(window: Window, scheme: str) -> None:
    """Each colour on each background, with everything unfolded and a heading linked to, in the reader's own scheme."""

    async def watch(opened: OpenedPage) -> None:
        await opened.page.evaluate(UNFOLD_ALL)
        found = await opened.page.evaluate(LOW_CONTRAST, MIN_CONTRAST)
        assert found["pale"] == []
        assert found["seen"] > 10
        assert found["ground"] > 0.9 if scheme == "light" else found["ground"] < 0.02

    window.open(watch, at=f"{DOCS}#getTokens", color_scheme=scheme)


# Navigation


def test_a_link_to_a_heading_shows_it(window: Window) -> None:
    """Below the bar at the top, not under it; the contents show where the reader is."""

    async def watch(opened: OpenedPage) -> None:
        heading = opened.page.locator("#submitSmsUnsubscribes")
        await expect(heading).to_be_in_viewport()
        box = await heading.bounding_box()
        bar = await opened.page.locator(".top").bounding_box()
        assert box is not None
        assert bar is not None
        assert bar["height"] <= box["y"] < 300
        await expect(opened.page.locator("nav [aria-current]")).to_have_text("POST Submit SMS opt-outs")

    window.open(watch, at=f"{DOCS}#submitSmsUnsubscribes")


def test_a_keyboard_reaches_everything(window: Window) -> None:
    """First a link that skips the contents; every link and button has a name, and shows its focus."""

    async def watch(opened: OpenedPage) -> None:
        page = opened.page
        await page.keyboard.press("Tab")
        skip = page.get_by_role("link", name="Skip to the content")
        await expect(skip).to_be_focused()
        await expect(skip).to_be_in_viewport()
        assert await skip.evaluate("(one) => parseFloat(getComputedStyle(one).outlineWidth)") >= 2
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.closest('main') !== null")
        await page.evaluate(UNFOLD_ALL)
        names = await page.locator("a, button").evaluate_all(
            "(all) => all.map((one) => one.getAttribute('aria-label') || one.textContent.trim())"
        )
        assert len(names) > 100
        assert all(names)

    window.open(watch)


def test_a_screen_reader_finds_the_parts_of_the_page(window: Window) -> None:
    """Its language, one banner, one main part, named contents, and an article for each of the seven operations."""

    async def watch(opened: OpenedPage) -> None:
        page = opened.page
        assert await page.evaluate("document.documentElement.lang") == "en"
        await expect(page.get_by_role("banner")).to_have_count(1)
        await expect(page.get_by_role("main")).to_have_count(1)
        await expect(page.get_by_role("article")).to_have_count(7)
        await expect(page.get_by_role("navigation", name="Contents")).to_have_count(1)
        await expect(page.get_by_role("heading", level=1)).to_have_text("Stoplist API")
        for heading in await page.get_by_role("heading", level=3).all():
            assert await heading.get_attribute("id")

    window.open(watch)


def test_on_a_phone_the_contents_are_folded(window: Window) -> None:
    """One touch shows them, another follows a link and folds them again."""

    async def watch(opened: OpenedPage) -> None:
        page = opened.page
        link = page.get_by_role("navigation").get_by_role("link", name="Submit phone opt-outs")
        await expect(link).to_be_hidden()
        await page.get_by_text("Contents", exact=True).tap()
        await link.tap()
        await expect(link).to_be_hidden()
        await expect(page.locator("#submitPhoneUnsubscribes")).to_be_in_viewport()

    window.open(watch, viewport=sized(PHONE), has_touch=True, is_mobile=True)


def test_it_is_readable_without_its_script(window: Window) -> None:
    """All text is visible, the contents too; only the buttons are missing."""

    async def watch(opened: OpenedPage) -> None:
        page = opened.page
        await expect(page.get_by_role("navigation").get_by_role("link", name="Get tokens")).to_be_visible()
        await expect(page.get_by_role("article")).to_have_count(7)
        await expect(page.get_by_role("button")).to_have_count(0)

    window.open(watch, java_script_enabled=False, viewport=sized(PHONE))

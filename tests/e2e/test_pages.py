"""The pages in a real browser, before a real server: what people see and do, on a screen, a phone, in the dark."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.e2e.running import Place, Server
from tests.services.browser import launched

PICTURES = Path(__file__).parents[2] / "build" / "pages"
PASSWORD = "four words nobody said"
ADMINISTRATOR = "root@people.example"
WIDE, PHONE = 1600, 360
WIDER_THAN_THE_WINDOW = """
() => {
  const width = document.documentElement.clientWidth;
  const wide = [...document.querySelectorAll("body *")].filter((one) =>
    !one.closest(".skip, .wide, .unseen") && one.checkVisibility() && one.getBoundingClientRect().right > width + 0.5);
  return [document.documentElement.scrollWidth - width, wide.map((one) => one.outerHTML.slice(0, 160))];
}
"""


class Site(NamedTuple):
    """A server with the demo in it, a browser, and what a signed-in browser holds."""

    runner: asyncio.Runner
    browser: Browser
    server: Server
    place: Place
    state: Any

    def visit(self, watch: Callable[[Page], Awaitable[None]], **options: Any) -> None:
        """Hand a page of a signed-in browser over; nothing may be complained about."""

        async def visited() -> None:
            async with window(self.browser, self.server, storage_state=self.state, **options) as page:
                await watch(page)

        self.runner.run(visited())


@asynccontextmanager
async def window(browser: Browser, server: Server, **options: Any) -> AsyncIterator[Page]:
    """A window of its own; complaints of the browser fail the test."""
    known: dict[str, Any] = {
        "ignore_https_errors": True,  # the authority of a development server is in its data folder
        "viewport": {"width": WIDE, "height": 1000},
        "base_url": server.base_url,
    }
    context: BrowserContext = await browser.new_context(**(known | options))
    complaints: list[str] = []
    elsewhere: list[str] = []
    try:
        page = await context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request", lambda asked: elsewhere.append(asked.url) if not asked.url.startswith(server.base_url) else None
        )
        yield page
    finally:
        await context.close()
    # Chromium says of every answer of 400 and more that it failed; that is what such a test is about.
    assert [text for text in complaints if "Failed to load resource" not in text] == []
    assert elsewhere == []


@pytest.fixture(scope="module")
def site(chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    place = Place(tmp_path_factory.mktemp("pages"))
    with place.serving("--demo") as server, asyncio.Runner() as runner:
        assert server.out.holds("Ctrl+C")
        link = place.json("user", "create", ADMINISTRATOR, "--administrator")["sign_in_url"]
        # The command knows the ordinary port; this server took a free one.
        link = re.sub(r"^https://[^/]*", server.base_url, link)
        stack = AsyncExitStack()
        browser = runner.run(stack.enter_async_context(launched(chromium)))
        state = runner.run(signed_in(browser, server, link))
        yield Site(runner, browser, server, place, state)
        runner.run(stack.aclose())


async def signed_in(browser: Browser, server: Server, link: str) -> Any:
    """What a browser holds whose person has followed a link and chosen a password."""
    async with window(browser, server) as page:
        await page.goto(link)
        await page.get_by_label("Password", exact=True).fill(PASSWORD)
        await page.get_by_label("The same again").fill(PASSWORD)
        await page.get_by_role("button", name="Set the password").click()
        await expect(page).to_have_title(re.compile("Overview"))
        return await page.context.storage_state()


async def every_page(page: Page) -> list[tuple[str, str]]:
    """A name and path of each kind of page that the demo has, found as a person finds them: by links."""
    found: dict[str, str] = {"overview": "/"}
    waiting = [
        "/",
        "/unsubscribes",
        "/organizations",
        "/audit",
        "/settings/keys",
        "/settings/people",
        "/settings/account",
    ]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop(0)
        kind = kind_of(path)
        if path in seen or (kind in found and found[kind] != path):
            continue
        seen.add(path)
        answer = await page.goto(path)
        assert answer is not None
        assert answer.status == 200, path
        found[kind] = path
        for link in await page.eval_on_selector_all(
            "a[href^='/']", "all => all.map((one) => one.getAttribute('href'))"
        ):
            bare = link.partition("?")[0]
            if bare not in ("/docs", "/audit/export") and "/assets/" not in bare:
                waiting.append(bare)
    return sorted(found.items())


def kind_of(path: str) -> str:
    """Paths of one kind differ in ids alone."""
    path = re.sub(r"svc_ci_\w+", "KEY", path)
    path = re.sub(r"sub_\w+", "SUBMISSION", path)
    path = re.sub(r"grp_\w+", "GROUP", path)
    path = re.sub(r"/settings/people/[^/]*(%40|@)[^/]*", "/settings/people/PERSON", path)
    path = re.sub(
        r"/(unsubscribes|organizations)/[a-z0-9-]+(?=/|$)",
        lambda found: f"/{found[1]}/ORG" if found[0] != "/organizations/_new" else found[0],
        path,
    )
    path = re.sub(r"/(email|sms|phone)/\d+", r"/\1/SEQ", path)
    path = re.sub(r"/ORG/(email|sms|phone)", "/ORG/CHANNEL", path)
    return path.strip("/").replace("/", "-") or "overview"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_every_page_is_fit_for_everybody(site: Site, scheme: str, width: int) -> None:
    """axe finds nothing, nothing is wider than the window, and each page names the thing in its title."""

    async def watch(page: Page) -> None:
        titles: dict[str, str] = {}
        found = []
        for name, path in await every_page(page):
            await page.goto(path)
            titles[await page.title()] = path
            if width == WIDE or scheme == "light":
                results = await Axe().run(page)
                found += [
                    (path, one["id"], [node["html"] for node in one["nodes"]][:3])
                    for one in results.response["violations"]
                ]
            found += [(path, wide) for wide in [await page.evaluate(WIDER_THAN_THE_WINDOW)] if wide != [0, []]]
            assert await page.locator("h1").count() == 1, path
            PICTURES.mkdir(parents=True, exist_ok=True)
            await page.screenshot(path=PICTURES / f"{name}-{width}-{scheme}.png", full_page=True)
        assert found == []
        assert len(titles) > 12

    site.visit(watch, color_scheme=scheme, viewport={"width": width, "height": 1000})


def test_a_key_from_its_making_to_its_end(site: Site) -> None:
    """Make a key, use it, see Last used fill in, deactivate it, and see the next call refused."""

    async def watch(page: Page) -> None:
        await page.goto("/settings/keys")
        await page.get_by_role("link", name="Create API key").click()
        await page.get_by_label("Label").fill("Made in a browser")
        await page.get_by_label("Demo", exact=False).first.check()
        await page.get_by_role("button", name="Create API key").click()
        client_id = await page.locator("#client-id").inner_text()
        secret = await page.locator("#client-secret").inner_text()
        await page.reload()  # the browser sends the form again
        assert secret not in await page.content()
        await page.go_back()
        assert secret not in await page.content()
        with site.server.client() as client:
            token = get_token(client, client_id, secret).json()["access_token"]
            call = {"headers": {"authorization": f"Bearer {token}"}}
            assert client.get("/api/v1/unsubscribe/email", **call).status_code == 200
            await page.goto(f"/settings/keys/{client_id}")
            last_used = page.locator("dt:text('Last used') + dd")
            await expect(last_used).to_contain_text("UTC")
            await page.get_by_role("link", name="Deactivate").click()
            await expect(page.locator("main")).to_contain_text("every token that it has stops working at once")
            await page.get_by_role("button", name="Deactivate").click()
            await expect(page.get_by_role("status")).to_contain_text("was deactivated")
            assert client.get("/api/v1/unsubscribe/email", **call).status_code == 401
            assert get_token(client, client_id, secret).json()["error"] == "invalid_client"

    site.visit(watch)


def test_the_pages_work_without_script(site: Site) -> None:
    """A browser that runs none can do all: here it makes a key."""

    async def watch(page: Page) -> None:
        await page.goto("/settings/keys/new")
        await page.get_by_label("Label").fill("Without script")
        await page.get_by_label("Demo", exact=False).first.check()
        await page.get_by_role("button", name="Create API key").click()
        await expect(page.locator("#client-secret")).to_contain_text("svc_cs_")
        assert not await page.locator("button[data-copies]").first.is_visible()

    site.visit(watch, java_script_enabled=False)


def test_a_secret_is_copied_by_one_press(site: Site) -> None:
    """The button says that it did."""

    async def watch(page: Page) -> None:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await page.goto("/settings/keys/new")
        await page.get_by_label("Label").fill("Copied")
        await page.get_by_label("Demo", exact=False).first.check()
        await page.get_by_role("button", name="Create API key").click()
        await page.get_by_role("button", name="Copy client_secret").click()
        await expect(page.locator("button[data-copies='client-secret']")).to_contain_text("Copied")
        copied = await page.evaluate("navigator.clipboard.readText()")
        assert copied == await page.locator("#client-secret").inner_text()

    site.visit(watch)


def get_token(client: httpx.Client, client_id: str, secret: str) -> httpx.Response:
    return client.post("/oauth/token", data={"grant_type": "client_credentials"}, auth=(client_id, secret))

"""The page behind an opt-out link in a real browser: every language, a narrow phone, dark, paper, keyboard alone.

Source: docs/interface.md section D15.
"""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.async_api import Page, Route, expect
from stoplist_client import LinkMaker

from stoplist.links.clicked_link import LinkOrganization
from stoplist.web.links.languages import LANGUAGES
from stoplist.web.links.page import LinkPage, ended_page, problem_page, unusable_page
from stoplist.web.links.texts import Texts
from tests.e2e.pages_browser import Site, assert_accessible, assert_printable, opened_site
from tests.e2e.server_process import Installation

# The result does not depend on the interpreter.
pytestmark = pytest.mark.slow

NARROW = 320
ENGLISH = LANGUAGES["en"]


class LinkSite(NamedTuple):
    """A site with an organization that has a long name, and what makes its links."""

    site: Site
    maker: LinkMaker
    group_id: str
    link_key_id: str

    def path(self, address: str) -> str:
        url = self.maker.url("email", address, group_id=self.group_id, source="e2e")
        return url.removeprefix(self.site.server.base_url)

    def acts(self) -> int:
        """Return how many acts were stored."""
        return len(self.site.installation.json("submission", "list", "--key", self.link_key_id))


@pytest.fixture(scope="module")
def links(chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkSite]:
    installation = Installation(tmp_path_factory.mktemp("links"))
    installation.ok("migrate")
    installation.ok("org", "create", "acme", "--name", "Acme Schuhe & Donaudampfschifffahrtsgesellschaftsbedarf")
    group = installation.json("group", "create", "--org", "acme", "--name", "Frühjahrsangebote")["group_id"]
    with opened_site(chromium, installation) as site:
        made = installation.json("link-key", "create", "--org", "acme")
        maker = LinkMaker(site.server.base_url, made["link_key"])
        yield LinkSite(site, maker, group, made["link_key_id"])


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_fits_and_is_accessible(links: LinkSite, language: str) -> None:
    """The page is asked, answered, undone and of no use: on a wide screen, a phone and 320 pixels, light and dark."""

    async def steps(page: Page) -> None:
        texts = LANGUAGES[language]
        await page.goto(links.path(f"{language}@example.com"))
        await expect(page.get_by_role("heading", level=1)).to_have_text(texts.ask)
        await assert_accessible(page, f"link-{language}-asked")
        await page.get_by_role("button").first.click()
        await expect(page.get_by_role("heading", level=1)).to_have_text(texts.done)
        await assert_accessible(page, f"link-{language}-done")
        await page.get_by_role("button", name=texts.undo).click()
        await expect(page.get_by_role("heading", level=1)).to_have_text(texts.undone)
        await page.set_viewport_size({"width": NARROW, "height": 700})
        await assert_fits(page)
        await page.goto("/u/nothing")
        await expect(page.get_by_role("heading", level=1)).to_have_text(texts.unknown)
        await assert_fits(page)
        await assert_accessible(page, f"link-{language}-unknown")

    links.site.visit_signed_out(steps, locale=language, viewport={"width": NARROW, "height": 700})


@pytest.mark.parametrize("status", [410, 422, 429, 503])
def test_pages_of_failures_fit_and_are_accessible(links: LinkSite, status: int) -> None:
    """Every language is shown on a phone; the answers are those of the server, and need none of its faults here."""

    async def steps(page: Page) -> None:
        for language, texts in LANGUAGES.items():
            await page.route("**/u/failure", answered_with(failure_page(texts, status)))
            answer = await page.goto("/u/failure")
            assert answer is not None
            assert answer.status == status
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            await assert_fits(page)
            if language in ("en", "pl"):
                await assert_accessible(page, f"link-{language}-{status}")
            await page.unroute("**/u/failure")
            await page.set_viewport_size({"width": NARROW, "height": 700})

    links.site.visit_signed_out(steps, viewport={"width": NARROW, "height": 700})


def answered_with(shown: LinkPage) -> Callable[[Route], Awaitable[None]]:
    """Return what answers a request of the browser with this page."""
    headers = {name.decode(): value.decode() for name, value in shown.headers}
    return lambda route: route.fulfill(status=shown.status, headers=headers, body=shown.body)


def failure_page(texts: Texts, status: int) -> LinkPage:
    organization = LinkOrganization(
        1, "acme", "Donaudampfschifffahrtsgesellschaftsbedarf", "privacy@acme.example", None
    )
    if status == 410:
        return ended_page(texts, organization)
    return unusable_page(texts, organization) if status == 422 else problem_page(texts, status)


def test_a_page_from_right_to_left_needs_nothing_else(links: LinkSite) -> None:
    """No catalogue is such yet; the style sheet is ready for one."""

    async def steps(page: Page) -> None:
        await page.goto(links.path("rtl@example.com"))
        await page.evaluate("document.documentElement.dir = 'rtl'")
        await page.set_viewport_size({"width": NARROW, "height": 700})
        await assert_fits(page)
        await assert_accessible(page, "link-rtl")

    links.site.visit_signed_out(steps)


def test_the_keyboard_is_enough_and_no_script_is_needed(links: LinkSite) -> None:
    """Tab reaches the buttons in their order, and Enter chooses."""

    async def steps(page: Page) -> None:
        await page.goto(links.path("keys@example.com"))
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("button").nth(0)).to_be_focused()
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("button").nth(1)).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text(ENGLISH.done)
        await expect(page.get_by_text("You have unsubscribed from all e-mail")).to_be_visible()
        await expect(page.get_by_role("button")).to_have_count(1)
        assert await page.context.cookies() == []

    links.site.visit_signed_out(steps, java_script_enabled=False)


def test_the_page_is_printable(links: LinkSite) -> None:
    async def steps(page: Page) -> None:
        await page.goto(links.path("paper@example.com"))
        await page.get_by_role("button").first.click()
        await assert_printable(page, "link")

    links.site.visit_signed_out(steps)


def test_what_a_browser_fetches_ahead_opts_nobody_out(links: LinkSite) -> None:
    """A prefetch follows a link, as mail scanners do."""
    before = links.acts()

    async def steps(page: Page) -> None:
        url = links.site.server.base_url + links.path("scanned@example.com")
        await page.goto("/settings/sign-in")
        async with page.expect_response(lambda answer: answer.url == url) as fetched:
            await page.evaluate(
                "href => document.head.append(Object.assign(document.createElement('link'), {rel: 'prefetch', href}))",
                url,
            )
        assert (await fetched.value).status == 200
        await page.goto(url)
        await page.reload()
        await expect(page.get_by_role("heading", level=1)).to_have_text(ENGLISH.ask)

    links.site.visit_signed_out(steps)
    assert links.acts() == before


async def assert_fits(page: Page) -> None:
    """Assert that nothing has to be scrolled sideways."""
    over = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert over <= 0

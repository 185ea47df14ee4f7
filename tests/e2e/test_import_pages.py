"""An import in a real browser, from the file to its reversal: by keyboard, accessible, also on a phone.

Source: docs/interface.md section D12, On the pages.
"""

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import FilePayload, Page, expect

from tests.e2e.pages_browser import Site, assert_accessible, opened_site, save_screenshot
from tests.e2e.server_process import Installation

# The result does not depend on the interpreter.
pytestmark = pytest.mark.slow

ROWS = 12_000
NARROW = 390


@pytest.fixture(scope="module")
def site(chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with the demo, which takes files of a megabyte."""
    installation = Installation(tmp_path_factory.mktemp("pages"), IMPORT_MAX_MB="1")
    with opened_site(chromium, installation, "--demo") as opened:
        yield opened


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list whose column of addresses has an unusual name."""
    chance = random.Random(7)  # noqa: S311 - the same list every time
    names = ("Mara.Lindt", "jonas", "Eva-Marie", "tom.becker", "Zoë", "ola.nordmann", "b.santos")
    lines = ["Kontakt,Abgemeldet am,Quelle"]
    for number in range(ROWS):
        address = f"{names[number % len(names)]}{number}@example.{chance.choice(('com', 'org', 'net'))}"
        if number % 50 == 3:
            address = "no address"
        lines.append(f"{address},2026-0{1 + number % 9}-1{number % 9} 09:{10 + number % 50},Shop")
    path = tmp_path_factory.mktemp("files") / "abmeldungen.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_file_is_imported_in_a_browser(site: Site, file: Path) -> None:
    """The keyboard alone is enough; every page is accessible, and none scrolls sideways on a phone."""

    async def steps(page: Page) -> None:
        await page.goto("/settings/imports")
        await assert_accessible(page, "imports-empty")
        await page.get_by_role("link", name="Import a file").first.press("Enter")
        await assert_accessible(page, "import-new")
        await page.get_by_label("Organization").select_option("demo")
        await page.get_by_role("button", name="Continue").press("Enter")
        await expect(page.get_by_label("File")).to_be_visible()
        await assert_accessible(page, "import-upload")
        await page.get_by_label("What did these people opt out of?").select_option("all")
        await page.get_by_label("File").set_input_files(file)
        await page.get_by_role("button", name="Upload and preview").press("Enter")

        address = page.get_by_label("Address", exact=True)
        await expect(address).to_be_focused()
        await expect(page.locator("#column_address-problem")).to_contain_text("No column has a usual name")
        await assert_accessible(page, "import-columns")
        await address.select_option("Kontakt")
        await page.get_by_label("Opted out at").select_option("Abgemeldet am")
        await page.get_by_role("button", name="Only update the preview").press("Enter")
        await expect(page.locator("#time_zone-problem")).to_contain_text("time zone")
        await page.get_by_label("Time zone").fill("Europe/Berlin")
        await page.get_by_role("button", name="Only update the preview").press("Enter")
        await expect(page.get_by_role("heading", name="How the file is read", exact=True)).to_be_visible()
        await assert_accessible(page, "import-preview")
        await narrow(page, "import-preview")
        await page.get_by_role("link", name="Discard").press("Enter")
        await assert_accessible(page, "import-discard")
        await page.get_by_role("link", name="Cancel").press("Enter")
        await page.get_by_role("button", name="Check the file").press("Enter")

        await expect(page.get_by_role("heading", name="What the import would do")).to_be_visible()
        await assert_accessible(page, "import-check")
        await narrow(page, "import-check")
        await page.get_by_role("button", name=re.compile("Import 11,760 opt-outs")).press("Enter")
        # Without a reload by hand: the script of the page follows the work.
        await expect(page.locator("h1")).to_contain_text("Done")
        await expect(page.get_by_text("New opt-outs")).to_be_visible()
        await assert_accessible(page, "import-done")
        await narrow(page, "import-done")
        async with page.expect_download() as download:
            await page.get_by_role("link", name="Download the bad rows").press("Enter")
        assert (await download.value).suggested_filename.startswith("stoplist-rejects-imp_")

        await page.get_by_role("link", name="Reverse").press("Enter")
        await assert_accessible(page, "import-reverse-before")
        await page.get_by_role("button", name="Count").press("Enter")
        await expect(page.get_by_role("button", name="Reverse 11,760 records")).to_be_visible()
        await assert_accessible(page, "import-reverse")
        await narrow(page, "import-reverse")
        await page.get_by_role("button", name="Reverse 11,760 records").press("Enter")
        await expect(page.locator("h1")).to_contain_text("Reversed")
        await assert_accessible(page, "import-reversed")
        await page.goto("/settings/imports")
        await assert_accessible(page, "imports")
        await narrow(page, "imports")

    site.visit(steps)


def test_progress_is_shown_without_a_script(site: Site) -> None:
    """The page loads itself again until the work has ended."""

    async def steps(page: Page) -> None:
        await page.goto("/unsubscribes/demo/email/import")
        await page.get_by_label("What did these people opt out of?").select_option("all")
        await page.get_by_label("The list was true on").fill("2026-01-01")
        await page.get_by_label("File").set_input_files(
            FilePayload(name="x.txt", mimeType="text/plain", buffer=b"ann@example.org\n")
        )
        await page.get_by_role("button", name="Upload and preview").click()
        await page.get_by_role("button", name="Check the file").click()
        await expect(page.get_by_role("heading", name="What the import would do")).to_be_visible()
        await page.get_by_role("link", name="Discard").click()
        await page.get_by_role("button", name="Discard the file").click()
        await expect(page.get_by_role("status")).to_contain_text("The file was deleted")

    site.visit(steps, java_script_enabled=False)


def test_a_file_that_is_too_large_is_refused_with_a_page(site: Site) -> None:
    """The browser refuses it at once, and the server does so without a script."""
    large = FilePayload(name="large.csv", mimeType="text/csv", buffer=b"a" * 5_000_000)

    async def with_script(page: Page) -> None:
        await page.goto("/unsubscribes/demo/email/import")
        await page.get_by_label("File").set_input_files(large)
        field = page.get_by_label("File")
        assert "larger" in await field.evaluate("(field) => field.validationMessage")

    async def without(page: Page) -> None:
        await page.goto("/unsubscribes/demo/email/import")
        await page.get_by_label("File").set_input_files(large)
        await page.get_by_role("button", name="Upload and preview").click()
        await expect(page.locator("#file-problem")).to_contain_text("larger than 1 MB")

    site.visit(with_script)
    site.visit(without, java_script_enabled=False)


async def narrow(page: Page, name: str) -> None:
    """Assert that nothing scrolls sideways at the width of a phone; save screenshots of both widths."""
    await page.set_viewport_size({"width": NARROW, "height": 844})
    assert await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    await save_screenshot(page, f"{name}-{NARROW}")
    await page.set_viewport_size({"width": 1280, "height": 900})
    await page.emulate_media(color_scheme="light")
    await save_screenshot(page, f"{name}-1280", full_page=False)

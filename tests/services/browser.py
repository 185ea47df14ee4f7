"""The browser for tests of pages: a Chromium of this machine, driven by playwright.

In this order: the program that the variable TEST_BROWSER names, one on the path, the one that `playwright install` put
into the account's folder. `python -m tests.services.browser` prints which; `tools/get-browser` installs one.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, async_playwright

from tests.constants import PATIENCE_S
from tests.services.managed_program import Unavailable

VARIABLE = "TEST_BROWSER"

_NAMES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
    "chrome",
)
_INSTALLED = Path.home() / ".cache" / "ms-playwright"


def find(environ: Mapping[str, str]) -> Path:
    """Return a Chromium that runs. Raise Unavailable if there is none."""
    if VARIABLE in environ:
        named = Path(environ[VARIABLE])
        if not _runs(named):
            raise Unavailable(f"{VARIABLE} names {named}, which does not run as a browser here.")
        return named
    for program in _programs(environ):
        if _runs(program):
            return program
    raise Unavailable(
        f"no Chromium was found. Install one (on Debian: apt install chromium), or name one in {VARIABLE}."
    )


@asynccontextmanager
async def launched(program: Path) -> AsyncIterator[Browser]:
    """Launch the browser without a window."""
    # For root, as in a container: Chromium's own sandbox refuses to run as root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=arguments, timeout=PATIENCE_S * 1000)
        try:
            yield browser
        finally:
            await browser.close()


def _programs(environ: Mapping[str, str]) -> Iterator[Path]:
    for name in _NAMES:
        program = shutil.which(name, path=environ.get("PATH"))
        if program is not None:
            yield Path(program)
    folder = Path(environ.get("PLAYWRIGHT_BROWSERS_PATH") or _INSTALLED)
    yield from sorted(folder.glob("chromium*/chrome-*/*headless*shell"), reverse=True)
    yield from sorted(folder.glob("chromium-*/chrome-*/chrome"), reverse=True)


def _runs(program: Path) -> bool:
    """Return whether the program starts: one with missing libraries does not."""
    try:
        asked = subprocess.run([program, "--version"], capture_output=True, timeout=PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{find(os.environ)}\n")
    except Unavailable as error:
        sys.exit(str(error))

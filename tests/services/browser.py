"""The browser that pages are tested in: a Chromium that this machine has, driven by playwright.

In this order: the program that the variable TEST_BROWSER names, one on the path, the one that `playwright install`
put into the account's own folder. `python -m tests.services.browser` says which; `tools/get-browser` gets one.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, async_playwright

VARIABLE = "TEST_BROWSER"

_NAMES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
    "chrome",
)
_PATIENCE_S = 60.0
_INSTALLED = Path.home() / ".cache" / "ms-playwright"


class Unavailable(Exception):
    """There is no browser to be had here; the text says what was looked for."""


def find(environ: Mapping[str, str]) -> Path:
    """A Chromium that runs. Raises Unavailable."""
    if VARIABLE in environ:
        named = Path(environ[VARIABLE])
        if not _runs(named):
            raise Unavailable(f"{VARIABLE} names {named}, which is no browser that runs here.")
        return named
    for program in _programs(environ):
        if _runs(program):
            return program
    raise Unavailable(
        f"no Chromium was found. Install one (on Debian: apt install chromium), or name one in {VARIABLE}."
    )


@asynccontextmanager
async def launched(program: Path) -> AsyncIterator[Browser]:
    """The browser, without a window, until the block ends."""
    # Nobody but root needs this: in a container the account is root, and Chromium's own sandbox refuses it.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=arguments, timeout=_PATIENCE_S * 1000)
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
    """Whether it can be started at all: one whose libraries are missing cannot."""
    try:
        asked = subprocess.run([program, "--version"], capture_output=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{find(os.environ)}\n")
    except Unavailable as error:
        sys.exit(str(error))

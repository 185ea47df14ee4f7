"""Paths that do not exist, the icon, and how the pages are loaded (docs/interface.md sections D4 and D10)."""

import asyncio

import pytest

from stoplist.web.admin.rendering import template_names
from stoplist.web.app import build_app
from tests.web.application import Application

HTML = ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")


@pytest.mark.parametrize("path", ["/login", "/admin", "/docs/", "/oauth/authorize", "/metrics"])
def test_a_browser_gets_a_page_for_an_unknown_path(app: Application, path: str) -> None:
    """It has the headers of every page; programs get the envelope of the API."""
    page = app.request("GET", path, headers=[HTML])
    assert (page.status, page.header("content-type")) == (404, "text/html; charset=utf-8")
    assert b"Page not found" in page.body
    assert "default-src 'none'" in (page.header("content-security-policy") or "")
    assert app.request("HEAD", path, headers=[HTML]).status == 404
    for method, accept in (("GET", ("accept", "*/*")), ("GET", ("accept", "")), ("POST", HTML)):
        answer = app.request(method, path, headers=[accept])
        assert (answer.status, answer.error) == (404, "not_found")


def test_the_api_answers_browsers_in_json(app: Application) -> None:
    """Its paths need a token first."""
    assert app.request("GET", "/api/v1/login", headers=[HTML]).error == "invalid_token"
    assert app.request("GET", "/api/v2", headers=[("accept", "application/json")]).error == "not_found"


def test_the_icon_has_the_path_that_browsers_guess(app: Application) -> None:
    """They ask for it beside JSON and text, which name no icon."""
    icon = app.request("GET", "/favicon.ico")
    assert (icon.status, icon.header("content-type")) == (200, "image/svg+xml")
    assert icon.body.startswith(b"<svg")
    assert app.request("POST", "/favicon.ico").status == 405


def test_pages_are_loaded_in_steps(app: Application) -> None:
    """Other tasks run between two modules and two templates; a second time there is nothing to do."""
    load = build_app(app.parts, trusted_proxies=()).load_pages
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def load_twice() -> tuple[int, int]:
        other = asyncio.create_task(count_turns())
        await load()
        first = turns
        await load()
        other.cancel()
        return first, turns

    first, second = app.run(load_twice())
    assert first > len(template_names()) > 40
    assert second == first

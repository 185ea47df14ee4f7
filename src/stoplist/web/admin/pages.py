"""The pages with their style sheet, script and icon, as one ASGI application."""

from typing import Any

from starlette.routing import Route, Router

from stoplist.slicing import yield_to_loop
from stoplist.web.admin.app import Admin
from stoplist.web.admin.page_request import AdminContext
from stoplist.web.admin.rendering import asset, asset_path, load_template, template_names
from stoplist.web.concurrency_limit import PerSourceConcurrency
from stoplist.web.request_context import FAVICON_PATH, AsgiApp
from stoplist.web.static_files import File, ImmutableFile, OnDemandFile, make_file

_SHARED = ("parts.html", "base.html")
_ICON = "icon.svg"
_ASSETS = {
    "stoplist.css": "text/css; charset=utf-8",
    "stoplist.js": "text/javascript; charset=utf-8",
    _ICON: "image/svg+xml",
}


async def load_templates(*, shared_only: bool = False) -> None:
    """Compile the templates of all pages, or those that every page needs; other requests run between them."""
    for name in _SHARED if shared_only else template_names():
        load_template(name)
        await yield_to_loop()


def pages(concurrency: PerSourceConcurrency, **parts: Any) -> AsgiApp:
    """Return the ASGI application; `parts` are the fields of AdminContext."""
    files = [Route(asset_path(name), ImmutableFile(asset(name), kind)) for name, kind in _ASSETS.items()]
    files.append(Route(FAVICON_PATH, OnDemandFile(FAVICON_PATH, _icon)))
    return Router(files, redirect_slashes=False, default=Admin(AdminContext(**parts), concurrency))


async def _icon() -> File:
    """Return the icon for whoever asks without having read a page, as browsers do for text and JSON."""
    return make_file(asset(_ICON), _ASSETS[_ICON].encode())

"""The pages with their style sheet, script and icon, as one ASGI application."""

from typing import Any

from starlette.routing import Route, Router

from stoplist.web.admin.app import Admin
from stoplist.web.admin.page_request import AdminContext
from stoplist.web.admin.rendering import asset, asset_path
from stoplist.web.concurrency_limit import PerSourceConcurrency
from stoplist.web.request_context import AsgiApp
from stoplist.web.static_files import ImmutableFile

_ASSETS = {
    "stoplist.css": "text/css; charset=utf-8",
    "stoplist.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


def pages(concurrency: PerSourceConcurrency, **parts: Any) -> AsgiApp:
    """Return the ASGI application; `parts` are the fields of AdminContext."""
    files = [Route(asset_path(name), ImmutableFile(asset(name), kind)) for name, kind in _ASSETS.items()]
    return Router(files, redirect_slashes=False, default=Admin(AdminContext(**parts), concurrency))

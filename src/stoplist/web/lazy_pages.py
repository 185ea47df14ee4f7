"""The pages, loaded after the start: a server starts without them."""

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from pkgutil import walk_packages
from typing import Final, NamedTuple

from stoplist.slicing import yield_to_loop
from stoplist.web import admin
from stoplist.web.concurrency_limit import PerSourceConcurrency
from stoplist.web.parts import Parts
from stoplist.web.request_context import AsgiApp, Receive, Scope, Send

SLOW_MODULES: Final = (
    "jinja2.nodes",
    "jinja2",
    "stoplist.encryption",
    "stoplist.staff.hashing",
    "stoplist.staff.two_step",
    "stoplist.audit.reading",
    "stoplist.records.listing",
    "stoplist_addresses.lists",
    "stoplist.lists.imports.run",
    "stoplist.oauth.credentials",
)
"""The modules that the pages need and that are slow to import, each after those that it imports itself.

Each is also imported plainly somewhere, so mypy and import-linter see it.
"""


class _Loaded(NamedTuple):
    """The application of the pages, and what compiles all their templates."""

    app: AsgiApp
    load_templates: Callable[[], Awaitable[None]]


class LazyPages:
    """The pages, loaded shortly after the start or by the first request for one."""

    def __init__(self, parts: Parts, concurrency: PerSourceConcurrency) -> None:
        self._parts, self._concurrency = parts, concurrency
        self._loaded: _Loaded | None = None
        self._are_compiled = False
        self._lock = asyncio.Lock()

    async def load(self) -> None:
        """Import the pages and compile their templates, in steps between which other requests run; once."""
        if not self._are_compiled:
            loaded = await self._load()
            await loaded.load_templates()
            self._are_compiled = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loaded = self._loaded or await self._load()
        # A mount has split the path; the routes of the pages match the full path.
        scope["root_path"], scope["path_params"] = "", {}
        await loaded.app(scope, receive, send)

    async def _load(self) -> _Loaded:
        async with self._lock:
            if self._loaded is None:
                await _import_in_steps()
                from stoplist.web.admin.pages import load_templates, pages  # noqa: PLC0415 - a start needs none

                await load_templates(shared_only=True)
                self._loaded = _Loaded(self._build(pages), load_templates)
            return self._loaded

    def _build(self, pages: Callable[..., AsgiApp]) -> AsgiApp:
        parts = self._parts
        return pages(
            self._concurrency,
            database=parts.database,
            clock=parts.clock,
            limiter=parts.limiter,
            usage=parts.usage,
            positions=parts.positions,
            propagation_hours=parts.propagation_hours,
            secret_keys=parts.secret_keys,
            base_url=parts.base_url,
            require_two_step=parts.require_two_step,
            sends_mail=parts.sends_mail,
            import_max_mb=parts.import_max_mb,
            history_days=parts.history_days,
        )


async def _import_in_steps() -> None:
    """Import what the pages need, the screens before those that import them all; everything at once takes 0.2 s."""
    screens = (module.name for module in walk_packages(admin.__path__, f"{admin.__name__}."))
    for name in (*SLOW_MODULES, *sorted(screens, key=lambda name: -name.count("."))):
        import_module(name)
        await yield_to_loop()

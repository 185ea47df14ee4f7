"""The listener of the metrics, which have an address of their own.

Source: docs/interface.md section D1 (METRICS_LISTEN).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stoplist.server.http_server import serve_plain
from stoplist.settings import Settings
from stoplist.web.metrics_page import metrics_address
from stoplist.web.request_context import AsgiApp


@asynccontextmanager
async def metrics_listener(settings: Settings, page: AsgiApp, stop: asyncio.Event) -> AsyncIterator[None]:
    """Serve the metrics at their own address, if one is set, for the duration of the context."""
    if settings.metrics_listen is None:
        yield
        return
    host, port = settings.metrics_listen
    listening = asyncio.Event()
    task = asyncio.create_task(
        serve_plain(metrics_address(page), host=host, port=port, stop=stop, on_started=lambda _: listening.set())
    )
    waiting = asyncio.create_task(listening.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        task.result()  # raises if it could not listen
    try:
        yield
    finally:
        stop.set()
        await task

"""Servers beside a process under test: a receiver of webhooks and a mail server, in a thread."""

import asyncio
import base64
import threading
from pathlib import Path

from tests.notices.mail_server import MailServer, mail_server
from tests.notices.receiver import SECRET, Receiver, receiving
from tests.services.http_messages import Request

SECRET_TEXT = f"whsec_{base64.b64encode(SECRET).decode()}"


class Outside:
    """A receiver and a mail server that run beside the test, in a thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready, self._ends = threading.Event(), asyncio.Event()
        self.receiver: Receiver
        self.mail: MailServer
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> "Outside":
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join()

    def wait_for_notice(self, *, timeout_s: float) -> Request:
        """Return the next notice that arrives at the receiver."""

        async def arrive() -> Request:
            await self.receiver.arrived.wait()
            self.receiver.arrived.clear()
            return self.receiver.received[-1]

        return asyncio.run_coroutine_threadsafe(arrive(), self._loop).result(timeout_s)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with receiving(self._folder) as self.receiver, mail_server(self._folder, is_starttls=True) as self.mail:
            self._ready.set()
            await self._ends.wait()

"""The delivery of notices by this process. Source: docs/interface.md section D16."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stoplist.notices.delivery import NoticeDelivery, Senders
from stoplist.notices.opening import open_mailer, open_webhook
from stoplist.notices.store_watch import StoreWatch
from stoplist.settings import Settings
from stoplist.web.parts import Parts


class BackgroundNotices:
    """Delivers notices by the ways of the settings, from the first call until the process stops."""

    def __init__(self, settings: Settings, parts: Parts) -> None:
        self._settings, self._parts = settings, parts
        self._delivery: NoticeDelivery | None = None
        self._watch: StoreWatch | None = None

    async def deliver_waiting(self) -> None:
        """Begin to deliver what is due; a chore."""
        await self._opened().deliver_waiting()

    async def clean_up(self) -> None:
        """Give up what was not delivered in time, and delete old notices; a chore."""
        await self._opened().clean_up()

    async def watch_store(self) -> None:
        """Tell the operator if the database has failed for a minute; a chore."""
        self._opened()
        if self._watch is not None:
            await self._watch.look()

    @asynccontextmanager
    async def ended(self) -> AsyncIterator[None]:
        """Leave what is under way to other processes at the end of the context."""
        try:
            yield
        finally:
            if self._delivery is not None:
                await self._delivery.end()

    def _opened(self) -> NoticeDelivery:
        """Return the delivery. What it needs is loaded by the first call: a server starts without it."""
        if self._delivery is None:
            parts, webhook = self._parts, open_webhook(self._settings)
            senders = Senders(webhook, open_mailer(self._settings), parts.base_url, parts.secret_keys)
            if webhook is not None:
                self._watch = StoreWatch(
                    parts.database, parts.clock, webhook, failures=lambda: parts.metrics.failures_of_store
                )
            self._delivery = NoticeDelivery(parts.database, parts.clock, senders, count=parts.metrics.count_notice)
        return self._delivery

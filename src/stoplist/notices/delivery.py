"""Delivers notices from a server process, beside its requests: claims one, sends it, and notes the outcome.

A claim is a lease: no other process sends the same notice meanwhile, and one takes it over if this process dies. If it
dies between sending and noting, the notice is sent again with the same id. Webhook and e-mail have a task each, so that
a receiver that hangs delays no e-mail. Source: docs/interface.md section D16.
"""

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import msgspec

from stoplist.clock import DAY_MS, Clock
from stoplist.db import Database, Row, Transaction
from stoplist.db.query import json_text, load_queries
from stoplist.errors import StoreUnavailable
from stoplist.notices.mail_texts import MailText, invitation_text, notice_text, sign_in_link_text
from stoplist.notices.model import MAIL, SIGN_IN_LINK, WEBHOOK, person_of
from stoplist.notices.outcome import FAILED, GIVEN_UP, SENT, DeliveryOutcome
from stoplist.notices.sealed_links import SealedLink, readable_link

_QUERIES = load_queries(__package__)
_CLAIM = _QUERIES["claim_delivery"]
_DUE = _QUERIES["due_deliveries"]
_DELETE_DELIVERIES = _QUERIES["delete_deliveries"]
_DELETE_NOTICE = _QUERIES["delete_notice"]
_END = _QUERIES["end_delivery"]
_END_EXPIRED = _QUERIES["end_expired_deliveries"]
_INVITATION = _QUERIES["invitation"]
_OLD = _QUERIES["old_notices"]
_POSTPONE = _QUERIES["postpone_delivery"]
_RECIPIENT = _QUERIES["recipient"]
_RELEASE = _QUERIES["release_delivery"]

_LOG = logging.getLogger(__name__)

LEASE_MS = 90_000
"""Longer than an attempt can take."""

PAUSES_S = (5, 30, 120, 600, 1_800, 3_600, 7_200, 14_400, 21_600)
"""The pauses after the first, second, … failed attempt; after more of them, the last."""

_LAST_CHANCE_MS = 60_000
_KEPT_MS = 30 * DAY_MS
_DELETED_AT_ONCE = 100

_UNREADABLE = DeliveryOutcome("the link cannot be read")
_NO_RECIPIENT = DeliveryOutcome("nobody to tell")
_FINAL = (_UNREADABLE, _NO_RECIPIENT)


class WebhookSender(Protocol):
    """Sends notices to the operator's own system."""

    async def post(self, notice_id: str, body: str, *, now_ms: int) -> DeliveryOutcome: ...


class MailSender(Protocol):
    """Sends e-mails."""

    async def send(self, recipient: str, text: MailText, *, message_id: str, now_ms: int) -> DeliveryOutcome: ...


class Senders(NamedTuple):
    """The ways by which notices leave this process; None: not by this way. E-mails name `base_url`."""

    webhook: WebhookSender | None = None
    mail: MailSender | None = None
    base_url: str = ""
    secret_keys: Sequence[str] = ()

    @property
    def ways(self) -> list[str]:
        return [name for name, sender in ((WEBHOOK, self.webhook), (MAIL, self.mail)) if sender is not None]


class ClaimedDelivery(NamedTuple):
    """A delivery of which this process holds the lease. `via` is `webhook`, or `mail:` and the id of a person."""

    notice_id: str
    via: str
    lease_id: str
    attempts: int
    until_ms: int
    sealed: str | None
    kind: str
    body: str

    @property
    def key(self) -> dict[str, str]:
        return {"notice_id": self.notice_id, "via": self.via, "lease_id": self.lease_id}


class NoticeDelivery:
    """Delivers notices by each way that is set, one at a time. `count` is told each outcome and its way."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        senders: Senders,
        *,
        count: Callable[[str, str], None] = lambda outcome, way: None,
        spread: Callable[[], float] = lambda: random.SystemRandom().uniform(0.9, 1.1),
    ) -> None:
        self._database, self._clock, self._senders = database, clock, senders
        self._count, self._spread = count, spread
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def deliver_waiting(self) -> None:
        """Begin to deliver what is due, by each way that does nothing now; a chore."""
        for way in self._senders.ways:
            if way not in self._tasks or self._tasks[way].done():
                self._tasks[way] = asyncio.create_task(self._deliver_all(way), name=f"notices by {way}")

    async def finish(self) -> None:
        """Deliver what is due, and wait for it."""
        await self.deliver_waiting()
        await asyncio.gather(*self._tasks.values())

    async def end(self) -> None:
        """Stop delivering, and leave what is under way to other processes at once."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def clean_up(self) -> None:
        """Give up what was not delivered in time, and delete notices of 30 days ago; a chore."""
        now_ms = self._clock.now_ms()
        for row in await self._database.write(lambda transaction: transaction.all(_END_EXPIRED, now_ms=now_ms)):
            # One that was never tried had no way to go: the setting is absent.
            if row["attempts"]:
                self._count(GIVEN_UP, _way_of(row["via"]))
                _LOG.error("A notice was given up", extra={"fields": {"via": _way_of(row["via"])}})
        old = await self._database.all(_OLD, before_ms=now_ms - _KEPT_MS, most=_DELETED_AT_ONCE)
        if old:
            await self._database.write(lambda transaction: _delete(transaction, [row["notice_id"] for row in old]))

    async def _deliver_all(self, way: str) -> None:
        """Deliver what is due until nothing is, or an attempt fails: the rest then waits for the next call."""
        try:
            while claimed := await self._claim(way):
                if not await self._deliver(claimed):
                    return
        except StoreUnavailable as error:
            _LOG.warning("Notices will be tried again", extra={"fields": {"via": way, "why": error.text}})
        except Exception:
            _LOG.exception("Delivering notices failed", extra={"fields": {"via": way}})

    async def _claim(self, way: str) -> ClaimedDelivery | None:
        for row in await self._database.all(_DUE, via=way, now_ms=self._clock.now_ms()):
            lease_id, now_ms = secrets.token_hex(16), self._clock.now_ms()
            claimed = await self._run(
                _CLAIM,
                notice_id=row["notice_id"],
                via=row["via"],
                lease_id=lease_id,
                lease_until_ms=now_ms + LEASE_MS,
                attempts=row["attempts"],
                seen_lease_id=row["lease_id"] or "",
            )
            if claimed:
                return _claimed(row, lease_id)
        return None

    async def _deliver(self, claimed: ClaimedDelivery) -> bool:
        """Make one attempt, and note its outcome; return whether others by the same way may follow at once."""
        try:
            outcome = await self._attempt(claimed)
        except asyncio.CancelledError:
            with suppress(StoreUnavailable):
                await self._run(_RELEASE, **claimed.key, next_ms=self._clock.now_ms())
            raise
        await self._settle(claimed, outcome)
        return outcome.is_delivered or outcome in _FINAL

    async def _attempt(self, claimed: ClaimedDelivery) -> DeliveryOutcome:
        now_ms = self._clock.now_ms()
        if claimed.via == WEBHOOK and self._senders.webhook is not None:
            return await self._senders.webhook.post(claimed.notice_id, claimed.body, now_ms=now_ms)
        if self._senders.mail is None:
            return _NO_RECIPIENT
        link = None
        if claimed.kind == SIGN_IN_LINK:
            link = readable_link(self._senders.secret_keys, claimed.notice_id, claimed.sealed or "")
            if link is None:
                return _UNREADABLE
            if link.link_hash is not None and not await self._stands(link.link_hash):
                return _NO_RECIPIENT
        recipient = link.address if link and link.address else await self._recipient(claimed)
        if recipient is None:
            return _NO_RECIPIENT
        return await self._senders.mail.send(
            recipient, self._mail_text(claimed, link), message_id=claimed.notice_id, now_ms=now_ms
        )

    async def _stands(self, link_hash: bytes) -> bool:
        """Return whether the invitation of this link was neither withdrawn nor replaced nor answered."""
        return await self._database.one(_INVITATION, link_hash=link_hash) is not None

    async def _recipient(self, claimed: ClaimedDelivery) -> str | None:
        """Return the address of the person, if the notice still concerns them."""
        data = msgspec.json.decode(claimed.body)["data"]
        row = await self._database.one(
            _RECIPIENT,
            person_id=person_of(claimed.via),
            is_link=int(claimed.kind == SIGN_IN_LINK),
            slugs=json_text(data.get("organizations", [])),
        )
        return None if row is None else str(row["email"])

    def _mail_text(self, claimed: ClaimedDelivery, link: SealedLink | None) -> MailText:
        base_url = self._senders.base_url
        if link is None:
            return notice_text(claimed.kind, claimed.body, base_url=base_url)
        if link.organization is not None:
            return invitation_text(link.url, link.organization, expires_ms=claimed.until_ms, base_url=base_url)
        return sign_in_link_text(link.url, expires_ms=claimed.until_ms, base_url=base_url)

    async def _settle(self, claimed: ClaimedDelivery, outcome: DeliveryOutcome) -> None:
        now_ms, way = self._clock.now_ms(), _way_of(claimed.via)
        next_ms = None if outcome in _FINAL else next_attempt_ms(claimed, outcome, now_ms, self._spread())
        if outcome.is_delivered:
            self._count(SENT, way)
        else:
            self._count(FAILED if next_ms is not None else GIVEN_UP, way)
            fields = {"notice_id": claimed.notice_id, "via": way, "why": outcome.error, "is_final": next_ms is None}
            _LOG.warning("A notice was not delivered", extra={"fields": fields})
        if outcome.is_delivered or next_ms is None:
            ended = {"ended_ms": now_ms, "is_delivered": int(outcome.is_delivered), "last_error": outcome.error}
            await self._run(_END, **claimed.key, **ended)
        else:
            await self._run(_POSTPONE, **claimed.key, next_ms=next_ms, last_error=outcome.error)

    async def _run(self, query: Any, **values: Any) -> int:
        return await self._database.write(lambda transaction: transaction.run(query, **values))


def next_attempt_ms(claimed: ClaimedDelivery, outcome: DeliveryOutcome, now_ms: int, spread: float) -> int | None:
    """Return when to try again after an attempt that failed; None: never, since its time has passed.

    The pause grows with each attempt, and is longer if the receiver asks for it, up to the longest. `spread` is a
    factor of about 1. The last attempt is made shortly before the end.
    """
    pause_s = PAUSES_S[min(claimed.attempts, len(PAUSES_S) - 1)] * spread
    pause_s = max(pause_s, min(outcome.retry_after_s or 0, PAUSES_S[-1]))
    next_ms = min(now_ms + round(pause_s * 1000), claimed.until_ms - _LAST_CHANCE_MS)
    return next_ms if next_ms > now_ms else None


async def _delete(transaction: Transaction, notice_ids: Sequence[str]) -> None:
    for notice_id in notice_ids:
        await transaction.run(_DELETE_DELIVERIES, notice_id=notice_id)
        await transaction.run(_DELETE_NOTICE, notice_id=notice_id)


def _claimed(row: Row, lease_id: str) -> ClaimedDelivery:
    return ClaimedDelivery(
        notice_id=row["notice_id"],
        via=row["via"],
        lease_id=lease_id,
        attempts=row["attempts"],
        until_ms=row["until_ms"],
        sealed=row["sealed"],
        kind=row["kind"],
        body=row["body"],
    )


def _way_of(via: str) -> str:
    return WEBHOOK if via == WEBHOOK else MAIL

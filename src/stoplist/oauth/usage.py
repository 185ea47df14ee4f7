"""Use per key and day, and the last refusals of each key: collected in memory, written once a minute and at shutdown.

Source: docs/interface.md sections 2.1 (Last used) and D9.
"""

from collections import deque

import msgspec

from stoplist.actor import Actor
from stoplist.clock import DAY_MS
from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.oauth.store import require_visible

_QUERIES = load_queries(__package__)
_ADD_REFUSAL = _QUERIES["add_refusal"]
_ADD_USE = _QUERIES["add_use"]
_FORGET = _QUERIES["forget_refusals"]
_REFUSALS = _QUERIES["refusals"]
_USE_BY_DAY = _QUERIES["use_by_day"]

MAX_KEPT_REFUSALS = 50
CLIENTS_PER_UNIT = 50


class RefusedRequest(msgspec.Struct, frozen=True):
    """A refused request of a key: its time, id and error code, but never its content."""

    at_ms: int
    request_id: str
    code: str


class Use(msgspec.Struct):
    """The use of a key on one day (days since 1970 UTC)."""

    requests: int = 0
    limit_refusals: int = 0
    failed_authentications: int = 0
    last_used_ms: int | None = None


class DayOfUse(msgspec.Struct, frozen=True, kw_only=True):
    """The stored counts of one day (days since 1970 UTC)."""

    day: int
    requests: int
    limit_refusals: int
    failed_authentications: int


class Usage:
    """The use collected since the last `flush`."""

    def __init__(self) -> None:
        self._days: dict[tuple[str, int], Use] = {}
        self._refusals: dict[str, deque[RefusedRequest]] = {}

    def note(self, client_id: str, *, now_ms: int, is_authenticated: bool, error: str | None, request_id: str) -> None:
        """Count one answered request of a known client; `error` is the code of its refusal."""
        key = (client_id, now_ms // DAY_MS)
        use = self._days.get(key) or self._days.setdefault(key, Use())
        use.requests += 1
        if is_authenticated:
            use.last_used_ms = now_ms
        if error is None:
            return
        use.limit_refusals += error == "rate_limited"
        use.failed_authentications += error == "invalid_client"
        refusals = self._refusals.setdefault(client_id, deque(maxlen=MAX_KEPT_REFUSALS))
        refusals.append(RefusedRequest(now_ms, request_id, error))

    async def flush(self, database: Database) -> None:
        """Write the collected use; what cannot be written is kept for the next time."""
        clients = sorted({client_id for client_id, _ in self._days})
        for start in range(0, len(clients), CLIENTS_PER_UNIT):
            await self._write(database, clients[start : start + CLIENTS_PER_UNIT])

    async def _write(self, database: Database, clients: list[str]) -> None:
        # The same order everywhere, so that two servers that write the same keys never deadlock.
        client_ids = set(clients)
        days = {key: self._days.pop(key) for key in sorted(key for key in self._days if key[0] in client_ids)}
        refusals = {client_id: self._refusals.pop(client_id, deque()) for client_id in clients}

        async def store(transaction: Transaction) -> None:
            for (client_id, day), use in days.items():
                await transaction.run(_ADD_USE, client_id=client_id, day=day, **msgspec.structs.asdict(use))
            for client_id, refused in refusals.items():
                await _store_refusals(transaction, client_id, refused)

        try:
            await database.write(store)
        except Exception:
            self._put_back(days, refusals)
            raise

    def _put_back(self, days: dict[tuple[str, int], Use], refusals: dict[str, deque[RefusedRequest]]) -> None:
        for key, use in days.items():
            newer = self._days.setdefault(key, Use())
            newer.requests += use.requests
            newer.limit_refusals += use.limit_refusals
            newer.failed_authentications += use.failed_authentications
            newer.last_used_ms = newer.last_used_ms or use.last_used_ms
        for client_id, refused in refusals.items():
            newer_refusals = self._refusals.get(client_id, ())
            self._refusals[client_id] = deque([*refused, *newer_refusals], maxlen=MAX_KEPT_REFUSALS)


async def use_by_day(actor: Actor, database: Database, client_id: str, *, since_day: int) -> list[DayOfUse]:
    """Return the use of the key on each day since `since_day` (days since 1970 UTC), oldest first, without idle days.

    Raise Missing if the actor may see no key of that id.
    """
    await require_visible(database, actor, client_id)
    rows = await database.all(_USE_BY_DAY, client_id=client_id, since_day=since_day)
    return [
        DayOfUse(
            day=row["day"],
            requests=row["requests"],
            limit_refusals=row["limit_refusals"],
            failed_authentications=row["failed_authentications"],
        )
        for row in rows
    ]


async def last_refusals(actor: Actor, database: Database, client_id: str) -> list[RefusedRequest]:
    """Return the last refused requests of the key, newest first, at most MAX_KEPT_REFUSALS.

    Raise Missing if the actor may see no key of that id.
    """
    await require_visible(database, actor, client_id)
    rows = await database.all(_REFUSALS, client_id=client_id)
    return [RefusedRequest(row["at_ms"], row["request_id"], row["code"]) for row in rows]


async def _store_refusals(transaction: Transaction, client_id: str, refused: "deque[RefusedRequest]") -> None:
    for refusal in refused:
        await transaction.run(
            _ADD_REFUSAL,
            client_id=client_id,
            at_ms=refusal.at_ms,
            request_id=refusal.request_id,
            code=refusal.code,
        )
    if refused:
        await transaction.run(_FORGET, client_id=client_id, keep=MAX_KEPT_REFUSALS)

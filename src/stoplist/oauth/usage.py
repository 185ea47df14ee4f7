"""Use per key and day, and the last refusals of each key: collected in memory, written once a minute and at shutdown.

Source: docs/interface.md sections 2.1 (Last used) and D9.
"""

from collections import Counter, deque
from collections.abc import Sequence

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
_HOUR_MS = 3_600_000
CLIENTS_PER_UNIT = 50


class RefusedRequest(msgspec.Struct, frozen=True):
    """A refused request of a key: its time, id and error code, but never its content."""

    at_ms: int
    request_id: str
    code: str


_KeptRefusals = dict[str, deque[RefusedRequest]]
"""The last refusals of a key by code, so that many of one code do not displace the others."""


class RefusalGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The kept refusals of one code within one hour (from `hour_ms`, UTC). `is_cut`: there may have been more."""

    hour_ms: int
    code: str
    count: int
    newest: RefusedRequest
    is_cut: bool


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
        self._refusals: dict[str, _KeptRefusals] = {}

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
        refusals = self._refusals.setdefault(client_id, {}).setdefault(error, deque(maxlen=MAX_KEPT_REFUSALS))
        refusals.append(RefusedRequest(now_ms, request_id, error))

    async def flush(self, database: Database) -> None:
        """Write the collected use. What cannot be written is kept; the first error is raised once all was tried."""
        clients = sorted({client_id for client_id, _ in self._days})
        failure: Exception | None = None
        for start in range(0, len(clients), CLIENTS_PER_UNIT):
            try:
                await self._write(database, clients[start : start + CLIENTS_PER_UNIT])
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    async def _write(self, database: Database, clients: list[str]) -> None:
        # The same order everywhere, so that two servers that write the same keys never deadlock.
        client_ids = set(clients)
        days = {key: self._days.pop(key) for key in sorted(key for key in self._days if key[0] in client_ids)}
        refusals = {client_id: self._refusals.pop(client_id, {}) for client_id in clients}

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

    def _put_back(self, days: dict[tuple[str, int], Use], refusals: dict[str, _KeptRefusals]) -> None:
        for key, use in days.items():
            newer = self._days.setdefault(key, Use())
            newer.requests += use.requests
            newer.limit_refusals += use.limit_refusals
            newer.failed_authentications += use.failed_authentications
            newer.last_used_ms = newer.last_used_ms or use.last_used_ms
        for client_id, refused in refusals.items():
            newer_refusals = self._refusals.setdefault(client_id, {})
            for code, older in refused.items():
                newer_refusals[code] = deque([*older, *newer_refusals.get(code, ())], maxlen=MAX_KEPT_REFUSALS)


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
    """Return the last refused requests of the key, newest first, at most MAX_KEPT_REFUSALS of each code.

    Raise Missing if the actor may see no key of that id.
    """
    await require_visible(database, actor, client_id)
    rows = await database.all(_REFUSALS, client_id=client_id)
    return [RefusedRequest(row["at_ms"], row["request_id"], row["code"]) for row in rows]


def group_refusals(newest_first: Sequence[RefusedRequest]) -> list[RefusalGroup]:
    """Return the kept refusals of a key by hour and code, the group with the newest one first."""
    kept = Counter(refusal.code for refusal in newest_first)
    groups: dict[tuple[int, str], list[RefusedRequest]] = {}
    oldest: dict[str, int] = {}
    for refusal in newest_first:
        hour = oldest[refusal.code] = refusal.at_ms // _HOUR_MS
        groups.setdefault((hour, refusal.code), []).append(refusal)
    return [
        RefusalGroup(
            hour_ms=hour * _HOUR_MS,
            code=code,
            count=len(refusals),
            newest=refusals[0],
            is_cut=kept[code] >= MAX_KEPT_REFUSALS and oldest[code] == hour,
        )
        for (hour, code), refusals in groups.items()
    ]


async def _store_refusals(transaction: Transaction, client_id: str, kept: _KeptRefusals) -> None:
    refused = [refusal for of_code in kept.values() for refusal in of_code]
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

"""The rows on a partner with `stoplist-client`, against the minimum that a program without it would do.

The baseline is the same work with httpx2 and sqlite3 alone, in the same process, in turns.
"""

import random
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from unittest.mock import patch

import httpx2
import msgspec
from stoplist_client import Client, MemoryStore, Mirror, Submitted
from stoplist_client.mirror import copies, syncing
from stoplist_client.mirror.divergence import Compared
from stoplist_client.mirror.figures import Figures

from bench.machine import timed
from bench.product import DatabaseKind, Deployment, ProductServer, deployed
from bench.rounds import Run
from bench.sample_people import People
from bench.scripts import EMAIL
from bench.server import BenchError
from bench.verdict import Series, Verdict, verdict

_BATCH = _PAGE = 10_000
# The submission has this many turns: a tenth of the batches by the client, then as many by the baseline.
_TURNS = 10
_SYNCS, _IMPORTS = 3, 7
_CHECKED_PER_ROUND, _LOOKED_UP_AT_ONCE = 20_000, 100
_CACHE_KIB = 64 * 1024
_OURS, _BARE = "ours", "bare"
# One process after the other; the start of Python itself is not timed.
_IMPORT = "import time; begun_s = time.perf_counter(); {}; print(time.perf_counter() - begun_s)"
_IMPORTED = {
    "httpx2": "import httpx2",
    "stoplist_client": "import stoplist_client",
    "stoplist_client.Client": "from stoplist_client import Client",
}


def measure(run: Run, database: DatabaseKind) -> Iterator[Verdict]:
    """Yield the verdicts, over TLS, with the same number of records for each organization."""
    addresses = [act.address for act in People("email", seed=7).acts(run.parameters.records)]
    with deployed(database, run.scratch / "partner", partners=(_OURS, _BARE)) as deployment:
        with deployment.server() as server, _client(server) as client:
            yield _submitting(run, server, client, addresses)
            with _bare(server) as bare:
                yield from _syncing(run, client, bare)
                yield from _looking_up(run, client, bare, addresses)
        yield from _checking(run, deployment, addresses)
    yield from _importing(run)


def _submitting(run: Run, server: ProductServer, client: Client, addresses: Sequence[str]) -> Verdict:
    """Submit all addresses in one call. After each part, the loop posts as many to its own organization."""
    size = max(1, len(addresses) // _BATCH // _TURNS) * _BATCH
    parts = _parts(addresses, size)
    ours_s: list[float] = []
    bare_s: list[float] = []
    begun_s = 0.0

    def take_turns(sums: Submitted) -> None:
        nonlocal begun_s
        if sums.received < sum(map(len, parts[: len(ours_s) + 1])):
            return
        ours_s.append(time.perf_counter() - begun_s)
        bare_s.append(timed(_post, bare, _bodies(parts[len(bare_s)]))[0])
        shown = f"{ours_s[-1]:.2f} s, bare httpx2 {bare_s[-1]:.2f} s"
        run.progress(f"turn {len(ours_s)}/{len(parts)}  unsubscribe: {shown}")
        begun_s = time.perf_counter()

    with _bare(server, 1) as bare:
        begun_s = time.perf_counter()
        submitted = client.unsubscribe("email", addresses, on_progress=take_turns)
    if submitted.created < 0.97 * len(addresses) or len(ours_s) < len(parts):
        raise BenchError(f"of {len(addresses)} addresses only {submitted.created} were new")
    ours, other = size / Series(ours_s), size / Series(bare_s)
    detail = f"{ours:.0f}/s of bare httpx2 posting the bodies {other:.0f}/s"
    return verdict(f"unsubscribe of {len(addresses)} addresses", ours / other, "%", detail, at_least=0.8)


def _syncing(run: Run, client: Client, bare: httpx2.Client) -> Iterator[Verdict]:
    """Compare a new mirror of the whole feed with a loop that reads the feed and keeps nothing.

    And with one that compares nothing with the state of the service.
    """
    records = 0

    def sync_s(name: str) -> float:
        with Mirror(run.scratch / f"mirror-{name}.db", client) as mirror:
            mirror.follow("email", org_slug=_OURS)
            took_s, _ = timed(mirror.sync)
            mirrored = sum(feed.records for feed in mirror.feeds())
        if mirrored != records:
            raise BenchError(f"the mirror has {mirrored} of {records} records")
        return took_s

    def sync(number: int) -> dict[str, float]:
        nonlocal records
        bare_s, records = timed(_read, bare)
        with (
            patch.object(copies, "figures_of_copy", lambda *_: Figures(records, 0)),
            patch.object(syncing, "compare", lambda *_, **__: Compared.AGREES),
        ):
            unverified_s = sync_s(f"unverified-{number}")
        return {_OURS: sync_s(str(number)), _BARE: bare_s, "unverified": unverified_s}

    count = min(run.parameters.rounds, _SYNCS)
    ours_s, bare_s, unverified_s = run.rounds(sync, "first sync", count=count, warm_up=False).values()
    detail = f"{records / ours_s:.0f}/s of bare httpx2 reading the pages {records / bare_s:.0f}/s"
    yield verdict(f"first sync of {records} records", bare_s / ours_s, "%", detail, at_least=0.6)
    detail = f"{ours_s:.1f} s / {unverified_s:.1f} s"
    yield verdict("first sync with verification / without", ours_s / unverified_s, "x", detail, at_most=1.3)


def _looking_up(run: Run, client: Client, bare: httpx2.Client, addresses: Sequence[str]) -> Iterator[Verdict]:
    """Yield the verdicts on look-ups by the client, against the same request by httpx2."""
    run.progress("looking addresses up")
    choose = random.Random(3)  # noqa: S311 - nothing here is secret
    for count in (1, _LOOKED_UP_AT_ONCE):

        def look_up_ms(_: int, count: int = count) -> dict[str, float]:
            asked = choose.sample(addresses, count)
            bare_s, _ = timed(lambda: bare.get(EMAIL, params={"address": asked}).raise_for_status().json())
            ours_s, found = timed(lambda: list(client.look_up("email", asked)))
            if not all(one.records for one in found):
                raise BenchError("a look-up did not find what was submitted")
            return {_OURS: ours_s * 1000, _BARE: bare_s * 1000}

        ours_ms, bare_ms = run.rounds(look_up_ms, count=20 * run.parameters.rounds, warm_up=False).values()
        yield verdict(
            f"look_up of {count}", bare_ms / ours_ms, "%", f"{ours_ms:.2f} ms of bare httpx2 {bare_ms:.2f} ms"
        )


def _checking(run: Run, deployment: Deployment, addresses: Sequence[str]) -> Iterator[Verdict]:
    """Yield the verdicts on the mirror, against a table keyed by address. Half of the addresses are suppressed."""
    target = {"org_slug": _OURS, "group_id": deployment.json("group", "list", "--org", _OURS)[0]["group_id"]}
    select = "SELECT 1 FROM barred WHERE address = ?"
    with Mirror(run.scratch / "mirror-1.db") as mirror, closing(_keys(run.scratch / "keys.db", addresses)) as plain:
        kinds: dict[str, Callable[[Sequence[str]], Iterable[object]]] = {
            "is_barred": lambda asked: [mirror.is_barred("email", one, **target) for one in asked],
            "filter_allowed": lambda asked: list(mirror.filter_allowed("email", asked, **target)),
            "check": lambda asked: list(mirror.check("email", asked, **target)),
            _BARE: lambda asked: [plain.execute(select, (one,)).fetchone() for one in asked],
        }

        def ask_us(number: int) -> dict[str, float]:
            choose = random.Random(number)  # noqa: S311 - nothing here is secret
            unknown = [act.address for act in People("email", seed=1_000 + number).acts(_CHECKED_PER_ROUND // 2)]
            asked = choose.sample(addresses, len(unknown)) + unknown
            choose.shuffle(asked)
            return {kind: _half_found_s(work, asked) / len(asked) * 1e6 for kind, work in kinds.items()}

        # The first round fills the caches.
        seen_us = run.rounds(ask_us, "the mirror")
    for kind, at_least in {"is_barred": 0.5, "filter_allowed": 1.5, "check": None}.items():
        ours_us, bare_us = seen_us[kind], seen_us[_BARE]
        title = f"{kind} at {len(addresses)} records"
        detail = f"{ours_us:.1f} µs an address, bare sqlite3 key look-up {bare_us:.1f} µs"
        yield verdict(title, bare_us / ours_us, "%", detail, at_least=at_least)


def _importing(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on imports, each in a process of its own."""

    def import_ms(statement: str) -> float:
        command = [sys.executable, "-c", _IMPORT.format(statement)]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) * 1000

    # The first round fills the system's file cache.
    imports = {name: partial(import_ms, statement) for name, statement in _IMPORTED.items()}
    seen_ms = run.in_turn(imports, "import", count=max(run.parameters.rounds, _IMPORTS))
    bare_ms = seen_ms.pop("httpx2")
    for name, ours_ms in seen_ms.items():
        detail = f"{ours_ms:.2f} ms, httpx2 {bare_ms:.2f} ms"
        yield verdict(f"import of {name} / of httpx2", ours_ms / bare_ms, "x", detail, at_most=1.5)


def _client(server: ProductServer) -> Client:
    """Return a client of the first partner with its defaults, except that it keeps tokens in memory."""
    key = server.deployment.partners[0]
    return Client(
        f"https://localhost:{server.port}",
        client_id=key.client_id,
        client_secret=key.client_secret,
        ca_file=server.ca,
        store=MemoryStore(),
    )


def _bare(server: ProductServer, partner: int = 0) -> httpx2.Client:
    """Return an httpx2 client with a token."""
    headers = {"Authorization": f"Bearer {server.new_token(server.deployment.partners[partner])}"}
    tls = ssl.create_default_context(cafile=server.ca)
    return httpx2.Client(base_url=f"https://localhost:{server.port}", verify=tls, timeout=60, headers=headers)


def _post(http: httpx2.Client, bodies: Sequence[bytes]) -> None:
    headers = {"Content-Type": "application/json", "Prefer": "return=minimal"}
    for body in bodies:
        http.post(EMAIL, content=body, headers=headers).raise_for_status()


def _read(http: httpx2.Client) -> int:
    """Read the whole feed page by page, and return the number of records."""
    records, cursor, has_more = 0, "", True
    while has_more:
        page = http.get(f"{EMAIL}?limit={_PAGE}{cursor}").raise_for_status().json()
        records += len(page["items"])
        cursor, has_more = f"&cursor={page['next_cursor']}", page["has_more"]
    return records


def _half_found_s(work: Callable[[Sequence[str]], Iterable[object]], asked: Sequence[str]) -> float:
    took_s, found = timed(work, asked)
    count = sum(getattr(one, "verdict", "barred" if one else "") == "barred" for one in found)
    if count != len(asked) // 2:
        raise BenchError(f"{count} of {len(asked)} addresses were found, instead of half of them")
    return took_s


def _keys(file: Path, addresses: Sequence[str]) -> sqlite3.Connection:
    """Return a file with one table that has the addresses as its key, and as much memory as a mirror."""
    plain = sqlite3.connect(file, isolation_level=None)
    for statement in ("PRAGMA journal_mode = WAL", f"PRAGMA cache_size = -{_CACHE_KIB}", "BEGIN"):
        plain.execute(statement)
    plain.execute("CREATE TABLE barred (address TEXT PRIMARY KEY) WITHOUT ROWID")
    # Inserted in order, so that the pages are full.
    plain.executemany("INSERT INTO barred VALUES (?)", ((address,) for address in sorted(set(addresses))))
    for statement in ("COMMIT", "PRAGMA wal_checkpoint(TRUNCATE)"):
        plain.execute(statement).fetchall()
    return plain


def _bodies(addresses: Sequence[str]) -> list[bytes]:
    """Return the bodies as the client makes them: each item has the time when it was read."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return [
        msgspec.json.encode({"items": [{"address": address, "occurred_at": now} for address in batch]})
        for batch in _parts(addresses, _BATCH)
    ]


def _parts(addresses: Sequence[str], size: int) -> list[Sequence[str]]:
    return [addresses[at : at + size] for at in range(0, len(addresses), size)]

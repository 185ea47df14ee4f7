"""The rows on a partner with `stoplist-client`, against the minimum that a program without it would do.

The baseline is the same work with httpx2 and sqlite3 alone, in the same process, in turns.
"""

import json
import random
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, TypeVar
from unittest.mock import patch

import httpx2
import msgspec
from stoplist_client import Client, MemoryStore, Mirror, Submitted
from stoplist_client.mirror import copies, syncing
from stoplist_client.mirror.divergence import Compared
from stoplist_client.mirror.figures import Figures

from bench.product import Deployment, ProductServer
from bench.rounds import Run
from bench.sample_people import People
from bench.scripts import EMAIL
from bench.server import BenchError
from bench.verdict import Verdict, compare_times, per_second, ratios, verdict

_BATCH = _PAGE = 10_000
# The submission has this many turns: a tenth of the batches by the client, then as many by the baseline.
_TURNS = 10
_SYNCS, _IMPORTS = 3, 7
_CHECKED_PER_ROUND, _LOOKED_UP_AT_ONCE = 20_000, 100
_CACHE_KIB = 64 * 1024
_OURS, _BARE, _UNVERIFIED = "ours", "bare", "unverified"
# One process after the other; the start of Python itself is not timed.
_IMPORT = "import time; begun_s = time.perf_counter(); {}; print(time.perf_counter() - begun_s)"
_IMPORTED = {
    _BARE: "import httpx2",
    "stoplist_client": "import stoplist_client",
    "stoplist_client.Client": "from stoplist_client import Client",
}

Result = TypeVar("Result")


def measure(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts, on SQLite and over TLS, with the same number of records for each organization."""
    addresses = [act.address for act in People("email", seed=7).acts(run.parameters.records)]
    deployment = Deployment.create(run.scratch / "partner", partners=(_OURS, _BARE))
    with deployment.server() as server:
        yield _submitting(run, server, addresses)
        yield from _syncing(run, server)
        yield from _looking_up(run, server, addresses)
    yield from _checking(run, deployment, addresses)
    yield from _importing(run)


def _submitting(run: Run, server: ProductServer, addresses: Sequence[str]) -> Verdict:
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
        bodies = _bodies(parts[len(bare_s)])
        bare_s.append(_timed(lambda: _post(bare, bodies))[0])
        run.progress(
            f"turn {len(ours_s)}/{len(parts)}  unsubscribe: {ours_s[-1]:.2f} s, bare httpx2 {bare_s[-1]:.2f} s"
        )
        begun_s = time.perf_counter()

    with _client(server) as client, _bare(server, 1) as bare:
        begun_s = time.perf_counter()
        submitted = client.unsubscribe("email", addresses, on_progress=take_turns)
    if submitted.created < 0.97 * len(addresses) or len(ours_s) < len(parts):
        raise BenchError(f"of {len(addresses)} addresses only {submitted.created} were new")
    title, words = f"unsubscribe of {len(addresses)} addresses", "{} of bare httpx2 posting the bodies {}"
    return compare_times(title, (ours_s, bare_s), words, per_second(size), at_least=0.8)


def _syncing(run: Run, server: ProductServer) -> Iterator[Verdict]:
    """Compare a new mirror of the whole feed with a loop that reads the feed and keeps nothing.

    And with one that compares nothing with the state of the service.
    """
    records = 0

    def sync_s(name: str) -> float:
        with Mirror(run.scratch / f"mirror-{name}.db", client) as mirror:
            mirror.follow("email", org_slug=_OURS)
            took_s, _ = _timed(mirror.sync)
            mirrored = sum(feed.records for feed in mirror.feeds())
        if mirrored != records:
            raise BenchError(f"the mirror has {mirrored} of {records} records")
        return took_s

    def sync(number: int) -> dict[str, float]:
        nonlocal records
        bare_s, records = _timed(lambda: _read(bare))
        with (
            patch.object(copies, "figures_of_copy", lambda *_: Figures(records, 0)),
            patch.object(syncing, "compare", lambda *_, **__: Compared.AGREES),
        ):
            unverified_s = sync_s(f"unverified-{number}")
        return {_OURS: sync_s(str(number)), _BARE: bare_s, _UNVERIFIED: unverified_s}

    with _client(server) as client, _bare(server) as bare:
        seen_s = run.rounds(min(run.parameters.rounds, _SYNCS), sync, "first sync")
    title, words = f"first sync of {records} records", "{} of bare httpx2 reading the pages {}"
    yield compare_times(title, (seen_s[_OURS], seen_s[_BARE]), words, per_second(records), at_least=0.6)
    detail = " / ".join(f"{median(seen_s[name]):.1f} s" for name in (_OURS, _UNVERIFIED))
    ours_to_unverified = ratios(seen_s[_OURS], seen_s[_UNVERIFIED])
    yield verdict("first sync with verification / without", ours_to_unverified, "x", detail, at_most=1.3)


def _looking_up(run: Run, server: ProductServer, addresses: Sequence[str]) -> Iterator[Verdict]:
    """Yield the verdicts on look-ups by the client, against the same request by httpx2."""
    run.progress("looking addresses up")
    choose = random.Random(3)  # noqa: S311 - nothing here is secret
    with _client(server) as client, _bare(server) as bare:

        def look_up(count: int) -> dict[str, float]:
            asked = choose.sample(addresses, count)
            query = {"address": asked}
            bare_s, _ = _timed(lambda: bare.get(EMAIL, params=query).raise_for_status().json())
            ours_s, found = _timed(lambda: list(client.look_up("email", asked)))
            if not all(one.records for one in found):
                raise BenchError("a look-up did not find what was submitted")
            return {_OURS: ours_s, _BARE: bare_s}

        for count in (1, _LOOKED_UP_AT_ONCE):
            seen_s = run.rounds(20 * run.parameters.rounds, lambda _, count=count: look_up(count))  # type: ignore[misc]
            yield compare_times(f"look_up of {count}", seen_s.values(), "{} of bare httpx2 {}", _ms)


def _checking(run: Run, deployment: Deployment, addresses: Sequence[str]) -> Iterator[Verdict]:
    """Yield the verdicts on the mirror, against a table keyed by address. Half of the addresses are suppressed."""
    groups: list[dict[str, Any]] = json.loads(deployment.run("group", "list", "--org", _OURS, "--json"))
    group_id = str(groups[0]["group_id"])
    with ExitStack() as running:
        mirror = running.enter_context(Mirror(run.scratch / "mirror-1.db"))
        plain = running.enter_context(closing(_plain_keys(run.scratch / "keys.db", addresses)))
        select = "SELECT 1 FROM barred WHERE address = ?"
        kinds: dict[str, Callable[[Sequence[str]], Iterable[object]]] = {
            "is_barred": lambda asked: [
                mirror.is_barred("email", one, org_slug=_OURS, group_id=group_id) for one in asked
            ],
            "filter_allowed": lambda asked: list(
                mirror.filter_allowed("email", asked, org_slug=_OURS, group_id=group_id)
            ),
            "check": lambda asked: list(mirror.check("email", asked, org_slug=_OURS, group_id=group_id)),
            _BARE: lambda asked: [plain.execute(select, (one,)).fetchone() for one in asked],
        }

        def ask(number: int) -> dict[str, float]:
            asked = _half_known(addresses, seed=number)
            return {kind: _half_found_s(work, asked) for kind, work in kinds.items()}

        # The first round fills the caches.
        seen_s = run.rounds(run.parameters.rounds, ask, "the mirror", warm_up=True)
    for kind, share in {"is_barred": 0.5, "filter_allowed": 1.5, "check": None}.items():
        title, words = f"{kind} at {len(addresses)} records", "{} an address, bare sqlite3 key look-up {}"
        yield compare_times(title, (seen_s[kind], seen_s[_BARE]), words, _us_an_address, at_least=share)


def _importing(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on imports, each in a process of its own."""

    def import_all(_: int) -> dict[str, float]:
        return {name: _import_s(statement) for name, statement in _IMPORTED.items()}

    # The first round fills the system's file cache.
    seen_s = run.rounds(max(run.parameters.rounds, _IMPORTS), import_all, "import", warm_up=True)
    for name in ("stoplist_client", "stoplist_client.Client"):
        detail = f"{_ms(median(seen_s[name]))}, httpx2 {_ms(median(seen_s[_BARE]))}"
        yield verdict(f"import of {name} / of httpx2", ratios(seen_s[name], seen_s[_BARE]), "x", detail, at_most=1.5)


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


def _timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """Return the seconds that it takes, and the result."""
    begun_s = time.perf_counter()
    result = work()
    return time.perf_counter() - begun_s, result


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
    took_s, found = _timed(lambda: work(asked))
    count = sum(getattr(one, "verdict", "barred" if one else "") == "barred" for one in found)
    if count != len(asked) // 2:
        raise BenchError(f"{count} of {len(asked)} addresses were found, instead of half of them")
    return took_s


def _half_known(addresses: Sequence[str], *, seed: int) -> list[str]:
    choose = random.Random(seed)  # noqa: S311 - nothing here is secret
    half = _CHECKED_PER_ROUND // 2
    asked = choose.sample(addresses, half) + [act.address for act in People("email", seed=1_000 + seed).acts(half)]
    choose.shuffle(asked)
    return asked


def _plain_keys(file: Path, addresses: Sequence[str]) -> sqlite3.Connection:
    """Return a file with one table that has the addresses as its key, and as much memory as a mirror."""
    plain = sqlite3.connect(file)
    plain.execute("PRAGMA journal_mode = WAL").fetchall()
    plain.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    plain.execute("CREATE TABLE barred (address TEXT PRIMARY KEY) WITHOUT ROWID")
    # Inserted in order, so that the pages are full.
    plain.executemany("INSERT INTO barred VALUES (?)", ((address,) for address in sorted(set(addresses))))
    plain.commit()
    plain.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
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


def _import_s(statement: str) -> float:
    done = subprocess.run([sys.executable, "-c", _IMPORT.format(statement)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def _us_an_address(seconds: float) -> str:
    return f"{seconds / _CHECKED_PER_ROUND * 1e6:.1f} µs"

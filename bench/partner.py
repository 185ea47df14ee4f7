"""A partner with `stoplist-client`, against the minimum that a program without it would do.

The baseline is the same work with httpx2 and sqlite3 alone, in the same process, in turns.
"""

import json
import random
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from stoplist_client import Client, MemoryStore, Mirror, Submitted

from bench import product
from bench.product import Deployment
from bench.sample_people import People
from bench.scripts import Partner
from bench.server import BenchError, Server
from bench.verdict import Target, Verdict, spread

_PATH = "/api/v1/unsubscribe/email"
_BATCH = _PAGE = 10_000
# The submission has this many turns: a tenth of the batches by the client, then as many by the baseline.
_TURNS = 10
_SYNCS, _IMPORTS = 3, 7
_CHECKED_PER_ROUND, _LOOKED_UP_AT_ONCE = 20_000, 100
_CACHE_KIB = 64 * 1024
_OURS, _BARE = "ours", "bare"
# One process after the other; the start of Python itself is not timed.
_IMPORT = "import time; begun_s = time.perf_counter(); {}; print(time.perf_counter() - begun_s)"

Progress = Callable[[str], None]


class _RunningDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """A running server, and two organizations on it with a key each."""

    deployment: Deployment
    server: Server
    partners: dict[str, Partner]

    @property
    def base_url(self) -> str:
        return f"https://localhost:{self.server.port}"

    def client(self, slug: str) -> Client:
        """Return a client with its defaults, except that it keeps tokens in memory."""
        partner = self.partners[slug]
        return Client(
            self.base_url,
            client_id=partner.client_id,
            client_secret=partner.client_secret,
            ca_file=self.deployment.ca,
            store=MemoryStore(),
        )

    def bare(self, slug: str) -> "_BareClient":
        """Return a bare client with a token."""
        token = product.with_tokens([self.partners[slug]], self.server, count=1)[0].access_tokens[0]
        return _BareClient(self.base_url, self.deployment.ca, token)


class _BareClient:
    """A loop over httpx2.Client, without error handling."""

    def __init__(self, base_url: str, ca: Path, access_token: str) -> None:
        tls = ssl.create_default_context(cafile=ca)
        headers = {"Authorization": f"Bearer {access_token}"}
        self._http = httpx2.Client(base_url=base_url, verify=tls, timeout=60, headers=headers)

    def post(self, bodies: Sequence[bytes]) -> float:
        """Submit the bodies and return the seconds that it takes."""
        headers = {"Content-Type": "application/json", "Prefer": "return=minimal"}
        begun_s = time.perf_counter()
        for body in bodies:
            self._http.post(_PATH, content=body, headers=headers).raise_for_status()
        return time.perf_counter() - begun_s

    def read(self) -> tuple[float, int]:
        """Read the whole feed page by page; return the seconds and the number of records."""
        records, cursor, has_more = 0, "", True
        begun_s = time.perf_counter()
        while has_more:
            answer = self._http.get(f"{_PATH}?limit={_PAGE}{cursor}").raise_for_status()
            page = answer.json()
            records += len(page["items"])
            cursor, has_more = f"&cursor={page['next_cursor']}", page["has_more"]
        return time.perf_counter() - begun_s, records

    def look_up(self, addresses: Sequence[str]) -> float:
        """Return the seconds of one request for all of these addresses."""
        begun_s = time.perf_counter()
        self._http.get(_PATH, params={"address": addresses}).raise_for_status().json()
        return time.perf_counter() - begun_s

    def close(self) -> None:
        self._http.close()


def measure(records: int, rounds: int, scratch: Path, progress: Progress) -> Iterator[Verdict]:
    """Yield the verdicts, on SQLite and over TLS, with `records` records for each organization."""
    addresses = [act.address for act in People("email", seed=7).acts(records)]
    with ExitStack() as running:
        deployed = _start(scratch / "partner", running)
        yield _submitting(deployed, addresses, progress)
        yield _syncing(deployed, min(rounds, _SYNCS), scratch, progress)
        yield from _looking_up(deployed, addresses, rounds, progress)
    group_id = _default_group(deployed.deployment)
    with Mirror(_mirror_file(scratch, 0)) as mirror, closing(_plain_keys(scratch / "keys.db", addresses)) as plain:
        yield from _checking(mirror, group_id, plain, addresses, rounds, progress)
    yield from _importing(max(rounds, _IMPORTS), progress)


def _start(folder: Path, running: ExitStack) -> _RunningDeployment:
    deployment = Deployment(folder)
    folder.mkdir()
    deployment.run("migrate")
    partners = {slug: product.make_partner(deployment, slug) for slug in (_OURS, _BARE)}
    server = running.enter_context(deployment.server())
    return _RunningDeployment(deployment=deployment, server=server, partners=partners)


def _submitting(deployed: _RunningDeployment, addresses: Sequence[str], progress: Progress) -> Verdict:
    """Submit all addresses in one call. After each part, the loop posts as many to its own organization."""
    parts = _parts(addresses)
    ours_s: list[float] = []
    bare_s: list[float] = []
    begun_s = 0.0

    def take_turns(sums: Submitted) -> None:
        nonlocal begun_s
        if sums.received < sum(map(len, parts[: len(ours_s) + 1])):
            return
        ours_s.append(time.perf_counter() - begun_s)
        bare_s.append(bare.post(_bodies(parts[len(bare_s)])))
        progress(f"turn {len(ours_s)}/{len(parts)}  unsubscribe: {ours_s[-1]:.2f} s, bare httpx2 {bare_s[-1]:.2f} s")
        begun_s = time.perf_counter()

    with deployed.client(_OURS) as client, closing(deployed.bare(_BARE)) as bare:
        begun_s = time.perf_counter()
        submitted = client.unsubscribe("email", addresses, on_progress=take_turns)
    if submitted.created < 0.97 * len(addresses) or len(ours_s) < len(parts):
        raise BenchError(f"of {len(addresses)} addresses only {submitted.created} were new")
    return _rates(
        f"unsubscribe of {len(addresses)} addresses", len(parts[0]), ours_s, bare_s, "httpx2 posting the bodies", 0.8
    )


def _syncing(deployed: _RunningDeployment, rounds: int, scratch: Path, progress: Progress) -> Verdict:
    """Compare a new mirror of the whole feed with a loop that reads the feed and keeps nothing."""
    ours_s: list[float] = []
    bare_s: list[float] = []
    with deployed.client(_OURS) as client, closing(deployed.bare(_OURS)) as bare:
        for number in range(rounds):
            seconds, records = bare.read()
            bare_s.append(seconds)
            with Mirror(_mirror_file(scratch, number), client) as mirror:
                mirror.follow("email", org_slug=_OURS)
                begun_s = time.perf_counter()
                mirror.sync()
                ours_s.append(time.perf_counter() - begun_s)
                mirrored = sum(feed.records for feed in mirror.feeds())
            if mirrored != records:
                raise BenchError(f"the mirror has {mirrored} of {records} records")
            progress(f"round {number + 1}/{rounds}  first sync: {ours_s[-1]:.2f} s, bare httpx2 {bare_s[-1]:.2f} s")
    return _rates(f"first sync of {records} records", records, ours_s, bare_s, "httpx2 reading the pages", 0.6)


def _looking_up(
    deployed: _RunningDeployment, addresses: Sequence[str], rounds: int, progress: Progress
) -> Iterator[Verdict]:
    """Yield the verdicts on look-ups by the client, against the same request by the bare client."""
    progress("looking addresses up")
    choose = random.Random(3)  # noqa: S311 - nothing here is secret
    with deployed.client(_OURS) as client, closing(deployed.bare(_OURS)) as bare:
        for count in (1, _LOOKED_UP_AT_ONCE):
            ours_s: list[float] = []
            bare_s: list[float] = []
            for _ in range(20 * rounds):
                asked = choose.sample(addresses, count)
                bare_s.append(bare.look_up(asked))
                begun_s = time.perf_counter()
                found = list(client.look_up("email", asked))
                ours_s.append(time.perf_counter() - begun_s)
            if not all(one.records for one in found):
                raise BenchError("a look-up did not find what was submitted")
            yield Verdict(
                title=f"look_up of {count}",
                figure=spread([bare / ours for bare, ours in zip(bare_s, ours_s, strict=True)]),
                unit="%",
                target=None,
                detail=f"{_ms(ours_s)} of bare httpx2 {_ms(bare_s)}",
            )


def _checking(
    mirror: Mirror, group_id: str, plain: sqlite3.Connection, addresses: Sequence[str], rounds: int, progress: Progress
) -> Iterator[Verdict]:
    """Yield the verdicts on the mirror, against a table keyed by address. Half of the addresses are suppressed."""
    progress("asking the mirror")
    ours: dict[str, list[float]] = {"is_barred": [], "filter_allowed": [], "check": []}
    bare_s: list[float] = []
    for number in range(rounds + 1):
        asked = _half_known(addresses, seed=number)
        seconds = {
            "is_barred": _is_barred_s(mirror, group_id, asked),
            "filter_allowed": _filtered_s(mirror, group_id, asked),
            "check": _checked_s(mirror, group_id, asked),
        }
        bare = _key_look_ups_s(plain, asked)
        if number:  # the first round fills the caches
            bare_s.append(bare)
            for kind, took_s in seconds.items():
                ours[kind].append(took_s)
    for kind, share in (("is_barred", 0.5), ("filter_allowed", 1.5), ("check", None)):
        yield Verdict(
            title=f"{kind} at {len(addresses)} records",
            figure=spread([bare / took_s for bare, took_s in zip(bare_s, ours[kind], strict=True)]),
            unit="%",
            target=None if share is None else Target(share, at_least=True),
            detail=f"{_each_us(ours[kind])} an address, bare sqlite3 key look-up {_each_us(bare_s)}",
        )


def _importing(rounds: int, progress: Progress) -> Iterator[Verdict]:
    """Yield the verdicts on imports, each in a process of its own."""
    progress("importing")
    bare_s = []
    ours: dict[str, list[float]] = {"stoplist_client": [], "stoplist_client.Client": []}
    for number in range(rounds + 1):
        bare = _import_s("import httpx2")
        pair_s = (_import_s("import stoplist_client"), _import_s("from stoplist_client import Client"))
        if number:  # the first fills the system's file cache
            bare_s.append(bare)
            for kept, took_s in zip(ours.values(), pair_s, strict=True):
                kept.append(took_s)
    for name, seconds in ours.items():
        yield Verdict(
            title=f"import of {name} / of httpx2",
            figure=spread([took_s / bare for took_s, bare in zip(seconds, bare_s, strict=True)]),
            unit="x",
            target=Target(1.5, at_least=False),
            detail=f"{_ms(seconds)}, httpx2 {_ms(bare_s)}",
        )


def _is_barred_s(mirror: Mirror, group_id: str, asked: Sequence[str]) -> float:
    is_barred = mirror.is_barred
    barred = 0
    begun_s = time.perf_counter()
    for address in asked:
        barred += is_barred("email", address, org_slug=_OURS, group_id=group_id)
    took_s = time.perf_counter() - begun_s
    _check_half(barred, asked)
    return took_s


def _filtered_s(mirror: Mirror, group_id: str, asked: Sequence[str]) -> float:
    begun_s = time.perf_counter()
    allowed = list(mirror.filter_allowed("email", asked, org_slug=_OURS, group_id=group_id))
    took_s = time.perf_counter() - begun_s
    _check_half(len(allowed), asked)
    return took_s


def _checked_s(mirror: Mirror, group_id: str, asked: Sequence[str]) -> float:
    begun_s = time.perf_counter()
    checked = list(mirror.check("email", asked, org_slug=_OURS, group_id=group_id))
    took_s = time.perf_counter() - begun_s
    _check_half(sum(one.verdict == "barred" for one in checked), asked)
    return took_s


def _key_look_ups_s(plain: sqlite3.Connection, asked: Sequence[str]) -> float:
    execute = plain.execute
    found = 0
    begun_s = time.perf_counter()
    for address in asked:
        found += execute("SELECT 1 FROM barred WHERE address = ?", (address,)).fetchone() is not None
    took_s = time.perf_counter() - begun_s
    _check_half(found, asked)
    return took_s


def _check_half(count: int, asked: Sequence[str]) -> None:
    if count != len(asked) // 2:
        raise BenchError(f"{count} of {len(asked)} addresses were found, instead of half of them")


def _half_known(addresses: Sequence[str], *, seed: int) -> list[str]:
    choose = random.Random(seed)  # noqa: S311 - nothing here is secret
    half = _CHECKED_PER_ROUND // 2
    asked = choose.sample(addresses, half) + [act.address for act in People("email", seed=1_000 + seed).acts(half)]
    choose.shuffle(asked)
    return asked


def _plain_keys(file: Path, addresses: Sequence[str]) -> sqlite3.Connection:
    """Return a file with one table that has the addresses as its key, and as much memory as a mirror."""
    plain = sqlite3.connect(file, isolation_level=None)
    plain.execute("PRAGMA journal_mode = WAL").fetchall()
    plain.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    plain.execute("CREATE TABLE barred (address TEXT PRIMARY KEY) WITHOUT ROWID")
    plain.execute("BEGIN")
    # Inserted in order, so that the pages are full.
    plain.executemany("INSERT INTO barred VALUES (?)", ((address,) for address in sorted(set(addresses))))
    plain.execute("COMMIT")
    plain.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return plain


def _parts(addresses: Sequence[str]) -> list[Sequence[str]]:
    size = max(1, len(addresses) // _BATCH // _TURNS) * _BATCH
    return [addresses[at : at + size] for at in range(0, len(addresses), size)]


def _bodies(addresses: Sequence[str]) -> list[bytes]:
    """Return the bodies as the client makes them: each item has the time when it was read."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    batches = (addresses[at : at + _BATCH] for at in range(0, len(addresses), _BATCH))
    return [
        msgspec.json.encode({"items": [{"address": address, "occurred_at": now} for address in batch]})
        for batch in batches
    ]


def _default_group(deployment: Deployment) -> str:
    groups: list[dict[str, Any]] = json.loads(deployment.run("group", "list", "--org", _OURS, "--json"))
    return str(groups[0]["group_id"])


def _mirror_file(scratch: Path, number: int) -> Path:
    return scratch / f"mirror-{number}.db"


def _import_s(statement: str) -> float:
    done = subprocess.run([sys.executable, "-c", _IMPORT.format(statement)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def _rates(
    title: str, count: int, ours_s: Sequence[float], bare_s: Sequence[float], baseline: str, share: float
) -> Verdict:
    return Verdict(
        title=title,
        figure=spread([bare / ours for bare, ours in zip(bare_s, ours_s, strict=True)]),
        unit="%",
        target=Target(share, at_least=True),
        detail=f"{count / spread(ours_s).median:.0f}/s of bare {baseline} {count / spread(bare_s).median:.0f}/s",
    )


def _ms(seconds: Sequence[float]) -> str:
    return f"{spread(seconds).median * 1000:.2f} ms"


def _each_us(seconds: Sequence[float]) -> str:
    return f"{spread(seconds).median / _CHECKED_PER_ROUND * 1e6:.1f} µs"

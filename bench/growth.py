"""The rows of `--growth`: the cost of hot requests at ten million records against ten thousand, sizes, and commands.

Both deployments begin as the smaller dataset of the pages (bench/dataset.py). Records, organizations, keys and tokens
are added to the larger one by SQL. `stoplist copy` takes both to PostgreSQL. What requests add is deleted after each
round.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import cycle

import msgspec

from bench import dataset, seed
from bench.dataset import ADMINISTRATOR, CHANNEL
from bench.direct import FEED_ID
from bench.machine import timed
from bench.pages import FEW
from bench.product import POSTGRESQL, SQLITE, Deployment, ProductServer, deployed
from bench.rounds import Run, Workload
from bench.sample_people import People
from bench.scripts import EMAIL, Scripts, get, page, reads, refresh_chains, token_requests
from bench.verdict import Series, Verdict, verdict
from stoplist.clock import DAY_MS, Clock
from stoplist.secret_key import secret_keys
from stoplist.settings import load
from stoplist.unsubscribes.cursor import make_cursor

_RECORDS_AN_ORGANIZATION, _RECORDS_A_KEY = 1_000, 100
_PAGE, _BATCH, _DELTA, _LOOKED_UP = 10_000, 10_000, 100, 2_000
_PAGES, _BATCHES = 20, 3
_OVERVIEW, _BEARER = "overview", "bearer and limit alone"
_FEW, _MANY = "few", "many"

_GROW = """
    CREATE TEMP TABLE numbers (n INTEGER PRIMARY KEY);
    INSERT INTO numbers
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT :records) SELECT n FROM numbers;
    INSERT INTO organizations (slug, name, default_group_id, created_ms)
    SELECT 'grown-' || n, 'Grown', printf('grp_%022d', n), :now_ms FROM numbers WHERE n <= :organizations;
    INSERT INTO groups (group_id, organization_id, group_no, name, created_ms)
    SELECT default_group_id, organization_id, 1, 'News', created_ms FROM organizations WHERE name = 'Grown';
    INSERT INTO feeds (feed_id, organization_id, channel, generation, head_seq, writes)
    SELECT organization_id * 16 + 1, organization_id, 'email', 'grown', 0, 0 FROM organizations WHERE name = 'Grown';
    INSERT INTO feed_days (feed_id, day, status, reason, changes, standing)
    SELECT feed_id, :day - n, 'unsubscribed', 'manual', 1, 1 FROM feeds, numbers WHERE generation = 'grown' AND n <= 30;
    INSERT INTO clients (client_id, label, secret_hash, secret_prefix, epoch, is_active, default_organization_id,
                         permissions, created_ms)
    SELECT printf('svc_ci_grown%017d', n), 'Grown', randomblob(32), 'svc_cs_grow', 1, 1, 1 + n % :organizations,
           'read unsubscribe', :now_ms FROM numbers WHERE n <= :keys;
    INSERT INTO client_organizations (client_id, organization_id)
    SELECT client_id, default_organization_id FROM clients WHERE label = 'Grown';
    INSERT INTO token_pairs (client_id, epoch, access_hash, refresh_hash, access_expires_ms, refresh_expires_ms)
    SELECT client_id, 1, randomblob(32), randomblob(32), :now_ms + 900000, :now_ms + 2592000000
    FROM numbers, clients WHERE label = 'Grown' AND n <= 10
"""
# In scattered order of the addresses.
_ADD_RECORDS = """
    INSERT INTO unsubscribes (feed_id, address, group_no, id, seq, status, reason, source, occurred_ms, recorded_ms,
                              submission_id, latest_act_ms, is_confirmed)
    SELECT feed_id, printf('p%010d@mail.example', n * 618033989 % 10000000000), 1, printf('uns_%022d', n), head_seq + n,
           'unsubscribed', 'unsubscribe', NULL, :now_ms, :now_ms, 'sub_0123456789abcdefghijkl', :now_ms, 0
    FROM feeds, numbers WHERE feed_id = :feed_id;
    UPDATE feeds SET head_seq = head_seq + :records, writes = writes + 1 WHERE feed_id = :feed_id
"""
# As a program leaves them that knows no states.
_FORGET_STATES = (
    "UPDATE feeds SET state_seq = 0, state_records = 0, state_digest = printf('%064d', 0), state_writes = 0"
)
_FEED = "SELECT generation, head_seq FROM feeds WHERE feed_id = {}"
_ADDRESS = "SELECT address FROM unsubscribes WHERE feed_id = {} AND seq >= {} ORDER BY seq LIMIT 1"
_TRIM = "DELETE FROM unsubscribes WHERE feed_id = {} AND seq > {}"


class _Feed(msgspec.Struct, frozen=True):
    """The feed that requests are about, as it was at first, and some of its addresses."""

    generation: str
    head_seq: int
    addresses: list[str]


def measure(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on SQLite, then on PostgreSQL with copies of the same data."""
    run.progress(f"filling feeds with {FEW} and {run.parameters.grown} records")
    with deployed(SQLITE, run.scratch / f"growth-{_FEW}", partners=()) as few:
        many = msgspec.structs.replace(few, folder=run.scratch / f"growth-{_MANY}")
    made = dataset.fill(few.file, FEW)
    shutil.copytree(few.folder, many.folder)
    yield _grow(run, many)
    # A key of the dataset, as often as connections take turns.
    deployments = {
        name: msgspec.structs.replace(one, partners=(made.partner,) * 4) for name, one in ((_FEW, few), (_MANY, many))
    }
    feeds = {name: _feed(one) for name, one in deployments.items()}
    for one in deployments.values():
        with seed.filling(one.file) as connection:
            connection.execute(_FORGET_STATES)
    yield _time(run, "migrate, which computes the states", deployments, lambda one: one.run("migrate"))
    yield _time(run, "backup", deployments, lambda one: one.run("backup", str(one.folder / "backup.db")))
    session = made.tokens[ADMINISTRATOR]
    yield from _hot_requests(run, deployments, feeds, session)
    with ExitStack() as running:
        copies = {
            name: msgspec.structs.replace(
                running.enter_context(deployed(POSTGRESQL, one.folder, partners=())), partners=one.partners
            )
            for name, one in deployments.items()
        }
        yield _time(run, "copy to PostgreSQL", copies, lambda one: one.copy_from(one.file))
        with copies[_MANY].connected() as connection:
            ((table_bytes,),) = connection.query("SELECT pg_total_relation_size('unsubscribes')")
        yield _size(run, table_bytes, copies[_MANY].where)
        yield from _hot_requests(run, copies, feeds, session)


def _grow(run: Run, deployment: Deployment) -> Verdict:
    """Add everything that the larger deployment has more; return the verdict on the size of a record."""
    records, now_ms = run.parameters.grown, Clock().now_ms()
    values = {
        "records": records,
        "organizations": records // _RECORDS_AN_ORGANIZATION,
        "keys": records // _RECORDS_A_KEY,
        "feed_id": FEED_ID,
        "day": now_ms // DAY_MS,
        "now_ms": now_ms,
    }
    with seed.filling(deployment.file) as connection:
        for statement in _GROW.split(";"):
            connection.execute(statement, values)
        before_bytes = _size_bytes(connection)
        for statement in _ADD_RECORDS.split(";"):
            connection.execute(statement, values)
        return _size(run, _size_bytes(connection) - before_bytes, "")


def _size_bytes(connection: sqlite3.Connection) -> int:
    ((size,),) = connection.execute("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
    return int(size)


def _size(run: Run, table_bytes: int, where: str) -> Verdict:
    records = run.parameters.grown
    title, detail = f"size on disk of a record{where}", f"{records} records, with indexes"
    return verdict(title, [table_bytes / records], "bytes", detail)


def _feed(deployment: Deployment) -> _Feed:
    with deployment.connected() as connection:
        ((generation, head_seq),) = connection.query(_FEED.format(FEED_ID))
        seqs = (head_seq * at // _LOOKED_UP for at in range(_LOOKED_UP))
        return _Feed(generation, head_seq, [connection.query(_ADDRESS.format(FEED_ID, seq))[0][0] for seq in seqs])


def _time(run: Run, title: str, deployments: Mapping[str, Deployment], work: Callable[[Deployment], object]) -> Verdict:
    """Return the verdict on the time that a command takes at the larger number of records."""
    times_s, cpu_s = {}, {}
    for name, one in deployments.items():
        before_s = sum(os.times()[2:4])
        times_s[name], _ = timed(work, one)
        cpu_s[name] = sum(os.times()[2:4]) - before_s
        run.progress(f"{title}, {name}: {times_s[name]:.1f} s, {cpu_s[name]:.1f} s of processor time")
    detail = f"{cpu_s[_MANY]:.1f} s of processor time; {times_s[_FEW]:.2f} s at {FEW}"
    return verdict(f"{title}: time at {run.parameters.grown} records", [times_s[_MANY]], "s", detail)


def _hot_requests(
    run: Run, deployments: Mapping[str, Deployment], feeds: Mapping[str, _Feed], session: str
) -> Iterator[Verdict]:
    where = "PostgreSQL" if deployments[_FEW].is_on_postgresql else "SQLite"
    run.progress(f"sending requests to both on {where}")
    with ExitStack() as running:
        servers = {name: running.enter_context(one.server(with_database=True)) for name, one in deployments.items()}
        scripts = {name: _scripts(server, feeds[name]) for name, server in servers.items()}
        works = run.loads(
            Workload(work, name, server, 16, scripts[name][work], b"404" if work == _BEARER else b"200")
            for work in scripts[_FEW]
            for name, server in servers.items()
        )
        seen_us = {name: work.server_cpu_us for name, work in works.items()}
        seen_us |= _series(run, servers, feeds, session)
        memory_mib = {name: server.rss_mib() for name, server in servers.items()}
    at = f"at {run.parameters.grown} records against {FEW} ({where})"
    for work in dict.fromkeys(work for work, _ in seen_us):
        many_us, few_us = seen_us[work, _MANY], seen_us[work, _FEW]
        detail = f"{many_us:.0f} µs, {few_us:.0f} µs"
        at_most = None if work == _OVERVIEW else 1.3
        yield verdict(f"{work}: processor time {at}", many_us / few_us, "x", detail, at_most=at_most)
    memory = f"{memory_mib[_MANY]:.0f} MiB"
    yield verdict(f"memory of a server {at}", [memory_mib[_MANY] / memory_mib[_FEW]], "x", memory)


def _scripts(server: ProductServer, feed: _Feed) -> dict[str, Scripts]:
    partners, addresses = server.with_tokens(), cycle(feed.addresses)
    return {
        "look-up": reads(partners, lambda: f"{EMAIL}?address={next(addresses)}"),
        _BEARER: reads(partners),
        "client_credentials": token_requests(partners),
        "refresh": refresh_chains(partners),
    }


def _series(
    run: Run, servers: Mapping[str, ProductServer], feeds: Mapping[str, _Feed], session: str
) -> dict[tuple[str, str], Series]:
    """Return the processor times of what is sent one after the other. What a round stores is deleted after it."""
    people = {name: People(CHANNEL, seed=70) for name in servers}

    def measure_us(number: int) -> dict[tuple[str, str], float]:
        run.progress(f"round {number}/{run.parameters.rounds}  one request after the other")
        seen_us = {}
        for name in list(servers)[:: 1 if number % 2 else -1]:
            server, feed = servers[name], feeds[name]
            for work, requests in _requests(server, feed, people[name], session).items():
                seen_us[work, name] = server.cost_us(requests)
            with server.deployment.connected() as connection:
                connection.query(_TRIM.format(FEED_ID, feed.head_seq))
        return seen_us

    return run.rounds(measure_us)


def _requests(server: ProductServer, feed: _Feed, people: People, session: str) -> dict[str, list[bytes]]:
    keys = secret_keys(load(server.deployment.environ(), env_file=server.deployment.folder / "no.env"))

    def after(seq: int, limit: int) -> bytes:
        cursor = make_cursor(keys, feed_id=FEED_ID, generation=feed.generation, group_id=None, seq=seq)
        return get(f"{EMAIL}?cursor={cursor}&limit={limit}", server.token)

    def submissions(count: int, items: int) -> list[bytes]:
        return [people.post(server.token, items) for _ in range(count)]

    # The smaller feed has only this page.
    last = max(0, feed.head_seq - _PAGE)
    return {
        f"delta of {_DELTA}": [after(feed.head_seq - _DELTA, _DELTA)] * 500,
        f"follow page of {_PAGE}": [after(last * at // _PAGES, _PAGE) for at in range(_PAGES)],
        _OVERVIEW: [page("/", session)] * 3,
        "one-item POST": submissions(300, 1),
        f"new batch of {_BATCH}": submissions(_BATCHES, _BATCH),
    }

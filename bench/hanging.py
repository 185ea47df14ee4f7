"""The row on a feed that hangs: how long others wait while its row is locked by a session that never ends.

Source of the target: docs/decisions/0018-hanging-feeds.md.
"""

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

import asyncpg

from bench import product
from bench.latency import probe
from bench.product import Deployment, ProductServer
from bench.rounds import Run
from bench.sample_people import People, batch_body
from bench.scripts import EMAIL, post
from bench.server import Caller
from bench.verdict import Verdict, ratios, verdict

_CLIENTS, _PAUSE_S = 50, 0.25
_ROUNDS, _SETTLING_S = 3, 11.0
_LOCK = "SELECT feed_id FROM feeds JOIN organizations USING (organization_id) WHERE slug = 'hung' FOR UPDATE OF feeds"


def measure(run: Run) -> Iterator[Verdict]:
    """Yield a verdict for each kind of request, while 50 clients submit to another feed, which hangs or does not."""
    people = People("email", seed=500)
    with (
        product.on_postgresql(run.scratch / "hanging", partners=("bench", "hung")) as deployment,
        deployment.server() as server,
        _submitting(server),
    ):
        time.sleep(1.0)
        before = _waits(run, server, people)
        with _locked(deployment):
            time.sleep(_SETTLING_S)  # the first statements run into their deadlines, and the feed is refused
            after = _waits(run, server, people)
    for kind, p99_s in after.items():
        detail = f"{_spread(p99_s)} ms, undisturbed {_spread(before[kind])} ms"
        title = f"p99 of a {kind} while another feed hangs / while it does not (PostgreSQL)"
        yield verdict(title, ratios(p99_s, before[kind]), "x", detail, at_most=1.5)


def _waits(run: Run, server: ProductServer, people: People) -> dict[str, list[float]]:
    def round_(_: int) -> dict[str, float]:
        return {kind: wait.p99_ms / 1000 for kind, wait in probe(server, run.parameters.waits_s, people).items()}

    return run.rounds(_ROUNDS, round_, "p99 beside another feed")


@contextmanager
def _submitting(server: ProductServer) -> Iterator[None]:
    """Let 50 clients submit single items to the feed of the second partner, whatever the answers."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    token = server.new_token(server.deployment.partners[1])
    clients = context.Process(target=_submit, args=(server.port, server.ca, token, stop))
    clients.start()
    try:
        yield
    finally:
        stop.set()
        clients.join(60)


def _submit(port: int, ca: Path | None, token: str, stop: Event) -> None:
    def submit(seed: int) -> None:
        people = People("email", seed=seed)
        with Caller(port, ca) as caller:
            while not stop.wait(_PAUSE_S):
                caller.send(post(EMAIL, token, batch_body(people.acts(1))))
                caller.receive()

    threads = [threading.Thread(target=submit, args=(1_000 + number,)) for number in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def _locked(deployment: Deployment) -> Iterator[None]:
    """Hold the lock of the feed's row."""
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(deployment.database_url))
        runner.run(connection.execute("BEGIN"))
        runner.run(connection.fetch(_LOCK))
        try:
            yield
        finally:
            runner.run(connection.close())


def _spread(seconds: Sequence[float]) -> str:
    return f"{min(seconds) * 1000:.0f} to {max(seconds) * 1000:.0f}"

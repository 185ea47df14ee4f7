"""The rows on states of feeds and positions of readers: the server with them, against the same without them.

See bench/without_proof.py. A look-up takes no step for either; its row shows the spread of such a comparison.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bench import against
from bench.rounds import Run
from bench.verdict import Verdict

_WITHOUT = (sys.executable, str(Path(__file__).with_name("without_proof.py")))


def on_sqlite(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on SQLite."""
    yield from _on(run, "SQLite")


def on_postgresql(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on PostgreSQL."""
    yield from _on(run, "PostgreSQL")


def _on(run: Run, database: str) -> Iterator[Verdict]:
    where = f"{database}, against none of states and positions"
    with against.deployments_of_both(run, database, _WITHOUT) as deployments, ExitStack() as running:
        servers = {side: running.enter_context(one.server(tls=False)) for side, one in deployments.items()}
        yield from against.compare_batches(run, servers, where, new_at_most=1.15)
        yield against.compare_pages(run, servers, where, at_most=1.03)
        yield from against.compare_requests(run, servers, where, works=(against.LOOK_UP,), at_most=1.05)

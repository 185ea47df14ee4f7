"""The rows on states of feeds and positions of readers: the server with them, against the same without them.

See bench/without_proof.py. A look-up takes no step for either; its row shows the spread of such a comparison.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from bench import against
from bench.product import DatabaseKind
from bench.rounds import Run
from bench.verdict import Verdict

_WITHOUT = (sys.executable, str(Path(__file__).with_name("without_proof.py")))


def measure(run: Run, database: DatabaseKind) -> Iterator[Verdict]:
    """Yield the verdicts."""
    where = f"{database.value}, against none of states and positions"
    with (
        against.both_deployed(run, database, command=_WITHOUT) as deployments,
        against.both_served(deployments) as servers,
    ):
        yield from against.compare_batches(run, servers, where, new_at_most=1.15)
        yield against.compare_pages(run, servers, where, at_most=1.03)
        yield from against.compare_requests(run, servers, where, works=(against.LOOK_UP,), at_most=1.05)

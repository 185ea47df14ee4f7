"""The rows on feeds in a database of their own: a server with two databases, against one with all in one.

Both are on a PostgreSQL of the same settings, and the figure is the processor time of the server.
"""

from collections.abc import Iterator

from bench import against
from bench.product import DatabaseKind
from bench.rounds import Run
from bench.verdict import Verdict


def measure(run: Run, database: DatabaseKind) -> Iterator[Verdict]:
    """Yield the verdicts on PostgreSQL."""
    where = f"{database.value}, feeds apart against all in one"
    with (
        against.both_deployed(run, database, are_feeds_apart=True) as deployments,
        against.both_served(deployments) as servers,
    ):
        yield from against.compare_batches(run, servers, where, new_at_most=1.05)
        yield from against.compare_requests(run, servers, where, works=(against.LOOK_UP,), at_most=1.05)

"""The rows on a feed that hangs: how long others wait while its row is locked by a session that never ends.

Source of the target: docs/decisions/0018-hanging-feeds.md.
"""

import time
from collections.abc import Iterator

from bench.latency import Posts, posting, probe
from bench.product import DatabaseKind, ProductServer, deployed
from bench.rounds import Run
from bench.sample_people import People
from bench.verdict import Series, Verdict, verdict

_SUBMISSIONS = Posts(batch=1, seed=1_000, connections=50, pause_s=0.25, may_fail=True)
_ROUNDS, _SETTLING_S = 3, 11.0
_LOCK = "SELECT feed_id FROM feeds JOIN organizations USING (organization_id) WHERE slug = 'hung' FOR UPDATE OF feeds"


def measure(run: Run, database: DatabaseKind) -> Iterator[Verdict]:
    """Yield a verdict for each kind of request, while 50 clients submit to another feed, which hangs or does not."""
    people = People("email", seed=500)
    with (
        deployed(database, run.scratch / "hanging", partners=("bench", "hung")) as deployment,
        deployment.server() as server,
        posting(server, deployment.partners[1:], _SUBMISSIONS),
    ):
        time.sleep(1.0)
        before_ms = _waits_ms(run, server, people)
        with deployment.connected() as connection:
            connection.query("BEGIN")
            connection.query(_LOCK)
            time.sleep(_SETTLING_S)  # the first statements run into their deadlines, and the feed is refused
            after_ms = _waits_ms(run, server, people)
    for kind, p99_ms in after_ms.items():
        detail = f"{_range(p99_ms)} ms, undisturbed {_range(before_ms[kind])} ms"
        title = f"p99 of a {kind} while another feed hangs / while it does not{deployment.where}"
        yield verdict(title, p99_ms / before_ms[kind], "x", detail, at_most=1.5)


def _waits_ms(run: Run, server: ProductServer, people: People) -> dict[str, Series]:
    def measure_p99(_: int) -> dict[str, float]:
        return {kind: wait.p99_ms for kind, wait in probe(server, run.parameters.waits_s, people).items()}

    return run.rounds(measure_p99, "p99 beside another feed", count=_ROUNDS, warm_up=False)


def _range(figure: Series) -> str:
    return f"{figure.least:.0f} to {figure.greatest:.0f}"

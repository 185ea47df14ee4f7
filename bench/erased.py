"""The rows on erased persons: feeds with some against feeds without, and erasing somebody in many organizations."""

from collections.abc import Iterator
from functools import partial

import msgspec

from bench.machine import timed
from bench.product import DatabaseKind, ProductServer, deployed
from bench.rounds import Run, Workload
from bench.sample_people import People, batch_body
from bench.scripts import EMAIL, get, post, rotated
from bench.server import BenchError
from bench.verdict import Verdict, verdict

_WITH, _WITHOUT = "with", "without"
_BATCH, _ERASED, _ORGANIZATIONS, _CONNECTIONS = 10_000, 1_000, 40, 16
# Several in a row, so that work put off until after an answer is measured with the next one.
_BATCHES_TOGETHER = 5
_ERASE = ("person", "erase", "--channel", "email", "--yes", "--all-upgraded")


def measure(run: Run, database: DatabaseKind) -> Iterator[Verdict]:
    """Yield the verdicts."""
    folder = run.scratch / f"erased-{database.name}"
    known, people = People("email", seed=5).acts(_BATCH), {name: People("email", seed=6) for name in (_WITH, _WITHOUT)}
    with deployed(database, folder, partners=(_WITH, _WITHOUT)) as deployment, deployment.server() as server:
        run.progress(f"erasing {_ERASED} persons{deployment.where}")
        tokens = dict(zip(people, map(server.new_token, deployment.partners), strict=True))
        for token in tokens.values():
            server.send_once(post(EMAIL, token, batch_body(known))).require()
        listed = folder / "erased.txt"
        listed.write_text("".join(f"{act.address}\n" for act in known[:_ERASED]))
        deployment.run(*_ERASE, "--list", str(listed), "--org", _WITH)

        def post_us(name: str) -> float:
            return server.cost_us([people[name].post(tokens[name], _BATCH) for _ in range(_BATCHES_TOGETHER)])

        batch_us = run.in_turn({name: partial(post_us, name) for name in tokens}, "batches and erased persons")
        title = f"batch of {_BATCH} where {_ERASED} persons were erased: server time against none{deployment.where}"
        ours_ms, bare_ms = (batch_us[name] / 1000 for name in tokens)
        yield verdict(title, ours_ms / bare_ms, "x", f"{ours_ms:.0f} ms and {bare_ms:.0f} ms", at_most=1.2)
        look_ups = {
            name: rotated([get(f"{EMAIL}?address={act.address}", token) for act in known[-2_000:]])
            for name, token in tokens.items()
        }
        works = run.loads(Workload("look-up", name, server, _CONNECTIONS, look_ups[name]) for name in tokens)
        title = f"look-up where {_ERASED} persons were erased: server time against none{deployment.where}"
        ours_us, bare_us = (works["look-up", name].server_cpu_us for name in tokens)
        yield verdict(title, ours_us / bare_us, "x", f"{ours_us:.0f} µs and {bare_us:.0f} µs", at_most=1.1)
        yield _erasing(run, server)


def _erasing(run: Run, server: ProductServer) -> Verdict:
    """Return the verdict on the command, without the time that it takes if nobody is left to be erased."""
    deployment, slugs = server.deployment, [f"more-{number}" for number in range(_ORGANIZATIONS)]
    run.progress(f"creating {_ORGANIZATIONS} organizations{deployment.where}")
    for slug in slugs:
        deployment.run("org", "create", slug, "--name", slug, "--default-group", "News")
    token, people = server.new_token(deployment.make_key(*slugs)), People("email", seed=8)

    def erase_s(address: str, known: int) -> float:
        took_s, result = timed(deployment.json, *_ERASE, address, "--everywhere")
        if len(result["erased"]) != known:
            raise BenchError(f"the person was erased in {len(result['erased'])} organizations")
        return took_s

    def erase() -> float:
        (act,) = people.acts(1)
        with server.caller() as caller:
            for slug in slugs:
                caller.call(
                    post(EMAIL, token, msgspec.json.encode({"org_slug": slug, "items": [{"address": act.address}]}))
                )
        return erase_s(act.address, known=_ORGANIZATIONS) - erase_s(act.address, known=0)

    seen_s = run.in_turn({"erase": erase}, f"erase in {_ORGANIZATIONS} organizations")["erase"]
    title = f"person erase in {_ORGANIZATIONS} organizations{deployment.where}"
    return verdict(title, seen_s, "s", f"{_ORGANIZATIONS} records", at_most=1.0)

"""The rows on erased persons: feeds with some against feeds without, and erasing somebody in many organizations."""

import json
import time
from collections.abc import Iterator
from statistics import median

import msgspec

from bench import product
from bench.product import Deployment, ProductServer
from bench.rounds import Run, Workload, run_workloads
from bench.sample_people import People, batch_body
from bench.scripts import EMAIL, get, post, rotated
from bench.server import BenchError
from bench.verdict import Verdict, ratios, verdict

_WITH, _WITHOUT = "with", "without"
_BATCH, _ERASED, _ORGANIZATIONS, _CONNECTIONS = 10_000, 1_000, 40, 16
# Several in a row, so that work put off until after an answer is measured with the next one.
_BATCHES_TOGETHER = 5
_ERASE = ("person", "erase", "--channel", "email", "--yes", "--all-upgraded")


def on_sqlite(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on SQLite."""
    yield from _on(run, Deployment.create(run.scratch / "erased", partners=(_WITH, _WITHOUT)))


def on_postgresql(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on PostgreSQL."""
    with product.on_postgresql(run.scratch / "erased-postgresql", partners=(_WITH, _WITHOUT)) as deployment:
        yield from _on(run, deployment)


def _on(run: Run, deployment: Deployment) -> Iterator[Verdict]:
    run.progress(f"erasing {_ERASED} persons{deployment.where}")
    known, people = People("email", seed=5).acts(_BATCH), {name: People("email", seed=6) for name in (_WITH, _WITHOUT)}
    with deployment.server() as server:
        tokens = dict(zip(people, map(server.new_token, deployment.partners), strict=True))
        with server.caller() as caller:
            for token in tokens.values():
                caller.call(post(EMAIL, token, batch_body(known)))
        listed = deployment.folder / "erased.txt"
        listed.write_text("".join(f"{act.address}\n" for act in known[:_ERASED]))
        deployment.run(*_ERASE, "--list", str(listed), "--org", _WITH)

        def post_batches(number: int) -> dict[str, float]:
            seen_s: dict[str, float] = {}
            for name in list(tokens)[:: 1 if number % 2 else -1]:
                requests = [
                    post(EMAIL, tokens[name], batch_body(people[name].acts(_BATCH))) for _ in range(_BATCHES_TOGETHER)
                ]
                before_s = server.cpu_s()
                with server.caller() as caller:
                    for request in requests:
                        caller.call(request)
                seen_s[name] = server.cpu_s() - before_s
            return seen_s

        seen_s = run.rounds(run.parameters.rounds, post_batches, "batches and erased persons", warm_up=True)
        times = " and ".join(f"{median(seen_s[name]) / _BATCHES_TOGETHER * 1000:.0f} ms" for name in tokens)
        title = f"batch of {_BATCH} where {_ERASED} persons were erased: server time against none{deployment.where}"
        yield verdict(title, ratios(seen_s[_WITH], seen_s[_WITHOUT]), "x", times, at_most=1.2)
        look_ups = {
            name: [get(f"{EMAIL}?address={act.address}", token) for act in known[-2_000:]]
            for name, token in tokens.items()
        }
        seen = run_workloads(
            run,
            [Workload("look-up", name, server, _CONNECTIONS, rotated(requests)) for name, requests in look_ups.items()],
        )
        cpu_us = {name: [load.server_cpu_us for load in seen["look-up", name]] for name in tokens}
        times = " and ".join(f"{median(cpu_us[name]):.0f} µs" for name in tokens)
        title = f"look-up where {_ERASED} persons were erased: server time against none{deployment.where}"
        yield verdict(title, ratios(cpu_us[_WITH], cpu_us[_WITHOUT]), "x", times, at_most=1.1)
        yield _erasing(run, server)


def _erasing(run: Run, server: ProductServer) -> Verdict:
    """Return the verdict on the command, without the time that it takes if nobody is left to be erased."""
    deployment, slugs = server.deployment, [f"more-{number}" for number in range(_ORGANIZATIONS)]
    run.progress(f"creating {_ORGANIZATIONS} organizations{deployment.where}")
    for slug in slugs:
        deployment.run("org", "create", slug, "--name", slug, "--default-group", "News")
    token = server.new_token(deployment.make_key(*slugs))
    people = People("email", seed=8)

    def erase(_: int) -> dict[str, float]:
        items = [{"address": act.address} for act in people.acts(1)]
        with server.caller() as caller:
            for slug in slugs:
                caller.call(post(EMAIL, token, msgspec.json.encode({"org_slug": slug, "items": items})))
        return {"erase": _erase_s(deployment, items[0]["address"]) - _erase_s(deployment, items[0]["address"], known=0)}

    seen_s = run.rounds(run.parameters.rounds, erase, f"erase in {_ORGANIZATIONS} organizations", warm_up=True)["erase"]
    title = f"person erase in {_ORGANIZATIONS} organizations{deployment.where}"
    return verdict(title, seen_s, "s", f"{_ORGANIZATIONS} records", at_most=1.0)


def _erase_s(deployment: Deployment, address: str, known: int = _ORGANIZATIONS) -> float:
    """Return the seconds that the command takes. Raises BenchError unless so many organizations know the person."""
    begun_s = time.perf_counter()
    erased = json.loads(deployment.run(*_ERASE, address, "--everywhere", "--json"))["erased"]
    took_s = time.perf_counter() - begun_s
    if len(erased) != known:
        raise BenchError(f"the person was erased in {len(erased)} organizations")
    return took_s

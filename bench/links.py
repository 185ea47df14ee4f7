"""The rows on opt-out links: one-clicks of different people, the page, making links, and a batch while people click."""

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import NamedTuple

from stoplist_addresses.link_tokens import LinkContent, LinkKey
from stoplist_client import LinkMaker

from bench import product
from bench.bare_clicks import PATH
from bench.product import Deployment, ProductServer
from bench.rounds import Run, Workload, run_workloads
from bench.sample_people import People, batch_body
from bench.scripts import EMAIL, NOTHING, Script, get, one_click, open_link, post, repeat
from bench.server import Server
from bench.verdict import Verdict, compare_rates, ratios, verdict

_CONNECTIONS = 32
_BATCH = 10_000
_CLICKS_PER_S, _CLICKERS = 300, 6
_URLS = 20_000
_numbers = itertools.count()


class _Targets(NamedTuple):
    """The least rate of clicks and of pages, as a part of the rate of each bare application."""

    clicks: dict[str, float | None]
    pages: dict[str, float | None]


# On PostgreSQL the form echo and bare Starlette wait for nothing, a click waits for ten round trips and a page for two:
# there the bare handlers with the same statements have the targets.
_TARGETS = (
    _Targets({"form echo": 0.1, "bare handler": 0.6}, {"bare starlette": 0.25, "bare handler": None}),
    _Targets({"form echo": None, "bare handler": 0.6}, {"bare starlette": None, "bare handler": 0.4}),
)

MakePath = Callable[[], str]
"""Returns the path of another person's link."""


def on_sqlite(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on SQLite, and on making links."""
    yield _making(run)
    deployment = Deployment.create(run.scratch / "links")
    yield from _on(run, deployment, Deployment.create(run.scratch / "bare-links"))


def on_postgresql(run: Run) -> Iterator[Verdict]:
    """Yield the verdicts on PostgreSQL."""
    with product.on_postgresql(run.scratch / "links-postgresql") as deployment:
        yield from _on(run, deployment, deployment)


def _on(run: Run, deployment: Deployment, bare_deployment: Deployment) -> Iterator[Verdict]:
    slug = "bench"
    group = json.loads(deployment.run("group", "create", "--org", slug, "--name", "Clicks", "--json"))["group_id"]
    link_key = LinkKey(json.loads(deployment.run("link-key", "create", "--org", slug, "--json"))["link_key"])
    if bare_deployment is not deployment:
        with bare_deployment.server():
            pass  # makes its certificate

    def path() -> str:
        return f"/u/{link_key.token(LinkContent('email', group, f'person-{next(_numbers)}@example.org', None))}"

    with ExitStack() as running:
        server = running.enter_context(deployment.server())
        page = server.send_once(open_link(path())).require()
        answer = server.send_once(one_click(path())).require()
        echo = running.enter_context(bare_deployment.bare("bare.form_echo", max(len(answer.body), 20)))
        clicks = running.enter_context(bare_deployment.bare("bare_clicks", len(answer.body)))
        starlette = running.enter_context(bare_deployment.bare("bare.starlette", len(page.body)))
        pages = running.enter_context(bare_deployment.bare("bare_clicks", len(page.body)))
        opened = [open_link(path()) for _ in range(1_000)]
        nothing = get(NOTHING, "none")
        seen = run_workloads(
            run,
            [
                Workload("click", "form echo", echo, _CONNECTIONS, lambda _: repeat([one_click("/")])),
                Workload("click", "bare handler", clicks, _CONNECTIONS, lambda _: repeat([one_click(PATH)])),
                Workload("click", "stoplist", server, _CONNECTIONS, lambda _: _clicks(path)),
                Workload("page", "bare starlette", starlette, _CONNECTIONS, lambda _: repeat([nothing])),
                Workload("page", "bare handler", pages, _CONNECTIONS, lambda _: repeat([open_link(PATH)])),
                Workload("page", "stoplist", server, _CONNECTIONS, lambda number: repeat(opened[number:])),
            ],
        )
        run.add_works(seen, f"links{deployment.where}: ")
        where, targets = deployment.where, _TARGETS[deployment is bare_deployment]
        title = f"one-click opt-outs, {_CONNECTIONS} connections{where}"
        clicked, shown, size = seen["click", "stoplist"], seen["page", "stoplist"], f"{len(page.body)} bytes"
        for name, least in targets.clicks.items():
            yield compare_rates(f"{title}: {name}", "%", clicked, seen["click", name], "{} of {}", at_least=least)
        for name, least in targets.pages.items():
            title = f"page behind a link{where}: {name}"
            yield compare_rates(title, "%", shown, seen["page", name], f"{{}} of {{}}, {size}", at_least=least)
        yield from _batch_among_clicks(run, server, echo, path)


def _clicks(path: MakePath) -> Script:
    while True:
        yield one_click(path())


def _batch_among_clicks(run: Run, server: ProductServer, echo: Server, path: MakePath) -> Iterator[Verdict]:
    """Yield how much slower a batch is while 300 people a second click: than alone, and than while the echo is clicked.

    The second has no target. The clients and both servers share the processors, and it shows which part is theirs.
    """
    people = People("email", seed=90)

    def post_s() -> float:
        with server.caller() as caller:
            return caller.call(post(EMAIL, server.token, batch_body(people.acts(_BATCH)))).took_s

    def measure(_: int) -> dict[str, float]:
        alone_s = post_s()
        with _clicking(echo, lambda: "/"):
            beside_s = post_s()
        with _clicking(server, path):
            return {"alone": alone_s, "beside": beside_s, "among": post_s()}

    seen_s = run.rounds(run.parameters.rounds, measure, "a batch among clicks", warm_up=True)
    among_s = seen_s["among"]
    title = f"batch of {_BATCH} while {_CLICKS_PER_S} one-clicks a second arrive{server.deployment.where}"
    for name, baseline, at_most in (("alone", "alone", 1.3), ("they reach the form echo", "beside", None)):
        detail = f"{median(among_s) * 1000:.0f} ms of {median(seen_s[baseline]) * 1000:.0f} ms"
        yield verdict(f"{title}: {name}", ratios(among_s, seen_s[baseline]), "x", detail, at_most=at_most)


@contextmanager
def _clicking(server: Server, path: MakePath) -> Iterator[None]:
    """Click links at a steady rate within the context, over a few connections."""
    stop = threading.Event()

    def click() -> None:
        with server.caller() as caller:
            due_s = time.perf_counter()
            while not stop.wait(max(0.0, due_s - time.perf_counter())):
                caller.call(one_click(path()))
                due_s += _CLICKERS / _CLICKS_PER_S

    clickers = [threading.Thread(target=click) for _ in range(_CLICKERS)]
    for clicker in clickers:
        clicker.start()
    time.sleep(0.3)  # until all are connected
    try:
        yield
    finally:
        stop.set()
        for clicker in clickers:
            clicker.join()


def _making(run: Run) -> Verdict:
    """Return the verdict on the time that `LinkMaker.url` takes."""
    maker = LinkMaker("https://stop.example.com", "svc_lk_uM9nr214y2BwqeJCBIoqmCmp56nT1wnpuM9nr214y2B1ll7Wx")

    def make(_: int) -> dict[str, float]:
        begun_s = time.perf_counter()
        for number in range(_URLS):
            maker.url("email", f"person-{number}@example.org", group_id="grp_0123456789ABCDEFGHIJkl", source="march")
        return {"url": (time.perf_counter() - begun_s) / _URLS * 1e6}

    seen_us = run.rounds(run.parameters.rounds, make, "LinkMaker.url", warm_up=True)["url"]
    return verdict("LinkMaker.url", seen_us, "µs", "e-mail, group and source", at_most=15)

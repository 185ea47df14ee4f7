"""The rows on opt-out links: one-clicks of different people, the page, making links, and a batch while people click."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial

from stoplist_addresses.link_tokens import LinkContent, LinkKey
from stoplist_client import LinkMaker

from bench.bare_handlers import CLICK_PATH
from bench.machine import timed
from bench.product import SQLITE, DatabaseKind, ProductServer, deployed
from bench.rounds import Run, Workload
from bench.sample_people import People
from bench.scripts import NOTHING, Script, get, one_click, open_link, repeat
from bench.server import Server
from bench.verdict import Verdict, verdict

_CONNECTIONS = 32
_BATCH = 10_000
_CLICKS_PER_S, _CLICKERS = 300, 6
_URLS = 20_000
# The least rate of clicks and of pages, as a part of the rate of each bare application, by database. On PostgreSQL the
# form echo and bare Starlette wait for nothing, a click waits for ten round trips and a page for two: there the bare
# handlers with the same statements have the targets.
_CLICKS = {"form echo": (0.1, None), "bare handler": (0.6, 0.6)}
_PAGES = {"bare starlette": (0.25, None), "bare handler": (None, 0.4)}
_numbers = itertools.count()

MakePath = Callable[[], str]
"""Returns the path of another person's link."""


def measure(run: Run, database: DatabaseKind) -> Iterator[Verdict]:
    """Yield the verdicts; on SQLite also the one on making links."""
    at = 0 if database is SQLITE else 1
    if database is SQLITE:
        yield _making(run)
    with ExitStack() as running:
        deployment = bare = running.enter_context(deployed(database, run.scratch / f"links-{database.name}"))
        where = deployment.where
        group = deployment.json("group", "create", "--org", "bench", "--name", "Clicks")["group_id"]
        link_key = LinkKey(deployment.json("link-key", "create", "--org", "bench")["link_key"])
        if database is SQLITE:
            # The bare handlers write to a file of their own.
            bare = running.enter_context(deployed(database, run.scratch / "links-bare", partners=()))
            with bare.server():
                pass  # makes its certificate

        def path() -> str:
            return f"/u/{link_key.token(LinkContent('email', group, f'person-{next(_numbers)}@example.org', None))}"

        def start(app: str, body_bytes: int) -> Server:
            return running.enter_context(bare.bare(app, body_bytes))

        server = running.enter_context(deployment.server())
        click_bytes = len(server.send_once(one_click(path())).require().body)
        page_bytes = len(server.send_once(open_link(path())).require().body)
        echo = start("bare.form_echo", max(click_bytes, 20))
        clicks, pages = (start("bare_handlers.clicks", size) for size in (click_bytes, page_bytes))
        starlette = start("bare.starlette", page_bytes)
        opened = [open_link(path()) for _ in range(1_000)]
        seen = run.loads(
            [
                Workload("click", "form echo", echo, _CONNECTIONS, lambda _: repeat([one_click("/")])),
                Workload("click", "bare handler", clicks, _CONNECTIONS, lambda _: repeat([one_click(CLICK_PATH)])),
                Workload("click", "stoplist", server, _CONNECTIONS, lambda _: _clicks(path)),
                Workload("page", "bare starlette", starlette, _CONNECTIONS, lambda _: repeat([get(NOTHING, "none")])),
                Workload("page", "bare handler", pages, _CONNECTIONS, lambda _: repeat([open_link(CLICK_PATH)])),
                Workload("page", "stoplist", server, _CONNECTIONS, lambda number: repeat(opened[number:])),
            ],
            table=f"links{where}: ",
        )
        for work, title, targets, size in (
            ("click", f"one-click opt-outs, {_CONNECTIONS} connections{where}", _CLICKS, ""),
            ("page", f"page behind a link{where}", _PAGES, f", {page_bytes} bytes"),
        ):
            for name, least in targets.items():
                ours, other = seen[work, "stoplist"].rate, seen[work, name].rate
                detail = f"{ours:.0f}/s of {other:.0f}/s{size}"
                yield verdict(f"{title}: {name}", ours / other, "%", detail, at_least=least[at])
        yield from _batch_among_clicks(run, server, echo, path)


def _clicks(path: MakePath) -> Script:
    while True:
        yield one_click(path())


def _batch_among_clicks(run: Run, server: ProductServer, echo: Server, path: MakePath) -> Iterator[Verdict]:
    """Yield how much slower a batch is while 300 people a second click: than alone, and than while the echo is clicked.

    The second has no target. The clients and both servers share the processors, and it shows which part is theirs.
    """
    people = People("email", seed=90)

    def post_ms() -> float:
        with server.caller() as caller:
            return caller.call(people.post(server.token, _BATCH)).took_s * 1000

    def post_among_ms(clicked: Server, path: MakePath) -> float:
        with _clicking(clicked, path):
            return post_ms()

    sides: dict[str, Callable[[], float]] = {
        "alone": post_ms,
        "they reach the form echo": partial(post_among_ms, echo, lambda: "/"),
        "among": partial(post_among_ms, server, path),
    }
    seen_ms = run.in_turn(sides, "a batch among clicks")
    among_ms = seen_ms.pop("among")
    title = f"batch of {_BATCH} while {_CLICKS_PER_S} one-clicks a second arrive{server.deployment.where}"
    for name, other_ms in seen_ms.items():
        detail, at_most = f"{among_ms:.0f} ms of {other_ms:.0f} ms", 1.3 if name == "alone" else None
        yield verdict(f"{title}: {name}", among_ms / other_ms, "x", detail, at_most=at_most)


@contextmanager
def _clicking(server: Server, path: MakePath) -> Iterator[None]:
    """Click links at a steady rate within the context, over a few connections."""
    stop = threading.Event()

    def click(_: int) -> None:
        with server.caller() as caller:
            due_s = time.perf_counter()
            while not stop.wait(max(0.0, due_s - time.perf_counter())):
                caller.call(one_click(path()))
                due_s += _CLICKERS / _CLICKS_PER_S

    with ThreadPoolExecutor(_CLICKERS) as threads:
        clickers = threads.map(click, range(_CLICKERS))
        time.sleep(0.3)  # until all are connected
        try:
            yield
        finally:
            stop.set()
        list(clickers)  # raises what a thread raised


def _making(run: Run) -> Verdict:
    """Return the verdict on the time that `LinkMaker.url` takes."""
    maker = LinkMaker("https://stop.example.com", "svc_lk_uM9nr214y2BwqeJCBIoqmCmp56nT1wnpuM9nr214y2B1ll7Wx")

    def make() -> None:
        for number in range(_URLS):
            maker.url("email", f"person-{number}@example.org", group_id="grp_0123456789ABCDEFGHIJkl", source="march")

    seen_s = run.in_turn({"url": lambda: timed(make)[0]}, "LinkMaker.url")["url"]
    return verdict("LinkMaker.url", seen_s / _URLS * 1e6, "µs", "e-mail, group and source", at_most=15)

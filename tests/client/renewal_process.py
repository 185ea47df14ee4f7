"""A process with a client that requests tokens all the time; started by renewal_workers.py, killed at any time.

The first line of its input describes the client. Each further line is the number of calls to make, or `null` for calls
until the input ends. It prints when it is ready, when the first call was answered, and at the end the numbers of
answered calls and of calls that were refused because new tokens were ended at once.
"""

import asyncio
import json
import select
import sys
from collections.abc import Callable
from functools import partial

from stoplist_client import AsyncClient, Client, FileStore, InvalidToken

ADDRESS = "ann@example.com"


def is_over(calls: int, wanted: int | None) -> bool:
    """Return whether enough calls were made, or the input has ended."""
    if wanted is not None:
        return calls >= wanted
    return bool(select.select([sys.stdin], [], [], 0)[0])


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def work(look_up: Callable[[], object]) -> None:
    say("ready")
    while line := sys.stdin.readline():
        wanted, calls, refused = json.loads(line), 0, 0
        while not is_over(calls, wanted):
            try:
                look_up()
            except InvalidToken:
                refused += 1
                continue
            calls += 1
            if calls == 1:
                say("called")
        say(f"made {calls} {refused}")


def look_up(client: Client) -> None:
    list(client.look_up("email", [ADDRESS]))


async def look_up_on_a_loop(client: AsyncClient) -> None:
    async for _ in client.look_up("email", [ADDRESS]):
        pass


def main() -> None:
    told = json.loads(sys.stdin.readline())
    options = told["access"] | told["options"] | {"store": FileStore(folder=told["folder"])}
    if told["kind"] == "async":
        client = AsyncClient(**options)
        with asyncio.Runner() as runner:
            work(lambda: runner.run(look_up_on_a_loop(client)))
            runner.run(client.aclose())
    else:
        with Client(**options) as own:
            work(partial(look_up, own))


if __name__ == "__main__":
    main()

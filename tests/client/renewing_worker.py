"""A process with a client that asks for tokens all the time; started by renewing.py, and killed at any moment.

Its first line of input says what client to make, and each further one how many calls to make, `null` for: until the
input ends. It says when it is ready, when the first call was answered, and how many were in the end.
"""

import asyncio
import json
import select
import sys
from typing import Any

from stoplist_client import AsyncClient, Client, FileStore

ADDRESS = "ann@example.com"


def is_over(calls: int, wanted: int | None) -> bool:
    """Whether enough calls were made, or nobody wants any more."""
    if wanted is not None:
        return calls >= wanted
    return bool(select.select([sys.stdin], [], [], 0)[0])


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def work(options: dict[str, Any]) -> None:
    with Client(**options) as client:
        say("ready")
        while line := sys.stdin.readline():
            wanted, calls = json.loads(line), 0
            while not is_over(calls, wanted):
                list(client.look_up("email", [ADDRESS]))
                calls += 1
                if calls == 1:
                    say("called")
            say(f"made {calls}")


async def work_on_a_loop(options: dict[str, Any]) -> None:
    async with AsyncClient(**options) as client:
        say("ready")
        while line := sys.stdin.readline():
            wanted, calls = json.loads(line), 0
            while not is_over(calls, wanted):
                async for _ in client.look_up("email", [ADDRESS]):
                    pass
                calls += 1
                if calls == 1:
                    say("called")
            say(f"made {calls}")


def main() -> None:
    told = json.loads(sys.stdin.readline())
    options = told["access"] | told["options"] | {"store": FileStore(folder=told["folder"])}
    if told["kind"] == "async":
        asyncio.run(work_on_a_loop(options))
    else:
        work(options)


if __name__ == "__main__":
    main()

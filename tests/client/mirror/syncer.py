"""A process that synchronises a mirror repeatedly with small pages, until it is ended.

Its arguments are the file and the client's options as JSON. It prints a line for each page.
"""

import json
import sys

from stoplist_client import Client, MemoryStore, Mirror, StoplistClientError


def main(path: str, access: str) -> None:
    """Synchronise forever."""
    with Client(**json.loads(access), store=MemoryStore()) as client:
        mirror = Mirror(path, client, page_records=20)
        while True:
            try:
                mirror.sync(lambda progress: print(progress.records, flush=True))  # noqa: T201
            except StoplistClientError as error:
                print(type(error).__name__, error, flush=True)  # noqa: T201 - a restore may take its new tokens, too


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Finds an earlier import that has stored the first rows of a file.

Source: docs/interface.md section D12, How an import is stored.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from stoplist_addresses.lists import ListError, ListFile

from stoplist.lists.imports.model import RUNNING, STOPPED, Import, ImportOptions
from stoplist.slicing import yield_to_loop


async def find_unfinished(
    imports: Iterable[Import], open_file: Callable[[ImportOptions], Awaitable[ListFile]]
) -> Import | None:
    """Return the unfinished import that has stored the first rows of a file, if there is one.

    `open_file` opens the file from its beginning, as an import with these options reads it.
    """
    for found in imports:
        if found.state in (RUNNING, STOPPED) and found.row_count:
            with suppress(ListError):  # a shorter file, or one of another form
                if await skip_rows(await open_file(found.options), found.row_count) == found.sha256:
                    return found
    return None


async def skip_rows(opened: ListFile, rows: int) -> str:
    """Skip the next rows in slices, and return the SHA-256 of everything up to their end."""
    for _ in opened.skipping(rows):
        await yield_to_loop()
    return opened.sha256

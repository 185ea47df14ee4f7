"""Opens an upload as an unnamed temporary file on this host.

The reader of lists reads files, and a zip has its table of contents at its end. Source: docs/interface.md section D12.
"""

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import BinaryIO

from stoplist_addresses.lists import ListFile, ListOptions, opening_list

from stoplist.db import Database
from stoplist.db.query import load_queries
from stoplist.errors import Refused
from stoplist.lists.uploads.model import PIECE_BYTES, Upload
from stoplist.slicing import yield_to_loop

_PIECE = load_queries(__package__)["piece"]
# The rows of a preview and a header, each of at most 64 KiB, and the end of a zip.
_FIRST_PIECES, _LAST_PIECES = 6, 1


@asynccontextmanager
async def stored_file(database: Database, upload: Upload, *, is_beginning: bool = False) -> AsyncIterator[BinaryIO]:
    """Yield the file of an upload; with `is_beginning` only its first megabytes, and its end, are there.

    Raise Refused if it was deleted meanwhile, or if this host has no room for it.
    """
    numbers: Sequence[int] = range(upload.piece_count)
    if is_beginning and upload.piece_count > _FIRST_PIECES + _LAST_PIECES:
        numbers = [*numbers[:_FIRST_PIECES], *numbers[-_LAST_PIECES:]]
    with tempfile.TemporaryFile(prefix="stoplist-") as file:
        for number in numbers:
            row = await database.one(_PIECE, feed_id=upload.feed_id, import_id=upload.import_id, piece_no=number)
            if row is None:
                raise Refused("The uploaded file was deleted meanwhile. Upload it again.")
            file.seek(number * PIECE_BYTES)
            _write(file, row["content"])
            await yield_to_loop()
        file.seek(0)
        yield file


async def open_stored(file: BinaryIO, options: ListOptions, *, max_bytes: int) -> ListFile:
    """Return the list in a file from its beginning; other requests run while it is gone through.

    Raise ListError as `open_list` does.
    """
    file.seek(0)
    opened: ListFile | None = None
    for opened in opening_list(file, options, max_bytes=max_bytes):  # noqa: B007 (the last one)
        await yield_to_loop()
    assert opened is not None  # noqa: S101 (the last one is the list)
    return opened


def _write(file: BinaryIO, content: bytes) -> None:
    try:
        file.write(content)
        file.flush()
    except OSError as error:
        raise Refused(
            f"The server has no room for a copy of the file: {error.strerror}. An operator can make some in its "
            "temporary folder."
        ) from None

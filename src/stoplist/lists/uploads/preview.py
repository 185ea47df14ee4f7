"""A preview of an uploaded file: what its columns are taken for, and what becomes of its first rows.

Source: docs/interface.md section D12, On the pages.
"""

import msgspec
from stoplist_addresses import AddressError
from stoplist_addresses.lists import FORMATS, open_list

from stoplist.db import Database
from stoplist.lists.imports.list_options import list_options
from stoplist.lists.imports.part_reader import REJECTION_TEXTS
from stoplist.lists.uploads.model import Upload, UploadLimits, UploadOptions
from stoplist.lists.uploads.stored_file import stored_file
from stoplist.unsubscribes.channel import Channel

PREVIEWED_ROWS = 20


class PreviewedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row: its address as written, and either its canonical form or why it is left out.

    Of an erased person: their digest, in `written` alone.
    """

    line: int
    written: str
    address: str | None = None
    error: str | None = None
    occurred_ms: int | None = None
    reason: str | None = None
    source: str | None = None


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning of a file, and how it was understood. `columns` has the header of each field that was found."""

    header: tuple[str, ...]
    columns: dict[str, str]
    format: str | None
    encoding: str
    separator: str | None
    time_zone: str | None
    rows: list[PreviewedRow]
    row_count: int
    not_opted_out: int
    erased: int


async def preview_upload(
    database: Database, channel: Channel, upload: Upload, options: UploadOptions, *, limits: UploadLimits, now_ms: int
) -> Preview:
    """Return the beginning of an uploaded file, read with these options. Raise ListError if they do not fit."""
    wanted = await list_options(database, upload.feed_id, channel, options.for_import(now_ms))
    async with stored_file(database, upload, is_beginning=True) as file:
        opened = open_list(file, wanted, max_bytes=limits.unpacked_bytes, is_examined=False)
        part = next(opened.parts(rows=PREVIEWED_ROWS))
    rows = [
        PreviewedRow(line=bad.line, written=_shown(bad.cells), error=REJECTION_TEXTS[bad.error]) for bad in part.bad
    ]
    for line, address, occurred_ms, reason, source in part.opt_outs:
        canonical = error = None
        try:
            canonical = channel.canonical(address)
        except AddressError as refused:
            error = str(refused)
        rows.append(
            PreviewedRow(
                line=line,
                written=address,
                address=canonical,
                error=error,
                occurred_ms=occurred_ms,
                reason=reason,
                source=source,
            )
        )
    rows += [
        PreviewedRow(line=line, written=digest, occurred_ms=occurred_ms, reason=reason)
        for line, digest, occurred_ms, reason, _ in part.by_digest
    ]
    return Preview(
        header=opened.header,
        columns=dict(opened.columns),
        format=next((each.title for each in FORMATS if each.name == opened.format), None),
        encoding=opened.encoding,
        separator=opened.separator,
        time_zone=opened.time_zone,
        rows=sorted(rows, key=lambda row: row.line),
        row_count=part.rows,
        not_opted_out=part.not_opted_out,
        erased=part.erased,
    )


def _shown(cells: tuple[str, ...]) -> str:
    return next((cell for cell in cells if cell.strip()), "")

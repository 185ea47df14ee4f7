"""Download the rows that an uploaded import left out. Source: docs/interface.md section D12, Bad rows."""

import re
from collections.abc import AsyncGenerator, Sequence

from stoplist.db import Database
from stoplist.errors import Missing
from stoplist.lists.imports.model import Import
from stoplist.lists.uploads.rejects import stored_rejects
from stoplist.organizations.store import require_admin_of
from stoplist.web.admin import csv_lines
from stoplist.web.admin.imports.paths import IMPORT_PATH
from stoplist.web.admin.imports.states import status_of
from stoplist.web.admin.page_request import Download, PageRequest, get

# A spreadsheet takes it for a number, and an import must be able to read it again.
_PHONE = re.compile(r"\+[\d().\s-]*", re.ASCII)


async def download(request: PageRequest) -> Download:
    """Return the rows as CSV: line number, error, and the row's own columns, so that they can be corrected."""
    status = await status_of(request)
    require_admin_of(request.actor, status.org_slug)
    if status.begun is None or status.upload is None or not status.begun.counts.bad_rows or status.state == "discarded":
        raise Missing("There are no rejected rows of this import, or no longer.")
    header = status.upload.header or ("address",)
    return Download(
        f"stoplist-rejects-{status.import_id}.csv",
        csv_lines.CONTENT_TYPE,
        _lines(request.database, status.begun, header),
    )


async def _lines(database: Database, found: Import, header: Sequence[str]) -> AsyncGenerator[bytes, None]:
    yield csv_lines.line(("line", "error", *header)).encode("utf-8", "replace")
    async for rows in stored_rejects(database, found.feed_id, found.import_id):
        text = "".join(csv_lines.line((str(row.line), row.text, *row.cells), unguarded=_PHONE) for row in rows)
        yield text.encode("utf-8", "replace")


ROUTES = (get(f"{IMPORT_PATH}/rejects", download),)

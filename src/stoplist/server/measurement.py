"""Measures what no request shows, for the metrics: whether the database answers, outboxes, certificate, last backup.

Source: docs/interface.md section D10.
"""

from stoplist.databases.moving import oldest_wait_s
from stoplist.db import Database
from stoplist.db.last_backup import last_backup_s
from stoplist.db.opening import sqlite_path
from stoplist.errors import StoreUnavailable
from stoplist.server.tls import certificate_of
from stoplist.settings import Settings
from stoplist.web.health import require_answer
from stoplist.web.metric_collectors import Measured


async def measure(settings: Settings, database: Database, measured: Measured, *, now_ms: int) -> None:
    """Update `measured`. An unavailable database is not an error here, but one of the measurements."""
    from stoplist.server.certificate_end import certificate_end_s  # noqa: PLC0415 - takes 55 ms, after the start

    certificate = certificate_of(settings)
    measured.certificate_end_s = None if certificate is None else certificate_end_s(certificate)
    file = sqlite_path(settings.database_url)
    measured.backup_s = None if file is None else last_backup_s(file)
    measured.outbox_oldest_s = None
    try:
        measured.outbox_oldest_s = await oldest_wait_s(database, now_ms)
        await require_answer(database)
    except StoreUnavailable:
        measured.is_store_lost = True
    else:
        measured.is_store_lost = False

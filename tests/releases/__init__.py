"""Databases of released versions, kept by tools/release_fixture.py, each with what its partners and people hold."""

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

from stoplist.db.opening import sqlite_path
from tests.services.postgresql import PostgresqlServer

FOLDER = Path(__file__).parent
SQLITE, POSTGRESQL, HELD = "sqlite.db.gz", "postgresql.sql.gz", "held.json.gz"


class Held(NamedTuple):
    """The credentials, tokens and cursors of a kept database, and the records that its partner had read.

    made_ms:  when the database was made: tokens and cursors are valid then
    mistake:  the id of a submission that nobody has reversed
    pending:  the cursor of a follower that has read the first ten records
    records:  the last version of every record of the channel email, in the order of the feed
    """

    made_ms: int
    secret_key: str
    client_id: str
    client_secret: str
    stopped_client_id: str
    stopped_client_secret: str
    access_token: str
    refresh_token: str
    used_refresh_token: str
    mistake: str
    pending: str
    cursor: str
    records: list[dict[str, Any]]
    email: str
    password: str
    totp_secret: str
    recovery_codes: list[str]


def versions() -> list[str]:
    """Return the released versions whose databases are kept."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{HELD}"))


def restore(version: str, url: str) -> Held:
    """Restore the database of a version where `url` says, which must be empty, and return what people hold of it."""
    path = sqlite_path(url)
    if path is None:
        PostgresqlServer(url).execute(gzip.decompress((FOLDER / version / POSTGRESQL).read_bytes()).decode())
    else:
        Path(path).write_bytes(gzip.decompress((FOLDER / version / SQLITE).read_bytes()))
    held = json.loads(gzip.decompress((FOLDER / version / HELD).read_bytes()))
    return Held(**held["postgresql" if path is None else "sqlite"])

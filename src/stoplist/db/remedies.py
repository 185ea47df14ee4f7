"""Says what the operator can do when the database fails: by SQLite's result code, and by PostgreSQL's SQLSTATE.

docs/operate.md has the same in full: When the database fails.
"""

TRY_AGAIN = "try again shortly"

FEEDS_ARE_APART, ACCOUNTS_ARE_APART = "feeds_are_apart", "accounts_are_apart"
"""The constraints by which each database of a pair refuses what belongs into the other."""

_LOOK_AT_DISK = "look for errors of the disk in the system's log (dmesg)"
_LAST_RESORT = "restore the newest backup only if the disk is sound and a check of the file fails"

_BY_SQLITE_CODE = {
    7: "no memory is left: free some, or give the server more",  # NOMEM
    # READONLY
    8: "its file or folder cannot be written: check owner and modes, and whether the disk is mounted read-only",
    10: f"its disk cannot be read or written: {_LOOK_AT_DISK}, and check its space and quota",  # IOERR
    # CORRUPT: of a disk that cannot be read, too. vdbe.c turns SQLITE_IOERR_CORRUPTFS, which stands for EIO, into it.
    11: f"its disk cannot be read, or its file is damaged: first {_LOOK_AT_DISK}, and {_LAST_RESORT}",
    13: "its disk is full: free space on it",  # FULL
    # CANTOPEN
    14: "its file cannot be opened: check that it and its folder exist, owner and modes, and the limit of open files",
    # NOTADB
    26: f"its file is not SQLite's, or its beginning is damaged: check the path, {_LOOK_AT_DISK}, and {_LAST_RESORT}",
}

_BY_SQLSTATE = {
    "53100": "the disk of PostgreSQL is full: free space on it",
    "53200": "PostgreSQL has no memory left: free some, or give it more",
    "53300": "PostgreSQL accepts no more connections: raise max_connections, or lower STOPLIST_DATABASE_POOL",
    "58030": f"the disk of PostgreSQL cannot be read or written: on its host {_LOOK_AT_DISK}",
    "58P01": "PostgreSQL misses a file of its own: look into its log, and check that its disk is mounted",
    "XX001": f"PostgreSQL finds a table damaged: look into its log, and on its host first {_LOOK_AT_DISK}",
    "XX002": f"PostgreSQL finds an index damaged: on its host {_LOOK_AT_DISK}, then REINDEX what its log names",
}


_BY_CONSTRAINT = {
    FEEDS_ARE_APART: (
        "the feeds have been in a database of their own since this program was started: restart it with "
        "STOPLIST_FEEDS_URL"
    ),
    ACCOUNTS_ARE_APART: (
        "this has been the database of a deployment's feeds since this program was started: restart it with "
        "STOPLIST_FEEDS_URL set to it, and STOPLIST_DATABASE_URL to the database of the accounts"
    ),
}


def sqlite_remedy(primary_code: int) -> str:
    """Return the cause and the remedy of a failure with this primary result code."""
    return _BY_SQLITE_CODE.get(primary_code, TRY_AGAIN)


def postgresql_remedy(state: str, constraint: str | None = None) -> str:
    """Return the cause and the remedy of a failure with this SQLSTATE, by a constraint or by none."""
    return _BY_CONSTRAINT.get(constraint or "") or _BY_SQLSTATE.get(state, TRY_AGAIN)

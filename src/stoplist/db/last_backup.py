"""When a SQLite database was last backed up: the time of an empty file beside it, which servers show as a metric.

Source: docs/interface.md sections D9 and D10.
"""

from contextlib import suppress
from pathlib import Path

_SUFFIX = ".last-backup"


def note_backup(database: Path) -> bool:
    """Note that a backup is complete. Return False if the folder cannot be written to."""
    try:
        _mark(database).touch(mode=0o600)
    except OSError:
        return False
    return True


def last_backup_s(database: Path) -> float:
    """Return when the newest backup was completed, in seconds since 1970 UTC; 0 if none ever was."""
    with suppress(OSError):
        return _mark(database).stat().st_mtime
    return 0.0


def _mark(database: Path) -> Path:
    return database.with_name(database.name + _SUFFIX)

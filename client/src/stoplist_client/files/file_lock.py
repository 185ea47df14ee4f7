"""Locks a file with the operating system's lock. Imported only where a lock is needed: filelock is slow to import."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import cast

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from stoplist_client.errors import TokenStoreError


def try_lock(path: Path) -> Callable[[], None] | None:
    """Return a function that releases the lock, or None at once if it is held. Raises OSError and TokenStoreError.

    Each call opens the file with its own lock object, so that the system excludes other threads and tasks of this
    process as it does other processes. The file stays after the release, since others may be waiting for it.
    """
    # Not thread_local: a flow that was abandoned may be closed by another thread than the one that locked.
    lock = cast(BaseFileLock, FileLock(path, timeout=0, mode=0o600, thread_local=False))
    is_held = True
    try:
        lock.acquire()
    except Timeout:
        is_held = False
    except NotImplementedError:
        raise TokenStoreError(_NO_LOCKS) from None
    # If the file system has no flock, filelock falls back to a lock that only creates a file. That is not safe here: a
    # killed process leaves its file, and whoever removes it may remove the file of the next holder.
    if isinstance(lock, SoftFileLock):
        with contextlib.suppress(OSError):
            lock.release()
        raise TokenStoreError(_NO_LOCKS)
    return lock.release if is_held else None


_NO_LOCKS = (
    "The file system of the token folder does not support locks, so workers could use a refresh token twice: "
    "name a folder on a local disk with STOPLISTCLIENT_DIR, or give each process a MemoryStore()."
)

"""One try to lock a file by the operating system. Imported by those who lock alone: filelock is slow to import."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import cast

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from stoplist_client.errors import TokenStoreError


def try_lock(path: Path) -> Callable[[], None] | None:
    """What lets go of the lock; None at once where somebody else holds it. Raises OSError and TokenStoreError.

    The file is opened anew, with a lock object of its own: the system then excludes other threads and tasks of this
    process as it does other processes. The file stays when the lock is let go: others may be waiting for it.
    """
    # Not by thread: whoever closes a flow that was left lying may be another thread than the one that locked.
    lock = cast(BaseFileLock, FileLock(path, timeout=0, mode=0o600, thread_local=False))
    is_held = True
    try:
        lock.acquire()
    except Timeout:
        is_held = False
    except NotImplementedError:
        raise TokenStoreError(_NO_LOCKS) from None
    # Where the file system has no flock, filelock turns itself into one that only makes a file. That is no lock for us:
    # a process that is killed leaves the file, and who clears it away may clear away that of the next one.
    if isinstance(lock, SoftFileLock):
        with contextlib.suppress(OSError):
            lock.release()
        raise TokenStoreError(_NO_LOCKS)
    return lock.release if is_held else None


_NO_LOCKS = (
    "The file system of the folder for tokens does not lock files, so that workers would use a refresh token twice: "
    "name a folder on a local disk with STOPLISTCLIENT_DIR, or give each process a MemoryStore()."
)

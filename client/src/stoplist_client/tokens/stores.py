"""Where tokens are kept between calls: in one file for each key that all processes of a user share, or in memory."""

import hashlib
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import msgspec

from stoplist_client.files.private_file import PrivateFile, default_folder
from stoplist_client.tokens.tokens import Tokens, Unlock

__all__ = ["FileStore", "MemoryStore", "default_folder", "name_of", "packed", "unpacked"]


def packed(tokens: Tokens) -> bytes:
    """As they are kept: JSON, on one line."""
    return msgspec.json.encode(tokens) + b"\n"


def unpacked(content: bytes | str | None) -> Tokens | None:
    """What was packed; None for anything else: from whatever it finds, a worker must be able to go on."""
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=Tokens)
    except (msgspec.DecodeError, UnicodeError):
        return None


def name_of(base_url: str, client_id: str) -> str:
    """A name for files that no other key has; it says which key it is to whoever has the key, and nobody else."""
    return hashlib.sha256(f"{base_url}\n{client_id}".encode()).hexdigest()[:32]


class FileStore:
    """Keeps the tokens of each key in a file of its own, which all processes of this user and host share.

    The files are in `folder`, by default in `default_folder()`; or there is one, `path`, which is for one key alone.
    The folder is made with mode 0700; the file with 0600, by a file beside it, fsync, rename and fsync of the folder.
    A file that others may read is refused. The lock is one more file, which is never removed. Each host should have a
    folder of its own.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, folder: str | os.PathLike[str] | None = None
    ) -> None:
        self._path, self._folder = path, folder

    def of(self, base_url: str, client_id: str) -> "TokenFile":
        """The file of that key."""
        if self._path is not None:
            return TokenFile(self._path)
        folder = default_folder() if self._folder is None else Path(self._folder)
        return TokenFile(folder / f"tokens-{name_of(base_url, client_id)}.json")


class TokenFile:
    """The file of one key; see FileStore."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = PrivateFile(path)
        self.path = self._file.path

    def read(self) -> Tokens | None:
        """See TokenStore."""
        return unpacked(self._file.read())

    def write(self, tokens: Tokens) -> None:
        """See TokenStore."""
        self._file.write(packed(tokens))

    def try_lock(self) -> Unlock | None:
        """See TokenStore."""
        return self._file.try_lock()

    def forget(self) -> bool:
        """The tokens are gone; whether there were any. Called by the holder of the lock alone."""
        return self._file.remove()


class MemoryStore:
    """Keeps tokens in this process, for all clients that are given this one object.

    A process that was forked off begins with nothing: of two that hold the same refresh token each would present it.
    """

    def __init__(self) -> None:
        self._memories: dict[tuple[str, str], TokenMemory] = {}

    def of(self, base_url: str, client_id: str) -> "TokenMemory":
        """The store of that key."""
        return self._memories.setdefault((base_url, client_id), TokenMemory())


class TokenMemory:
    """The tokens of one key in this process; see MemoryStore."""

    def __init__(self) -> None:
        self._by_process: dict[object, _Kept] = {}

    def read(self) -> Tokens | None:
        """See TokenStore."""
        return self._kept.tokens

    def write(self, tokens: Tokens) -> None:
        """See TokenStore. What is kept ends with the process, and so does what one could present twice."""
        self._kept.tokens = tokens

    def try_lock(self) -> Unlock | None:
        """See TokenStore. The lock is held while its holder is alive, so that nothing can leave it behind."""
        kept = self._kept
        with kept.guard:
            other = kept.holder()
            if other is not None and other.is_holding:
                return None
            holder = _Holder()
            kept.holder = weakref.ref(holder)
        return holder.let_go

    @property
    def _kept(self) -> "_Kept":
        # setdefault is atomic: threads that come first at once get the same.
        return self._by_process.setdefault(_process, _Kept())


class _Holder:
    is_holding = True

    def let_go(self) -> None:
        self.is_holding = False


class _Kept:
    def __init__(self) -> None:
        self.tokens: Tokens | None = None
        self.guard = threading.Lock()
        self.holder: Callable[[], _Holder | None] = lambda: None


_process = object()


def _begin_anew() -> None:
    global _process
    _process = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)

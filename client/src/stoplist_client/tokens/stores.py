"""Token stores: one file per key, which all processes of a user share, or memory."""

import hashlib
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import msgspec

from stoplist_client.files.private_file import PrivateFile, default_folder
from stoplist_client.tokens.tokens import Tokens, Unlock

__all__ = ["FileStore", "MemoryStore", "decode_tokens", "default_folder", "encode_tokens", "key_name"]


def encode_tokens(tokens: Tokens) -> bytes:
    """Return the tokens as JSON on one line."""
    return msgspec.json.encode(tokens) + b"\n"


def decode_tokens(content: bytes | str | None) -> Tokens | None:
    """Return the decoded tokens, or None for any other content, so that damaged content never stops a worker."""
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=Tokens)
    except (msgspec.DecodeError, UnicodeError):
        return None


def key_name(base_url: str, client_id: str) -> str:
    """Return a file name for the tokens of this key. It is a hash, which reveals neither key nor service."""
    return hashlib.sha256(f"{base_url}\n{client_id}".encode()).hexdigest()[:32]


class FileStore:
    """Keeps the tokens of each key in one file, which all processes of this user and host share.

    The files are in `folder`, by default in `default_folder()`. With `path` there is a single file, for a single key.
    The folder is created with mode 0700. A file is written with mode 0600 beside its path, synced, renamed, and the
    folder is synced. A file that others may read is refused. The lock is a further file, which is never removed. Use a
    separate folder on each host.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, folder: str | os.PathLike[str] | None = None
    ) -> None:
        self._path, self._folder = path, folder

    def of(self, base_url: str, client_id: str) -> "TokenFile":
        """Return the store of this key."""
        if self._path is not None:
            return TokenFile(self._path)
        folder = default_folder() if self._folder is None else Path(self._folder)
        return TokenFile(folder / f"tokens-{key_name(base_url, client_id)}.json")


class TokenFile:
    """The file of one key; see FileStore."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = PrivateFile(path)
        self.path = self._file.path

    def read(self) -> Tokens | None:
        """See TokenStore."""
        return decode_tokens(self._file.read())

    def write(self, tokens: Tokens) -> None:
        """See TokenStore."""
        self._file.write(encode_tokens(tokens))

    def try_lock(self) -> Unlock | None:
        """See TokenStore."""
        return self._file.try_lock()

    def forget(self) -> bool:
        """Delete the tokens, and return whether there were any. Only the holder of the lock may call this."""
        return self._file.remove()


class MemoryStore:
    """Keeps tokens in this process, for all clients that use this object.

    A forked process starts without tokens: two processes with the same refresh token would both present it.
    """

    def __init__(self) -> None:
        self._memories: dict[tuple[str, str], TokenMemory] = {}

    def of(self, base_url: str, client_id: str) -> "TokenMemory":
        """Return the store of this key."""
        return self._memories.setdefault((base_url, client_id), TokenMemory())


class TokenMemory:
    """The tokens of one key in this process; see MemoryStore."""

    def __init__(self) -> None:
        self._by_process: dict[object, _MemoryEntry] = {}

    def read(self) -> Tokens | None:
        """See TokenStore."""
        return self._entry.tokens

    def write(self, tokens: Tokens) -> None:
        """See TokenStore. Memory ends with the process, and so does the risk of presenting a token twice."""
        self._entry.tokens = tokens

    def try_lock(self) -> Unlock | None:
        """See TokenStore. The lock ends when its holder is garbage-collected, so that it is never left behind."""
        entry = self._entry
        with entry.guard:
            other = entry.holder()
            if other is not None and other.is_holding:
                return None
            holder = _Holder()
            entry.holder = weakref.ref(holder)
        return holder.release

    @property
    def _entry(self) -> "_MemoryEntry":
        # setdefault is atomic: concurrent first callers get the same entry.
        return self._by_process.setdefault(_process, _MemoryEntry())


class _Holder:
    is_holding = True

    def release(self) -> None:
        self.is_holding = False


class _MemoryEntry:
    def __init__(self) -> None:
        self.tokens: Tokens | None = None
        self.guard = threading.Lock()
        self.holder: Callable[[], _Holder | None] = lambda: None


_process = object()


def _reset_after_fork() -> None:
    global _process
    _process = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)

"""Tokens in the keyring of the operating system. Needs the extra: pip install 'stoplist-client[keyring]'."""

import contextlib
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from platform import node
from typing import Protocol

from stoplist_client.errors import ConfigurationError, TokenStoreError
from stoplist_client.files.private_file import PrivateFile, default_folder
from stoplist_client.tokens.stores import name_of, packed, unpacked
from stoplist_client.tokens.tokens import Tokens, Unlock

SERVICE = "stoplist-client"


class Keyring(Protocol):
    """What is used of a keyring.backend.KeyringBackend."""

    def get_password(self, service: str, username: str, /) -> str | None:
        """The secret of that name, if there is one."""

    def set_password(self, service: str, username: str, password: str, /) -> None:
        """It is kept under that name."""

    def delete_password(self, service: str, username: str, /) -> None:
        """It is gone."""


class KeyringStore:
    """Keeps the tokens of each key in a keyring, by default the one that the package `keyring` finds.

    A keyring has no lock: that is a file in `folder`, by default in `default_folder()`, which holds nothing. Whether
    what was written survives a power cut is up to the keyring; what it does not give back at once is not written.
    """

    def __init__(self, keyring: Keyring | None = None, *, folder: str | os.PathLike[str] | None = None) -> None:
        self._keyring = _default_keyring() if keyring is None else keyring
        self._folder = folder

    def of(self, base_url: str, client_id: str) -> "TokenKeyring":
        """The store of that key."""
        folder = default_folder() if self._folder is None else Path(self._folder)
        lock = PrivateFile(folder / f"keyring-{name_of(base_url, client_id)}")
        # The entry is of one lock: whoever locks another file, or one of that name on another machine that shares the
        # keyring, must not find the refresh token.
        return TokenKeyring(self._keyring, f"{client_id} at {base_url} by {lock.path} on {node()}", lock)


class TokenKeyring:
    """The entry of one key; see KeyringStore."""

    def __init__(self, keyring: Keyring, username: str, lock: PrivateFile) -> None:
        self._keyring, self._username, self._lock = keyring, username, lock

    def read(self) -> Tokens | None:
        """See TokenStore."""
        return unpacked(self._get())

    def write(self, tokens: Tokens) -> None:
        """See TokenStore."""
        text = packed(tokens).decode()
        with _errors("keep"):
            self._keyring.set_password(SERVICE, self._username, text)
        # Some keyrings take everything and keep nothing; a mark that is not there afterwards protects nobody.
        if self._get() != text:
            raise TokenStoreError(f"The keyring did not keep the tokens. {_REMEDY}")

    def try_lock(self) -> Unlock | None:
        """See TokenStore."""
        return self._lock.try_lock()

    def forget(self) -> bool:
        """The tokens are gone; whether there were any. Called by the holder of the lock alone."""
        if self._get() is None:
            return False
        with _errors("forget"):
            self._keyring.delete_password(SERVICE, self._username)
        return True

    def _get(self) -> str | None:
        with _errors("read"):
            return self._keyring.get_password(SERVICE, self._username)


_REMEDY = "Unlock or set up the keyring of this system (`keyring diagnose` tells more), or use FileStore()."


def _default_keyring() -> Keyring:
    try:
        keyring: Keyring = import_module("keyring").get_keyring()
    except ImportError:
        raise ConfigurationError(
            "KeyringStore needs the package keyring: pip install 'stoplist-client[keyring]', or use FileStore()."
        ) from None
    return keyring


@contextlib.contextmanager
def _errors(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as failure:  # an edge: backends raise what the system's services and their bindings raise
        # Their texts are theirs, and might repeat what they were given.
        raise TokenStoreError(f"The keyring cannot {what} the tokens ({type(failure).__name__}). {_REMEDY}") from None

"""Keeps tokens in the operating system's keyring. Needs the extra: pip install 'stoplist-client[keyring]'."""

import contextlib
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from platform import node
from typing import Protocol

from stoplist_client.errors import ConfigurationError, TokenStoreError
from stoplist_client.files.private_file import PrivateFile, default_folder
from stoplist_client.tokens.stores import decode_tokens, encode_tokens, key_name
from stoplist_client.tokens.tokens import Tokens, Unlock

SERVICE = "stoplist-client"


class Keyring(Protocol):
    """The methods of keyring.backend.KeyringBackend that the store uses."""

    def get_password(self, service: str, username: str, /) -> str | None:
        """Return the secret of that name, or None."""

    def set_password(self, service: str, username: str, password: str, /) -> None:
        """Store a secret under that name."""

    def delete_password(self, service: str, username: str, /) -> None:
        """Delete the secret of that name."""


class KeyringStore:
    """Keeps the tokens of each key in a keyring, by default the one that the package `keyring` finds.

    A keyring has no lock, so the lock is an empty file in `folder`, by default in `default_folder()`. The keyring
    decides whether tokens survive a power cut; tokens that it does not return at once count as not stored.
    """

    def __init__(self, keyring: Keyring | None = None, *, folder: str | os.PathLike[str] | None = None) -> None:
        self._keyring = _default_keyring() if keyring is None else keyring
        self._folder = folder

    def of(self, base_url: str, client_id: str) -> "TokenKeyring":
        """Return the store of this key."""
        folder = default_folder() if self._folder is None else Path(self._folder)
        lock = PrivateFile(folder / f"keyring-{key_name(base_url, client_id)}")
        # Each entry belongs to one lock: a worker that locks another file, or the same path on another machine that
        # shares the keyring, must not find the refresh token.
        return TokenKeyring(self._keyring, f"{client_id} at {base_url} by {lock.path} on {node()}", lock)


class TokenKeyring:
    """The entry of one key; see KeyringStore."""

    def __init__(self, keyring: Keyring, username: str, lock: PrivateFile) -> None:
        self._keyring, self._username, self._lock = keyring, username, lock

    def read(self) -> Tokens | None:
        """See TokenStore."""
        return decode_tokens(self._get())

    def write(self, tokens: Tokens) -> None:
        """See TokenStore."""
        text = encode_tokens(tokens).decode()
        with _errors("keep"):
            self._keyring.set_password(SERVICE, self._username, text)
        # Some keyrings accept everything and keep nothing. A mark that is not kept would not protect the refresh token.
        if self._get() != text:
            raise TokenStoreError(f"The keyring did not keep the tokens. {_REMEDY}")

    def try_lock(self) -> Unlock | None:
        """See TokenStore."""
        return self._lock.try_lock()

    def forget(self) -> bool:
        """Delete the tokens, and return whether there were any. Only the holder of the lock may call this."""
        if self._get() is None:
            return False
        with _errors("forget"):
            self._keyring.delete_password(SERVICE, self._username)
        return True

    def _get(self) -> str | None:
        with _errors("read"):
            return self._keyring.get_password(SERVICE, self._username)


_REMEDY = "Unlock or set up the keyring of this system (`keyring diagnose` shows it), or use FileStore()."


def _default_keyring() -> Keyring:
    try:
        keyring: Keyring = import_module("keyring").get_keyring()
    except ImportError:
        raise ConfigurationError(
            "KeyringStore needs the package keyring: pip install 'stoplist-client[keyring]', or use FileStore()."
        ) from None
    return keyring


@contextlib.contextmanager
def _errors(action: str) -> Iterator[None]:
    try:
        yield
    except Exception as failure:  # keyring backends raise errors of any class
        # Their messages are not ours, and might repeat the tokens.
        raise TokenStoreError(f"The keyring cannot {action} the tokens ({type(failure).__name__}). {_REMEDY}") from None

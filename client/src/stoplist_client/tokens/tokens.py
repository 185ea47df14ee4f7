"""The tokens of a key, and the protocol of stores through which all workers of a host share them.

Source: docs/interface.md section 5, rules 5 to 9.
"""

from collections.abc import Callable
from typing import Annotated, Protocol, TypeAlias, runtime_checkable

import msgspec

from stoplist_client.redacted import Redacted

Unlock: TypeAlias = Callable[[], None]

Printed: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A[!-~]+\Z")]
"""Text that can stand in a header, so that a damaged file does not break every request."""


class Tokens(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one answer of the token endpoint. Times are seconds since 1970 UTC by this host's clock.

    They belong to the key `client_id` at the service `base_url` and are ignored for any other, so that a store may be
    given to the wrong client without harm. `is_presented` means that the refresh token was or may have been sent, and
    must never be sent again. `secret_hash` is of the secret that began this chain of tokens; it reveals nothing, since
    secrets are 256 random bits.
    """

    base_url: str
    client_id: str
    access_token: Printed
    access_ends_s: float
    refresh_token: Printed
    refresh_ends_s: float
    is_presented: bool = False
    secret_hash: str | None = None

    def __repr__(self) -> str:
        return f"Tokens(is_presented={self.is_presented})"


class TokenStore(Protocol):
    """Keeps the tokens of one key. Your own store needs these three methods.

    All may be called from any thread. They raise TokenStoreError if they fail.
    """

    def read(self) -> Tokens | None:
        """Return the tokens that were written last, or None if there are none or they are damaged.

        May be called without the lock while another worker writes.
        """

    def write(self, tokens: Tokens) -> None:
        """Replace the tokens atomically, and return when they are stored durably.

        Only the holder of the lock calls this.
        """

    def try_lock(self) -> Unlock | None:
        """Lock the store, and return a function that unlocks it, or None at once if it is locked.

        The lock excludes all other threads, tasks and processes that share the store. It ends when its holder dies.
        """


@runtime_checkable
class KeyedStore(Protocol):
    """Keeps the tokens of many keys, as FileStore, MemoryStore and KeyringStore do."""

    def of(self, base_url: str, client_id: str) -> TokenStore:
        """Return the store of this key."""


def store_for(store: TokenStore | KeyedStore, base_url: str, client_id: str) -> TokenStore:
    """Return the store of this key, from a KeyedStore or a TokenStore."""
    return store.of(base_url, client_id) if isinstance(store, KeyedStore) else store

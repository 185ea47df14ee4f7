"""The tokens of a key, and where they are kept so that all workers of a host share them.

Source: docs/interface.md section 5, rules 5 to 9.
"""

from collections.abc import Callable
from typing import Annotated, Protocol, TypeAlias, runtime_checkable

import msgspec

from stoplist_client.redacted import Redacted

Unlock: TypeAlias = Callable[[], None]

Printed: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A[!-~]+\Z")]
"""What can stand in a header: a file that was tampered with must not break every request."""


class Tokens(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the token endpoint, with when it ends; times are seconds since 1970 by this host's clock.

    They are of the key `client_id` at the service `base_url`: for any other they count as nothing, so that a store may
    be given to the wrong client without harm. `is_presented` says that the refresh token was, or may have been, sent:
    it must never be sent again.
    """

    base_url: str
    client_id: str
    access_token: Printed
    access_ends_s: float
    refresh_token: Printed
    refresh_ends_s: float
    is_presented: bool = False

    def __repr__(self) -> str:
        return f"Tokens(is_presented={self.is_presented})"


class TokenStore(Protocol):
    """Where the tokens of one key are kept. A store of your own has these three methods.

    All may be called from any thread. What fails is raised as TokenStoreError.
    """

    def read(self) -> Tokens | None:
        """What was written last, whole; None where nothing was, or what is there can not be of use.

        Also called without the lock, while somebody else writes.
        """

    def write(self, tokens: Tokens) -> None:
        """When this returns the tokens are kept, whatever then happens to process or machine; before, the old ones are.

        Called by the holder of the lock alone.
        """

    def try_lock(self) -> Unlock | None:
        """Exclusive over all threads, tasks and processes that share the store, until what is returned is called.

        None at once where somebody else holds it. A holder that dies lets go of it.
        """


@runtime_checkable
class KeyedStore(Protocol):
    """What keeps the tokens of many keys: FileStore, MemoryStore and KeyringStore do."""

    def of(self, base_url: str, client_id: str) -> TokenStore:
        """The store of that one key."""


def store_of(store: TokenStore | KeyedStore, base_url: str, client_id: str) -> TokenStore:
    """The store for this key: a KeyedStore is asked for it, a TokenStore is taken as it is."""
    return store.of(base_url, client_id) if isinstance(store, KeyedStore) else store

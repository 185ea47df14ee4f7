"""Submit opt-outs to Stoplist, follow the changes of others, and check locally whom you may write to."""

import importlib
from typing import TYPE_CHECKING, Any

from stoplist_client.errors import (
    ApiError,
    BadRequest,
    ConfigurationError,
    DefaultGroupNotConfigured,
    InsufficientScope,
    InvalidClient,
    InvalidCursor,
    InvalidGrant,
    InvalidItem,
    InvalidRequest,
    InvalidToken,
    MethodNotAllowed,
    MirrorDiverged,
    MirrorError,
    MirrorTooOld,
    NotFound,
    NotMirrored,
    NotUnderstood,
    RateLimited,
    ServerError,
    StoplistClientError,
    TemporarilyUnavailable,
    TokenStoreError,
    TransportFailed,
    UnauthorizedOrganization,
    UnsupportedGrantType,
)
from stoplist_client.model import Channel, Item, ItemError, LookedUp, Moment, Page, Record, Submitted
from stoplist_client.secret import Secret
from stoplist_client.tokens.tokens import KeyedStore, Tokens, TokenStore
from stoplist_client.version import __version__

if TYPE_CHECKING:
    from stoplist_client.async_client import AsyncChanges, AsyncClient
    from stoplist_client.client import Changes, Client
    from stoplist_client.link_maker import LinkMaker
    from stoplist_client.mirror import ANY_GROUP, AnyGroup, Checked, FeedSynced, Followed, Mirror, Synced, Verified
    from stoplist_client.tokens.keyring_store import KeyringStore
    from stoplist_client.tokens.stores import FileStore, MemoryStore, default_folder


__all__ = [
    "ANY_GROUP",
    "AnyGroup",
    "ApiError",
    "AsyncChanges",
    "AsyncClient",
    "BadRequest",
    "Changes",
    "Channel",
    "Checked",
    "Client",
    "ConfigurationError",
    "DefaultGroupNotConfigured",
    "FeedSynced",
    "FileStore",
    "Followed",
    "InsufficientScope",
    "InvalidClient",
    "InvalidCursor",
    "InvalidGrant",
    "InvalidItem",
    "InvalidRequest",
    "InvalidToken",
    "Item",
    "ItemError",
    "KeyedStore",
    "KeyringStore",
    "LinkMaker",
    "LookedUp",
    "MemoryStore",
    "MethodNotAllowed",
    "Mirror",
    "MirrorDiverged",
    "MirrorError",
    "MirrorTooOld",
    "Moment",
    "NotFound",
    "NotMirrored",
    "NotUnderstood",
    "Page",
    "RateLimited",
    "Record",
    "Secret",
    "ServerError",
    "StoplistClientError",
    "Submitted",
    "Synced",
    "TemporarilyUnavailable",
    "TokenStore",
    "TokenStoreError",
    "Tokens",
    "TransportFailed",
    "UnauthorizedOrganization",
    "UnsupportedGrantType",
    "Verified",
    "__version__",
    "default_folder",
]

# These import httpx2, anyio, sqlite3 or the address rules, which takes long, so they are loaded on first use.
_LAZY = {
    "ANY_GROUP": "mirror",
    "AnyGroup": "mirror",
    "AsyncChanges": "async_client",
    "AsyncClient": "async_client",
    "Changes": "client",
    "Checked": "mirror",
    "Client": "client",
    "FeedSynced": "mirror",
    "FileStore": "tokens.stores",
    "Followed": "mirror",
    "KeyringStore": "tokens.keyring_store",
    "LinkMaker": "link_maker",
    "MemoryStore": "tokens.stores",
    "Mirror": "mirror",
    "Synced": "mirror",
    "Verified": "mirror",
    "default_folder": "tokens.stores",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

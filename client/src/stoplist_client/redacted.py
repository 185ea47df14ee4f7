"""Hides addresses, tokens and secrets from repr."""

from typing import Any


class Redacted:
    """Mixin for a Struct whose repr shows only its class name, or what its own `__repr__` returns.

    Name it first: `class Item(Redacted, msgspec.Struct, frozen=True)`.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    def __rich_repr__(self) -> Any:
        # Every Struct has a __rich_repr__ that shows all fields, and rich prefers it to repr.
        return ()

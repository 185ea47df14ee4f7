"""What holds addresses, tokens or secrets, and shows none of them."""

from typing import Any


class Redacted:
    """Of such a Struct logs and tracebacks show the name alone, or what a `__repr__` of its own picks.

    Put it before: `class Item(Shape, msgspec.Struct, frozen=True)`.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    def __rich_repr__(self) -> Any:
        # Every Struct has one that gives each field away, and rich and the like prefer it to repr.
        return ()

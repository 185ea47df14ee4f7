"""Addresses in slices, and their canonical forms. No frame here holds addresses when an error is raised."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import TypeVar

from stoplist_addresses import AddressError

T = TypeVar("T")

# The number of addresses per statement. More is hardly faster, and delays the first answers of a pipe.
_ADDRESSES_PER_SLICE = 2_000


def in_slices(verdicts: Callable[[list[str]], list[T]], addresses: Iterable[str]) -> Iterator[T]:
    """Yield verdicts slice by slice. No frame here holds addresses when an error is raised."""
    remaining = iter(addresses)
    return chain.from_iterable(map(verdicts, iter(lambda: list(islice(remaining, _ADDRESSES_PER_SLICE)), [])))


def canonical_forms(
    rule: Callable[[str], str], addresses: list[str], problems: dict[int, str] | None = None
) -> list[str | None]:
    """Return the canonical form of each address, None if it is invalid; `problems` receives the reasons by index."""
    with suppress(AddressError):
        return list(map(rule, addresses))  # usually all addresses are valid
    forms: list[str | None] = []
    for index, address in enumerate(addresses):
        try:
            forms.append(rule(address))
        except AddressError as error:
            forms.append(None)
            if problems is not None:
                problems[index] = str(error)
    return forms

"""Repetitions in a file: exact up to a bound, then an upper bound. docs/interface.md section D12."""

import random

from hypothesis import given
from hypothesis import strategies as st

from stoplist.lists.imports.seen_addresses import SeenAddresses


@given(st.lists(st.sets(st.integers(0, 40), max_size=12), max_size=12), st.integers(1, 30))
def test_repetitions_are_exact_and_then_at_most(parts: list[set[int]], most: int) -> None:
    """The table is so small that most new addresses are taken for repetitions."""
    seen, known = SeenAddresses(most=most, table_bits=16), set[int]()
    for part in parts:
        was_exact = len(known) < most
        added = seen.add(map(str, part))
        assert added <= len(part - known)
        assert added == len(part - known) or not was_exact
        known |= part
        assert seen.is_exact == was_exact


def test_few_new_addresses_are_taken_for_repetitions() -> None:
    chance = random.Random(1)  # noqa: S311
    seen = SeenAddresses(most=1_000, table_bits=1 << 20)
    addresses = [f"{chance.randrange(10**12)}@example.org" for _ in range(20_000)]
    added = sum(seen.add(addresses[at : at + 1_000]) for at in range(0, len(addresses), 1_000))
    assert 19_500 < added <= 20_000
    assert not seen.is_exact
    assert seen.add(addresses) == 0

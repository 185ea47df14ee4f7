"""A store that may be slow."""

from collections.abc import Iterator

import pytest

from tests.limits.counting import patience


@pytest.fixture
def patient() -> Iterator[None]:
    """What is decided, or what the store says, is at stake, not how soon."""
    with patience():
        yield

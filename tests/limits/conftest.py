"""Fixtures for a store that may be slow."""

from collections.abc import Iterator

import pytest

from tests.limits.counting import patience


@pytest.fixture
def long_store_timeout() -> Iterator[None]:
    """Raise the timeout: these tests are about decisions, not about speed."""
    with patience():
        yield

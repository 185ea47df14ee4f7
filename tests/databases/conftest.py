"""A pair of databases in place of one or the other."""

import pytest

from tests.builders import Apart


@pytest.fixture(scope="module")
def module_database_url(module_apart_url: Apart) -> Apart:
    """Return the URLs of a pair for all the tests of a module."""
    return module_apart_url

"""A deployment on either database, opened once for all the tests of a module."""

from tests.unsubscribes.conftest import deployment as deployment

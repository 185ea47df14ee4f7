"""These tests are about the database itself: they start from one without a schema."""

from tests.empty_databases import *  # noqa: F403 - fixtures

"""A prompt where there is nothing yet, and one where there is an organization."""

import os
from pathlib import Path

import pytest

from tests.cli.command_line import Prompt


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Prompt:
    """A prompt in a folder where there is no database."""
    return Prompt(monkeypatch, tmp_path)


@pytest.fixture
def prompt(empty: Prompt) -> Prompt:
    """A prompt where there is a database with the organization `acme`."""
    empty.ok("migrate")
    empty.ok("org", "create", "acme", "--name", "Acme Shoes")
    return empty


@pytest.fixture
def on_postgresql(empty: Prompt, postgresql_url: str) -> Prompt:
    """A prompt whose database is an empty one on PostgreSQL."""
    empty.set(DATABASE_URL=postgresql_url)
    assert os.environ["STOPLIST_DATABASE_URL"] == postgresql_url
    return empty

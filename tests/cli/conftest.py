"""A prompt where there is nothing yet, and one where there is an organization."""

import os
from pathlib import Path

import pytest

from tests.cli.command_line import Prompt
from tests.empty_databases import *  # noqa: F403 - fixtures


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


@pytest.fixture(params=["postgresql", "pooled"])
def on_postgresql(empty: Prompt, request: pytest.FixtureRequest) -> Prompt:
    """A prompt whose database is an empty one on PostgreSQL, without a pooler before it and with one."""
    url = request.getfixturevalue(f"{request.param}_url")
    empty.set(DATABASE_URL=url, DATABASE_PREPARED="off" if request.param == "pooled" else "on")
    assert os.environ["STOPLIST_DATABASE_URL"] == url
    return empty

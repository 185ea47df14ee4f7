"""Prompts without a database, with an organization, and on PostgreSQL."""

import os
import shutil
from pathlib import Path

import pytest

from tests.cli.command_line import Prompt
from tests.empty_databases import *  # noqa: F403 - fixtures


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Prompt:
    """A prompt in a folder without a database."""
    return Prompt(monkeypatch, tmp_path)


@pytest.fixture(scope="session")
def _data_of_acme(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of the fixture `prompt`, to be copied."""
    with pytest.MonkeyPatch.context() as patch:
        prompt = Prompt(patch, tmp_path_factory.mktemp("acme"))
        prompt.ok("migrate")
        prompt.ok("org", "create", "acme", "--name", "Acme Shoes")
        return prompt.data_dir


@pytest.fixture
def prompt(empty: Prompt, _data_of_acme: Path) -> Prompt:
    """A prompt with a database that has the organization `acme`."""
    shutil.copytree(_data_of_acme, empty.data_dir)
    return empty


@pytest.fixture(params=["postgresql", "pooled"])
def on_postgresql(empty: Prompt, request: pytest.FixtureRequest) -> Prompt:
    """A prompt with an empty PostgreSQL database, directly and behind a pooler."""
    url = request.getfixturevalue(f"{request.param}_url")
    empty.set(DATABASE_URL=url, DATABASE_PREPARED="off" if request.param == "pooled" else "on")
    assert os.environ["STOPLIST_DATABASE_URL"] == url
    return empty

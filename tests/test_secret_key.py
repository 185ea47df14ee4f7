"""The secret key: those that are set, else one of our own, made once and kept."""

import os
import re
import stat
from multiprocessing import get_context
from pathlib import Path

import pytest

from stoplist.errors import SettingsError
from stoplist.secret_key import FILE_NAME, secret_keys
from stoplist.settings import load


def keys(data_dir: Path, **variables: str) -> tuple[str, ...]:
    """The keys of a deployment with these settings."""
    environ = {f"STOPLIST_{name}": value for name, value in variables.items()}
    return secret_keys(load(environ, env_file=Path("/nonexistent"), flags={"DATA_DIR": str(data_dir)}))


def test_a_key_is_made_once_and_kept(tmp_path: Path) -> None:
    """256 bits of chance in a file for its owner alone, in a folder that is made too; no half of it is left over."""
    data_dir = tmp_path / "not" / "yet"
    (key,) = keys(data_dir)
    assert re.fullmatch(r"[\w-]{43}", key)
    assert keys(data_dir) == keys(data_dir) == (key,)
    assert [path.name for path in data_dir.iterdir()] == [FILE_NAME]
    assert stat.S_IMODE((data_dir / FILE_NAME).stat().st_mode) == 0o600
    assert keys(tmp_path) != (key,)


def test_keys_that_are_set_win_and_nothing_is_made(tmp_path: Path) -> None:
    """The first one signs, so their order is kept."""
    first, second = "a" * 32, "b" * 40
    assert keys(tmp_path, SECRET_KEY=f"{first},{second}") == (first, second)
    assert list(tmp_path.iterdir()) == []


def test_a_key_of_an_operators_own_is_taken_as_it_is(tmp_path: Path) -> None:
    """White space around it, such as a final newline, is no part of it."""
    (tmp_path / FILE_NAME).write_text("k" * 32 + "\r\n")
    assert keys(tmp_path) == ("k" * 32,)


@pytest.mark.parametrize("content", [b"", b"\n", b"k" * 31, b" " * 40, b"\xff" * 40])
def test_a_damaged_file_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    """A new key would make worthless what was given out under the old one: that is for a person to decide."""
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(SettingsError, match="secret key"):
        keys(tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == content


@pytest.mark.parametrize("obstacle", ["folder", "file"])
def test_a_place_that_cannot_hold_a_key_is_refused(tmp_path: Path, obstacle: str) -> None:
    """In words."""
    if obstacle == "folder":
        (tmp_path / FILE_NAME).mkdir()
    else:
        (tmp_path / "data").write_text("a file")
        tmp_path /= "data"
    with pytest.raises(SettingsError, match="secret key"):
        keys(tmp_path)


def test_a_start_that_was_killed_half_way_leaves_no_half_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start makes one as if there had been none."""

    def killed(_descriptor: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            keys(tmp_path)
    assert not (tmp_path / FILE_NAME).exists()
    assert len(keys(tmp_path)[0]) == 43
    assert os.listdir(tmp_path) == [FILE_NAME]


def test_processes_that_start_together_agree(tmp_path: Path) -> None:
    """Whoever is first."""
    with get_context("spawn").Pool(3) as pool:
        found = pool.map(keys, [tmp_path] * 12)
    assert len(set(found)) == 1

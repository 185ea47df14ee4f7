"""The secret key: the configured keys, or one that is created once and kept."""

import os
import re
import stat
from multiprocessing import get_context
from pathlib import Path
from unittest.mock import Mock

import pytest

from stoplist.errors import SettingsError
from stoplist.secret_key import FILE_NAME, secret_keys
from stoplist.settings import load


def keys(data_dir: Path, **variables: str) -> tuple[str, ...]:
    """Return the keys of a deployment with these settings."""
    environ = {f"STOPLIST_{name}": value for name, value in variables.items()}
    return secret_keys(load(environ, env_file=Path("/nonexistent"), flags={"DATA_DIR": str(data_dir)}))


def test_a_key_is_created_once_and_kept(tmp_path: Path) -> None:
    """256 random bits in a file for its owner only, in a folder that is created too; no partial file is left."""
    data_dir = tmp_path / "not" / "yet"
    (key,) = keys(data_dir)
    assert re.fullmatch(r"[\w-]{43}", key)
    assert keys(data_dir) == keys(data_dir) == (key,)
    assert [path.name for path in data_dir.iterdir()] == [FILE_NAME]
    assert stat.S_IMODE((data_dir / FILE_NAME).stat().st_mode) == 0o600
    assert keys(tmp_path) != (key,)


def test_configured_keys_take_precedence(tmp_path: Path) -> None:
    """No file is created. The first key signs, so their order is kept."""
    first, second = "a" * 32, "b" * 40
    assert keys(tmp_path, SECRET_KEY=f"{first},{second}") == (first, second)
    assert list(tmp_path.iterdir()) == []


def test_an_operators_own_key_is_used_as_it_is(tmp_path: Path) -> None:
    """Only the white space around it, such as a final newline, is removed."""
    (tmp_path / FILE_NAME).write_text("k" * 32 + "\r\n")
    assert keys(tmp_path) == ("k" * 32,)


@pytest.mark.parametrize("content", [b"", b"\n", b"k" * 31, b" " * 40, b"\xff" * 40])
def test_a_damaged_file_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    """A new key would invalidate everything issued under the old one, so a person must decide."""
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(SettingsError, match="secret key"):
        keys(tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == content


@pytest.mark.parametrize("obstacle", ["folder", "file"])
def test_an_unusable_path_is_refused(tmp_path: Path, obstacle: str) -> None:
    """The refusal has a text for people."""
    if obstacle == "folder":
        (tmp_path / FILE_NAME).mkdir()
    else:
        (tmp_path / "data").write_text("a file")
        tmp_path /= "data"
    with pytest.raises(SettingsError, match="secret key"):
        keys(tmp_path)


def test_a_killed_start_leaves_no_partial_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start creates one as if there had been none."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            keys(tmp_path)
    assert not (tmp_path / FILE_NAME).exists()
    assert len(keys(tmp_path)[0]) == 43
    assert os.listdir(tmp_path) == [FILE_NAME]


def test_concurrent_starts_use_the_same_key(tmp_path: Path) -> None:
    """The key is the one of the first."""
    with get_context("spawn").Pool(3) as pool:
        found = pool.map(keys, [tmp_path] * 12)
    assert len(set(found)) == 1

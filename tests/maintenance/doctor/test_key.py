"""The secret key as the doctor sees it."""

from pathlib import Path

import pytest

from stoplist.maintenance.doctor.key import secret_key
from tests.maintenance.doctor.installation import settings

KEY = "0123456789abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "secret.key"


def test_hosts_are_compared_by_a_fingerprint(tmp_path: Path, file: Path) -> None:
    """The same for the same signing key, wherever it comes from; the key itself is not shown."""
    by_variable = secret_key(settings(tmp_path, SECRET_KEY=f"{KEY},{KEY[::-1]}"), is_needed=True)
    file.write_text(f"{KEY}\n")
    by_file = secret_key(settings(tmp_path), is_needed=True)
    other = secret_key(settings(tmp_path, SECRET_KEY=KEY[::-1]), is_needed=True)
    assert [found.status for found in (by_variable, by_file, other)] == ["ok"] * 3
    fingerprints = [found.text.split(":")[0] for found in (by_variable, by_file, other)]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]
    assert not any(KEY[:6] in found.text for found in (by_variable, by_file))


def test_a_lost_key_is_wrong_once_cursors_were_given_out(tmp_path: Path, file: Path) -> None:
    """Before that the first start makes one."""
    assert secret_key(settings(tmp_path), is_needed=False).status == "ok"
    lost = secret_key(settings(tmp_path), is_needed=True)
    assert lost.status == "wrong"
    assert str(file) in lost.text
    assert not file.exists()


@pytest.mark.parametrize("content", [b"", b"short\n", b"\xff" * 40])
def test_a_damaged_key_is_wrong(tmp_path: Path, file: Path, content: bytes) -> None:
    """Cut off, or no text."""
    file.write_bytes(content)
    assert secret_key(settings(tmp_path), is_needed=False).status == "wrong"

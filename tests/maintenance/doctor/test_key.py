"""The doctor's check of the secret key."""

from pathlib import Path

import pytest

from stoplist.maintenance.doctor.key import secret_key
from tests.maintenance.doctor.installation import settings

KEY = "0123456789abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "secret.key"


def test_the_fingerprint_compares_hosts(tmp_path: Path, file: Path) -> None:
    """It is the same for the same signing key, whether from a variable or a file, and does not reveal the key."""
    by_variable = secret_key(settings(tmp_path, SECRET_KEY=f"{KEY},{KEY[::-1]}"), is_needed=True)
    file.write_text(f"{KEY}\n")
    by_file = secret_key(settings(tmp_path), is_needed=True)
    other = secret_key(settings(tmp_path, SECRET_KEY=KEY[::-1]), is_needed=True)
    assert [finding.status for finding in (by_variable, by_file, other)] == ["ok"] * 3
    fingerprints = [finding.text.split(":")[0] for finding in (by_variable, by_file, other)]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]
    assert not any(KEY[:6] in finding.text for finding in (by_variable, by_file))


def test_a_lost_key_is_wrong_once_cursors_exist(tmp_path: Path, file: Path) -> None:
    """Before that, the first start creates a key."""
    assert secret_key(settings(tmp_path), is_needed=False).status == "ok"
    lost = secret_key(settings(tmp_path), is_needed=True)
    assert lost.status == "wrong"
    assert str(file) in lost.text
    assert not file.exists()


@pytest.mark.parametrize("content", [b"", b"short\n", b"\xff" * 40])
def test_a_damaged_key_is_wrong(tmp_path: Path, file: Path, content: bytes) -> None:
    """Truncated, or not text."""
    file.write_bytes(content)
    assert secret_key(settings(tmp_path), is_needed=False).status == "wrong"

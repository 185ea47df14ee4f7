"""The certificate as the doctor sees it."""

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from stoplist.maintenance.doctor.certificate import certificate
from stoplist.server import development_ca
from tests.maintenance.doctor.installation import settings

NOW_S = 1_800_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate, its key, and the key of another one."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("cert", "other"):
        issued = development_ca.issue(["localhost"], now_s=NOW_S, known_authority=None)
        (folder / f"{name}.pem").write_bytes(issued.server.certificate + issued.authority.certificate)
        (folder / f"{name}-key.pem").write_bytes(issued.server.key)
    return folder


def examined(folder: Path, *, days_left: float = 30.0, key: str = "cert-key.pem") -> tuple[str, str]:
    known = x509.load_pem_x509_certificate((folder / "cert.pem").read_bytes())
    now = known.not_valid_after_utc - timedelta(days=days_left)
    named = settings(folder, TLS_CERT=str(folder / "cert.pem"), TLS_KEY=str(folder / key))
    finding = certificate(named, int(now.timestamp() * 1000))
    return finding.status, finding.text


@pytest.mark.parametrize(
    ("days_left", "status", "text"),
    [
        (30, "ok", "30 days"),
        (14, "ok", "14 days"),
        (13.9, "wrong", "ends in 13 days"),
        (0.5, "wrong", "ends in 0 days"),
        (0, "wrong", "expired on"),
        (-3, "wrong", "expired on"),
        (4_000, "wrong", "only from"),
    ],
)
def test_a_certificate_is_to_be_renewed_two_weeks_before_its_end(
    folder: Path, days_left: float, status: str, text: str
) -> None:
    """The text names the file, the day, and that servers take a renewed one up by themselves."""
    found = examined(folder, days_left=days_left)
    assert found[0] == status
    assert text in found[1]
    assert str(folder / "cert.pem") in found[1]
    assert ("by themselves" in found[1]) == (status == "wrong")


def test_the_key_must_be_that_of_the_certificate(folder: Path) -> None:
    """Whichever of the two was put in the wrong place."""
    status, text = examined(folder, key="other-key.pem")
    assert status == "wrong"
    assert "not that of" in text


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN PRIVATE KEY-----\nxx\n"])
def test_files_that_cannot_be_used_are_wrong(folder: Path, content: bytes | None) -> None:
    """Without a traceback: missing, empty, cut off."""
    path = folder / "unusable.pem"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    status, text = examined(folder, key="unusable.pem")
    assert status == "wrong"
    assert "cannot be read" in text or "PEM" in text


def test_where_proxies_end_tls_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    """And before the first start in development there is nothing yet."""
    assert certificate(settings(tmp_path, TRUSTED_PROXIES="10.0.0.0/8"), 0).status == "not checked"
    assert certificate(settings(tmp_path), 0).status == "not checked"


def test_the_certificate_of_development_is_looked_at_too(folder: Path, tmp_path: Path) -> None:
    """It is renewed by a start."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "server.pem").write_bytes((folder / "cert.pem").read_bytes())
    (tmp_path / "data" / "server-key.pem").write_bytes((folder / "cert-key.pem").read_bytes())
    assert certificate(settings(tmp_path), NOW_S * 1000).status == "ok"
    expired = certificate(settings(tmp_path), (NOW_S + 10_000_000_000) * 1000)
    assert expired.status == "wrong"
    assert "start the server anew" in expired.text

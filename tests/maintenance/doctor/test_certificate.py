"""The doctor's check of the certificate."""

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from stoplist.maintenance.doctor.certificate import certificate
from stoplist.server import development_ca
from stoplist.settings import Settings
from tests.maintenance.doctor.installation import settings

NOW_S = 1_800_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a certificate, its key, and another certificate's key."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("cert", "other"):
        issued = development_ca.issue(["localhost"], now_s=NOW_S, known_authority=None)
        (folder / f"{name}.pem").write_bytes(issued.server.certificate + issued.authority.certificate)
        (folder / f"{name}-key.pem").write_bytes(issued.server.key)
    return folder


def check(folder: Path, *, days_left: float = 30.0, key: str = "cert-key.pem") -> tuple[str, str]:
    leaf = x509.load_pem_x509_certificate((folder / "cert.pem").read_bytes())
    now = leaf.not_valid_after_utc - timedelta(days=days_left)
    configured = settings(folder, TLS_CERT=str(folder / "cert.pem"), TLS_KEY=str(folder / key))
    finding = certificate(configured, int(now.timestamp() * 1000))
    return finding.status, finding.text


@pytest.mark.parametrize(
    ("days_left", "status", "text"),
    [
        (30, "ok", "30 days"),
        (14, "ok", "14 days"),
        (13.9, "wrong", "expires in 13 days"),
        (0.5, "wrong", "expires in 0 days"),
        (0, "wrong", "expired on"),
        (-3, "wrong", "expired on"),
        (4_000, "wrong", "not valid before"),
    ],
)
def test_a_certificate_must_be_renewed_two_weeks_before_expiry(
    folder: Path, days_left: float, status: str, text: str
) -> None:
    """The text names the file and the day, and says that servers load a renewed file by themselves."""
    result = check(folder, days_left=days_left)
    assert result[0] == status
    assert text in result[1]
    assert str(folder / "cert.pem") in result[1]
    assert ("by themselves" in result[1]) == (status == "wrong")


def test_the_key_must_belong_to_the_certificate(folder: Path) -> None:
    status, text = check(folder, key="other-key.pem")
    assert status == "wrong"
    assert "does not belong to" in text


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN PRIVATE KEY-----\nxx\n"])
def test_unusable_files_are_wrong(folder: Path, content: bytes | None) -> None:
    """A missing, empty or truncated file gives a finding, not a traceback."""
    path = folder / "unusable.pem"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    status, text = check(folder, key="unusable.pem")
    assert status == "wrong"
    assert "cannot be read" in text or "PEM" in text


@pytest.mark.parametrize(
    ("names", "base_url", "is_accepted"),
    [
        (["optout.example"], "https://optout.example", True),
        (["other.example", "OptOut.example"], "https://optout.example:8443", True),
        (["*.example.com"], "https://optout.example.com", True),
        (["192.0.2.7"], "https://192.0.2.7", True),
        (["2001:db8::7"], "https://[2001:db8:0::7]", True),
        (["other.example"], "https://optout.example", False),
        (["*.example.com"], "https://a.b.example.com", False),
        (["*.example.com"], "https://example.com", False),
        (["192.0.2.8"], "https://192.0.2.7", False),
    ],
)
def test_the_certificate_must_be_for_the_base_address(
    tmp_path: Path, names: list[str], base_url: str, is_accepted: bool
) -> None:
    """The check compares the names as clients do; the text names both, and what to correct."""
    finding = certificate(installed(tmp_path, names, BASE_URL=base_url), NOW_S * 1000)
    assert finding.status == ("ok" if is_accepted else "wrong")
    if not is_accepted:
        assert names[0] in finding.text
        assert "STOPLIST_BASE_URL names" in finding.text
        assert "get a certificate for that name" in finding.text


def test_the_certificate_must_be_for_the_host_of_links_too(tmp_path: Path) -> None:
    """People who click a link would otherwise see a warning of their browser."""
    urls = {"BASE_URL": "https://optout.example", "LINKS_BASE_URL": "https://go.example:8443"}
    missing = certificate(installed(tmp_path, ["optout.example"], **urls), NOW_S * 1000)
    assert missing.status == "wrong"
    assert "STOPLIST_LINKS_BASE_URL names go.example" in missing.text
    both = certificate(installed(tmp_path, ["optout.example", "go.example"], **urls), NOW_S * 1000)
    assert both.status == "ok"
    assert "it is for optout.example and go.example" in both.text


def test_behind_proxies_the_names_are_not_compared(tmp_path: Path) -> None:
    """Partners see the certificate of the proxies."""
    configured = installed(tmp_path, ["inner.example"], BASE_URL="https://a.example", TRUSTED_PROXIES="10.0.0.0/8")
    finding = certificate(configured, NOW_S * 1000)
    assert finding.status == "ok"
    assert "its names were not compared" in finding.text


def installed(folder: Path, names: list[str], **variables: str) -> Settings:
    """Return settings with a certificate for these names."""
    issued = development_ca.issue(names, now_s=NOW_S, known_authority=None)
    (folder / "cert.pem").write_bytes(issued.server.certificate)
    (folder / "key.pem").write_bytes(issued.server.key)
    return settings(folder, TLS_CERT=str(folder / "cert.pem"), TLS_KEY=str(folder / "key.pem"), **variables)


def test_nothing_is_checked_behind_proxies_or_before_the_first_start(tmp_path: Path) -> None:
    assert certificate(settings(tmp_path, TRUSTED_PROXIES="10.0.0.0/8"), 0).status == "not checked"
    assert certificate(settings(tmp_path), 0).status == "not checked"


def test_the_development_certificate_is_checked_too(folder: Path, tmp_path: Path) -> None:
    """A restart renews it."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "server.pem").write_bytes((folder / "cert.pem").read_bytes())
    (tmp_path / "data" / "server-key.pem").write_bytes((folder / "cert-key.pem").read_bytes())
    assert certificate(settings(tmp_path), NOW_S * 1000).status == "ok"
    moved = certificate(settings(tmp_path, BASE_URL="https://a.example"), NOW_S * 1000)
    assert "restart the server, which makes one for that name" in moved.text
    expired = certificate(settings(tmp_path), (NOW_S + 10_000_000_000) * 1000)
    assert expired.status == "wrong"
    assert "restart the server" in expired.text

"""Checks the server certificate: its validity period, and that the key belongs to it."""

from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from stoplist.maintenance.doctor.finding import Finding, not_checked, ok, wrong
from stoplist.settings import Settings

CHECK = "certificate"
RENEW_DAYS = 14


def certificate(settings: Settings, now_ms: int) -> Finding:
    """Check the certificate: wrong from 14 days before it expires, and if the key belongs to another one."""
    if settings.tls_cert is not None and settings.tls_key is not None:
        return _check_files(
            settings.tls_cert, settings.tls_key, now_ms, remedy="renew it; servers load it by themselves"
        )
    if settings.trusted_proxies:
        return not_checked(CHECK, "Proxies terminate TLS: check the certificate there.")
    pair = settings.data_dir / "server.pem", settings.data_dir / "server-key.pem"
    if settings.environment != "development" or not all(path.exists() for path in pair):
        return not_checked(CHECK, "There is none yet: in development the first start creates one.")
    return _check_files(*pair, now_ms, remedy="restart the server, which renews it")


def _check_files(path: Path, key_path: Path, now_ms: int, *, remedy: str) -> Finding:
    try:
        leaf = x509.load_pem_x509_certificates(path.read_bytes())[0]
        key = load_pem_private_key(key_path.read_bytes(), password=None).public_key()
    except OSError as error:
        return wrong(CHECK, f"{path} or {key_path} cannot be read by this account: {error.strerror}.")
    except (ValueError, TypeError, IndexError):
        return wrong(CHECK, f"{path} and {key_path} must be PEM files, the key without a passphrase: replace them.")
    return assess_certificate(leaf, key, path, datetime.fromtimestamp(now_ms / 1000, UTC), remedy=remedy)


def assess_certificate(
    leaf: x509.Certificate, key: PublicKeyTypes, path: Path, now: datetime, *, remedy: str
) -> Finding:
    """Return the finding on a certificate and its key at the time `now`."""
    begins, ends = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    if leaf.public_key() != key:
        return wrong(CHECK, f"The key does not belong to {path}, which must begin with the server's own certificate.")
    if now < begins:
        return wrong(CHECK, f"{path} is not valid before {begins:%Y-%m-%d %H:%M} UTC: check the clock, or {remedy}.")
    if now >= ends:
        return wrong(CHECK, f"{path} expired on {ends:%Y-%m-%d %H:%M} UTC: {remedy}.")
    days = (ends - now).days
    if days < RENEW_DAYS:
        return wrong(CHECK, f"{path} expires in {days} days, on {ends:%Y-%m-%d %H:%M} UTC: {remedy}.")
    return ok(CHECK, f"{path} is valid until {ends:%Y-%m-%d} ({days} days), and the key belongs to it.")

"""The certificate that the server shows: how long it is good, and whether the key is its own."""

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
    """Wrong from 14 days before its end, and where the key is another certificate's."""
    if settings.tls_cert is not None and settings.tls_key is not None:
        return _examined(
            settings.tls_cert, settings.tls_key, now_ms, remedy="renew it; servers take it up by themselves"
        )
    if settings.trusted_proxies:
        return not_checked(CHECK, "Proxies end TLS: look at the certificate where they run.")
    pair = settings.data_dir / "server.pem", settings.data_dir / "server-key.pem"
    if settings.environment != "development" or not all(path.exists() for path in pair):
        return not_checked(CHECK, "There is none yet: in development the first start makes one.")
    return _examined(*pair, now_ms, remedy="start the server anew, which renews it")


def _examined(path: Path, key_path: Path, now_ms: int, *, remedy: str) -> Finding:
    try:
        known = x509.load_pem_x509_certificates(path.read_bytes())[0]
        key = load_pem_private_key(key_path.read_bytes(), password=None).public_key()
    except OSError as error:
        return wrong(CHECK, f"{path} or {key_path} cannot be read by this account: {error.strerror}.")
    except (ValueError, TypeError, IndexError):
        return wrong(CHECK, f"{path} and {key_path} must be PEM files, the key without a passphrase: write them anew.")
    return judge(known, key, path, datetime.fromtimestamp(now_ms / 1000, UTC), remedy=remedy)


def judge(known: x509.Certificate, key: PublicKeyTypes, path: Path, now: datetime, *, remedy: str) -> Finding:
    """What is to be said of a certificate and its key at that time."""
    begins, ends = known.not_valid_before_utc, known.not_valid_after_utc
    if known.public_key() != key:
        return wrong(CHECK, f"The key is not that of {path}, which must begin with the server's own certificate.")
    if now < begins:
        return wrong(CHECK, f"{path} is good only from {begins:%Y-%m-%d %H:%M} UTC on: check the clock, or {remedy}.")
    if now >= ends:
        return wrong(CHECK, f"{path} expired on {ends:%Y-%m-%d %H:%M} UTC: {remedy}.")
    days = (ends - now).days
    if days < RENEW_DAYS:
        return wrong(CHECK, f"{path} ends in {days} days, on {ends:%Y-%m-%d %H:%M} UTC: {remedy}.")
    return ok(CHECK, f"{path} is good until {ends:%Y-%m-%d} ({days} days), and the key is its own.")

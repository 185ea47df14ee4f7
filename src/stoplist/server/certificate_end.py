"""When a certificate ends. Loaded after the start, because importing `cryptography` takes about 55 ms."""

from pathlib import Path

from cryptography import x509


def certificate_end_s(path: Path) -> float | None:
    """Return when the first certificate of a file ends, in seconds since 1970 UTC; None if it cannot be read."""
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())[0].not_valid_after_utc.timestamp()
    except (OSError, ValueError, IndexError):
        return None

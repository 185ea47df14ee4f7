"""Checks the server certificate: its names, its validity period, and that the key belongs to it."""

from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from stoplist.maintenance.doctor.finding import Finding, not_checked, ok, wrong
from stoplist.settings import Settings

CHECK = "certificate"
RENEW_DAYS = 14


class _Source(NamedTuple):
    """The origin of a certificate: what renews it, and what to do if it is for other names."""

    renewal: str
    if_misnamed: str


class _Host(NamedTuple):
    """A host that the certificate must be for, and the setting that names it."""

    name: str
    setting: str


_CONFIGURED = _Source("renew it; servers load it by themselves", "correct it, or get a certificate for that name")
_DEVELOPMENT = _Source("restart the server, which renews it", "restart the server, which makes one for that name")


def certificate(settings: Settings, now_ms: int) -> Finding:
    """Check the certificate: wrong from 14 days before it expires, for another key, and for another host.

    Its names are compared with the hosts of the base address and of opt-out links, unless proxies connect to the server
    by another name.
    """
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    hosts = _hosts(settings)
    if settings.tls_cert is not None and settings.tls_key is not None:
        checked_hosts = [] if settings.trusted_proxies else hosts
        return _check_files(settings.tls_cert, settings.tls_key, now, hosts=checked_hosts, source=_CONFIGURED)
    if settings.trusted_proxies:
        return not_checked(CHECK, "Proxies terminate TLS: check the certificate there.")
    pair = settings.data_dir / "server.pem", settings.data_dir / "server-key.pem"
    if settings.environment != "development" or not all(path.exists() for path in pair):
        return not_checked(CHECK, "There is none yet: in development the first start creates one.")
    return _check_files(*pair, now, hosts=hosts, source=_DEVELOPMENT)


def _hosts(settings: Settings) -> list[_Host]:
    """Return the host of the base address, and that of opt-out links if it is another."""
    base, links = (urlsplit(url).hostname or "localhost" for url in (settings.base_url, settings.links_base_url))
    own_host = [] if links == base else [_Host(links, "STOPLIST_LINKS_BASE_URL")]
    return [_Host(base, "STOPLIST_BASE_URL"), *own_host]


def _check_files(path: Path, key_path: Path, now: datetime, *, hosts: list[_Host], source: _Source) -> Finding:
    try:
        leaf = x509.load_pem_x509_certificates(path.read_bytes())[0]
        key = load_pem_private_key(key_path.read_bytes(), password=None).public_key()
    except OSError as error:
        return wrong(CHECK, f"{path} or {key_path} cannot be read by this account: {error.strerror}.")
    except (ValueError, TypeError, IndexError):
        return wrong(CHECK, f"{path} and {key_path} must be PEM files, the key without a passphrase: replace them.")
    if leaf.public_key() != key:
        return wrong(CHECK, f"The key does not belong to {path}, which must begin with the server's own certificate.")
    for host in hosts:
        if not is_issued_for(leaf, host.name):
            return wrong(
                CHECK,
                f"{path} is for {', '.join(_names(leaf)) or 'no host'}, and {host.setting} names {host.name}, so "
                f"clients and browsers refuse to connect: {source.if_misnamed}.",
            )
    return _assess_period(leaf, path, now, hosts=hosts, renewal=source.renewal)


def _assess_period(leaf: x509.Certificate, path: Path, now: datetime, *, hosts: list[_Host], renewal: str) -> Finding:
    begins, ends = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    if now < begins:
        return wrong(CHECK, f"{path} is not valid before {begins:%Y-%m-%d %H:%M} UTC: check the clock, or {renewal}.")
    if now >= ends:
        return wrong(CHECK, f"{path} expired on {ends:%Y-%m-%d %H:%M} UTC: {renewal}.")
    days = (ends - now).days
    if days < RENEW_DAYS:
        return wrong(CHECK, f"{path} expires in {days} days, on {ends:%Y-%m-%d %H:%M} UTC: {renewal}.")
    names = "partners see that of the proxies, so its names were not compared"
    if hosts:
        names = f"it is for {' and '.join(host.name for host in hosts)}"
    return ok(CHECK, f"{path} is valid until {ends:%Y-%m-%d} ({days} days), the key belongs to it, and {names}.")


def is_issued_for(leaf: x509.Certificate, host: str) -> bool:
    """Return whether clients that connect to `host` accept the names of the certificate.

    Only alternative names count, and `*` stands for the whole leftmost label. Source: RFC 9525 section 6.
    """
    names = {name.lower().rstrip(".") for name in _names(leaf)}
    try:
        return str(ip_address(host)) in names
    except ValueError:
        host = host.lower().rstrip(".")
        return host in names or f"*.{host.partition('.')[2]}" in names


def _names(leaf: x509.Certificate) -> list[str]:
    """Return the DNS names and addresses among the alternative names."""
    try:
        alternative = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = map(str, alternative.get_values_for_type(x509.IPAddress))
    return [*alternative.get_values_for_type(x509.DNSName), *addresses]

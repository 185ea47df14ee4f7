"""The development certificate authority: issues certificates for a server that was given none.

`tls` loads this module only when certificates have to be made, because importing `cryptography` takes about 55 ms.
Pure: bytes in, bytes out. The extensions are those that RFC 5280 section 4.2 requires and strict verifiers (OpenSSL's
X509_STRICT, the default of Python 3.13) enforce. Source: docs/interface.md section D1, HTTPS.
"""

import os
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_AUTHORITY_LIFE = timedelta(days=3650)
_SERVER_LIFE = timedelta(days=365)
_RENEWAL = timedelta(days=30)
# Certificates are valid from a little before their issue: clocks of other machines may be behind.
_BACKDATING = timedelta(hours=1)


class Pair(NamedTuple):
    """A certificate and its private key, both in PEM."""

    certificate: bytes
    key: bytes


class Issued(NamedTuple):
    """The authority and the server's certificate; a start need not check them from `good_from_s` to `renew_at_s`."""

    authority: Pair
    server: Pair
    good_from_s: int
    renew_at_s: int


class _Authority(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def issue(hosts: list[str], *, now_s: int, known_authority: Pair | None) -> Issued:
    """Issue a server certificate for these names and addresses, signed by `known_authority` while that is valid.

    If the authority is missing, damaged, or not valid at `now_s`, create a new one, which clients must then trust.
    """
    now = datetime.fromtimestamp(now_s, UTC)
    authority = (known_authority and _read_authority(known_authority, now)) or _new_authority(now)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _server_certificate(authority, key, hosts, now)
    ends, authority_ends = certificate.not_valid_after_utc, authority.certificate.not_valid_after_utc
    # A certificate that ends with its authority cannot be renewed before the authority ends.
    renew_at = ends if ends == authority_ends else ends - _RENEWAL
    return Issued(
        _pems(authority.certificate, authority.key),
        _pems(certificate, key),
        good_from_s=int(certificate.not_valid_before_utc.timestamp()),
        renew_at_s=int(renew_at.timestamp()),
    )


def _read_authority(pair: Pair, now: datetime) -> _Authority | None:
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = load_pem_private_key(pair.key, password=None)
    except (ValueError, TypeError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    is_valid = certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
    return _Authority(certificate, key) if is_valid else None


def _new_authority(now: datetime) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    # The random part distinguishes two deployments in one trust store.
    name = _name(f"Stoplist development authority {os.urandom(4).hex()}")
    public_key = key.public_key()
    certificate = (
        _certificate(subject=name, issuer=name, public_key=public_key, issuer_key=public_key)
        .not_valid_before(now - _BACKDATING)
        .not_valid_after(now + _AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _Authority(certificate, key)


def _server_certificate(
    authority: _Authority, key: ec.EllipticCurvePrivateKey, hosts: list[str], now: datetime
) -> x509.Certificate:
    issuer = authority.certificate
    return (
        _certificate(
            subject=_name("Stoplist development server"),
            issuer=issuer.subject,
            public_key=key.public_key(),
            issuer_key=authority.key.public_key(),
        )
        .not_valid_before(max(now - _BACKDATING, issuer.not_valid_before_utc))
        .not_valid_after(min(now + _SERVER_LIFE, issuer.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def _certificate(
    *,
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
) -> x509.CertificateBuilder:
    identifier = x509.SubjectKeyIdentifier.from_public_key(public_key)
    issuer_identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .add_extension(identifier, critical=False)
        .add_extension(issuer_identifier, critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pems(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )

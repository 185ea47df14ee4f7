"""TLS: the context of the server, reloading a renewed certificate, and the development certificate.

Source: docs/interface.md section D1, HTTPS.
"""

import fcntl
import hashlib
import logging
import os
import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import msgspec

from stoplist.clock import Clock
from stoplist.errors import SettingsError
from stoplist.folders import folder_error
from stoplist.settings import Settings

_LOG = logging.getLogger(__name__)
# Forward secrecy and authenticated encryption; TLS 1.3 offers nothing else and has its own list.
_TLS_1_2_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
_MISMATCH_REASONS = {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"}

_AUTHORITY, _AUTHORITY_KEY = "ca.pem", "ca-key.pem"
_SERVER, _SERVER_KEY = "server.pem", "server-key.pem"
_STAMP, _LOCK = "server.json", "tls.lock"
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a TLS context with this certificate: TLS 1.2 or newer, and HTTP/1.1 only.

    SettingsError if a file cannot be read, the key does not match the certificate, or the key has a passphrase.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_TLS_1_2_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    _require_readable(certificate, "STOPLIST_TLS_CERT")
    _require_readable(key, "STOPLIST_TLS_KEY")
    try:
        context.load_cert_chain(certificate, key, password=_refuse_passphrase)
    except OSError as error:  # ssl.SSLError is one of them
        reason = getattr(error, "reason", None) or error.strerror or "not in PEM format"
        raise SettingsError(_load_failure(certificate, key, reason)) from None
    return context


def server_tls(settings: Settings, clock: Clock) -> tuple[ssl.SSLContext | None, Callable[[], object]]:
    """Return the TLS context, or None if proxies terminate TLS, and a function that loads a renewed certificate."""
    if settings.tls_cert is not None and settings.tls_key is not None:
        pair = settings.tls_cert, settings.tls_key
    elif settings.trusted_proxies:
        return None, lambda: None
    else:
        names = (urlsplit(url).hostname or "localhost" for url in (settings.base_url, settings.links_base_url))
        hosts = (settings.host, *dict.fromkeys(names))
        pair = ensure_development_certificate(settings.data_dir, hosts, clock.now_ms())
    context = server_context(*pair)
    return context, CertificateWatch(context, *pair).check


class CertificateWatch:
    """Detects that the files of a certificate changed, and uses the new certificate for new connections."""

    def __init__(self, context: ssl.SSLContext, certificate: Path, key: Path) -> None:
        self._live = context
        self._current = context
        self._certificate, self._key = certificate, key
        self._loaded_state = self._file_states()
        self._has_warned = False

    def check(self) -> bool:
        """Load the certificate and key if their files changed, and return whether a new pair was loaded.

        A pair that cannot be loaded yet is logged once and tried again at the next check. Meant to be called every few
        seconds: unless something changed, only the status of the two files is read.
        """
        state = self._file_states()
        if state == self._loaded_state:
            return False
        try:
            renewed = server_context(self._certificate, self._key)
        except SettingsError as error:
            self._warn_once(error.text)
            return False
        # The live context never loads the files itself: loading takes two steps, and files replaced between them would
        # leave it with a certificate that has no key. New connections switch to a complete context instead.
        self._current = renewed
        self._live.sni_callback = self._switch_context
        self._loaded_state, self._has_warned = state, False
        return True

    def _switch_context(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _warn_once(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _LOG.warning("The renewed certificate cannot be used yet: %s", text)

    def _file_states(self) -> tuple[object, ...]:
        return (*_file_state(self._certificate), *_file_state(self._key))


def certificate_of(settings: Settings) -> Path | None:
    """Return the path of the certificate that servers with these settings show; None if proxies terminate TLS."""
    if settings.tls_cert is not None:
        return settings.tls_cert
    return None if settings.trusted_proxies else settings.data_dir / _SERVER


def ensure_development_certificate(data_dir: Path, hosts: Iterable[str], now_ms: int) -> tuple[Path, Path]:
    """Return the paths of a certificate and its key for `hosts` and localhost, valid at `now_ms`.

    Both are created, together with the authority `ca.pem` that signs them, if they are missing, damaged, issued for
    other hosts or expire within 30 days; the authority is kept while it is valid. Several processes may call this at
    once. Unspecified addresses such as 0.0.0.0 in `hosts` are ignored. SettingsError if `data_dir` is not writable.
    """
    names = _names(hosts)
    if not _is_good(data_dir, names, now_ms // 1000):
        try:
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(data_dir / _LOCK):
                if not _is_good(data_dir, names, now_ms // 1000):
                    _make(data_dir, names, now_ms // 1000)
        except OSError as error:
            raise SettingsError(
                f"No certificate can be made in {data_dir}: {folder_error(data_dir, error)}. "
                "STOPLIST_DATA_DIR must name a folder that the server may write to."
            ) from None
    return data_dir / _SERVER, data_dir / _SERVER_KEY


class _Stamp(msgspec.Struct, frozen=True):
    """The facts about a certificate that a start checks without taking the time to parse it."""

    names: list[str]
    good_from_s: int
    renew_at_s: int
    sha256: str


def _is_good(data_dir: Path, names: list[str], now_s: int) -> bool:
    try:
        stamp = msgspec.json.decode((data_dir / _STAMP).read_bytes(), type=_Stamp)
        digest = _digest(data_dir)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False
    return stamp.names == names and stamp.good_from_s <= now_s < stamp.renew_at_s and stamp.sha256 == digest


def _make(data_dir: Path, names: list[str], now_s: int) -> None:
    from stoplist.server.development_ca import Pair, issue  # noqa: PLC0415 - takes 55 ms, and most starts make nothing

    issued = issue(names, now_s=now_s, known_authority=_known_authority(data_dir, Pair))
    _write(data_dir / _AUTHORITY_KEY, issued.authority.key, mode=0o600)
    _write(data_dir / _AUTHORITY, issued.authority.certificate)
    _write(data_dir / _SERVER_KEY, issued.server.key, mode=0o600)
    _write(data_dir / _SERVER, issued.server.certificate)
    stamp = _Stamp(names, issued.good_from_s, issued.renew_at_s, _digest(data_dir))
    _write(data_dir / _STAMP, msgspec.json.encode(stamp))


def _known_authority(data_dir: Path, pair: Any) -> Any:
    try:
        return pair((data_dir / _AUTHORITY).read_bytes(), (data_dir / _AUTHORITY_KEY).read_bytes())
    except OSError:
        return None


def _digest(data_dir: Path) -> str:
    """Return a digest of the four files; each is digested first, so that no byte can move from one to the next."""
    files = (_AUTHORITY, _AUTHORITY_KEY, _SERVER, _SERVER_KEY)
    digests = [hashlib.sha256((data_dir / name).read_bytes()).digest() for name in files]
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _names(hosts: Iterable[str]) -> list[str]:
    """Return the names and addresses of the certificate, each once, as certificates spell them."""
    names = [_certificate_name(host) for host in (*_LOCAL_NAMES, *hosts)]
    return list(dict.fromkeys(name for name in names if name is not None))


def _certificate_name(host: str) -> str | None:
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]").partition("%")[0])
    except ValueError:
        pass
    else:
        return None if address.is_unspecified else str(address)
    try:
        return host.rstrip(".").lower().encode("idna").decode() or None
    except UnicodeError:
        raise SettingsError("STOPLIST_BASE_URL and STOPLIST_HOST must hold a host name or an address.") from None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of the file, which the system releases if the process dies."""
    # Readable by the owner only: another user who can open the file could hold its lock.
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write the file atomically and durably; at no time may other users read more than `mode` allows."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        partial.unlink()
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _file_state(path: Path) -> tuple[object, ...]:
    try:
        status = path.stat()
    except OSError as error:
        return (error.errno,)
    return status.st_mtime_ns, status.st_ino, status.st_size


def _require_readable(path: Path, setting: str) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise SettingsError(f"{setting}: {path} cannot be read ({error.strerror}).") from None


def _refuse_passphrase() -> NoReturn:
    # Without this, OpenSSL would prompt at the terminal, and a service would wait for ever.
    raise SettingsError(
        "STOPLIST_TLS_KEY is protected by a passphrase, which a server that starts by itself cannot type: "
        "store the key without one, readable by the server's user alone."
    )


def _load_failure(certificate: Path, key: Path, reason: str) -> str:
    if reason in _MISMATCH_REASONS:
        return (
            f"STOPLIST_TLS_KEY ({key}) is not the key of STOPLIST_TLS_CERT ({certificate}): the latter must "
            "begin with the server's own certificate, before those of its issuers."
        )
    return (
        f"STOPLIST_TLS_CERT ({certificate}) and STOPLIST_TLS_KEY ({key}) cannot be used ({reason}): both "
        "must be PEM files: one with the server's certificate and its issuers', one with the private key."
    )

"""Shared use of httpx2 by both drivers: its options, the form of a request, and the meaning of its failures.

httpx2 logs the URL of each request, and its exceptions hold the request. So queries, which may contain addresses, are
not part of that URL, and no exception of httpx2 leaves this package.
"""

import contextlib
import os
import re
import ssl
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import httpx2

from stoplist_client.errors import ConfigurationError, NotUnderstood, StoplistClientError, TransportFailed
from stoplist_client.flows.flow import Answer, NoAnswer, Send
from stoplist_client.transport.deadline import TotalTimeout
from stoplist_client.version import __version__

_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")

Http = TypeVar("Http")

CONNECT_TIMEOUT_S = 10.0
# Ten times the largest page.
MAX_ANSWER_BYTES = 64 * 1024 * 1024


class Connections(Generic[Http]):
    """The httpx2 client of this process, blocking or asynchronous. A forked process gets its own.

    Threads acquire and release it, and the last one closes it after `close`: OpenSSL reads and writes by the number of
    the descriptor. If that were closed during a request, the number could be that of another file by then, and a TLS
    record would be written into that file.
    """

    def __init__(self, kind: Callable[..., Http], options: dict[str, Any]) -> None:
        self._kind, self._options = kind, options
        self._http: Http | None = None
        # These exceptions may contain the password of a proxy, so a new one is raised below.
        with contextlib.suppress(OSError, ValueError, ImportError, httpx2.InvalidURL):
            self._http = kind(**options)
        if self._http is None:
            raise ConfigurationError(
                "The environment names a proxy (HTTPS_PROXY, ALL_PROXY) or certificates (SSL_CERT_FILE, SSL_CERT_DIR) "
                "that cannot be used: correct or unset these variables."
            )
        self.is_closed = False
        self._process_id, self._lock, self._users = os.getpid(), threading.Lock(), 0
        self._parent_clients: list[Http] = []

    def get(self) -> Http:
        """Return the httpx2 client. Raises ConfigurationError after `close`."""
        self._check_process()
        if self._http is None or self.is_closed:
            raise ConfigurationError("This client is closed: create another one.")
        return self._http

    def acquire(self) -> Http:
        """Return the httpx2 client like `get`. It stays open until `release`."""
        self._check_process()
        with self._lock:
            http = self.get()
            self._users += 1
        return http

    def release(self) -> Http | None:
        """End the use of one `acquire`. Return the httpx2 client if the caller has to close it."""
        with self._lock:
            self._users -= 1
            return self._take_unused()

    def close(self) -> Http | None:
        """Let no more requests be sent. Return the httpx2 client if the caller has to close it."""
        self._check_process()
        with self._lock:
            self.is_closed = True
            return self._take_unused()

    def _take_unused(self) -> Http | None:
        if self._users or not self.is_closed:
            return None
        http, self._http = self._http, None
        return http

    def _check_process(self) -> None:
        if os.getpid() == self._process_id:
            return
        # Another thread of the parent may have held the lock, and no thread of the parent runs here.
        self._process_id, self._lock, self._users = os.getpid(), threading.Lock(), 0
        if self._http is not None:
            # Two processes on one connection would read each other's answers. The parent's connections are kept
            # referenced, so that this process does not close them.
            self._parent_clients.append(self._http)
            self._http = self._kind(**self._options)


def checked_base_url(base_url: str) -> str:
    """Return the normalized base address. Raises ConfigurationError if it is not a base address."""
    normalized = normalized_base_url(base_url)
    base_url = ""  # may contain a password, and tracebacks show variables
    if normalized is None:
        raise ConfigurationError("base_url must be https:// and a host, optionally with a port, and nothing else.")
    return normalized


def normalized_base_url(base_url: str) -> str | None:
    """Return the normalized base address, under which tokens are stored, or None if it is not a base address."""
    url = _parsed(base_url)
    host = "" if url is None else url.raw_host.decode("ascii").lower()
    is_bare = url is not None and url.path in ("", "/") and not url.userinfo and _HOST.fullmatch(host)
    if url is None or not is_bare or url.scheme.lower() != "https" or "?" in base_url or "#" in base_url:
        return None
    port = "" if url.port in (None, 443) else f":{url.port}"
    return f"https://[{host}]{port}" if ":" in host else f"https://{host}{port}"


def options(base_url: str, *, ca_file: str | os.PathLike[str] | None, timeout_s: float) -> dict[str, Any]:
    """Return the options of httpx2.Client and httpx2.AsyncClient.

    Proxies and CA certificates of the environment are used (SSL_CERT_FILE only without `ca_file`). A proxy is used as
    a tunnel, so it sees neither tokens nor addresses. Redirects are not followed.
    """
    return {
        "base_url": base_url,
        "verify": True if ca_file is None else _ssl_context(ca_file),
        # Threads and tasks wait for a free connection without a timeout: the others bound the time it is in use.
        "timeout": httpx2.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s), pool=None),
        "follow_redirects": False,
        "headers": {"User-Agent": f"stoplist-client/{__version__}"},
    }


def request_arguments(request: Send, timeout: httpx2.Timeout) -> dict[str, Any]:
    """Return the arguments of `build_request`; `timeout` is that of the client."""
    if request.read_timeout_s is not None and timeout.read is not None:
        timeout = httpx2.Timeout(
            connect=timeout.connect, read=request.read_timeout_s, write=timeout.write, pool=timeout.pool
        )
    return {
        "timeout": timeout,
        "method": request.method,
        "url": request.url.partition("?")[0],
        "headers": request.headers,
        "content": request.content,
        # Sent in place of the path; httpx2 neither logs nor shows it.
        "extensions": {"target": request.url.encode("ascii")},
    }


def total_s(request: Send, total_s: float) -> float:
    """Return the time in which this request must be answered completely; a held one has its own time at least."""
    return total_s if request.read_timeout_s is None else max(total_s, request.read_timeout_s)


def to_answer(response: httpx2.Response, body: bytearray) -> Answer:
    """Return the Answer of a response whose body was read."""
    return Answer(status=response.status_code, headers=dict(response.headers), body=bytes(body))


def too_large(response: httpx2.Response) -> NotUnderstood:
    """Return the error for a body that is larger than any answer of Stoplist."""
    text = f"The answer has more than {MAX_ANSWER_BYTES >> 20} MiB, which is more than Stoplist ever sends."
    return NotUnderstood(text, status=response.status_code, request_id=response.headers.get("x-request-id"))


def to_failure(error: Exception) -> NoAnswer | TransportFailed:
    """Return the error that replaces an exception of httpx2. An untrusted certificate is not retried."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return TransportFailed(
                f"The certificate of the service is not accepted ({cause.verify_message or 'it cannot be verified'}): "
                "check base_url; if a private CA has signed it, name the CA's certificate file with ca_file."
            )
    return NoAnswer(_failure_text(error))


def without_traceback(error: StoplistClientError) -> StoplistClientError:
    """Return the error without traceback and causes, whose frames hold addresses, tokens and the secret."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _parsed(base_url: str) -> httpx2.URL | None:
    try:
        return httpx2.URL(base_url) if isinstance(base_url, str) else None
    except (httpx2.InvalidURL, UnicodeError):
        return None


def _failure_text(error: Exception) -> str:
    match error:
        case TotalTimeout() | TimeoutError():
            return "no complete answer within total_s"
        case httpx2.ConnectTimeout():
            return f"no connection{_to_host(error)} within the connect timeout"
        case httpx2.TimeoutException():
            return "no answer within timeout_s"
        case httpx2.ConnectError():
            return f"no connection{_to_host(error)} ({error})"
        case httpx2.ProxyError():
            return f"the proxy refused the connection ({error})"
        case httpx2.DecodingError() | httpx2.LocalProtocolError():
            return "the answer cannot be decoded"
        case _:
            return "the connection broke before the answer was complete"


def _to_host(error: httpx2.RequestError) -> str:
    """Return ` to HOST:PORT`, without the rest of the URL, which may hold addresses."""
    try:
        url = error.request.url
    except RuntimeError:  # raised outside any request
        return ""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f" to {host}:{url.port or 443}"


def _causes(error: BaseException | None) -> list[BaseException]:
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__ or error.__context__
    return causes


def _ssl_context(ca_file: str | os.PathLike[str]) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, TypeError) as error:  # SSLError is an OSError
        reason = getattr(error, "strerror", None) or type(error).__name__
    raise ConfigurationError(f"ca_file cannot be read as PEM certificates ({reason}): name a file of CA certificates.")

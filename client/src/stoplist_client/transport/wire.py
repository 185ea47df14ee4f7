"""How both clients use httpx2: with which options, how a request is put to it, and what its failures mean.

httpx2 logs the URL of each request, and its exceptions hold the request. So queries, which may have addresses in them,
are no part of that URL, and nothing that httpx2 raises leaves this package.
"""

import contextlib
import os
import re
import ssl
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import httpx2

from stoplist_client.errors import ConfigurationError, NotUnderstood, StoplistClientError, TransportFailed
from stoplist_client.flows.flow import Answer, NoAnswer, Send
from stoplist_client.version import __version__

_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")

Http = TypeVar("Http")

CONNECT_TIMEOUT_S = 10.0
# Ten times a page of the most records.
MOST_ANSWER_BYTES = 64 * 1024 * 1024


class Connections(Generic[Http]):
    """The httpx2 client of this process, of whichever kind; a process that was forked off gets one of its own."""

    def __init__(self, kind: Callable[..., Http], options: dict[str, Any]) -> None:
        self._kind, self._options = kind, options
        self._http: Http | None = None
        # What is raised here may hold the password of a proxy.
        with contextlib.suppress(OSError, ValueError, ImportError, httpx2.InvalidURL):
            self._http = kind(**options)
        if self._http is None:
            raise ConfigurationError(
                "The environment names a proxy (HTTPS_PROXY, ALL_PROXY) or certificates (SSL_CERT_FILE, SSL_CERT_DIR) "
                "that cannot be used: mend or unset what it names."
            )
        self._process_id = os.getpid()
        self._of_parent: list[Http] = []

    def own(self) -> Http:
        """ConfigurationError once they are closed."""
        if self._http is None:
            raise ConfigurationError("This client is closed: make another one.")
        if os.getpid() != self._process_id:
            # Two processes on one connection would read each other's answers. The parent's are kept, so that they are
            # not closed under it.
            self._of_parent.append(self._http)
            self._http, self._process_id = self._kind(**self._options), os.getpid()
        return self._http

    def given_up(self) -> Http | None:
        """What is to be closed now, if anything; nothing is sent any more."""
        http, self._http = self._http, None
        return http


def checked_base_url(base_url: str) -> str:
    """The base address in the one spelling in which tokens are kept by it; ConfigurationError where it is none."""
    spelled = spelled_base_url(base_url)
    base_url = ""  # there may be a password in it, and tracebacks show what has a name
    if spelled is None:
        raise ConfigurationError("base_url must be https:// and a host, perhaps with a port, and nothing else.")
    return spelled


def spelled_base_url(base_url: str) -> str | None:
    """The same, or None where it is none."""
    url = _parsed(base_url)
    host = "" if url is None else url.raw_host.decode("ascii").lower()
    is_bare = url is not None and url.path in ("", "/") and not url.userinfo and _HOST.fullmatch(host)
    if url is None or not is_bare or url.scheme.lower() != "https" or "?" in base_url or "#" in base_url:
        return None
    port = "" if url.port in (None, 443) else f":{url.port}"
    return f"https://[{host}]{port}" if ":" in host else f"https://{host}{port}"


def options(base_url: str, *, ca_file: str | os.PathLike[str] | None, timeout_s: float) -> dict[str, Any]:
    """What httpx2.Client and httpx2.AsyncClient are made with.

    Proxies and certificate authorities of the environment are heeded (SSL_CERT_FILE only where there is no `ca_file`).
    A proxy is asked for a tunnel, so it sees neither token nor address. Redirects are not followed.
    """
    return {
        "base_url": base_url,
        "verify": True if ca_file is None else _trusting(ca_file),
        # Threads and tasks beyond the most connections wait for one: those that have one are held to the other times.
        "timeout": httpx2.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s), pool=None),
        "follow_redirects": False,
        "headers": {"User-Agent": f"stoplist-client/{__version__}"},
    }


def arguments(request: Send) -> dict[str, Any]:
    """What `build_request` is called with."""
    return {
        "method": request.method,
        "url": request.url.partition("?")[0],
        "headers": request.headers,
        "content": request.content,
        # What goes over the wire in place of the path; httpx2 neither logs it nor shows it.
        "extensions": {"target": request.url.encode("ascii")},
    }


def answered(response: httpx2.Response, body: bytearray) -> Answer:
    """The answer, of a response whose body was read."""
    return Answer(status=response.status_code, headers=dict(response.headers), body=bytes(body))


def too_large(response: httpx2.Response) -> NotUnderstood:
    """The error for a body beyond what Stoplist ever sends."""
    text = f"The answer has more than {MOST_ANSWER_BYTES >> 20} MiB, which is nothing that Stoplist would say."
    return NotUnderstood(text, status=response.status_code, request_id=response.headers.get("x-request-id"))


def failure(error: Exception) -> NoAnswer | TransportFailed:
    """What is to be thrown in place of an exception of httpx2; a server that is not trusted is not asked again."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return TransportFailed(
                f"The certificate of the service is not accepted ({cause.verify_message or 'it cannot be verified'}): "
                "check base_url; if an authority of your own has signed it, name its file with ca_file."
            )
    return NoAnswer(_kind(error))


def bare(error: StoplistClientError) -> StoplistClientError:
    """The same error, without the way that it came: the frames there hold addresses, tokens and the secret."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _parsed(base_url: str) -> httpx2.URL | None:
    try:
        return httpx2.URL(base_url) if isinstance(base_url, str) else None
    except (httpx2.InvalidURL, UnicodeError):
        return None


def _kind(error: Exception) -> str:
    match error:
        case httpx2.ConnectTimeout():
            return "no connection within the time for it"
        case httpx2.TimeoutException():
            return "no answer within timeout_s"
        case httpx2.ConnectError():
            return f"no connection ({error})"
        case httpx2.ProxyError():
            return f"the proxy did not let it through ({error})"
        case httpx2.DecodingError() | httpx2.LocalProtocolError():
            return "the answer cannot be decoded"
        case _:
            return "the connection broke before the answer was whole"


def _causes(error: BaseException | None) -> list[BaseException]:
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__ or error.__context__
    return causes


def _trusting(ca_file: str | os.PathLike[str]) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, TypeError) as error:  # of which SSLError is one
        reason = getattr(error, "strerror", None) or type(error).__name__
    raise ConfigurationError(
        f"ca_file cannot be read as certificates in PEM ({reason}): name the file of an authority."
    )

"""Rules for the head of a request: what is refused because a proxy could read it differently, and what is passed on.

Source: RFC 9112 sections 3.2 and 6.1 (Host, framing); RFC 9110 section 7.8 (Upgrade).
"""

from urllib.parse import unquote

import httptools
from uvicorn._types import HTTPScope

Fields = list[tuple[bytes, bytes]]


def is_unambiguous(headers: Fields, version: str) -> bool:
    """Return whether this is HTTP/1 with one `Host`, as 1.1 requires, and no transfer coding but one `chunked`."""
    if version not in ("1.1", "1.0"):
        return False
    hosts = 0
    codings: list[bytes] = []
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding":
            codings.append(value.lower())
    return (hosts == 1 or (hosts == 0 and version == "1.0")) and codings in ([], [b"chunked"])


def complete_scope(scope: HTTPScope, parser: httptools.HttpRequestParser, url: bytes) -> None:
    """Add method, version, path and query of a parsed head to the scope."""
    scope["method"] = parser.get_method().decode("ascii")
    scope["http_version"] = parser.get_http_version()
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    scope["path"] = unquote(path) if "%" in path else path
    scope["raw_path"] = parsed.path
    scope["query_string"] = parsed.query or b""


def head_without_upgrade(parser: httptools.HttpRequestParser, url: bytes, headers: Fields) -> bytes:
    """Return a parsed head as it would be if it had not asked for another protocol. Field names are in lower case."""
    fields = [b"%b: %b\r\n" % field for field in headers if field[0] != b"upgrade"]
    version = parser.get_http_version().encode("ascii")
    return b"%b %b HTTP/%b\r\n%b\r\n" % (parser.get_method(), url, version, b"".join(fields))

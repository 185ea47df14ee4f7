"""The session cookie. Its prefix `__Host-` shuts out other hosts and plain HTTP (RFC 6265bis)."""

from stoplist.clock import DAY_S
from stoplist.web.request_context import Headers

NAME = "__Host-stoplist"
_MAX_AGE_S = 7 * DAY_S
_ATTRIBUTES = "Path=/; Secure; HttpOnly; SameSite=Lax"


def session_token(headers: Headers) -> str:
    """Return the session token of a request; empty if there is none, or two that differ."""
    tokens = set()
    # HTTP/2 may split the field into several lines; semicolons join them (RFC 9113 section 8.2.3). Split at semicolons
    # only, not at commas: otherwise a sibling host could hide a session token in the value of its own cookie.
    for part in b";".join(value for name, value in headers if name == b"cookie").split(b";"):
        name, _, value = part.strip(b" \t").partition(b"=")
        if name == NAME.encode():
            tokens.add(value)
    return tokens.pop().decode("latin-1") if len(tokens) == 1 else ""


def set_session(token: str) -> Headers:
    """Return the header that stores this session in the browser."""
    return [(b"set-cookie", f"{NAME}={token}; Max-Age={_MAX_AGE_S}; {_ATTRIBUTES}".encode())]


def clear_session() -> Headers:
    """Return the headers that delete the session and every cached page from the browser."""
    return [
        (b"set-cookie", f"{NAME}=; Max-Age=0; {_ATTRIBUTES}".encode()),
        (b"clear-site-data", b'"cache"'),
    ]

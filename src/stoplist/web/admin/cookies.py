"""The cookie of a session: `__Host-`, so that no other host and no plain connection can set or see it (RFC 6265bis)."""

from stoplist.web.request_context import Headers

NAME = "__Host-stoplist"
_LASTS_S = 7 * 86_400
_ATTRIBUTES = "Path=/; Secure; HttpOnly; SameSite=Lax"


def session_token(headers: Headers) -> str:
    """The token that a browser brings; empty where it brings none, or two that say different things."""
    found = set()
    # Several lines, as HTTP/2 splits the field, are joined by semicolons (RFC 9113 section 8.2.3). At nothing else is
    # it divided, as a comma: a sister host could hide a session of ours in the value of a cookie of its own.
    for part in b";".join(value for name, value in headers if name == b"cookie").split(b";"):
        name, _, value = part.strip(b" \t").partition(b"=")
        if name == NAME.encode():
            found.add(value)
    return found.pop().decode("latin-1") if len(found) == 1 else ""


def keep(token: str) -> Headers:
    """The browser keeps this session."""
    return [(b"set-cookie", f"{NAME}={token}; Max-Age={_LASTS_S}; {_ATTRIBUTES}".encode())]


def forget() -> Headers:
    """The browser forgets its session, and all that it keeps of our pages."""
    return [
        (b"set-cookie", f"{NAME}=; Max-Age=0; {_ATTRIBUTES}".encode()),
        (b"clear-site-data", b'"cache"'),
    ]

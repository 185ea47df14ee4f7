"""Answers that the HTTP layer gives itself, in the usual envelope and with a request id.

Source: docs/interface.md section D4 (envelope, `X-Request-Id`).
"""

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

Headers = list[tuple[bytes, bytes]]


def bad_request(code: str, text: str, *, request_id: str, default_headers: Headers) -> bytes:
    """Return a complete 400, which ends the connection."""
    body = _envelope(code, text)
    fields = [b"%b: %b\r\n" % field for field in [*default_headers, *_headers(request_id, body)]]
    return b"".join([STATUS_LINE[400], *fields, b"\r\n", body])


def server_error(request_id: str) -> tuple[Headers, bytes]:
    """Return headers and body of a 500, which ends the connection."""
    text = "The server failed; its log has more under this request id."
    body = _envelope("server_error", text, request_id=request_id)
    return _headers(request_id, body), body


def _envelope(code: str, text: str, **extra: str) -> bytes:
    # `invalid_request` is a code of the token endpoint, whose envelope has two fields (section 7.1).
    message = {} if code == "invalid_request" else {"message": text}
    return msgspec.json.encode({"error": code, **message, "error_description": text, **extra})


def _headers(request_id: str, body: bytes) -> Headers:
    return [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        (b"pragma", b"no-cache"),
        (b"x-request-id", request_id.encode("ascii")),
        (b"connection", b"close"),
    ]

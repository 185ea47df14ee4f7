"""The answers in the description: success and every refusal, with their headers.

Statuses and codes come from the table of errors. Source: docs/interface.md sections 7, D4 and D8.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stoplist.errors import (
    ANSWERS,
    BadRequest,
    DefaultGroupNotConfigured,
    InsufficientScope,
    InvalidClient,
    InvalidCursor,
    InvalidGrant,
    InvalidItem,
    InvalidToken,
    RateLimited,
    ServerFault,
    StoplistError,
    StoreUnavailable,
    UnauthorizedOrganization,
    UnsupportedGrantType,
)
from stoplist.limits.sliding_log import WINDOW_S
from stoplist.web.reference import schemas
from stoplist.web.reference.schemas import Json
from stoplist.web.request_context import api_envelope, oauth_envelope

Errors = Sequence[type[StoplistError]]

JSON = "application/json"

# The refusals of each operation. NotFound and MethodNotAllowed belong to none.
_BY_ANY = (InvalidToken, InsufficientScope, UnauthorizedOrganization, RateLimited, ServerFault, StoreUnavailable)
READ_ERRORS: Errors = (BadRequest, InvalidCursor, *_BY_ANY)
SUBMIT_ERRORS: Errors = (BadRequest, InvalidItem, DefaultGroupNotConfigured, *_BY_ANY)
TOKEN_ERRORS: Errors = (
    BadRequest,
    UnsupportedGrantType,
    InvalidGrant,
    InvalidClient,
    RateLimited,
    ServerFault,
    StoreUnavailable,
)
_MEANING = {
    400: "The request cannot be accepted as it is.",
    401: "The credentials are missing, unknown or no longer valid.",
    403: "The key does not cover this.",
    429: "The limit is reached.",
    500: "The server failed.",
    503: "The server cannot read or store at the moment.",
}

_ID, _RETRY, _CHALLENGE = "X-Request-Id", "Retry-After", "WWW-Authenticate"
_LIMITS = ("RateLimit-Policy", "RateLimit")
_OF_SUCCESS = (_ID, *_LIMITS, "Cache-Control")
# The headers that a refusal always has, and those it may have: strangers learn nothing about limits.
_OF_REFUSAL: dict[int, tuple[Sequence[str], Sequence[str]]] = {
    400: ((_ID,), _LIMITS),
    401: ((_ID, _CHALLENGE), ()),
    403: ((_ID, *_LIMITS), (_CHALLENGE,)),
    429: ((_ID, _RETRY), _LIMITS),
    500: ((_ID,), _LIMITS),
    503: ((_ID, _RETRY), _LIMITS),
}


def success(description: str, schema: Json, values: Mapping[str, Any], *, optional: Sequence[str] = ()) -> Json:
    """Describe the answer `200`."""
    return {"200": _answer(description, schema, named(values), (_OF_SUCCESS, optional))}


def api_refusals(types: Errors, instances: Iterable[StoplistError]) -> Json:
    """Describe every refusal of an operation below `/api/v1`, by status, with these instances as examples."""
    by_type = {type(error): error for error in instances}
    return {
        str(status): _answer(
            _MEANING[status],
            schemas.one_of(errors),
            {
                ANSWERS[error].api_code: _example(error, msgspec.to_builtins(api_envelope(by_type[error])))
                for error in errors
            },
            _OF_REFUSAL[status],
        )
        for status, errors in _by_status(types).items()
    }


def oauth_refusals(types: Errors, instances: Iterable[StoplistError]) -> Json:
    """Describe every refusal of the token endpoint likewise."""
    by_type = {type(error): error for error in instances}
    return {
        str(status): _answer(
            _MEANING[status],
            schemas.reference(schemas.OAUTH_ENVELOPE),
            {ANSWERS[error].oauth_code: _example(error, oauth_envelope(by_type[error])) for error in errors},
            _OF_REFUSAL[status],
        )
        for status, errors in _by_status(types).items()
    }


def named(values: Mapping[str, Any]) -> Json:
    """Return examples under keys without spaces, since programs use the keys as names."""
    return {
        title.lower().replace(" ", "-").replace(":", ""): {"summary": title, "value": value}
        for title, value in values.items()
    }


def _answer(
    description: str, schema: Json, values: Mapping[str, Any], headers: tuple[Sequence[str], Sequence[str]]
) -> Json:
    always, sometimes = headers
    return {
        "description": description,
        "headers": {
            **{name: _header_reference(name) for name in always},
            **{name: _optional_header(name) for name in sometimes},
        },
        "content": {JSON: {"schema": schema, "examples": values}},
    }


def _header_reference(name: str) -> Json:
    return {"$ref": f"#/components/headers/{name}"}


def _optional_header(name: str) -> Json:
    """Return a reference, or the header written out: a reference cannot override `required`."""
    return {**HEADERS[name], "required": False} if HEADERS[name]["required"] else _header_reference(name)


def _example(error: type[StoplistError], envelope: Json) -> Json:
    return {"summary": envelope["error"], "description": schemas.first_paragraph(error), "value": envelope}


def _by_status(types: Errors) -> dict[int, Errors]:
    statuses = sorted({ANSWERS[error].status for error in types})
    return {status: [error for error in types if ANSWERS[error].status == status] for status in statuses}


def _header(description: str, schema: Json, example: str | int) -> Json:
    return {"description": description, "required": True, "schema": schema, "example": example}


HEADERS: Json = {
    _ID: _header(
        "Names this request and its answer: quote it when you ask the operator.",
        {"type": "string"},
        "5f0c3ab2917d00000000002a",
    ),
    "RateLimit-Policy": _header(
        "The limit: `q` requests in `w` seconds (IETF draft 10).",
        {"type": "string", "pattern": f'^"(api|token)";q=[0-9]+;w={WINDOW_S}$'},
        f'"api";q=60;w={WINDOW_S}',
    ),
    "RateLimit": _header(
        "What is left: `r` requests; the oldest counted one leaves the count in `t` seconds.",
        {"type": "string", "pattern": '^"(api|token)";r=[0-9]+;t=[0-9]+$'},
        f'"api";r=59;t={WINDOW_S}',
    ),
    _RETRY: _header("The seconds to wait before sending the request again.", {"type": "integer", "minimum": 1}, 7),
    _CHALLENGE: _header(
        "The required authentication (RFC 6750 section 3, RFC 7617).",
        {"type": "string"},
        'Bearer realm="stoplist", error="invalid_token", error_description="…"',
    ),
    "Preference-Applied": {
        **_header("The preferences that were honoured (RFC 7240).", {"type": "string"}, "handling=lenient"),
        "required": False,
    },
    "Cache-Control": _header("No cache may store the answer.", {"type": "string", "enum": ["no-store"]}, "no-store"),
}

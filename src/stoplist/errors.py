"""Every error that the product reports, and the table that says how each is answered.

An operation raises one of these; the HTTP server or the command line renders it. Texts are for the person who must
act: what was wrong and what would be right, never an address, a token or a secret.
Source: docs/interface.md sections 7 and D4.
"""

from typing import Any, NamedTuple


class StoplistError(Exception):
    """A refusal with a text for people; `extra` holds additional fields of the API error."""

    def __init__(self, text: str, **extra: Any) -> None:
        super().__init__(text)
        self.text = text
        self.extra = {name: value for name, value in extra.items() if value is not None}


class SettingsError(StoplistError):
    """The deployment is configured wrongly, so the server does not start."""


class Refused(StoplistError):
    """The request of a person cannot be fulfilled as given.

    `field` names the one input at fault, if any. `command` is added on the command line: where to look.
    """

    def __init__(self, text: str, *, field: str | None = None, command: str = "") -> None:
        super().__init__(text)
        self.field, self.command = field, command


class Missing(Refused):
    """The thing does not exist, or this person may not see it: one answer for both."""


class Forbidden(Refused):
    """The person may see the thing, but not do this."""


class TooLarge(Refused):
    """A file is larger than this deployment accepts."""


class AlreadyMade(Refused):
    """The request was already fulfilled: the same form was sent twice."""


class BadRequest(StoplistError):
    """The request cannot be understood. `parameter` names the parameter at fault, if it is one."""


class InvalidClient(StoplistError):
    """Client authentication failed (RFC 6749 section 5.2)."""


class InvalidGrant(StoplistError):
    """The refresh token is unknown, expired, rotated, revoked or another client's."""


class UnsupportedGrantType(StoplistError):
    """A `grant_type` that this token endpoint does not offer."""


class InvalidToken(StoplistError):
    """The bearer token is missing, malformed, unknown, expired or revoked (RFC 6750 section 3.1)."""


class InsufficientScope(StoplistError):
    """The credential's permissions do not cover the request (RFC 6750 section 3.1)."""


class UnauthorizedOrganization(StoplistError):
    """The organization or group is not the client's, is closed or retired, or does not exist: one answer for all."""


class DefaultGroupNotConfigured(StoplistError):
    """A submission names no group, and the organization has no default group; `org_slug` names it."""


class InvalidItem(StoplistError):
    """Some items of a batch cannot be accepted, so none was; `item_errors` lists all of them."""


class InvalidCursor(StoplistError):
    """The cursor was not made for this request; the client must read again without a cursor."""


class NotFound(StoplistError):
    """There is nothing at this path."""


class MethodNotAllowed(StoplistError):
    """The path exists, the method does not; `allow` is the value of the `Allow` header."""

    def __init__(self, text: str, *, allow: str) -> None:
        super().__init__(text)
        self.allow = allow


class RateLimited(StoplistError):
    """A rate limit is reached; the next request is accepted after `retry_after_s` seconds."""

    def __init__(self, text: str, *, retry_after_s: int) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class StoreUnavailable(StoplistError):
    """The database is down, locked or full, so the request was not fulfilled.

    `is_uncertain`: the connection broke before the answer arrived, so a write may have been stored all the same.
    """

    def __init__(self, text: str, *, retry_after_s: int = 1, is_uncertain: bool = False) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s
        self.is_uncertain = is_uncertain


class ServerFault(StoplistError):
    """A defect of the server; the log holds the details under the same request id."""


class Answer(NamedTuple):
    """The answer to a class of error: the status, and the code in each of the two error formats."""

    status: int
    api_code: str
    oauth_code: str


ANSWERS: dict[type[StoplistError], Answer] = {
    BadRequest: Answer(400, "bad_request", "invalid_request"),
    InvalidClient: Answer(401, "invalid_client", "invalid_client"),
    InvalidGrant: Answer(400, "invalid_grant", "invalid_grant"),
    UnsupportedGrantType: Answer(400, "unsupported_grant_type", "unsupported_grant_type"),
    InvalidToken: Answer(401, "invalid_token", "invalid_token"),
    InsufficientScope: Answer(403, "insufficient_scope", "insufficient_scope"),
    UnauthorizedOrganization: Answer(403, "unauthorized_organization", "unauthorized_organization"),
    DefaultGroupNotConfigured: Answer(400, "default_group_not_configured", "default_group_not_configured"),
    InvalidItem: Answer(400, "invalid_item", "invalid_item"),
    InvalidCursor: Answer(400, "invalid_cursor", "invalid_cursor"),
    NotFound: Answer(404, "not_found", "invalid_request"),
    MethodNotAllowed: Answer(405, "method_not_allowed", "invalid_request"),
    RateLimited: Answer(429, "rate_limited", "rate_limited"),
    StoreUnavailable: Answer(503, "temporarily_unavailable", "temporarily_unavailable"),
    ServerFault: Answer(500, "server_error", "server_error"),
}

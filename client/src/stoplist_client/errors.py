"""The errors of the client, one class each. BY_CODE maps the codes of the service to classes.

No message, repr or traceback contains a secret, a token or an address; `item_errors` contains the items as given.
Sources: docs/interface.md sections 7, D2 and D4.
"""

from typing import Any

from stoplist_client.model import ItemError, Submitted


class StoplistClientError(Exception):
    """Base class of all errors. `submitted` has the result of earlier batches of the same call, if it submits any."""

    submitted: Submitted | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickling and copying skip __init__, which has required keyword arguments.
        return _recreate, (type(self), self.args), vars(self)


def _recreate(kind: type[StoplistClientError], args: tuple[Any, ...]) -> StoplistClientError:
    return kind.__new__(kind, *args)


class ConfigurationError(StoplistClientError, ValueError):
    """An argument or setting cannot be right. The message says what would be right."""


class TransportFailed(StoplistClientError):
    """The service did not answer any attempt. The last request may have taken effect or not."""


class NotUnderstood(StoplistClientError):
    """The answer is not from Stoplist: check the base address. Has the `status` and `request_id` of the answer."""

    def __init__(self, text: str, *, status: int, request_id: str | None = None) -> None:
        super().__init__(text)
        self.status, self.request_id = status, request_id


class TokenStoreError(StoplistClientError):
    """The token store cannot be read, written or locked."""


class ApiError(StoplistClientError):
    """The service refused the request. Program against `code` or the class; `text` is for people and may change."""

    code = ""

    def __init__(
        self,
        text: str,
        *,
        status: int,
        code: str = "",
        parameter: str | None = None,
        item_errors: tuple[ItemError, ...] = (),
        org_slug: str | None = None,
        group_id: str | None = None,
        request_id: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(text)
        self.text, self.status, self.code = text, status, code or self.code
        self.parameter, self.item_errors = parameter, item_errors
        self.org_slug, self.group_id = org_slug, group_id
        self.request_id, self.retry_after_s = request_id, retry_after_s

    def __str__(self) -> str:
        where = f" (request {self.request_id})" if self.request_id else ""
        return f"{self.status} {self.code}: {self.text}{where}"


class BadRequest(ApiError):
    """The request is invalid. `parameter` names the parameter at fault, if it is a single one."""

    code = "bad_request"


class InvalidItem(ApiError):
    """Items are invalid, so nothing of their batch was stored. `item_errors` has each item as it was given."""

    code = "invalid_item"


class InvalidCursor(ApiError):
    """The cursor is of another feed, or from before a restore: read everything again without a cursor.

    Until that is done, go on barring everybody who was barred. Submit again what you submitted recently.
    """

    code = "invalid_cursor"


class DefaultGroupNotConfigured(ApiError):
    """The organization has no default group: pass `group_id` or `all_groups`."""

    code = "default_group_not_configured"


class InvalidToken(ApiError):
    """Tokens that were just issued are refused: the key is being deactivated, or its tokens were revoked."""

    code = "invalid_token"


class UnauthorizedOrganization(ApiError):
    """The organization or group does not exist, or the key has no access; `org_slug` or `group_id` says which."""

    code = "unauthorized_organization"


class InsufficientScope(ApiError):
    """The key does not have the permission that the call needs."""

    code = "insufficient_scope"


class NotFound(ApiError):
    """There is nothing at this path: check the base address."""

    code = "not_found"


class MethodNotAllowed(ApiError):
    """The path exists, but does not support the method: check the base address."""

    code = "method_not_allowed"


class RateLimited(ApiError):
    """The rate limit of the key is exceeded, also after all attempts; see `retry_after_s`."""

    code = "rate_limited"


class TemporarilyUnavailable(ApiError):
    """The service cannot read or write at the moment; see `retry_after_s`."""

    code = "temporarily_unavailable"


class ServerError(ApiError):
    """A defect of the service. Report the `request_id` to its operator."""

    code = "server_error"


class InvalidRequest(ApiError):
    """The token endpoint did not understand the request."""

    code = "invalid_request"


class InvalidClient(ApiError):
    """The key is unknown, its secret is wrong, or it was deactivated: ask for a working key."""

    code = "invalid_client"


class InvalidGrant(ApiError):
    """The refresh token was used, has expired or was revoked. The clients handle this themselves."""

    code = "invalid_grant"


class UnsupportedGrantType(ApiError):
    """The token endpoint does not offer this grant."""

    code = "unsupported_grant_type"


BY_CODE: dict[str, type[ApiError]] = {
    kind.code: kind
    for kind in (
        BadRequest,
        InvalidItem,
        InvalidCursor,
        DefaultGroupNotConfigured,
        InvalidToken,
        UnauthorizedOrganization,
        InsufficientScope,
        NotFound,
        MethodNotAllowed,
        RateLimited,
        TemporarilyUnavailable,
        ServerError,
        InvalidRequest,
        InvalidClient,
        InvalidGrant,
        UnsupportedGrantType,
    )
}


class MirrorError(StoplistClientError):
    """The mirror cannot answer, or cannot be updated."""


class NotMirrored(MirrorError):
    """The mirror has no complete copy of this organization and channel, so it cannot answer."""


class MirrorDiverged(MirrorError):
    """The mirror's copy of a feed differs from the service. The message says what follows.

    `pause_s`: see Synced.
    """

    pause_s: float = 0.0


class MirrorTooOld(MirrorError):
    """The mirror is older than the caller allows; `age_s` is its age."""

    def __init__(self, text: str, *, age_s: float) -> None:
        super().__init__(text)
        self.age_s = age_s

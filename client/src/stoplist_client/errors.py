"""Everything that can go wrong, one class for each; the service's by their code, in one table.

No text, repr or traceback of these holds a secret, a token or an address; `item_errors` holds what the caller gave.
Sources: docs/interface.md sections 7, D2 and D4.
"""

from typing import Any

from stoplist_client.model import ItemError, Submitted


class StoplistClientError(Exception):
    """All of the below. `submitted` says what earlier batches of the same call had stored, if it submits anything."""

    submitted: Submitted | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled and copied without __init__, whose named arguments nobody would give.
        return _made_again, (type(self), self.args), vars(self)


def _made_again(kind: type[StoplistClientError], args: tuple[Any, ...]) -> StoplistClientError:
    return kind.__new__(kind, *args)


class ConfigurationError(StoplistClientError, ValueError):
    """The client was given what cannot be right; the text says what would be."""


class TransportFailed(StoplistClientError):
    """No answer came, after all attempts. Whether the last request took effect is unknown."""


class NotUnderstood(StoplistClientError):
    """An answer that Stoplist does not give: is the base address right? `status` and `request_id` are the answer's."""

    def __init__(self, text: str, *, status: int, request_id: str | None = None) -> None:
        super().__init__(text)
        self.status, self.request_id = status, request_id


class TokenStoreError(StoplistClientError):
    """The place where tokens are kept cannot be read, written or locked."""


class ApiError(StoplistClientError):
    """The service refused. Program against `code` (or the class): `text` is for people, and may change."""

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
    """The request is wrong in itself; `parameter` names what, where one thing is."""

    code = "bad_request"


class InvalidItem(ApiError):
    """Items were not accepted, so nothing of their batch was stored; `item_errors` has each, as it was given."""

    code = "invalid_item"


class InvalidCursor(ApiError):
    """The cursor is not of this feed, or from before a restore: read anew without one.

    Until that is done, go on barring whoever was barred; and submit again what you submitted lately.
    """

    code = "invalid_cursor"


class DefaultGroupNotConfigured(ApiError):
    """The organization has no default group: name a group, or all groups."""

    code = "default_group_not_configured"


class InvalidToken(ApiError):
    """Tokens that were just given out are refused: the key is being deactivated, or its tokens revoked."""

    code = "invalid_token"


class UnauthorizedOrganization(ApiError):
    """The key is not for this organization or group, or there is none; `org_slug` or `group_id` says which."""

    code = "unauthorized_organization"


class InsufficientScope(ApiError):
    """The key lacks the permission."""

    code = "insufficient_scope"


class NotFound(ApiError):
    """There is nothing at this path: is the base address right?"""

    code = "not_found"


class MethodNotAllowed(ApiError):
    """The path is there, the method is not."""

    code = "method_not_allowed"


class RateLimited(ApiError):
    """The ceiling of the key is reached, and waiting did not help within the attempts; see `retry_after_s`."""

    code = "rate_limited"


class TemporarilyUnavailable(ApiError):
    """The service cannot store or read just now; see `retry_after_s`."""

    code = "temporarily_unavailable"


class ServerError(ApiError):
    """A defect of the service; tell its operator the `request_id`."""

    code = "server_error"


class InvalidRequest(ApiError):
    """The token endpoint cannot understand the request."""

    code = "invalid_request"


class InvalidClient(ApiError):
    """The key is unknown, its secret wrong, or it was deactivated: ask whoever gave it to you."""

    code = "invalid_client"


class InvalidGrant(ApiError):
    """The refresh token is spent, expired or revoked. The clients deal with this themselves."""

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
    """The local copy cannot answer, or cannot be kept."""


class NotMirrored(MirrorError):
    """This organization and channel is not in the mirror, or was never read to its end: nothing is known of it."""


class MirrorTooOld(MirrorError):
    """The mirror was not brought up to date for longer than the caller allows; `age_s` says for how long."""

    def __init__(self, text: str, *, age_s: float) -> None:
        super().__init__(text)
        self.age_s = age_s

"""Every error has an answer, and the table is that of the interface."""

import inspect

import pytest

from stoplist import errors
from stoplist.errors import ANSWERS, Answer, StoplistError

ABSTRACT_OR_LOCAL = {
    errors.SettingsError,
    errors.Refused,
    errors.Missing,
    errors.Forbidden,
    errors.AlreadyMade,
    errors.TooLarge,
}
"""What only people meet, on a page or at the command line, and whoever starts the server."""


def classes() -> list[type[StoplistError]]:
    """Return every class of error."""
    members = (member for _, member in inspect.getmembers(errors, inspect.isclass))
    return [it for it in members if issubclass(it, StoplistError) and it is not StoplistError]


def test_every_error_of_a_request_has_an_answer() -> None:
    """A class without a row in the table would be a 500."""
    assert set(ANSWERS) == set(classes()) - ABSTRACT_OR_LOCAL


@pytest.mark.parametrize(
    ("refusal", "status", "api_code", "oauth_code"),
    [
        (errors.BadRequest, 400, "bad_request", "invalid_request"),
        (errors.InvalidClient, 401, "invalid_client", "invalid_client"),
        (errors.InvalidGrant, 400, "invalid_grant", "invalid_grant"),
        (errors.UnsupportedGrantType, 400, "unsupported_grant_type", "unsupported_grant_type"),
        (errors.InvalidToken, 401, "invalid_token", "invalid_token"),
        (errors.InsufficientScope, 403, "insufficient_scope", "insufficient_scope"),
        (errors.NotFound, 404, "not_found", "invalid_request"),
        (errors.MethodNotAllowed, 405, "method_not_allowed", "invalid_request"),
        (errors.RateLimited, 429, "rate_limited", "rate_limited"),
        (errors.StoreUnavailable, 503, "temporarily_unavailable", "temporarily_unavailable"),
        (errors.ServerFault, 500, "server_error", "server_error"),
    ],
)
def test_statuses_and_codes_are_those_of_the_interface(
    refusal: type[StoplistError], status: int, api_code: str, oauth_code: str
) -> None:
    """Sections 7, D2 (Status codes left open) and D4; clients depend on these."""
    assert ANSWERS[refusal] == Answer(status, api_code, oauth_code)


def test_a_refusal_has_a_text_for_people() -> None:
    """The caller renders `text`; the log shows the same."""
    refusal = errors.NotFound("Nothing is here.")
    assert refusal.text == str(refusal) == "Nothing is here."


def test_extra_fields_that_are_none_are_left_out() -> None:
    """Section D4: `parameter` only if one is at fault."""
    assert errors.BadRequest("Wrong.", parameter=None).extra == {}
    assert errors.BadRequest("Wrong.", parameter="limit").extra == {"parameter": "limit"}


def test_an_unavailable_store_says_when_to_retry() -> None:
    """Section D2: 503 with `Retry-After`."""
    assert errors.StoreUnavailable("Away.").retry_after_s == 1
    assert errors.RateLimited("Too many.", retry_after_s=17).retry_after_s == 17


def test_a_wrong_method_names_the_allowed_ones() -> None:
    """Sections D2 and D3: 405 with `Allow`."""
    assert errors.MethodNotAllowed("No.", allow="POST").allow == "POST"

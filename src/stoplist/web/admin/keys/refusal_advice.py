"""The advice on a key's page for each error code with which its requests were refused.

It says what the partner should do and, to people who may, what they can do themselves.
Source: docs/interface.md sections 7 and D4.
"""

from typing import NamedTuple


class _Advice(NamedTuple):
    """`partner`: for everybody. `changer`: for people who may change the key. `reader`: for all others, instead."""

    partner: str
    changer: str = ""
    reader: str = ""


_EDIT = "You can change this under Edit settings."
_ASK = "An admin of the key's organizations can change this."

_ADVICE = {
    "rate_limited": _Advice(
        "The partner's programs sent more requests than the rate limits of the key. They should wait as long as "
        "Retry-After says, keep each access token for its 15 minutes, and send up to 10,000 opt-outs per request."
    ),
    "invalid_client": _Advice(
        "The secret was wrong or missing, or the key was inactive. Ask the partner whether the configured secret "
        "begins with the secret prefix above. If nobody there knows these requests, somebody else tried the client_id.",
        "If the partner lost the secret, rotate it or replace the key.",
        "If the partner lost the secret, an admin can rotate it or replace the key.",
    ),
    "invalid_grant": _Advice(
        "A refresh token was expired, revoked or used before. Programs should continue with client_credentials. If "
        "this happens often, several workers may share one token: they need a common token store."
    ),
    "invalid_request": _Advice(
        "The token request was malformed. Its error_description tells the partner what is wrong with it."
    ),
    "unsupported_grant_type": _Advice("The program must send client_credentials or refresh_token as grant_type."),
    "bad_request": _Advice(
        "The request was malformed. Its message tells the partner what is wrong, and parameter where. "
        "Nothing was stored."
    ),
    "invalid_item": _Advice(
        "At least one opt-out of a batch was invalid, so none was stored. The partner should correct those that "
        "item_errors lists, or send Prefer: handling=lenient to store the valid ones."
    ),
    "invalid_cursor": _Advice(
        "The cursor was damaged, is for another list, or is older than a restore. The program should read again from "
        "the start, without a cursor."
    ),
    "insufficient_scope": _Advice("The key lacks a permission that the request needs.", _EDIT, _ASK),
    "unauthorized_organization": _Advice(
        "The request named an organization or group that the key does not cover, or that is closed or retired. The "
        "partner should compare org_slug and group_id with the partner instructions.",
        _EDIT,
        _ASK,
    ),
    "default_group_not_configured": _Advice(
        "The request named no group, and the organization has no default group. The partner should send group_id, or "
        "all_groups: true.",
        "You can choose a default group on the organization's page.",
        "An admin can choose a default group for the organization.",
    ),
    "not_found": _Advice("There is nothing at the path. The partner should compare it with the reference."),
    "method_not_allowed": _Advice(
        "The path does not take this method. The partner should compare it with the reference."
    ),
    "temporarily_unavailable": _Advice(
        "The database was busy or unavailable. Programs should try again as Retry-After says. If this happens often, "
        "tell the operator."
    ),
    "server_error": _Advice("The server failed. Give the operator a request ID."),
    "client_gone": _Advice(
        "The program closed the connection before the answer, usually because of its own timeout, which the partner "
        "should raise. Repeating the request is safe, except for a refresh."
    ),
}
_UNKNOWN = _Advice("The error description tells the partner what is wrong.")
_RAISE_LIMITS = "You can raise the rate limits under Edit settings."
_ASK_TO_RAISE = "An administrator can raise the rate limits."

ADVISED_CODES = frozenset(_ADVICE)


def advice_on(code: str, *, may_change: bool, is_administrator: bool) -> str:
    """Return what to do about refusals with this code, for a person with these rights on the key."""
    advice = _ADVICE.get(code, _UNKNOWN)
    own = advice.changer if may_change else advice.reader
    if code == "rate_limited":
        own = _RAISE_LIMITS if is_administrator else _ASK_TO_RAISE
    return f"{advice.partner} {own}".strip()

"""The `RateLimit` header fields."""

import pytest

from stoplist.limits.decision import RateDecision
from stoplist.limits.headers import Policy, rate_limit_headers


def test_the_fields_are_those_of_the_interface() -> None:
    """The example of section D8, with names in lower case for ASGI."""
    assert rate_limit_headers("api", RateDecision(True, 60, 59, 60, 0)) == [
        (b"ratelimit-policy", b'"api";q=60;w=60'),
        (b"ratelimit", b'"api";r=59;t=60'),
    ]


def test_a_refusal_says_that_nothing_is_left() -> None:
    """The policy of the token endpoint is `token`; `t` is the reset, not the retry."""
    assert rate_limit_headers("token", RateDecision(False, 2, 0, 31, 35)) == [
        (b"ratelimit-policy", b'"token";q=2;w=60'),
        (b"ratelimit", b'"token";r=0;t=31'),
    ]


@pytest.mark.parametrize("policy", ["api", "token"])
def test_two_policies_with_the_same_ceiling_keep_their_names(policy: Policy) -> None:
    """The cache is keyed by policy and limit."""
    for limit in (7, 8):
        fields = dict(rate_limit_headers(policy, RateDecision(True, limit, 1, 60, 0)))
        assert fields[b"ratelimit-policy"] == f'"{policy}";q={limit};w=60'.encode()

"""The header fields that tell a client how much of its limit is left.

Source: docs/interface.md section D8; IETF draft-ietf-httpapi-ratelimit-headers-10.
"""

from functools import lru_cache
from typing import Literal

from stoplist.limits.decision import RateDecision
from stoplist.limits.sliding_log import WINDOW_S

Policy = Literal["api", "token"]


def rate_limit_headers(policy: Policy, decision: RateDecision) -> list[tuple[bytes, bytes]]:
    """Return `RateLimit-Policy` and `RateLimit` for an answer to an authenticated client, in ASGI form."""
    left = f'"{policy}";r={decision.remaining};t={decision.reset_s}'
    return [_policy_header(policy, decision.limit), (b"ratelimit", left.encode())]


# Nearly all clients have one of a few limits.
@lru_cache(maxsize=1000)
def _policy_header(policy: Policy, limit: int) -> tuple[bytes, bytes]:
    return b"ratelimit-policy", f'"{policy}";q={limit};w={WINDOW_S}'.encode()

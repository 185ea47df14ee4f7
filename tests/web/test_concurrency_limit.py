"""What a stranger without a key cannot do: fill the queue before the database (docs/interface.md section D4)."""

import pytest

from stoplist.errors import RateLimited
from stoplist.web import concurrency_limit
from stoplist.web.concurrency_limit import MAX_CONCURRENT_PER_SOURCE, PerSourceConcurrency
from tests.web.application import Application, Key


def test_so_many_of_a_source_are_looked_into_at_once_and_others_are_not_in_their_way() -> None:
    """The next one is refused at once, until one of them is through; another source goes in."""
    concurrency_limit = PerSourceConcurrency()
    inside = [concurrency_limit.acquire("192.0.2.1") for _ in range(MAX_CONCURRENT_PER_SOURCE)]
    for one in inside:
        one.__enter__()
    with pytest.raises(RateLimited, match="from this address"), concurrency_limit.acquire("192.0.2.1"):
        pass
    with concurrency_limit.acquire("192.0.2.2"):
        pass
    inside.pop().__exit__(None, None, None)
    with concurrency_limit.acquire("192.0.2.1"):
        pass
    for one in inside:
        one.__exit__(None, None, None)


def test_an_ipv6_source_is_its_64() -> None:
    """Who has one address of it has them all."""
    concurrency_limit = PerSourceConcurrency()
    inside = [concurrency_limit.acquire(f"2001:db8::{number:x}") for number in range(MAX_CONCURRENT_PER_SOURCE)]
    for one in inside:
        one.__enter__()
    with pytest.raises(RateLimited), concurrency_limit.acquire("2001:db8::ffff:1"):
        pass
    with concurrency_limit.acquire("2001:db8:0:1::1"):
        pass
    for one in inside:
        one.__exit__(None, None, None)


def test_nobody_is_looked_up_where_too_many_of_a_source_are(
    app: Application, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the API and at the token endpoint, with `Retry-After`: neither costs the database anything then."""
    token = app.pair(key)["access_token"]
    monkeypatch.setattr(concurrency_limit, "MAX_CONCURRENT_PER_SOURCE", 0)
    bearer = ("authorization", f"Bearer {token}")
    for answer in (
        app.request("GET", "/api/v1/unsubscribe/email", headers=[bearer]),
        app.ask_token({"grant_type": "client_credentials"}, key.basic),
    ):
        assert (answer.status, answer.error, answer.header("retry-after")) == (429, "rate_limited", "1")

"""A stranger without a key cannot fill the queue of the database (docs/interface.md section D4)."""

import pytest

from stoplist.errors import RateLimited
from stoplist.web import concurrency_limit
from stoplist.web.concurrency_limit import MAX_CONCURRENT_PER_SOURCE, PerSourceConcurrency
from tests.keys import CLIENT_CREDENTIALS, Key
from tests.web.application import Application


def test_requests_of_one_source_are_bounded() -> None:
    """The next one is refused at once, until one of them ends; another source is not affected."""
    concurrency_limit = PerSourceConcurrency()
    slots = [concurrency_limit.acquire("192.0.2.1") for _ in range(MAX_CONCURRENT_PER_SOURCE)]
    for slot in slots:
        slot.__enter__()
    with pytest.raises(RateLimited, match="from this address"), concurrency_limit.acquire("192.0.2.1"):
        pass
    with concurrency_limit.acquire("192.0.2.2"):
        pass
    slots.pop().__exit__(None, None, None)
    with concurrency_limit.acquire("192.0.2.1"):
        pass
    for slot in slots:
        slot.__exit__(None, None, None)


def test_an_ipv6_source_is_its_64() -> None:
    """A client that has one address of a /64 has them all."""
    concurrency_limit = PerSourceConcurrency()
    slots = [concurrency_limit.acquire(f"2001:db8::{number:x}") for number in range(MAX_CONCURRENT_PER_SOURCE)]
    for slot in slots:
        slot.__enter__()
    with pytest.raises(RateLimited), concurrency_limit.acquire("2001:db8::ffff:1"):
        pass
    with concurrency_limit.acquire("2001:db8:0:1::1"):
        pass
    for slot in slots:
        slot.__exit__(None, None, None)


def test_an_ipv6_48_is_four_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner of a /48 has 65,536 /64s. Everything is released at the end."""
    monkeypatch.setattr(concurrency_limit, "MAX_CONCURRENT_PER_SOURCE", 2)
    concurrency = PerSourceConcurrency()
    slots = [concurrency.acquire(f"2001:db8:1:{number:x}::1") for number in range(8)]
    for slot in slots:
        slot.__enter__()
    for refused in ("2001:db8:1:9::1", "2001:db8:1:a::1"):
        with pytest.raises(RateLimited, match="More than 8"), concurrency.acquire(refused):
            pass
    with concurrency.acquire("2001:db8:2::1"), concurrency.acquire("192.0.2.1"):
        pass
    for slot in slots:
        slot.__exit__(None, None, None)
    assert not concurrency._counts


def test_requests_beyond_the_bound_do_not_reach_the_database(
    app: Application, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API and the token endpoint refuse them, with `Retry-After`."""
    token = app.pair(key)["access_token"]
    monkeypatch.setattr(concurrency_limit, "MAX_CONCURRENT_PER_SOURCE", 0)
    bearer = ("authorization", f"Bearer {token}")
    for answer in (
        app.request("GET", "/api/v1/unsubscribe/email", headers=[bearer]),
        app.ask_token(CLIENT_CREDENTIALS, key.basic),
    ):
        assert (answer.status, answer.error, answer.header("retry-after")) == (429, "rate_limited", "1")

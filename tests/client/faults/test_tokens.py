"""Faults of the token endpoint: each refresh token is presented once.

The fixture `between` asserts that after each test. Source: docs/interface.md section 5.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from stoplist_client import (
    ApiError,
    FileStore,
    InvalidClient,
    MemoryStore,
    NotUnderstood,
    RateLimited,
    StoplistClientError,
    TokenStore,
    TransportFailed,
)

from tests.client.faults.answers import PASSING, REFUSED_TOKEN, api_statuses, posted_bodies, records, refusal
from tests.client.faults.conftest import NoWaitOpener, PartnerMaker
from tests.client.partners import Partner
from tests.services.fault_kinds import Alter, ConnectionFault, Fault, Reply, is_api, is_credentials, is_refresh
from tests.services.faults import Faults

# These do not depend on the Python version: one is enough.
pytestmark = pytest.mark.slow

BROKEN = {mishap.name: mishap for mishap in ConnectionFault}
LIMITED = refusal(429, "rate_limited", Retry_After="9")
RUBBISH = {
    "200 in HTML": Reply(status=200, body=b"<html>"),
    "200 of another kind": Reply(status=200, body=b'{"access_token": 1}'),
    "half a token response": Alter(lambda reply: Reply(status=200, body=reply.body[: len(reply.body) // 2])),
}
REFUSED = {
    "400 invalid_grant": refusal(400, "invalid_grant"),
    "400 invalid_request": refusal(400, "invalid_request"),
    "401 invalid_client": refusal(401, "invalid_client"),
    "404 in HTML": Reply(status=404, body=b"<html>"),
}


def cases(*faults: Mapping[str, Any]) -> list[object]:
    """Return pytest parameters with their names as ids."""
    return [pytest.param(fault, id=name) for some in faults for name, fault in some.items()]


def grants(between: Faults) -> list[str | None]:
    """Return the grants that the token endpoint received."""
    return [request.grant_type for request in between.arrived if not is_api(request)]


@pytest.mark.parametrize("fault", cases(PASSING, BROKEN, {"429": LIMITED}))
def test_lost_answer_to_the_secret_is_retried(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults, fault: Fault
) -> None:
    """Each answer has new tokens, and earlier ones stay valid, so the request may be repeated."""
    client, pauses_s = open_without_waits(partner)
    between.next(fault, fault, when=is_credentials)
    assert client.unsubscribe("email", ["ann@secret.test"]).created == 1
    assert grants(between) == ["client_credentials"] * 3
    assert len(pauses_s) == 2
    assert fault is not LIMITED or pauses_s == [9.0, 9.0]


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("fault", cases({"500": PASSING["500"], "LOSE": ConnectionFault.LOSE, "429": LIMITED}))
def test_attempts_bound_requests_with_the_secret(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults, fault: Fault, attempts: int
) -> None:
    """Then the call fails, before anything is sent to the API."""
    client, pauses_s = open_without_waits(partner, attempts=attempts)
    between.otherwise(lambda request: fault)
    with pytest.raises((TransportFailed, NotUnderstood, ApiError)):
        client.unsubscribe("email", ["ann@attempts.test"])
    assert grants(between) == ["client_credentials"] * attempts
    assert posted_bodies(between) == []
    assert len(pauses_s) == attempts - 1


@pytest.mark.parametrize("fault", cases(REFUSED, RUBBISH))
def test_refused_secret_is_not_retried(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults, fault: Fault
) -> None:
    """Nor one with an answer that is not the service's."""
    client, pauses_s = open_without_waits(partner)
    between.next(fault, when=is_credentials)
    with pytest.raises((ApiError, NotUnderstood)):
        client.unsubscribe("email", ["ann@refused.test"])
    assert (grants(between), pauses_s) == (["client_credentials"], [])


def test_wrong_secret_is_sent_once(open_without_waits: NoWaitOpener, partner: Partner, between: Faults) -> None:
    """A real refusal, and the error does not show the secret."""
    client, pauses_s = open_without_waits(partner, client_secret="svc_cs_" + "0" * 49)
    with pytest.raises(InvalidClient) as refused:
        client.unsubscribe("email", ["ann@wrong.test"])
    assert "svc_cs_" not in str(refused.value) + repr(refused.value)
    assert (grants(between), pauses_s) == (["client_credentials"], [])


@pytest.mark.parametrize("fault", cases(PASSING, BROKEN, RUBBISH, REFUSED, {"429": LIMITED}))
def test_failed_refresh_is_never_retried(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults, fault: Fault
) -> None:
    """The next request is `client_credentials`, and the call goes on with its tokens."""
    client, pauses_s = open_without_waits(partner)
    client.unsubscribe("email", ["ann@refresh.test"])
    between.next(REFUSED_TOKEN, when=is_api)
    between.next(fault, when=is_refresh)
    assert client.unsubscribe("email", ["bob@refresh.test"]).created == 1
    assert grants(between) == ["client_credentials", "refresh_token", "client_credentials"]
    assert pauses_s == ([9.0] if fault is LIMITED else [])
    assert len(records(partner)) == 2


@pytest.mark.parametrize("fault", cases(BROKEN, {"500": PASSING["500"]}))
def test_tokens_after_a_lost_refresh_can_be_refreshed(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults, fault: Fault
) -> None:
    client, _ = open_without_waits(partner)
    client.unsubscribe("email", ["ann@next.test"])
    between.next(fault, when=is_refresh)
    for number in range(4):
        between.next(REFUSED_TOKEN, when=is_api)
        assert client.unsubscribe("email", [f"person{number}@next.test"]).created == 1
    first = ["client_credentials", "refresh_token"]
    assert grants(between) == [*first, "client_credentials", *["refresh_token"] * 3]


def test_call_survives_several_faults(open_without_waits: NoWaitOpener, partner: Partner, between: Faults) -> None:
    """The request, its token, the refresh and the secret each fail, within their own attempts."""
    client, _ = open_without_waits(partner)
    client.unsubscribe("email", ["ann@everything.test"])
    between.forget()
    between.next(PASSING["500"], REFUSED_TOKEN, ConnectionFault.LOSE, None, when=is_api)
    between.next(ConnectionFault.LOSE, when=is_refresh)
    between.next(ConnectionFault.CUT, PASSING["502 in HTML"], when=is_credentials)
    assert client.unsubscribe("email", ["bob@everything.test"]).unchanged == 1
    assert grants(between) == ["refresh_token", *["client_credentials"] * 3]
    bodies = posted_bodies(between)
    assert len(bodies) == 4
    assert all(body == bodies[0] for body in bodies)
    assert len(records(partner)) == 2


@pytest.mark.parametrize("store", [FileStore, MemoryStore])
@pytest.mark.parametrize("fault", cases(BROKEN, {"429": LIMITED}))
def test_failed_token_request_does_not_block_the_next_call(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults, fault: Fault, store: Callable[[], TokenStore]
) -> None:
    """The lock is released, and the used refresh token stays marked."""
    client, _ = open_without_waits(partner, attempts=1, store=store())
    client.unsubscribe("email", ["ann@way.test"])
    between.next(REFUSED_TOKEN, REFUSED_TOKEN, when=is_api)
    between.next(fault, when=is_refresh)
    between.next(fault, when=is_credentials)
    with pytest.raises(StoplistClientError):
        client.unsubscribe("email", ["bob@way.test"])
    assert client.unsubscribe("email", ["bob@way.test"]).created == 1
    assert grants(between) == ["client_credentials", "refresh_token", *["client_credentials"] * 2]


def test_token_rate_limit_is_waited_for(
    open_without_waits: NoWaitOpener, new_partner: PartnerMaker, between: Faults
) -> None:
    """A refresh that the service refused so counts as presented, and is not sent again."""
    partner = new_partner(per_minute=2)
    client, pauses_s = open_without_waits(partner, attempts=2)
    client.unsubscribe("email", ["ann@both.test"])
    between.next(REFUSED_TOKEN, when=is_api)
    assert list(client.changes("email"))
    between.next(REFUSED_TOKEN, when=is_api)
    with pytest.raises(RateLimited):
        list(client.changes("email"))
    assert grants(between) == ["client_credentials", "refresh_token", "refresh_token", *["client_credentials"] * 2]
    assert len(pauses_s) == 2
    assert api_statuses(between) == [200, 401, 200, 401]

"""The token endpoint in trouble: a refresh token is presented once, whatever happens.

That none comes by twice the fixture `between` asserts after each of these. Source: docs/interface.md section 5.
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

from tests.client.faults.answers import PASSING, REFUSED_TOKEN, api_statuses, posted, records, refusal
from tests.client.faults.conftest import HastyOpener, PartnerMaker
from tests.client.partners import Partner
from tests.services.fault_kinds import Alter, ConnectionFault, Fault, Reply, is_api, is_credentials, is_refresh
from tests.services.faults import Faults

# Which interpreter asks is all the same to them: once is enough.
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
    """Parameters under their names."""
    return [pytest.param(fault, id=name) for some in faults for name, fault in some.items()]


def grants(between: Faults) -> list[str | None]:
    """What the token endpoint was asked for."""
    return [request.grant_type for request in between.arrived if not is_api(request)]


@pytest.mark.parametrize("fault", cases(PASSING, BROKEN, {"429": LIMITED}))
def test_a_lost_answer_to_the_secret_is_asked_for_again(
    hasty: HastyOpener, partner: Partner, between: Faults, fault: Fault
) -> None:
    """Each answer gives new tokens, and the earlier ones live on: it may be asked any number of times."""
    client, pauses_s = hasty(partner)
    between.next(fault, fault, when=is_credentials)
    assert client.unsubscribe("email", ["ann@secret.test"]).created == 1
    assert grants(between) == ["client_credentials"] * 3
    assert len(pauses_s) == 2
    assert fault is not LIMITED or pauses_s == [9.0, 9.0]


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("fault", cases({"500": PASSING["500"], "LOSE": ConnectionFault.LOSE, "429": LIMITED}))
def test_the_secret_is_sent_no_more_than_the_attempts(
    hasty: HastyOpener, partner: Partner, between: Faults, fault: Fault, attempts: int
) -> None:
    """Then the call fails, before anything went to the API."""
    client, pauses_s = hasty(partner, attempts=attempts)
    between.otherwise(lambda request: fault)
    with pytest.raises((TransportFailed, NotUnderstood, ApiError)):
        client.unsubscribe("email", ["ann@attempts.test"])
    assert grants(between) == ["client_credentials"] * attempts
    assert posted(between) == []
    assert len(pauses_s) == attempts - 1


@pytest.mark.parametrize("fault", cases(REFUSED, RUBBISH))
def test_a_refused_secret_is_not_sent_again(
    hasty: HastyOpener, partner: Partner, between: Faults, fault: Fault
) -> None:
    """Nor one that was answered with what is none of the service's words."""
    client, pauses_s = hasty(partner)
    between.next(fault, when=is_credentials)
    with pytest.raises((ApiError, NotUnderstood)):
        client.unsubscribe("email", ["ann@refused.test"])
    assert (grants(between), pauses_s) == (["client_credentials"], [])


def test_a_wrong_secret_is_sent_once(hasty: HastyOpener, partner: Partner, between: Faults) -> None:
    """A real refusal, and the error does not show the secret."""
    client, pauses_s = hasty(partner, client_secret="svc_cs_" + "0" * 49)
    with pytest.raises(InvalidClient) as refused:
        client.unsubscribe("email", ["ann@wrong.test"])
    assert "svc_cs_" not in str(refused.value) + repr(refused.value)
    assert (grants(between), pauses_s) == (["client_credentials"], [])


@pytest.mark.parametrize("fault", cases(PASSING, BROKEN, RUBBISH, REFUSED, {"429": LIMITED}))
def test_a_refresh_that_fails_is_never_tried_again(
    hasty: HastyOpener, partner: Partner, between: Faults, fault: Fault
) -> None:
    """Whatever came of it, the next is `client_credentials`, and the call goes on with what that gives."""
    client, pauses_s = hasty(partner)
    client.unsubscribe("email", ["ann@refresh.test"])
    between.next(REFUSED_TOKEN, when=is_api)
    between.next(fault, when=is_refresh)
    assert client.unsubscribe("email", ["bob@refresh.test"]).created == 1
    assert grants(between) == ["client_credentials", "refresh_token", "client_credentials"]
    assert pauses_s == ([9.0] if fault is LIMITED else [])
    assert len(records(partner)) == 2


@pytest.mark.parametrize("fault", cases(BROKEN, {"500": PASSING["500"]}))
def test_after_a_lost_refresh_the_next_one_is_good(
    hasty: HastyOpener, partner: Partner, between: Faults, fault: Fault
) -> None:
    """The tokens that came instead refresh as usual, again and again."""
    client, _ = hasty(partner)
    client.unsubscribe("email", ["ann@next.test"])
    between.next(fault, when=is_refresh)
    for number in range(4):
        between.next(REFUSED_TOKEN, when=is_api)
        assert client.unsubscribe("email", [f"person{number}@next.test"]).created == 1
    first = ["client_credentials", "refresh_token"]
    assert grants(between) == [*first, "client_credentials", *["refresh_token"] * 3]


def test_everything_may_fail_in_one_call(hasty: HastyOpener, partner: Partner, between: Faults) -> None:
    """The request, its token, the refresh of that and the secret: each within its own attempts."""
    client, _ = hasty(partner)
    client.unsubscribe("email", ["ann@everything.test"])
    between.forget()
    between.next(PASSING["500"], REFUSED_TOKEN, ConnectionFault.LOSE, None, when=is_api)
    between.next(ConnectionFault.LOSE, when=is_refresh)
    between.next(ConnectionFault.CUT, PASSING["502 in HTML"], when=is_credentials)
    assert client.unsubscribe("email", ["bob@everything.test"]).unchanged == 1
    assert grants(between) == ["refresh_token", *["client_credentials"] * 3]
    bodies = posted(between)
    assert len(bodies) == 4
    assert all(body == bodies[0] for body in bodies)
    assert len(records(partner)) == 2


@pytest.mark.parametrize("store", [FileStore, MemoryStore])
@pytest.mark.parametrize("fault", cases(BROKEN, {"429": LIMITED}))
def test_a_call_that_fails_at_the_tokens_leaves_the_next_one_a_way(
    hasty: HastyOpener, partner: Partner, between: Faults, fault: Fault, store: Callable[[], TokenStore]
) -> None:
    """The lock is free again, and the spent refresh token stays spent, though nothing came to take its place."""
    client, _ = hasty(partner, attempts=1, store=store())
    client.unsubscribe("email", ["ann@way.test"])
    between.next(REFUSED_TOKEN, REFUSED_TOKEN, when=is_api)
    between.next(fault, when=is_refresh)
    between.next(fault, when=is_credentials)
    with pytest.raises(StoplistClientError):
        client.unsubscribe("email", ["bob@way.test"])
    assert client.unsubscribe("email", ["bob@way.test"]).created == 1
    assert grants(between) == ["client_credentials", "refresh_token", *["client_credentials"] * 2]


def test_real_ceilings_of_the_token_endpoint_are_waited_for(
    hasty: HastyOpener, new_partner: PartnerMaker, between: Faults
) -> None:
    """Told by the service itself; a refresh that is refused so was presented, and is not presented again."""
    partner = new_partner(per_minute=2)
    client, pauses_s = hasty(partner, attempts=2)
    client.unsubscribe("email", ["ann@both.test"])
    between.next(REFUSED_TOKEN, when=is_api)
    assert list(client.changes("email"))
    between.next(REFUSED_TOKEN, when=is_api)
    with pytest.raises(RateLimited):
        list(client.changes("email"))
    assert grants(between) == ["client_credentials", "refresh_token", "refresh_token", *["client_credentials"] * 2]
    assert len(pauses_s) == 2
    assert api_statuses(between) == [200, 401, 200, 401]

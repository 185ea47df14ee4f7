"""Retries through a faulty proxy: which, how often and after what wait. Source: docs/interface.md section 8."""

import pytest
from stoplist_client import (
    ApiError,
    InvalidItem,
    NotUnderstood,
    RateLimited,
    ServerError,
    TransportFailed,
    UnauthorizedOrganization,
)

from tests.client.faults.answers import PASSING, api_statuses, posted_bodies, records, refusal
from tests.client.faults.conftest import NoWaitOpener, PartnerMaker
from tests.client.partners import Partner
from tests.services.fault_kinds import CUT, DROP, LOSE, RESET, ConnectionFault, Reply, is_api
from tests.services.faults import Faults

# These do not depend on the Python version: one is enough.
pytestmark = pytest.mark.slow

BROKEN = {mishap.name: mishap for mishap in ConnectionFault}
EVERYTHING_THAT_PASSES = [pytest.param(fault, id=name) for name, fault in (PASSING | BROKEN).items()]


@pytest.mark.parametrize("fault", EVERYTHING_THAT_PASSES)
def test_submission_survives_temporary_faults(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults, fault: ConnectionFault | Reply
) -> None:
    """The same body is sent again and stored once, with the time of the first attempt."""
    client, pauses_s = open_without_waits(partner)
    between.next(fault, when=is_api)
    submitted = client.unsubscribe("email", ["ann@passing.test"])
    assert (submitted.received, submitted.batches, submitted.outranked) == (1, 1, 0)
    first, second = posted_bodies(between)
    assert first == second
    (record,) = records(partner)
    assert record.occurred_at.isoformat(timespec="milliseconds") == first["items"][0]["occurred_at"].replace(
        "Z", "+00:00"
    )
    assert len(pauses_s) == 1


@pytest.mark.parametrize("fault", EVERYTHING_THAT_PASSES)
def test_reading_survives_temporary_faults(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults, fault: ConnectionFault | Reply
) -> None:
    """Looking up and following are retried, and return each record once."""
    client, _ = open_without_waits(partner)
    client.unsubscribe("email", ["ann@reading.test", "bob@reading.test"])
    between.next(fault, when=is_api)
    (found,) = client.look_up("email", ["ann@reading.test"])
    assert [record.address for record in found.records] == ["ann@reading.test"]
    between.next(None, fault, when=is_api)
    changes = client.changes("email", limit=1)
    assert [record.seq for record in changes] == [1, 2]
    assert changes.cursor is not None


def test_waits_grow(open_without_waits: NoWaitOpener, partner: Partner, between: Faults) -> None:
    """Exponentially from half a second without jitter; all kinds of failure count together."""
    client, pauses_s = open_without_waits(partner, attempts=6)
    between.next(DROP, PASSING["500"], LOSE, PASSING["504, empty"], CUT, when=is_api)
    assert client.unsubscribe("email", ["ann@growing.test"]).received == 1
    assert pauses_s == [0.5, 1.0, 2.0, 4.0, 8.0]


def test_retry_after_of_503_is_respected(open_without_waits: NoWaitOpener, partner: Partner, between: Faults) -> None:
    client, pauses_s = open_without_waits(partner)
    between.next(PASSING["503"], when=is_api)
    client.unsubscribe("email", ["ann@told.test"])
    assert pauses_s == [2.0]


@pytest.mark.parametrize(("told", "waited_s"), [("7", 7.0), ("60", 60.0), ("61", 60.0), ("86400", 60.0)])
def test_retry_after_of_429_is_respected(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults, told: str, waited_s: float
) -> None:
    """Up to a minute."""
    client, pauses_s = open_without_waits(partner)
    between.next(refusal(429, "rate_limited", Retry_After=told), when=is_api)
    assert client.unsubscribe("email", ["ann@limited.test"]).created == 1
    assert pauses_s == [waited_s]


@pytest.mark.parametrize("told", ["", "soon", "-1", "1.5", "Sun, 22 Nov 2026 08:00:00 GMT", "9" * 400])
def test_invalid_retry_after_is_ignored(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults, told: str
) -> None:
    """The backoff decides then; the wait is neither long nor zero."""
    client, pauses_s = open_without_waits(partner)
    between.next(refusal(429, "rate_limited", Retry_After=told), when=is_api)
    assert client.unsubscribe("email", ["ann@strange.test"]).created == 1
    assert pauses_s == [0.5]


def test_lasting_rate_limit_is_raised(
    open_without_waits: NoWaitOpener, new_partner: PartnerMaker, between: Faults
) -> None:
    """A real 429 each time: after the attempts, the error has its Retry-After."""
    partner = new_partner(per_minute=1)
    client, pauses_s = open_without_waits(partner)
    client.unsubscribe("email", ["ann@ceiling.test"])
    with pytest.raises(RateLimited) as refused:
        client.unsubscribe("email", ["bob@ceiling.test"])
    assert api_statuses(between) == [200, 429, 429, 429]
    assert refused.value.retry_after_s is not None
    assert 0 < refused.value.retry_after_s <= 60
    assert len(pauses_s) == 2
    assert all(0 < pause_s <= 60 for pause_s in pauses_s)


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (PASSING["500"], ServerError),
        (PASSING["502 in HTML"], NotUnderstood),
        (refusal(429, "rate_limited", Retry_After="1"), RateLimited),
        (DROP, TransportFailed),
        (LOSE, TransportFailed),
        (RESET, TransportFailed),
    ],
    ids=["500", "502 in HTML", "429", "DROP", "LOSE", "RESET"],
)
def test_attempts_bound_the_requests(
    open_without_waits: NoWaitOpener,
    partner: Partner,
    between: Faults,
    attempts: int,
    fault: ConnectionFault | Reply,
    error: type[Exception],
) -> None:
    """This holds for any failure; waits are between attempts, not after the last."""
    client, pauses_s = open_without_waits(partner, attempts=attempts)
    between.otherwise(lambda request: fault if is_api(request) else None)
    with pytest.raises(error):
        client.unsubscribe("email", ["ann@again.test"])
    assert len(posted_bodies(between)) == attempts
    assert len(pauses_s) == attempts - 1


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "bad_request"),
        (400, "invalid_item"),
        (400, "default_group_not_configured"),
        (403, "unauthorized_organization"),
        (403, "insufficient_scope"),
        (404, "not_found"),
        (405, "method_not_allowed"),
        (409, "something_new"),
    ],
)
def test_final_refusals_are_not_retried(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults, status: int, code: str
) -> None:
    """A Retry-After makes no difference."""
    client, pauses_s = open_without_waits(partner)
    between.next(refusal(status, code, Retry_After="1"), when=is_api)
    with pytest.raises(ApiError) as refused:
        client.unsubscribe("email", ["ann@refused.test"])
    assert (refused.value.status, refused.value.code) == (status, code)
    assert (len(posted_bodies(between)), pauses_s) == (1, [])
    assert records(partner) == []


def test_real_refusals_are_not_retried(open_without_waits: NoWaitOpener, partner: Partner, between: Faults) -> None:
    client, pauses_s = open_without_waits(partner)
    with pytest.raises(InvalidItem):
        client.unsubscribe("email", ["nobody"])
    with pytest.raises(UnauthorizedOrganization):
        client.unsubscribe("email", ["ann@real.test"], org_slug="somebody-elses")
    assert api_statuses(between) == [400, 403]
    assert pauses_s == []


@pytest.mark.parametrize(
    "answer",
    [
        Reply(status=200, headers={"Content-Type": "text/html"}, body=b"<html>Please sign in to this network</html>"),
        Reply(status=200, headers={"Content-Type": "application/json"}, body=b"[]"),
        Reply(
            status=200,
            headers={"Content-Type": "application/json"},
            body=b'{"submission_id":null,"received":0,"created":0,"updated":0,"unchanged":0,"outranked":0}',
        ),
        Reply(status=200),
        Reply(status=204),
        Reply(status=302, headers={"Location": "https://localhost:1/elsewhere"}),
        Reply(status=308, headers={"Location": "/oauth/token"}),
        Reply(status=404, headers={"Content-Type": "text/html"}, body=b"<html>nothing here</html>"),
        Reply(status=401, body=b"a proxy wants to know who you are"),
    ],
    ids=["page", "list", "another count", "empty", "204", "302", "308", "404 in HTML", "401 of a proxy"],
)
def test_foreign_answer_is_not_understood(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults, answer: Reply
) -> None:
    """It is raised at once; nothing counts as stored, no redirect is followed, and no token is dropped."""
    client, pauses_s = open_without_waits(partner)
    client.unsubscribe("email", ["bob@elsewhere.test"])
    between.next(answer, when=is_api)
    with pytest.raises(NotUnderstood) as error:
        client.unsubscribe("email", ["ann@elsewhere.test"])
    assert error.value.status == answer.status
    assert [(seen.path, seen.client_status) for seen in between.seen] == [
        ("/oauth/token", 200),
        ("/api/v1/unsubscribe/email", 200),
        ("/api/v1/unsubscribe/email", answer.status),
    ]
    assert pauses_s == []


def test_faults_have_the_intended_effect(open_without_waits: NoWaitOpener, partner: Partner, between: Faults) -> None:
    """A reset connection leaves no record, and a lost answer leaves one."""
    client, _ = open_without_waits(partner, attempts=1)
    for mishap, stored in ((RESET, 0), (LOSE, 1)):
        between.next(mishap, when=is_api)
        with pytest.raises(TransportFailed):
            client.unsubscribe("email", ["ann@vain.test"])
        assert len(records(partner)) == stored

"""Refusals by a real server, each by its class, and what errors may not tell.

Sources: docs/interface.md sections 5, 7, 8 and D4.
"""

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any
from urllib.parse import quote

import pytest
from stoplist_client import (
    BadRequest,
    ConfigurationError,
    DefaultGroupNotConfigured,
    FileStore,
    InsufficientScope,
    InvalidClient,
    InvalidItem,
    InvalidToken,
    Item,
    MethodNotAllowed,
    NotFound,
    NotUnderstood,
    RateLimited,
    ServerError,
    StoplistClientError,
    TemporarilyUnavailable,
    TransportFailed,
    UnauthorizedOrganization,
)
from stoplist_client.flow import Send
from stoplist_client.sending import call
from stoplist_client.target import Target

from stoplist.clock import Clock
from stoplist.oauth.credentials import deactivate_credential
from tests.builders import ADMINISTRATOR, opened
from tests.client.partners import Blocking, Opener, Partner
from tests.services.faults import Faults, faults
from tests.services.mishaps import DROP, Fault, Reply, is_any, is_api

ANN = "needle.person@example.com"
BAD = "needle.nobody"
REFUSED_TOKEN = Reply(status=401, body=b'{"error": "invalid_token", "message": "Expired."}')

NewPartner = Callable[..., Partner]


@pytest.fixture
def between(partner: Partner) -> Iterator[Faults]:
    """A proxy before the service."""
    with faults(partner.service.base_url, partner.service.server.ca.parent) as own:
        yield own
        assert own.planned == 0


def asked(client: Any, method: str, url: str) -> Any:
    """A request that no method of a client makes."""
    core = client.client if isinstance(client, Blocking) else client
    ran = core._driver.run(call(core._session, Send(method=method, url=url, headers={})))
    return client.runner.run(ran) if isinstance(client, Blocking) else ran


def without_waiting(client: Any) -> list[float]:
    """How long this client waits each time, from now on without doing so."""
    waited_s: list[float] = []
    core = client.client if isinstance(client, Blocking) else client

    async def pass_by(seconds: float) -> None:
        waited_s.append(seconds)

    core._driver.sleep = pass_by if isinstance(client, Blocking) else waited_s.append
    return waited_s


def test_what_is_wrong_in_itself(both: Opener, partner: Partner) -> None:
    """bad_request says which parameter it is."""
    with pytest.raises(BadRequest) as caught:
        both(partner).unsubscribe("email", [ANN], org_slug="x" * 65)
    assert (caught.value.status, caught.value.parameter) == (400, "org_slug")
    assert caught.value.request_id


def test_another_organization(both: Opener, partner: Partner) -> None:
    """unauthorized_organization echoes what was named, be it the organization or the group."""
    client = both(partner)
    with pytest.raises(UnauthorizedOrganization) as caught:
        client.unsubscribe("email", [ANN], org_slug="elsewhere")
    assert (caught.value.status, caught.value.org_slug, caught.value.group_id) == (403, "elsewhere", None)
    with pytest.raises(UnauthorizedOrganization) as caught:
        list(client.look_up("email", [ANN], group_id="grp_none"))
    assert (caught.value.org_slug, caught.value.group_id) == (None, "grp_none")


def test_no_default_group(both: Opener, new_partner: NewPartner) -> None:
    """default_group_not_configured says for which organization."""
    partner = new_partner(has_default_group=False)
    with pytest.raises(DefaultGroupNotConfigured) as caught:
        both(partner).unsubscribe("email", [ANN])
    assert (caught.value.status, caught.value.org_slug) == (400, partner.org_slug)


def test_no_permission(both: Opener, new_partner: NewPartner) -> None:
    """insufficient_scope, for whoever may only read."""
    with pytest.raises(InsufficientScope):
        both(new_partner(may=frozenset({"read"}))).unsubscribe("email", [ANN])


def test_a_wrong_address_of_the_service(both: Opener, partner: Partner) -> None:
    """not_found and method_not_allowed are final."""
    client = both(partner)
    with pytest.raises(NotFound):
        asked(client, "GET", "/api/v1/nothing")
    with pytest.raises(MethodNotAllowed):
        asked(client, "PUT", "/api/v1/unsubscribe/email")


def test_a_wrong_secret(both: Opener, partner: Partner) -> None:
    """invalid_client comes at once, without another try."""
    client = both(partner, client_secret="svc_cs_" + "0" * 49)
    waited_s = without_waiting(client)
    with pytest.raises(InvalidClient) as caught:
        client.unsubscribe("email", [ANN])
    assert (caught.value.status, waited_s) == (401, [])


async def _deactivate(partner: Partner) -> None:
    async with opened(partner.service.place.database_url) as database:
        await deactivate_credential(ADMINISTRATOR, database, Clock(), client_id=partner.key.client_id)


def test_a_key_that_is_deactivated(both: Opener, partner: Partner) -> None:
    """A client at work is told so by invalid_client: neither its tokens nor its secret are good any more."""
    client = both(partner)
    client.unsubscribe("email", [ANN])
    asyncio.run(_deactivate(partner))
    with pytest.raises(InvalidClient):
        client.unsubscribe("email", [ANN])


def test_the_limit_of_a_key(both: Opener, new_partner: NewPartner) -> None:
    """rate_limited is waited out as the service says; if that does not help, it is raised with Retry-After."""
    client = both(new_partner(per_minute=1))
    client.unsubscribe("email", [ANN])
    waited_s = without_waiting(client)
    with pytest.raises(RateLimited) as caught:
        client.unsubscribe("email", [ANN])
    assert caught.value.status == 429
    assert caught.value.retry_after_s is not None
    assert len(waited_s) == 2
    assert all(caught.value.retry_after_s <= seconds <= 60 for seconds in waited_s)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (ServerError, Reply(status=500, body=b'{"error": "server_error", "message": "Oh.", "request_id": "req_1"}')),
        (TemporarilyUnavailable, Reply(status=503, body=b'{"error": "temporarily_unavailable", "message": "Busy."}')),
        (NotUnderstood, Reply(status=502, body=b"<html>Bad gateway</html>")),
        (TransportFailed, DROP),
    ],
    ids=["500", "503", "502", "none"],
)
def test_failures_are_told_after_three_attempts(
    both: Opener, partner: Partner, between: Faults, kind: type[StoplistClientError], told: Fault
) -> None:
    """The last of three is raised, with what was stored before it; two pass unnoticed."""
    client = both(partner, base_url=between.base_url, batch_items=1)
    waited_s = without_waiting(client)
    between.next(told, told, when=is_api)
    assert client.unsubscribe("email", ["a@example.com"]).created == 1
    between.next(None, told, told, told, when=is_api)
    with pytest.raises(kind) as caught:
        client.unsubscribe("email", ["b@example.com", "c@example.com"])
    assert caught.value.submitted is not None
    assert caught.value.submitted.received == 1
    assert len(waited_s) == 4


def test_a_token_that_is_refused_is_replaced(both: Opener, partner: Partner, between: Faults) -> None:
    """After a 401 the tokens are renewed, and the request is sent again; the caller notices nothing."""
    client = both(partner, base_url=between.base_url)
    client.unsubscribe("email", ["a@example.com"])
    between.next(REFUSED_TOKEN, when=is_api)
    assert client.unsubscribe("email", ["b@example.com"]).created == 1


def test_fresh_tokens_that_are_refused_are_not_replaced(both: Opener, partner: Partner, between: Faults) -> None:
    """invalid_token is raised for a token that was given out just now: to go on asking would help nobody."""
    client = both(partner, base_url=between.base_url)
    between.next(REFUSED_TOKEN, when=is_api)
    with pytest.raises(InvalidToken):
        client.unsubscribe("email", [ANN])
    assert [seen.told for seen in between.seen] == [200, 401]


def test_a_401_of_something_else_costs_no_token(both: Opener, partner: Partner, between: Faults) -> None:
    """A proxy that wants its own sign-in is no word about the token."""
    client = both(partner, base_url=between.base_url)
    client.unsubscribe("email", [ANN])
    between.next(Reply(status=401, body=b"<html>Sign in</html>"), when=is_api)
    with pytest.raises(NotUnderstood):
        client.unsubscribe("email", [ANN])
    assert [seen.told for seen in between.seen] == [200, 200, 401]


@pytest.mark.parametrize("received", [0, 1, 3])
def test_an_answer_about_other_items_is_not_believed(
    both: Opener, partner: Partner, between: Faults, received: int
) -> None:
    """A 200 that counts more or fewer items than were sent is no receipt for these."""
    body = b'{"submission_id": null, "received": %d, "created": 0, "updated": 0, "unchanged": %d, "outranked": 0}'
    between.next(Reply(status=200, body=body % (received, received)), when=is_api)
    with pytest.raises(NotUnderstood, match="count"):
        both(partner, base_url=between.base_url).unsubscribe("email", ["a@example.com", "b@example.com"])


# What errors, logs and reprs may not tell


def test_nothing_tells_a_secret_or_an_address(
    both: Opener, partner: Partner, between: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    """Not the logs of what is underneath, at their loudest, nor errors, their causes and the locals of their frames."""
    caplog.set_level(logging.DEBUG)
    client = both(partner, base_url=between.base_url, batch_items=2, attempts=1)
    client.unsubscribe("email", [ANN])
    list(client.look_up("email", [ANN, f"+{ANN}"]))
    records = list(client.changes("email"))
    told = [repr(client), repr(records), *_errors(both, client, partner, between)]
    told += [record.getMessage() for record in caplog.records]
    told += [record.exc_text or "" for record in caplog.records]
    assert {record.name.partition(".")[0] for record in caplog.records} >= {"httpx2", "httpcore2"}
    seen = "\n".join(told)
    for needle in _needles(partner, between):
        assert needle not in seen


def test_no_repr_tells_an_address(partner: Partner) -> None:
    """What goes in and out of a client may be logged as it is."""
    with partner.client() as client:
        done = client.unsubscribe("email", [Item(ANN), BAD], lenient=True)
        changes = client.changes("email")
        shown = [
            Item(ANN),
            [Item(ANN)],
            done,
            *client.look_up("email", [ANN]),
            *changes.pages(),
            list(changes),
            changes,
        ]
        shown += [client.look_up("email", [ANN]), client._looking_up("email", iter([ANN]), Target())]
    assert "needle" not in repr(shown)


def _errors(both: Opener, client: Any, partner: Partner, between: Faults) -> Iterator[str]:
    """All that can be learnt from errors of every kind."""
    attempts: list[tuple[type[Exception], Callable[[], Any]]] = [
        (InvalidItem, lambda: client.unsubscribe("email", ["a@example.com", "b@example.com", BAD, ANN])),
        (InvalidItem, lambda: client.unsubscribe("email", (Item(address) for address in (BAD, ANN)))),
        (ConfigurationError, lambda: client.unsubscribe("email", [ANN, None])),
        (ConfigurationError, lambda: client.resubscribe("email", [ANN])),
        (BadRequest, lambda: list(client.look_up("email", [ANN, BAD]))),
        (ConfigurationError, lambda: list(client.look_up("email", [ANN, 5]))),
        (UnauthorizedOrganization, lambda: list(client.look_up("email", [ANN], org_slug="elsewhere"))),
        (UnauthorizedOrganization, lambda: client.unsubscribe("email", [ANN], org_slug="elsewhere")),
        (InvalidClient, lambda: both(partner, client_secret=partner.key.secret[:-1] + "-").unsubscribe("email", [ANN])),
        (ConfigurationError, lambda: both(partner, client_secret=partner.key.secret + "\n")),
        (ConfigurationError, lambda: both(partner, client_id=partner.key.secret)),
        (TransportFailed, lambda: both(partner, ca_file=None).unsubscribe("email", [ANN])),
    ]
    for kind, attempt in attempts:
        yield from _told_by(kind, attempt)
    for fault, kind in (
        (DROP, TransportFailed),
        (Reply(status=200, body=f"<html>{ANN}".encode()), NotUnderstood),
        (Reply(status=500, body=f"<html>{ANN}".encode()), NotUnderstood),
        (Reply(status=302, headers={"location": "https://localhost/sign-in"}), NotUnderstood),
        (Reply(status=200, headers={"content-encoding": "gzip"}, body=ANN.encode()), TransportFailed),
    ):
        between.next(fault, fault, when=is_api)
        yield from _told_by(kind, lambda: client.unsubscribe("email", [ANN]))
        yield from _told_by(kind, lambda: list(client.look_up("email", [ANN])))
    between.next(DROP, when=is_any)
    fresh = both(partner, base_url=between.base_url, store=FileStore(folder=between.ca.parent / "fresh"), attempts=1)
    yield from _told_by(TransportFailed, lambda: fresh.unsubscribe("email", [ANN]))


def _told_by(kind: type[Exception], attempt: Callable[[], Any]) -> Iterator[str]:
    with pytest.raises(kind) as caught:
        attempt()
    error: BaseException | None = caught.value
    while error is not None:
        yield f"{error!r} {error} {error.args}"
        # The frames of this test know all; those of the client, and of what is underneath, may not.
        frames = ((frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if _is_below(frame))
        yield from traceback.StackSummary.extract(frames, capture_locals=True).format()
        error = error.__cause__ or error.__context__


def _is_below(frame: FrameType) -> bool:
    return str(frame.f_globals["__name__"]).partition(".")[0] in ("stoplist_client", "httpx2", "httpcore2", "msgspec")


def _needles(partner: Partner, between: Faults) -> Iterator[str]:
    """What may stand nowhere, in the forms in which it travels."""
    addresses = (ANN, BAD)
    yield from addresses
    yield from map(quote, addresses)
    yield "needle"
    yield partner.key.secret[7:]
    for base_url in (partner.service.base_url, between.base_url):
        tokens = FileStore().of(base_url, partner.key.client_id).read()
        if tokens is not None:
            yield tokens.access_token[7:]
            yield tokens.refresh_token[7:]
    assert tokens is not None
    headers = [seen.request.headers.get("authorization", "") for seen in between.seen]
    assert any(headers)
    yield from (header.partition(" ")[2] for header in headers if header)

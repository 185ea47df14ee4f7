"""Refusals by a real server, each by its class, and what errors may not tell.

Sources: docs/interface.md sections 5, 7, 8 and D4.
"""

import asyncio
import copy
import inspect
import logging
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
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
    ItemError,
    MethodNotAllowed,
    NotFound,
    NotUnderstood,
    RateLimited,
    ServerError,
    StoplistClientError,
    Submitted,
    TemporarilyUnavailable,
    TransportFailed,
    UnauthorizedOrganization,
    errors,
)
from stoplist_client.core import as_elements
from stoplist_client.flows.flow import Send
from stoplist_client.flows.sending import call
from stoplist_client.flows.target import Target

from stoplist.clock import Clock
from stoplist.oauth.credentials import deactivate_credential
from tests.builders import ADMINISTRATOR, opened
from tests.client.notices import told_by
from tests.client.partners import Blocking, Opener, Partner
from tests.services.fault_kinds import DROP, Fault, Reply, is_any, is_api
from tests.services.faults import Faults, faults

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


def _classes() -> list[type[StoplistClientError]]:
    """Every class of errors.py."""
    return [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, StoplistClientError)]


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
    with pytest.raises(NotUnderstood, match="another number"):
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
        shown += [client.look_up("email", [ANN]), client._new_look_up("email", as_elements([ANN]), Target())]
    assert "needle" not in repr(shown)


class Showing(list[str]):
    """Goes on by itself, and shows what it has."""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if not self:
            raise StopIteration
        return self.pop(0)


class Revealing(list[str]):
    """A list that shows what it has, and breaks when it is gone through; so do query sets of databases."""

    def __iter__(self) -> Iterator[str]:
        raise LookupError("the table is gone")


def _broken() -> Iterator[str]:
    yield ANN
    yield from (f"needle{number}@example.com" for number in range(1_500))
    raise LookupError("the file ended")


async def _broken_later() -> AsyncIterator[str]:
    yield ANN
    for number in range(1_500):
        yield f"needle{number}@example.com"
    raise LookupError("the stream ended")


@pytest.mark.parametrize("method", ["unsubscribe", "resubscribe", "look_up"])
def test_what_the_callers_items_raise_shows_none_of_them(both: Opener, partner: Partner, method: str) -> None:
    """Of an error of the caller's own the frames in between, which are ours, show no address and no token."""
    client = both(partner)
    options = {"occurred_at": "2026-03-01T09:30:00Z"} if method == "resubscribe" else {}

    def attempt(items: Any) -> None:
        done = getattr(client, method)("email", items, **options)
        assert method == "look_up"
        list(done)

    sources: list[Callable[[], Any]] = [_broken, lambda: Revealing([ANN])]
    if isinstance(client, Blocking):
        sources.append(_broken_later)
    for source in sources:
        with pytest.raises(LookupError) as caught:
            attempt(source())
        _assert_tells_nothing(told_by(caught.value), partner)


@pytest.mark.parametrize("kind", [list, iter, Showing])
def test_what_a_callback_raises_shows_nothing(both: Opener, partner: Partner, kind: Callable[..., Any]) -> None:
    """As little do the frames below a callback that fails, strict and lenient."""
    client = both(partner, batch_items=2)

    def fail(sums: Submitted) -> None:
        raise OSError("disk full")

    for lenient in (False, True):
        with pytest.raises(OSError, match="disk full") as caught:
            client.unsubscribe("email", kind([ANN, "needle@example.org", BAD]), lenient=lenient, on_progress=fail)
        _assert_tells_nothing(told_by(caught.value), partner)


def _assert_tells_nothing(told: str, partner: Partner) -> None:
    assert "needle" not in told
    assert partner.key.secret[7:] not in told
    if tokens := FileStore().of(partner.service.base_url, partner.key.client_id).read():
        assert tokens.access_token[7:] not in told
        assert tokens.refresh_token[7:] not in told


def _filled(kind: type[StoplistClientError]) -> StoplistClientError:
    """One with every field that its class has, and what any may have."""
    parameters = list(inspect.signature(kind.__init__).parameters.values())
    fields = {each.name: f"some {each.name}" for each in parameters if each.kind is each.KEYWORD_ONLY}
    given: dict[str, Any] = {"item_errors": (ItemError(3, Item(ANN, reason="complaint"), "No."),), "age_s": 7.5}
    error = kind("What is wrong.", **{name: given.get(name, value) for name, value in fields.items()})
    error.submitted = Submitted(batches=2, received=5, submission_ids=("sub_1",))
    error.add_note("of the second file")
    return error


@pytest.mark.parametrize("kind", _classes(), ids=lambda kind: kind.__name__)
def test_errors_travel_between_processes(kind: type[StoplistClientError]) -> None:
    """Pickled or copied, as pools of processes and queues of tasks do, an error is the same with all of its fields."""
    error = _filled(kind)
    again = [
        pickle.loads(pickle.dumps(error, protocol))  # noqa: S301
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    ]
    for one in (*again, copy.copy(error), copy.deepcopy(error)):
        assert type(one) is kind
        assert (str(one), one.args, vars(one)) == (str(error), error.args, vars(error))
        assert one.submitted == error.submitted


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
    yield told_by(caught.value)


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

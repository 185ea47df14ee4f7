"""Refusals by a real server, their classes, and what errors must not show.

Sources: docs/interface.md sections 5, 7, 8 and D4.
"""

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
from tests.builders import ADMINISTRATOR, on_database
from tests.client.exposed_text import exposed_by
from tests.client.partners import BlockingAsyncClient, Opener, Partner
from tests.services.fault_kinds import DROP, Fault, Reply, is_any, is_api
from tests.services.faults import Faults

ANN = "needle.person@example.com"
BAD = "needle.nobody"
REFUSED_TOKEN = Reply(status=401, body=b'{"error": "invalid_token", "message": "Expired."}')

NewPartner = Callable[..., Partner]


@pytest.fixture
def between(partner: Partner) -> Iterator[Faults]:
    """A proxy in front of the service."""
    with Faults(partner.service.base_url, partner.service.server.ca.parent) as own:
        yield own
        assert own.planned == 0


def send_request(client: Any, method: str, url: str) -> Any:
    """Send a request that no method of a client sends."""
    core = client.client if isinstance(client, BlockingAsyncClient) else client
    ran = core._driver.run(call(core._session, Send(method=method, url=url, headers={})))
    return client.runner.run(ran) if isinstance(client, BlockingAsyncClient) else ran


def without_waiting(client: Any) -> list[float]:
    """Replace the client's waits by a list of their durations."""
    waited_s: list[float] = []
    core = client.client if isinstance(client, BlockingAsyncClient) else client

    async def record_wait(seconds: float) -> None:
        waited_s.append(seconds)

    core._driver.sleep = record_wait if isinstance(client, BlockingAsyncClient) else waited_s.append
    return waited_s


def _classes() -> list[type[StoplistClientError]]:
    """Return all error classes."""
    return [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, StoplistClientError)]


def test_bad_request_names_the_parameter(open_client: Opener, partner: Partner) -> None:
    with pytest.raises(BadRequest) as caught:
        open_client(partner).unsubscribe("email", [ANN], org_slug="x" * 65)
    assert (caught.value.status, caught.value.parameter) == (400, "org_slug")
    assert caught.value.request_id


def test_unauthorized_organization_names_organization_or_group(open_client: Opener, partner: Partner) -> None:
    client = open_client(partner)
    with pytest.raises(UnauthorizedOrganization) as caught:
        client.unsubscribe("email", [ANN], org_slug="elsewhere")
    assert (caught.value.status, caught.value.org_slug, caught.value.group_id) == (403, "elsewhere", None)
    with pytest.raises(UnauthorizedOrganization) as caught:
        list(client.look_up("email", [ANN], group_id="grp_none"))
    assert (caught.value.org_slug, caught.value.group_id) == (None, "grp_none")


def test_missing_default_group_names_the_organization(open_client: Opener, new_partner: NewPartner) -> None:
    partner = new_partner(has_default_group=False)
    with pytest.raises(DefaultGroupNotConfigured) as caught:
        open_client(partner).unsubscribe("email", [ANN])
    assert (caught.value.status, caught.value.org_slug) == (400, partner.org_slug)


def test_missing_permission_is_insufficient_scope(open_client: Opener, new_partner: NewPartner) -> None:
    with pytest.raises(InsufficientScope):
        open_client(new_partner(permissions=frozenset({"read"}))).unsubscribe("email", [ANN])


def test_wrong_path_or_method_is_final(open_client: Opener, partner: Partner) -> None:
    client = open_client(partner)
    with pytest.raises(NotFound):
        send_request(client, "GET", "/api/v1/nothing")
    with pytest.raises(MethodNotAllowed):
        send_request(client, "PUT", "/api/v1/unsubscribe/email")


def test_wrong_secret_is_not_retried(open_client: Opener, partner: Partner) -> None:
    client = open_client(partner, client_secret="svc_cs_" + "0" * 49)
    waited_s = without_waiting(client)
    with pytest.raises(InvalidClient) as caught:
        client.unsubscribe("email", [ANN])
    assert (caught.value.status, waited_s) == (401, [])


def test_deactivated_key_is_invalid_client(open_client: Opener, partner: Partner) -> None:
    """Its tokens and its secret are no longer valid."""
    client = open_client(partner)
    client.unsubscribe("email", [ANN])
    on_database(
        partner.service.installation.database_url,
        lambda database: deactivate_credential(ADMINISTRATOR, database, Clock(), client_id=partner.key.client_id),
    )
    with pytest.raises(InvalidClient):
        client.unsubscribe("email", [ANN])


def test_rate_limit_is_waited_for_before_it_is_raised(open_client: Opener, new_partner: NewPartner) -> None:
    """The wait is that of Retry-After; the error has it too."""
    client = open_client(new_partner(per_minute=1))
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
def test_failure_is_raised_after_three_attempts(
    open_client: Opener, partner: Partner, between: Faults, kind: type[StoplistClientError], told: Fault
) -> None:
    """It has the result of earlier batches; two failures pass unnoticed."""
    client = open_client(partner, base_url=between.base_url, batch_items=1)
    waited_s = without_waiting(client)
    between.next(told, told, when=is_api)
    assert client.unsubscribe("email", ["a@example.com"]).created == 1
    between.next(None, told, told, told, when=is_api)
    with pytest.raises(kind) as caught:
        client.unsubscribe("email", ["b@example.com", "c@example.com"])
    assert caught.value.submitted is not None
    assert caught.value.submitted.received == 1
    assert len(waited_s) == 4


def test_refused_token_is_replaced(open_client: Opener, partner: Partner, between: Faults) -> None:
    client = open_client(partner, base_url=between.base_url)
    client.unsubscribe("email", ["a@example.com"])
    between.next(REFUSED_TOKEN, when=is_api)
    assert client.unsubscribe("email", ["b@example.com"]).created == 1


def test_refused_fresh_token_is_not_replaced(open_client: Opener, partner: Partner, between: Faults) -> None:
    """Requesting more tokens would not help: invalid_token is raised."""
    client = open_client(partner, base_url=between.base_url)
    between.next(REFUSED_TOKEN, when=is_api)
    with pytest.raises(InvalidToken):
        client.unsubscribe("email", [ANN])
    assert [seen.client_status for seen in between.seen] == [200, 401]


def test_401_of_a_proxy_replaces_no_token(open_client: Opener, partner: Partner, between: Faults) -> None:
    """It says nothing about the token."""
    client = open_client(partner, base_url=between.base_url)
    client.unsubscribe("email", [ANN])
    between.next(Reply(status=401, body=b"<html>Sign in</html>"), when=is_api)
    with pytest.raises(NotUnderstood):
        client.unsubscribe("email", [ANN])
    assert [seen.client_status for seen in between.seen] == [200, 200, 401]


@pytest.mark.parametrize("received", [0, 1, 3])
def test_answer_about_other_items_is_not_understood(
    open_client: Opener, partner: Partner, between: Faults, received: int
) -> None:
    """A 200 that counts more or fewer items than were sent does not confirm them."""
    body = b'{"submission_id": null, "received": %d, "created": 0, "updated": 0, "unchanged": %d, "outranked": 0}'
    between.next(Reply(status=200, body=body % (received, received)), when=is_api)
    with pytest.raises(NotUnderstood, match="another number"):
        open_client(partner, base_url=between.base_url).unsubscribe("email", ["a@example.com", "b@example.com"])


# What errors, logs and reprs must not show


def test_nothing_shows_a_secret_or_an_address(
    open_client: Opener, partner: Partner, between: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    """This holds for debug logs, also of libraries, and for errors, their causes and the locals of their frames."""
    caplog.set_level(logging.DEBUG)
    client = open_client(partner, base_url=between.base_url, batch_items=2, attempts=1)
    client.unsubscribe("email", [ANN])
    list(client.look_up("email", [ANN, f"+{ANN}"]))
    records = list(client.changes("email"))
    told = [repr(client), repr(records), *_errors(open_client, client, partner, between)]
    told += [record.getMessage() for record in caplog.records]
    told += [record.exc_text or "" for record in caplog.records]
    assert {record.name.partition(".")[0] for record in caplog.records} >= {"httpx2", "httpcore2"}
    seen = "\n".join(told)
    for needle in _needles(partner, between):
        assert needle not in seen


def test_no_repr_shows_an_address(partner: Partner) -> None:
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


class SelfIterating(list[str]):
    """An iterable that is its own iterator and has a repr with its elements."""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if not self:
            raise StopIteration
        return self.pop(0)


class FailingIterable(list[str]):
    """A list whose repr shows its elements and whose iteration fails, like a query set of a database."""

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
def test_error_of_the_items_shows_none_of_them(open_client: Opener, partner: Partner, method: str) -> None:
    """Our frames in the traceback of the caller's error show no address and no token."""
    client = open_client(partner)
    options = {"occurred_at": "2026-03-01T09:30:00Z"} if method == "resubscribe" else {}

    def attempt(items: Any) -> None:
        done = getattr(client, method)("email", items, **options)
        assert method == "look_up"
        list(done)

    sources: list[Callable[[], Any]] = [_broken, lambda: FailingIterable([ANN])]
    if isinstance(client, BlockingAsyncClient):
        sources.append(_broken_later)
    for source in sources:
        with pytest.raises(LookupError) as caught:
            attempt(source())
        _assert_tells_nothing(exposed_by(caught.value), partner)


@pytest.mark.parametrize("kind", [list, iter, SelfIterating])
def test_error_of_a_callback_shows_nothing(open_client: Opener, partner: Partner, kind: Callable[..., Any]) -> None:
    """Nor do the frames below a failing callback, strict and lenient."""
    client = open_client(partner, batch_items=2)

    def fail(sums: Submitted) -> None:
        raise OSError("disk full")

    for lenient in (False, True):
        with pytest.raises(OSError, match="disk full") as caught:
            client.unsubscribe("email", kind([ANN, "needle@example.org", BAD]), lenient=lenient, on_progress=fail)
        _assert_tells_nothing(exposed_by(caught.value), partner)


def _assert_tells_nothing(told: str, partner: Partner) -> None:
    assert "needle" not in told
    assert partner.key.client_secret[7:] not in told
    if tokens := FileStore().of(partner.service.base_url, partner.key.client_id).read():
        assert tokens.access_token[7:] not in told
        assert tokens.refresh_token[7:] not in told


def _filled(kind: type[StoplistClientError]) -> StoplistClientError:
    """Return an error with all fields of its class."""
    parameters = list(inspect.signature(kind.__init__).parameters.values())
    fields = {each.name: f"some {each.name}" for each in parameters if each.kind is each.KEYWORD_ONLY}
    given: dict[str, Any] = {"item_errors": (ItemError(3, Item(ANN, reason="complaint"), "No."),), "age_s": 7.5}
    error = kind("What is wrong.", **{name: given.get(name, value) for name, value in fields.items()})
    error.submitted = Submitted(batches=2, received=5, submission_ids=("sub_1",))
    error.add_note("of the second file")
    return error


@pytest.mark.parametrize("kind", _classes(), ids=lambda kind: kind.__name__)
def test_errors_can_be_pickled_and_copied(kind: type[StoplistClientError]) -> None:
    """Process pools and task queues do so; all fields are kept."""
    error = _filled(kind)
    again = [
        pickle.loads(pickle.dumps(error, protocol))  # noqa: S301
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    ]
    for one in (*again, copy.copy(error), copy.deepcopy(error)):
        assert type(one) is kind
        assert (str(one), one.args, vars(one)) == (str(error), error.args, vars(error))
        assert one.submitted == error.submitted


def _errors(open_client: Opener, client: Any, partner: Partner, between: Faults) -> Iterator[str]:
    """Return everything that errors of every kind expose."""
    attempts: list[tuple[type[Exception], Callable[[], Any]]] = [
        (InvalidItem, lambda: client.unsubscribe("email", ["a@example.com", "b@example.com", BAD, ANN])),
        (InvalidItem, lambda: client.unsubscribe("email", (Item(address) for address in (BAD, ANN)))),
        (ConfigurationError, lambda: client.unsubscribe("email", [ANN, None])),
        (ConfigurationError, lambda: client.resubscribe("email", [ANN])),
        (BadRequest, lambda: list(client.look_up("email", [ANN, BAD]))),
        (ConfigurationError, lambda: list(client.look_up("email", [ANN, 5]))),
        (UnauthorizedOrganization, lambda: list(client.look_up("email", [ANN], org_slug="elsewhere"))),
        (UnauthorizedOrganization, lambda: client.unsubscribe("email", [ANN], org_slug="elsewhere")),
        (
            InvalidClient,
            lambda: open_client(partner, client_secret=partner.key.client_secret[:-1] + "-").unsubscribe(
                "email", [ANN]
            ),
        ),
        (ConfigurationError, lambda: open_client(partner, client_secret=partner.key.client_secret + "\n")),
        (ConfigurationError, lambda: open_client(partner, client_id=partner.key.client_secret)),
        (TransportFailed, lambda: open_client(partner, ca_file=None).unsubscribe("email", [ANN])),
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
    fresh = open_client(
        partner, base_url=between.base_url, store=FileStore(folder=between.ca.parent / "fresh"), attempts=1
    )
    yield from _told_by(TransportFailed, lambda: fresh.unsubscribe("email", [ANN]))


def _told_by(kind: type[Exception], attempt: Callable[[], Any]) -> Iterator[str]:
    with pytest.raises(kind) as caught:
        attempt()
    yield exposed_by(caught.value)


def _needles(partner: Partner, between: Faults) -> Iterator[str]:
    """Return what must not appear anywhere, in all forms in which it is sent."""
    addresses = (ANN, BAD)
    yield from addresses
    yield from map(quote, addresses)
    yield "needle"
    yield partner.key.client_secret[7:]
    for base_url in (partner.service.base_url, between.base_url):
        tokens = FileStore().of(base_url, partner.key.client_id).read()
        if tokens is not None:
            yield tokens.access_token[7:]
            yield tokens.refresh_token[7:]
    assert tokens is not None
    headers = [seen.request.headers.get("authorization", "") for seen in between.seen]
    assert any(headers)
    yield from (header.partition(" ")[2] for header in headers if header)

"""Connections that are kept open, and calls whose connection was closed by the other side."""

import pytest
from stoplist_client import TransportFailed

from tests.client.faults.answers import posted_bodies, records
from tests.client.faults.conftest import NoWaitOpener
from tests.client.partners import Partner
from tests.services.fault_kinds import DROP, is_api
from tests.services.faults import Faults


def test_one_connection_serves_all_calls(open_without_waits: NoWaitOpener, partner: Partner, between: Faults) -> None:
    """Tokens, batches, look-ups and pages."""
    client, _ = open_without_waits(partner)
    for number in range(3):
        client.unsubscribe("email", [f"person{number}@kept.test"])
        assert len(list(client.look_up("email", ["person0@kept.test"]))) == 1
        assert len(list(client.changes("email", limit=1))) == number + 1
    assert between.connections == 1


def test_connection_closed_while_idle_fails_no_call(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults
) -> None:
    """Another one is opened at once, without an attempt or a wait."""
    client, pauses_s = open_without_waits(partner, attempts=1)
    for number in range(5):
        assert client.unsubscribe("email", [f"person{number}@idle.test"]).created == 1
        between.close_idle()
    assert (between.connections, len(posted_bodies(between)), pauses_s) == (5, 5, [])
    assert len(records(partner)) == 5


def test_connection_closed_in_use_costs_an_attempt(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults
) -> None:
    """The request may or may not have been read, so it is retried like any other failure."""
    client, pauses_s = open_without_waits(partner, attempts=2)
    client.unsubscribe("email", ["ann@race.test"])
    between.next(DROP, when=is_api)
    assert client.unsubscribe("email", ["bob@race.test"]).created == 1
    assert len(pauses_s) == 1


def test_unreachable_service_is_transport_failed(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults
) -> None:
    """Once it is back, the same client works again."""
    client, pauses_s = open_without_waits(partner)
    home, between.server = between.server, "https://localhost:1"
    with pytest.raises(TransportFailed, match="3 attempts"):
        client.unsubscribe("email", ["ann@gone.test"])
    between.server = home
    assert client.unsubscribe("email", ["ann@gone.test"]).created == 1
    assert len(pauses_s) == 2

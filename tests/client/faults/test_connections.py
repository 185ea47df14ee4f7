"""Connections that are kept, and what becomes of a call when the other side has closed one meanwhile."""

import pytest
from stoplist_client import TransportFailed

from tests.client.faults.answers import posted, records
from tests.client.faults.conftest import HastyOpener
from tests.client.partners import Partner
from tests.services.fault_kinds import DROP, is_api
from tests.services.faults import Faults


def test_one_connection_serves_call_after_call(hasty: HastyOpener, partner: Partner, between: Faults) -> None:
    """Tokens, batches, look-ups and pages."""
    client, _ = hasty(partner)
    for number in range(3):
        client.unsubscribe("email", [f"person{number}@kept.test"])
        assert len(list(client.look_up("email", ["person0@kept.test"]))) == 1
        assert len(list(client.changes("email", limit=1))) == number + 1
    assert between.connections == 1


def test_a_connection_that_was_closed_while_it_idled_fails_no_call(
    hasty: HastyOpener, partner: Partner, between: Faults
) -> None:
    """Another one is opened at once: this is no attempt, and nothing waits."""
    client, pauses_s = hasty(partner, attempts=1)
    for number in range(5):
        assert client.unsubscribe("email", [f"person{number}@idle.test"]).created == 1
        between.close_idle()
    assert (between.connections, len(posted(between)), pauses_s) == (5, 5, [])
    assert len(records(partner)) == 5


def test_a_connection_that_is_closed_just_as_it_is_used_costs_an_attempt(
    hasty: HastyOpener, partner: Partner, between: Faults
) -> None:
    """Whether the request was read nobody can know: it is repeated as after any other failure."""
    client, pauses_s = hasty(partner, attempts=2)
    client.unsubscribe("email", ["ann@race.test"])
    between.next(DROP, when=is_api)
    assert client.unsubscribe("email", ["bob@race.test"]).created == 1
    assert len(pauses_s) == 1


def test_a_service_that_is_not_there_is_told(hasty: HastyOpener, partner: Partner, between: Faults) -> None:
    """No listener at all, as far as the proxy can show it; then it is back, and the same client goes on."""
    client, pauses_s = hasty(partner)
    home, between.server = between.server, "https://localhost:1"
    with pytest.raises(TransportFailed, match="3 attempts"):
        client.unsubscribe("email", ["ann@gone.test"])
    between.server = home
    assert client.unsubscribe("email", ["ann@gone.test"]).created == 1
    assert len(pauses_s) == 2

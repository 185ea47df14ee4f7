"""Many batches with faults: each item is stored once, and the totals are right."""

import itertools
from contextlib import ExitStack
from typing import Any

import pytest
from stoplist_client import InvalidItem, ServerError, Submitted, TransportFailed

from tests.client.faults.answers import HALF_PACKED, PASSING, posted_bodies, records, times_sent
from tests.client.faults.conftest import NoWaitOpener
from tests.client.partners import BlockingAsyncClient, Partner, no_timeout
from tests.services.fault_kinds import CUT, DROP, LOSE, Alter, ConnectionFault, Hold, Reply, is_api
from tests.services.faults import Faults

PEOPLE = [f"person{number}@batches.test" for number in range(50)]


def test_submission_survives_faults_between_batches(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults
) -> None:
    """Each person is stored once, in order, with the body that was sent first."""
    client, _ = open_without_waits(partner, batch_items=10)
    between.next(None, DROP, None, LOSE, DROP, None, CUT, PASSING["502 in HTML"], None, when=is_api)
    told: list[Submitted] = []
    submitted = client.unsubscribe("email", PEOPLE, on_progress=told.append)
    assert [record.address for record in records(partner)] == PEOPLE
    assert (submitted.batches, submitted.received, submitted.outranked) == (5, 50, 0)
    assert submitted.created + submitted.unchanged == 50
    assert [sums.received for sums in told] == [10, 20, 30, 40, 50]
    by_first = {
        first: [body for body in posted_bodies(between) if body["items"][0]["address"] == first]
        for first in PEOPLE[::10]
    }
    assert [len(bodies) for bodies in by_first.values()] == [1, 2, 3, 3, 1]
    assert all(body == bodies[0] for bodies in by_first.values() for body in bodies)
    assert {record.occurred_at for record in records(partner)} == set().union(
        *(times_sent(bodies[0]) for bodies in by_first.values())
    )


@pytest.mark.parametrize(("mishap", "stored"), [(DROP, 20), (LOSE, 30)])
def test_error_has_the_result_of_earlier_batches(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults, mishap: ConnectionFault, stored: int
) -> None:
    """The whole call may be repeated, and stores each person once."""
    client, _ = open_without_waits(partner, batch_items=10, attempts=1)
    between.next(None, None, mishap, when=is_api)
    with pytest.raises(TransportFailed) as failed:
        client.unsubscribe("email", PEOPLE)
    assert failed.value.submitted is not None
    assert (failed.value.submitted.batches, failed.value.submitted.created) == (2, 20)
    assert len(records(partner)) == stored
    again = client.unsubscribe("email", PEOPLE)
    assert (again.unchanged, again.created, again.outranked) == (stored, 50 - stored, 0)
    assert [record.address for record in records(partner)] == PEOPLE


def test_few_items_are_read_beyond_a_failed_batch(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults
) -> None:
    """Fewer than one slice."""
    client, _ = open_without_waits(partner, batch_items=10, attempts=1)
    between.next(None, PASSING["500"], when=is_api)
    numbers = itertools.count()
    with pytest.raises(ServerError):
        client.unsubscribe("email", (f"person{number}@ahead.test" for number in numbers))
    assert next(numbers) <= 20


def test_item_indexes_are_those_of_the_call_after_faults(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults
) -> None:
    """A batch that was lost and then refused names its items by their positions in the call."""
    client, _ = open_without_waits(partner, batch_items=10)
    between.next(LOSE, None, PASSING["503"], DROP, when=is_api)
    with pytest.raises(InvalidItem) as refused:
        client.unsubscribe("email", [*PEOPLE[:13], "nobody", *PEOPLE[13:]])
    assert [(error.item_index, error.item) for error in refused.value.item_errors] == [(13, "nobody")]
    assert refused.value.submitted is not None
    assert refused.value.submitted.received == 10
    assert [record.address for record in records(partner)] == PEOPLE[:10]


def test_following_survives_faults_between_pages(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults
) -> None:
    """No record is skipped or repeated."""
    client, _ = open_without_waits(partner)
    client.unsubscribe("email", PEOPLE)
    between.next(None, LOSE, CUT, None, DROP, PASSING["500"], None, HALF_PACKED, None, when=is_api)
    assert [record.address for record in client.changes("email", limit=10)] == PEOPLE


def test_failed_page_is_read_again_from_the_cursor(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults
) -> None:
    """The cursor of the iterator loses no record."""
    client, _ = open_without_waits(partner, attempts=1)
    client.unsubscribe("email", PEOPLE)
    between.next(None, None, CUT, when=is_api)
    changes = client.changes("email", limit=10)
    assert [next(changes).address for _ in range(15)] == PEOPLE[:15]
    in_midst = changes.cursor
    assert [next(changes).address for _ in range(5)] == PEOPLE[15:20]
    with pytest.raises(TransportFailed):
        next(changes)
    assert [record.address for record in client.changes("email", cursor=in_midst)] == PEOPLE[10:]
    assert [record.address for record in client.changes("email", cursor=changes.cursor)] == PEOPLE[20:]


@pytest.mark.parametrize("size", [5, 20_000])
def test_broken_compression_is_retried(
    open_without_waits: NoWaitOpener, partner: Partner, between: Faults, size: int
) -> None:
    """Half an answer is never taken for the whole, wherever the break is."""
    client, _ = open_without_waits(partner)
    client.unsubscribe("email", PEOPLE)
    between.next(HALF_PACKED, None, not_packed(size), None, when=is_api)
    assert [record.address for record in client.changes("email")] == PEOPLE
    assert [record.address for record in client.changes("email")] == PEOPLE


def test_timeout_is_retried(open_without_waits: NoWaitOpener, partner: Partner, between: Faults) -> None:
    """The service had stored the batch; the retry finds it unchanged."""
    client, pauses_s = open_without_waits(partner, timeout_s=0.5)
    driver: Any = (client.client if isinstance(client, BlockingAsyncClient) else client)._driver
    held, sleep = Hold(), driver.sleep
    with no_timeout(client):
        assert list(client.changes("email")) == []  # from here on it has tokens and a connection
    between.next(held, when=is_api)
    with ExitStack() as stack:

        def wait_for_the_service(seconds: float) -> Any:
            held.wait()
            stack.enter_context(no_timeout(client))
            return sleep(seconds)

        driver.sleep = wait_for_the_service
        submitted = client.unsubscribe("email", ["ann@slow.test"])
    held.release()
    assert (submitted.unchanged, len(pauses_s)) == (1, 1)
    first, second = posted_bodies(between)
    assert first == second
    assert len(records(partner)) == 1


def not_packed(size: int) -> Alter:
    """Claim a compression that the body does not have."""
    return Alter(lambda reply: Reply(status=200, headers={"content-encoding": "gzip"}, body=b"x" * size))

"""Submitting with both clients to a real server. Source: docs/interface.md section D6 (POST)."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from stoplist_client import (
    Client,
    ConfigurationError,
    InsufficientScope,
    InvalidItem,
    Item,
    Submitted,
    TransportFailed,
)

from tests.client.partners import BlockingAsyncClient, Opener, Partner
from tests.services.fault_kinds import DROP, is_api
from tests.services.faults import Faults

ANN, BOB, CLEO = "ann@example.com", "bob@example.org", "cleo@example.net"
MORNING, NOON = datetime(2026, 3, 1, 9, 30, tzinfo=UTC), datetime(2026, 3, 1, 12, tzinfo=UTC)


def statuses(client: Any, **options: Any) -> dict[str, str]:
    """Return the statuses of the organization's records, by address."""
    return {record.address: record.status for record in client.changes("email", **options)}


def set_clock_off(client: Client | BlockingAsyncClient, seconds: float) -> None:
    """Set the clock of the client's host fast or slow by this many seconds."""
    session = (client.client if isinstance(client, BlockingAsyncClient) else client)._session
    now_s = session.environment.now_s
    session.environment.now_s = lambda: now_s() + seconds  # type: ignore[method-assign]


def test_opt_outs_are_stored(open_client: Opener, partner: Partner) -> None:
    """They are stored for the default group, with the time at which each was read, and counted once."""
    client = open_client(partner)
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    done = client.unsubscribe("email", [ANN, "BOB@Example.org "])
    assert (done.batches, done.received, done.created) == (1, 2, 2)
    assert (done.updated, done.unchanged, done.outranked, done.item_errors) == (0, 0, 0, ())
    assert len(done.submission_ids) == 1
    records = list(client.changes("email"))
    assert [(record.address, record.status, record.group_id) for record in records] == [
        (ANN, "unsubscribed", partner.group_id),
        (BOB, "unsubscribed", partner.group_id),
    ]
    assert all(before <= record.occurred_at <= datetime.now(UTC) for record in records)


@pytest.mark.parametrize(("channel", "address"), [("email", ANN), ("sms", "+14155550123"), ("phone", "+14155550123")])
def test_channels_are_separate(open_client: Opener, partner: Partner, channel: Any, address: str) -> None:
    client = open_client(partner)
    client.unsubscribe(channel, [address])
    counts = {name: sum(1 for _ in client.changes(name)) for name in ("email", "sms", "phone")}
    assert counts == {"email": 0, "sms": 0, "phone": 0} | {channel: 1}


def test_items_have_time_reason_and_source(open_client: Opener, partner: Partner) -> None:
    """Fields that an item leaves out are taken from the call."""
    client = open_client(partner)
    items = [Item(ANN, MORNING, "complaint", "hotline"), Item(BOB), CLEO]
    client.unsubscribe("email", items, occurred_at=NOON, reason="import", source="old list")
    assert [(record.occurred_at, record.reason, record.source) for record in client.changes("email")] == [
        (MORNING, "complaint", "hotline"),
        (NOON, "import", "old list"),
        (NOON, "import", "old list"),
    ]


def test_call_selects_group_or_all_groups(open_client: Opener, partner: Partner) -> None:
    """The call's group wins over the client's, which wins over the organization's default."""
    client = open_client(partner, org_slug=partner.org_slug, group_id=partner.other_group_id)
    client.unsubscribe("email", [ANN])
    client.unsubscribe("email", [BOB], group_id=partner.group_id)
    client.unsubscribe("email", [CLEO], all_groups=True)
    groups = {record.address: record.group_id for record in client.changes("email", every_group=True)}
    assert groups == {ANN: partner.other_group_id, BOB: partner.group_id, CLEO: None}


def test_many_items_are_sent_in_batches(open_client: Opener, partner: Partner) -> None:
    """Items are read lazily, and the callback gets the totals after each batch."""
    read: list[int] = []
    heard: list[tuple[Submitted, int]] = []

    def addresses() -> Iterator[str]:
        for number in range(2_500):
            read.append(number)
            yield f"p{number}@example.com"

    client = open_client(partner, batch_items=1_000)
    done = client.unsubscribe("email", addresses(), on_progress=lambda sums: heard.append((sums, len(read))))
    assert (done.batches, done.received, done.created, len(set(done.submission_ids))) == (3, 2_500, 2_500, 3)
    assert [(sums.batches, sums.received, count) for sums, count in heard] == [
        (1, 1_000, 1_000),
        (2, 2_000, 2_000),
        (3, 2_500, 2_500),
    ]
    assert heard[-1][0] == done
    assert sum(1 for _ in client.changes("email")) == 2_500


def test_no_items_make_no_request(open_client: Opener, partner: Partner) -> None:
    assert open_client(partner, base_url="https://localhost:9").unsubscribe("email", []) == Submitted()


def test_async_iterables_are_accepted(partner: Partner) -> None:
    async def addresses() -> AsyncIterator[str | Item]:
        for number in range(1_200):
            yield f"p{number}@example.com" if number % 2 else Item(f"p{number}@example.com")

    client = BlockingAsyncClient(**partner.access, batch_items=500)
    try:
        assert client.unsubscribe("email", addresses()).created == 1_200
        assert len(list(client.look_up("email", only(ANN)))) == 1
    finally:
        client.close()
        client.runner.close()


async def only(address: str) -> AsyncIterator[str]:
    yield address


def test_invalid_item_refuses_its_batch(open_client: Opener, partner: Partner) -> None:
    """The error has each invalid item with its index in the call; no later batch is sent."""
    bad_item = Item("dan.example.com")
    client = open_client(partner, batch_items=2)
    with pytest.raises(InvalidItem) as caught:
        client.unsubscribe("email", [ANN, BOB, CLEO, "nobody", bad_item, "eve@example.com"])
    error = caught.value
    assert [(bad.item_index, bad.item) for bad in error.item_errors] == [(3, "nobody")]
    assert "@" in error.item_errors[0].item_error
    assert (error.status, error.code, error.request_id is not None) == (400, "invalid_item", True)
    assert error.submitted is not None
    assert (error.submitted.batches, error.submitted.created, len(error.submitted.submission_ids)) == (1, 2, 1)
    assert statuses(client) == {ANN: "unsubscribed", BOB: "unsubscribed"}


def test_lenient_stores_the_valid_items(open_client: Opener, partner: Partner) -> None:
    """Invalid items are listed over all batches."""
    bad_item = Item("dan.example.com")
    client = open_client(partner, batch_items=2)
    done = client.unsubscribe("email", [ANN, "nobody", bad_item, BOB, "\ud800@example.com"], lenient=True)
    assert [(bad.item_index, bad.item) for bad in done.item_errors] == [
        (1, "nobody"),
        (2, bad_item),
        (4, "\ud800@example.com"),
    ]
    assert (done.batches, done.received, done.created) == (3, 5, 2)
    assert statuses(client) == {ANN: "unsubscribed", BOB: "unsubscribed"}


def test_repeated_call_changes_nothing(open_client: Opener, partner: Partner) -> None:
    """The same items with their times count as unchanged, and no submission is stored."""
    client = open_client(partner)
    items = [Item(ANN, NOON), Item(BOB, NOON)]
    client.unsubscribe("email", items)
    again = client.unsubscribe("email", items)
    assert (again.received, again.unchanged, again.submission_ids) == (2, 2, ())


def test_later_consent_resubscribes(open_client: Opener, partner: Partner) -> None:
    """A consent from before the opt-out is outranked."""
    client = open_client(partner)
    client.unsubscribe("email", [Item(ANN, MORNING), Item(BOB, NOON)])
    done = client.resubscribe(
        "email", [ANN, Item(BOB, MORNING)], occurred_at=MORNING + timedelta(hours=1), source="shop"
    )
    assert (done.received, done.updated, done.outranked) == (2, 1, 1)
    assert statuses(client) == {ANN: "resubscribed", BOB: "unsubscribed"}


def test_consent_needs_a_time(open_client: Opener, partner: Partner) -> None:
    """Without one, nothing of the batch is sent."""
    client = open_client(partner)
    client.unsubscribe("email", [Item(ANN, MORNING)])
    with pytest.raises(ConfigurationError, match="Item 1 has no occurred_at"):
        client.resubscribe("email", [Item(ANN, NOON), BOB])
    assert statuses(client) == {ANN: "unsubscribed"}


def test_consent_needs_the_permission(open_client: Opener, new_partner: Any) -> None:
    client = open_client(new_partner(permissions=frozenset({"read", "unsubscribe"})))
    with pytest.raises(InsufficientScope):
        client.resubscribe("email", [ANN], occurred_at=NOON)


def test_no_opt_out_is_lost_to_a_slow_clock(open_client: Opener, partner: Partner) -> None:
    """A stamp that is older than a consent is dropped, and the opt-out counts as of now.

    The totals count each item once by its final result, also an address that occurs twice.
    """
    client = open_client(partner)
    consent = datetime.now(UTC) - timedelta(minutes=1)
    client.resubscribe("email", [ANN, BOB], occurred_at=consent)
    set_clock_off(client, -3600)
    done = client.unsubscribe("email", [ANN, CLEO, "Ann@example.com"])
    assert statuses(client) == {ANN: "unsubscribed", BOB: "resubscribed", CLEO: "unsubscribed"}
    assert (done.batches, done.received, len(done.submission_ids)) == (1, 3, 2)
    assert (done.created, done.updated, done.unchanged, done.outranked) == (1, 1, 1, 0)


@pytest.mark.parametrize("lenient", [False, True])
def test_no_opt_out_is_lost_to_a_fast_clock(open_client: Opener, partner: Partner, lenient: bool) -> None:
    """A stamp that the service refuses as in the future is dropped: the item is sent again, as of now.

    The totals count each item once, and times given by the caller are kept.
    """
    client = open_client(partner, batch_items=3)
    set_clock_off(client, 3600)
    done = client.unsubscribe("email", [ANN, Item(BOB, MORNING), Item(CLEO), "dan@example.com"], lenient=lenient)
    assert (done.batches, done.received, done.created, done.item_errors) == (2, 4, 4, ())
    assert (done.updated, done.unchanged, done.outranked) == (0, 0, 0)
    times = {record.address: record.occurred_at for record in client.changes("email")}
    assert times.pop(BOB) == MORNING
    assert len(times) == 3
    assert max(times.values()) <= datetime.now(UTC)


def test_fast_clock_hides_no_other_fault(open_client: Opener, partner: Partner) -> None:
    """An item that is refused without a time too is reported once, in the order of the call."""
    client = open_client(partner, batch_items=4)
    set_clock_off(client, 3600)
    future = Item(BOB, datetime.now(UTC) + timedelta(hours=1))
    done = client.unsubscribe("email", [ANN, future, "nobody", CLEO, "eve@example.com"], lenient=True)
    assert [(bad.item_index, bad.item) for bad in done.item_errors] == [(1, future), (2, "nobody")]
    assert "future" in done.item_errors[0].item_error
    assert "@" in done.item_errors[1].item_error
    assert (done.batches, done.received, done.created, len(done.submission_ids)) == (2, 5, 3, 2)
    with pytest.raises(InvalidItem) as caught:
        client.unsubscribe("email", ["flo@example.com", "nobody"])
    assert [(bad.item_index, bad.item) for bad in caught.value.item_errors] == [(1, "nobody")]
    assert "@" in caught.value.item_errors[0].item_error


def test_given_time_in_the_future_is_refused(open_client: Opener, partner: Partner) -> None:
    """The item or the call may give it; only stamps of this host may be dropped."""
    client = open_client(partner)
    future = datetime.now(UTC) + timedelta(hours=1)
    set_clock_off(client, 3600)
    for items, options in (([ANN, Item(BOB, future)], {}), ([ANN], {"occurred_at": future})):
        with pytest.raises(InvalidItem) as caught:
            client.unsubscribe("email", items, **options)
        assert all("future" in bad.item_error for bad in caught.value.item_errors)
    assert statuses(client) == {}


def test_failed_resend_keeps_the_first_totals(open_client: Opener, partner: Partner) -> None:
    """Each item is counted once in these too."""
    with Faults(partner.service.base_url, partner.service.server.ca.parent) as between:
        client = open_client(partner, base_url=between.base_url, attempts=1)
        set_clock_off(client, 3600)
        between.next(None, DROP, when=is_api)
        with pytest.raises(TransportFailed) as caught:
            client.unsubscribe("email", [ANN, Item(BOB, MORNING)], lenient=True)
    sums = caught.value.submitted
    assert sums is not None
    assert (sums.received, sums.created, [bad.item_index for bad in sums.item_errors]) == (2, 1, [0])


def test_given_time_of_an_item_is_never_changed(open_client: Opener, partner: Partner) -> None:
    """An old opt-out with its own time stays outranked, beside one that was stamped and resent."""
    client = open_client(partner)
    client.resubscribe("email", [ANN, BOB], occurred_at=datetime.now(UTC) - timedelta(minutes=1))
    set_clock_off(client, -3600)
    done = client.unsubscribe("email", [Item(ANN, MORNING), BOB, "nobody"], lenient=True)
    assert statuses(client) == {ANN: "resubscribed", BOB: "unsubscribed"}
    assert (done.received, done.updated, done.outranked, len(done.item_errors)) == (3, 1, 1, 1)


def test_given_time_of_the_call_is_never_changed(open_client: Opener, partner: Partner) -> None:
    """Importing an old list with its date overrides no later consent."""
    client = open_client(partner)
    client.resubscribe("email", [ANN], occurred_at=NOON)
    done = client.unsubscribe("email", [ANN, Item(BOB)], occurred_at=MORNING)
    assert statuses(client) == {ANN: "resubscribed", BOB: "unsubscribed"}
    assert (done.received, done.created, done.outranked) == (2, 1, 1)


@pytest.mark.parametrize("single", [ANN, b"bob@example.org", Item(ANN), None, 5])
def test_single_str_is_refused(open_client: Opener, partner: Partner, single: Any) -> None:
    """It would be iterated by character."""
    client = open_client(partner)
    for method in (client.unsubscribe, client.resubscribe, client.look_up):
        with pytest.raises(ConfigurationError, match="into a list"):
            method("email", single)


def test_error_of_the_callback_is_raised(open_client: Opener, partner: Partner) -> None:
    """The callback may stop a call; what was sent by then is stored."""
    client = open_client(partner, batch_items=1)
    with pytest.raises(KeyError, match="enough"):
        client.unsubscribe("email", [ANN, BOB], on_progress=Mock(side_effect=KeyError("enough")))
    assert statuses(client) == {ANN: "unsubscribed"}


def test_error_of_the_iterable_is_raised(open_client: Opener, partner: Partner) -> None:
    def broken() -> Iterator[str]:
        yield ANN
        raise LookupError("the file ended")

    with pytest.raises(LookupError, match="the file ended"):
        open_client(partner).unsubscribe("email", broken())

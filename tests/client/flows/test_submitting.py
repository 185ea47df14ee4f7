"""Submitting, with Client and AsyncClient, to a real server. Source: docs/interface.md section D6 (POST)."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

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

from tests.client.partners import Blocking, Opener, Partner
from tests.services.fault_kinds import DROP, is_api
from tests.services.faults import faults

ANN, BOB, CLEO = "ann@example.com", "bob@example.org", "cleo@example.net"
MORNING, NOON = datetime(2026, 3, 1, 9, 30, tzinfo=UTC), datetime(2026, 3, 1, 12, tzinfo=UTC)


def statuses(client: Any, **options: Any) -> dict[str, str]:
    """What the service has of the organization, by address."""
    return {record.address: record.status for record in client.changes("email", **options)}


def set_clock_off(client: Client | Blocking, seconds: float) -> None:
    """The host of this client has a clock that is so much fast, or slow."""
    session = (client.client if isinstance(client, Blocking) else client)._session
    now_s = session.environment.now_s
    session.environment.now_s = lambda: now_s() + seconds  # type: ignore[method-assign]


def test_opt_outs_are_stored(both: Opener, partner: Partner) -> None:
    """Each address is unsubscribed from the default group at the moment at which it was read, and counted once."""
    client = both(partner)
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
def test_every_channel_has_a_list_of_its_own(both: Opener, partner: Partner, channel: Any, address: str) -> None:
    """What is submitted on one channel is on that one, and on no other."""
    client = both(partner)
    client.unsubscribe(channel, [address])
    counts = {name: sum(1 for _ in client.changes(name)) for name in ("email", "sms", "phone")}
    assert counts == {"email": 0, "sms": 0, "phone": 0} | {channel: 1}


def test_items_say_when_why_and_where(both: Opener, partner: Partner) -> None:
    """What an item says is stored; what it leaves open is the call's."""
    client = both(partner)
    items = [Item(ANN, MORNING, "complaint", "hotline"), Item(BOB), CLEO]
    client.unsubscribe("email", items, occurred_at=NOON, reason="import", source="old list")
    assert [(record.occurred_at, record.reason, record.source) for record in client.changes("email")] == [
        (MORNING, "complaint", "hotline"),
        (NOON, "import", "old list"),
        (NOON, "import", "old list"),
    ]


def test_calls_name_group_or_all_groups(both: Opener, partner: Partner) -> None:
    """The group of the call wins over that of the client, which wins over the default one of the organization."""
    client = both(partner, org_slug=partner.org_slug, group_id=partner.other_group_id)
    client.unsubscribe("email", [ANN])
    client.unsubscribe("email", [BOB], group_id=partner.group_id)
    client.unsubscribe("email", [CLEO], all_groups=True)
    groups = {record.address: record.group_id for record in client.changes("email", every_group=True)}
    assert groups == {ANN: partner.other_group_id, BOB: partner.group_id, CLEO: None}


def test_many_items_go_in_batches(both: Opener, partner: Partner) -> None:
    """A million would: they are read lazily, each batch is counted, and the callback hears the sums after each."""
    read: list[int] = []
    heard: list[tuple[Submitted, int]] = []

    def addresses() -> Iterator[str]:
        for number in range(2_500):
            read.append(number)
            yield f"p{number}@example.com"

    client = both(partner, batch_items=1_000)
    done = client.unsubscribe("email", addresses(), on_progress=lambda sums: heard.append((sums, len(read))))
    assert (done.batches, done.received, done.created, len(set(done.submission_ids))) == (3, 2_500, 2_500, 3)
    assert [(sums.batches, sums.received, count) for sums, count in heard] == [
        (1, 1_000, 1_000),
        (2, 2_000, 2_000),
        (3, 2_500, 2_500),
    ]
    assert heard[-1][0] == done
    assert sum(1 for _ in client.changes("email")) == 2_500


def test_nothing_to_submit_is_fine(both: Opener, partner: Partner) -> None:
    """Sums of nothing, and no request."""
    assert both(partner, base_url="https://localhost:9").unsubscribe("email", []) == Submitted()


def test_asynchronous_items_are_read_too(partner: Partner) -> None:
    """AsyncClient takes what `async for` goes through."""

    async def addresses() -> AsyncIterator[str | Item]:
        for number in range(1_200):
            yield f"p{number}@example.com" if number % 2 else Item(f"p{number}@example.com")

    client = Blocking(**partner.access, batch_items=500)
    try:
        assert client.unsubscribe("email", addresses()).created == 1_200
        assert len(list(client.look_up("email", only(ANN)))) == 1
    finally:
        client.close()
        client.runner.close()


async def only(address: str) -> AsyncIterator[str]:
    yield address


def test_a_bad_item_refuses_its_batch_and_is_named(both: Opener, partner: Partner) -> None:
    """The error has each bad item as it was given, by its place in the call; no later batch is sent."""
    bad_item = Item("dan.example.com")
    client = both(partner, batch_items=2)
    with pytest.raises(InvalidItem) as caught:
        client.unsubscribe("email", [ANN, BOB, CLEO, "nobody", bad_item, "eve@example.com"])
    error = caught.value
    assert [(bad.item_index, bad.item) for bad in error.item_errors] == [(3, "nobody")]
    assert "@" in error.item_errors[0].item_error
    assert (error.status, error.code, error.request_id is not None) == (400, "invalid_item", True)
    assert error.submitted is not None
    assert (error.submitted.batches, error.submitted.created, len(error.submitted.submission_ids)) == (1, 2, 1)
    assert statuses(client) == {ANN: "unsubscribed", BOB: "unsubscribed"}


def test_on_request_the_good_items_are_stored(both: Opener, partner: Partner) -> None:
    """With `lenient` bad items are listed over all batches, and everything else is stored."""
    bad_item = Item("dan.example.com")
    client = both(partner, batch_items=2)
    done = client.unsubscribe("email", [ANN, "nobody", bad_item, BOB, "\ud800@example.com"], lenient=True)
    assert [(bad.item_index, bad.item) for bad in done.item_errors] == [
        (1, "nobody"),
        (2, bad_item),
        (4, "\ud800@example.com"),
    ]
    assert (done.batches, done.received, done.created) == (3, 5, 2)
    assert statuses(client) == {ANN: "unsubscribed", BOB: "unsubscribed"}


def test_a_repetition_changes_nothing(both: Opener, partner: Partner) -> None:
    """The same items with their times, sent again, are unchanged, and no submission is stored for them."""
    client = both(partner)
    items = [Item(ANN, NOON), Item(BOB, NOON)]
    client.unsubscribe("email", items)
    again = client.unsubscribe("email", items)
    assert (again.received, again.unchanged, again.submission_ids) == (2, 2, ())


def test_a_consent_takes_people_back(both: Opener, partner: Partner) -> None:
    """The later act wins: a consent after the opt-out resubscribes, one before it is outranked."""
    client = both(partner)
    client.unsubscribe("email", [Item(ANN, MORNING), Item(BOB, NOON)])
    done = client.resubscribe(
        "email", [ANN, Item(BOB, MORNING)], occurred_at=MORNING + timedelta(hours=1), source="shop"
    )
    assert (done.received, done.updated, done.outranked) == (2, 1, 1)
    assert statuses(client) == {ANN: "resubscribed", BOB: "unsubscribed"}


def test_a_consent_needs_its_moment(both: Opener, partner: Partner) -> None:
    """Without one nothing of the batch is sent."""
    client = both(partner)
    client.unsubscribe("email", [Item(ANN, MORNING)])
    with pytest.raises(ConfigurationError, match="Item 1 has no occurred_at"):
        client.resubscribe("email", [Item(ANN, NOON), BOB])
    assert statuses(client) == {ANN: "unsubscribed"}


def test_a_consent_needs_the_permission(both: Opener, new_partner: Any) -> None:
    """A key without it is refused by its class."""
    client = both(new_partner(may=frozenset({"read", "unsubscribe"})))
    with pytest.raises(InsufficientScope):
        client.resubscribe("email", [ANN], occurred_at=NOON)


def test_no_opt_out_is_lost_to_a_slow_clock(both: Opener, partner: Partner) -> None:
    """A stamp of this host that is older than a consent is given up, and the opt-out takes effect as an act of now.

    The sums count each item once, by what became of it in the end; an address that stands there twice too.
    """
    client = both(partner)
    consent = datetime.now(UTC) - timedelta(minutes=1)
    client.resubscribe("email", [ANN, BOB], occurred_at=consent)
    set_clock_off(client, -3600)
    done = client.unsubscribe("email", [ANN, CLEO, "Ann@example.com"])
    assert statuses(client) == {ANN: "unsubscribed", BOB: "resubscribed", CLEO: "unsubscribed"}
    assert (done.batches, done.received, len(done.submission_ids)) == (1, 3, 2)
    assert (done.created, done.updated, done.unchanged, done.outranked) == (1, 1, 1, 0)


@pytest.mark.parametrize("lenient", [False, True])
def test_no_opt_out_is_lost_to_a_fast_clock(both: Opener, partner: Partner, lenient: bool) -> None:
    """A stamp that the service refuses as of the future is given up: the item is sent once more, as an act of now.

    The sums count each item once, and each item of the caller keeps the time that it came with.
    """
    client = both(partner, batch_items=3)
    set_clock_off(client, 3600)
    done = client.unsubscribe("email", [ANN, Item(BOB, MORNING), Item(CLEO), "dan@example.com"], lenient=lenient)
    assert (done.batches, done.received, done.created, done.item_errors) == (2, 4, 4, ())
    assert (done.updated, done.unchanged, done.outranked) == (0, 0, 0)
    times = {record.address: record.occurred_at for record in client.changes("email")}
    assert times.pop(BOB) == MORNING
    assert len(times) == 3
    assert max(times.values()) <= datetime.now(UTC)


def test_a_fast_clock_hides_no_other_fault(both: Opener, partner: Partner) -> None:
    """What is refused without a time too is told once, in the order of the call; what only had our stamp is stored."""
    client = both(partner, batch_items=4)
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


def test_a_time_in_the_future_that_was_given_is_refused(both: Opener, partner: Partner) -> None:
    """It is the caller's word, and nobody else's to change: on the item, or on the call, beside a stamp of ours too."""
    client = both(partner)
    future = datetime.now(UTC) + timedelta(hours=1)
    set_clock_off(client, 3600)
    for items, options in (([ANN, Item(BOB, future)], {}), ([ANN], {"occurred_at": future})):
        with pytest.raises(InvalidItem) as caught:
            client.unsubscribe("email", items, **options)
        assert all("future" in bad.item_error for bad in caught.value.item_errors)
    assert statuses(client) == {}


def test_what_a_failure_after_a_fast_clock_leaves_is_told(both: Opener, partner: Partner) -> None:
    """If the second request fails the sums are those of the first: each item is counted once in these too."""
    with faults(partner.service.base_url, partner.service.server.ca.parent) as between:
        client = both(partner, base_url=between.base_url, attempts=1)
        set_clock_off(client, 3600)
        between.next(None, DROP, when=is_api)
        with pytest.raises(TransportFailed) as caught:
            client.unsubscribe("email", [ANN, Item(BOB, MORNING)], lenient=True)
    sums = caught.value.submitted
    assert sums is not None
    assert (sums.received, sums.created, [bad.item_index for bad in sums.item_errors]) == (2, 1, [0])


def test_a_time_that_was_given_is_taken_at_its_word(both: Opener, partner: Partner) -> None:
    """An old opt-out with its own time stays outranked, beside one that the client stamped and sends again."""
    client = both(partner)
    client.resubscribe("email", [ANN, BOB], occurred_at=datetime.now(UTC) - timedelta(minutes=1))
    set_clock_off(client, -3600)
    done = client.unsubscribe("email", [Item(ANN, MORNING), BOB, "nobody"], lenient=True)
    assert statuses(client) == {ANN: "resubscribed", BOB: "unsubscribed"}
    assert (done.received, done.updated, done.outranked, len(done.item_errors)) == (3, 1, 1, 1)


def test_a_time_of_the_call_is_taken_at_its_word(both: Opener, partner: Partner) -> None:
    """An old list that is imported with its date undoes no later consent."""
    client = both(partner)
    client.resubscribe("email", [ANN], occurred_at=NOON)
    done = client.unsubscribe("email", [ANN, Item(BOB)], occurred_at=MORNING)
    assert statuses(client) == {ANN: "resubscribed", BOB: "unsubscribed"}
    assert (done.received, done.created, done.outranked) == (2, 1, 1)


@pytest.mark.parametrize("single", [ANN, b"bob@example.org", Item(ANN), None, 5])
def test_a_single_address_in_place_of_many_is_refused(both: Opener, partner: Partner, single: Any) -> None:
    """Nobody means the letters of a text."""
    client = both(partner)
    for method in (client.unsubscribe, client.resubscribe, client.look_up):
        with pytest.raises(ConfigurationError, match="into a list"):
            method("email", single)


def test_what_the_callback_raises_comes_out(both: Opener, partner: Partner) -> None:
    """The callback may stop a call; what was sent by then is stored."""

    def stop(sums: Submitted) -> None:
        raise KeyError("enough")

    client = both(partner, batch_items=1)
    with pytest.raises(KeyError, match="enough"):
        client.unsubscribe("email", [ANN, BOB], on_progress=stop)
    assert statuses(client) == {ANN: "unsubscribed"}


def test_what_the_items_raise_comes_out(both: Opener, partner: Partner) -> None:
    """An iterable that breaks breaks the call, with its own error."""

    def broken() -> Iterator[str]:
        yield ANN
        raise LookupError("the file ended")

    with pytest.raises(LookupError, match="the file ended"):
        both(partner).unsubscribe("email", broken())

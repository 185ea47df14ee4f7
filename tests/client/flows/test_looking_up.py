"""Looking addresses up, with Client and AsyncClient, at a real server. Source: docs/interface.md section D6 (GET)."""

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from stoplist_client import BadRequest, ConfigurationError, InsufficientScope, Item, NotUnderstood
from stoplist_client.flows import looking_up

from tests.client.partners import Opener, Partner
from tests.services.fault_kinds import Reply, is_api
from tests.services.faults import faults

ANN, BOB, CLEO = "ann@example.com", "bob@example.org", "cleo@example.net"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_each_address_is_answered_in_order(both: Opener, partner: Partner) -> None:
    """With the address as it was asked, its canonical form, and all its records; one that is not known has none."""
    client = both(partner)
    client.unsubscribe("email", [Item(ANN, NOON), Item(BOB, NOON)])
    client.unsubscribe("email", [Item(ANN, NOON, reason="legal")], all_groups=True)
    found = list(client.look_up("email", [CLEO, " ANN@example.com", BOB, ANN]))
    assert [(one.address, one.canonical) for one in found] == [
        (CLEO, CLEO),
        (" ANN@example.com", ANN),
        (BOB, BOB),
        (ANN, ANN),
    ]
    assert [[record.group_id for record in one.records] for one in found] == [
        [],
        [partner.group_id, None],
        [partner.group_id],
        [partner.group_id, None],
    ]
    record = found[1].records[1]
    assert (record.address, record.status, record.reason, record.occurred_at) == (ANN, "unsubscribed", "legal", NOON)


def test_a_hundred_are_asked_for_at_a_time(both: Opener, partner: Partner) -> None:
    """Any number of addresses is read lazily, a request's worth at a time, and every one is answered."""
    read = itertools.count()
    addresses = (f"p{next(read)}@example.com" for _ in range(250))
    client = both(partner)
    found = client.look_up("email", addresses)
    first = next(found)
    assert (first.address, next(read)) == ("p0@example.com", 100)
    assert [one.address for one in found] == [f"p{number}@example.com" for number in range(1, 251) if number != 100]


def test_long_addresses_are_asked_for_in_shorter_requests(
    both: Opener, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No URL grows beyond what a proxy may take, and nobody is left out; one address alone is always asked for."""
    monkeypatch.setattr(looking_up, "MAX_URL_BYTES", 200)
    addresses = [f"{'é' * (number % 30 + 1)}{number}@example.com" for number in range(40)]
    with faults(partner.service.base_url, partner.service.server.ca.parent) as between:
        found = list(both(partner, base_url=between.base_url).look_up("email", iter(addresses)))
    assert [one.address for one in found] == addresses
    targets = [seen.request.target for seen in between.seen if is_api(seen.request)]
    assert all(len(target) <= 200 or target.count("address=") == 1 for target in targets)
    assert max(target.count("address=") for target in targets) > 1


@pytest.mark.parametrize("looked_up", [[], [BOB], [ANN, BOB, CLEO]])
def test_an_answer_about_other_addresses_is_not_believed(both: Opener, partner: Partner, looked_up: list[str]) -> None:
    """Whose records are whose is told by their number and order alone."""
    page = {"items": [], "next_cursor": None, "has_more": False, "looked_up": looked_up}
    with faults(partner.service.base_url, partner.service.server.ca.parent) as between:
        between.next(Reply(status=200, body=msgspec.json.encode(page)), when=is_api)
        with pytest.raises(NotUnderstood, match="another number"):
            list(both(partner, base_url=between.base_url).look_up("email", [ANN, BOB]))


@pytest.mark.parametrize("channel", ["sms", "phone"])
def test_phone_numbers_arrive_as_they_are(both: Opener, partner: Partner, channel: Any) -> None:
    """The + of a number is no space."""
    client = both(partner)
    client.unsubscribe(channel, ["+14155550123"])
    (found,) = client.look_up(channel, ["+1 (415) 555-0123"])
    assert (found.canonical, len(found.records)) == ("+14155550123", 1)


def test_a_group_narrows_the_records(both: Opener, partner: Partner) -> None:
    """With the call's group, or the client's, only what bears on it is told; `every_group` tells all."""
    client = both(partner, group_id=partner.group_id)
    client.unsubscribe("email", [ANN])
    client.unsubscribe("email", [ANN], group_id=partner.other_group_id)
    client.unsubscribe("email", [ANN], all_groups=True)

    def groups(**options: Any) -> set[str | None]:
        (found,) = client.look_up("email", [ANN], **options)
        return {record.group_id for record in found.records}

    assert groups() == {partner.group_id, None}
    assert groups(group_id=partner.other_group_id) == {partner.other_group_id, None}
    assert groups(every_group=True) == {partner.group_id, partner.other_group_id, None}


def test_what_is_no_address_is_named(both: Opener, partner: Partner) -> None:
    """The service refuses the request without saying for which address; the error has them all, by their places."""
    addresses = [*(f"p{number}@example.com" for number in range(100)), ANN, "nobody", BOB, "some@body@"]
    with pytest.raises(BadRequest) as caught:
        list(both(partner).look_up("email", addresses))
    assert caught.value.parameter == "address"
    assert [(bad.item_index, bad.item) for bad in caught.value.item_errors] == [(101, "nobody"), (103, "some@body@")]


def test_what_is_no_unicode_is_refused(both: Opener, partner: Partner) -> None:
    """A lone surrogate is not looked up as something else."""
    with pytest.raises(BadRequest):
        list(both(partner).look_up("email", ["\ud800@example.com"]))


@pytest.mark.parametrize("bad", [5, b"ann@example.com", Item(ANN), "x" * 1025])
def test_what_cannot_be_an_address_is_named_by_its_place(both: Opener, partner: Partner, bad: Any) -> None:
    """Before anything of its request is sent."""
    with pytest.raises(ConfigurationError, match="Address 101 "):
        list(both(partner).look_up("email", [ANN] * 101 + [bad]))


def test_asking_for_nothing_asks_nobody(both: Opener, partner: Partner) -> None:
    """Of no addresses there is no request."""
    assert list(both(partner, base_url="https://localhost:9").look_up("email", [])) == []


def test_looking_up_needs_the_permission(both: Opener, new_partner: Callable[..., Partner]) -> None:
    """A key that may only write is refused by its class."""
    with pytest.raises(InsufficientScope):
        list(both(new_partner(may=frozenset({"unsubscribe"}))).look_up("email", [ANN]))


def test_what_the_addresses_raise_comes_out(both: Opener, partner: Partner) -> None:
    """An iterable that breaks breaks the look-up, with its own error."""

    def broken() -> Iterator[str]:
        yield ANN
        raise LookupError("the file ended")

    with pytest.raises(LookupError, match="the file ended"):
        list(both(partner).look_up("email", broken()))

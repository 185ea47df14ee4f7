"""Looking up addresses with both clients at a real server. Source: docs/interface.md section D6 (GET)."""

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
from tests.services.faults import Faults

ANN, BOB, CLEO = "ann@example.com", "bob@example.org", "cleo@example.net"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_results_are_in_the_order_of_the_addresses(open_client: Opener, partner: Partner) -> None:
    """Each has the given address, its canonical form and all its records, if any."""
    client = open_client(partner)
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


def test_one_request_has_a_hundred_addresses(open_client: Opener, partner: Partner) -> None:
    """Addresses are read lazily, one request at a time."""
    read = itertools.count()
    addresses = (f"p{next(read)}@example.com" for _ in range(250))
    client = open_client(partner)
    found = client.look_up("email", addresses)
    first = next(found)
    assert (first.address, next(read)) == ("p0@example.com", 100)
    assert [one.address for one in found] == [f"p{number}@example.com" for number in range(1, 251) if number != 100]


def test_url_length_is_bounded(open_client: Opener, partner: Partner, monkeypatch: pytest.MonkeyPatch) -> None:
    """No address is left out; a single one is always sent."""
    monkeypatch.setattr(looking_up, "MAX_URL_BYTES", 200)
    addresses = [f"{'é' * (number % 30 + 1)}{number}@example.com" for number in range(40)]
    with Faults(partner.service.base_url, partner.service.server.ca.parent) as between:
        found = list(open_client(partner, base_url=between.base_url).look_up("email", iter(addresses)))
    assert [one.address for one in found] == addresses
    targets = [seen.request.target for seen in between.seen if is_api(seen.request)]
    assert all(len(target) <= 200 or target.count("address=") == 1 for target in targets)
    assert max(target.count("address=") for target in targets) > 1


@pytest.mark.parametrize("looked_up", [[], [BOB], [ANN, BOB, CLEO]])
def test_answer_about_other_addresses_is_not_understood(
    open_client: Opener, partner: Partner, looked_up: list[str]
) -> None:
    """Records are assigned by number and order only."""
    page = {"items": [], "next_cursor": None, "has_more": False, "looked_up": looked_up}
    with Faults(partner.service.base_url, partner.service.server.ca.parent) as between:
        between.next(Reply(status=200, body=msgspec.json.encode(page)), when=is_api)
        with pytest.raises(NotUnderstood, match="another number"):
            list(open_client(partner, base_url=between.base_url).look_up("email", [ANN, BOB]))


@pytest.mark.parametrize("channel", ["sms", "phone"])
def test_plus_of_a_phone_number_is_encoded(open_client: Opener, partner: Partner, channel: Any) -> None:
    client = open_client(partner)
    client.unsubscribe(channel, ["+14155550123"])
    (found,) = client.look_up(channel, ["+1 (415) 555-0123"])
    assert (found.canonical, len(found.records)) == ("+14155550123", 1)


def test_group_selects_the_records(open_client: Opener, partner: Partner) -> None:
    """The call's group or the client's; `every_group` selects all."""
    client = open_client(partner, group_id=partner.group_id)
    client.unsubscribe("email", [ANN])
    client.unsubscribe("email", [ANN], group_id=partner.other_group_id)
    client.unsubscribe("email", [ANN], all_groups=True)

    def groups(**options: Any) -> set[str | None]:
        (found,) = client.look_up("email", [ANN], **options)
        return {record.group_id for record in found.records}

    assert groups() == {partner.group_id, None}
    assert groups(group_id=partner.other_group_id) == {partner.other_group_id, None}
    assert groups(every_group=True) == {partner.group_id, partner.other_group_id, None}


def test_invalid_addresses_are_named(open_client: Opener, partner: Partner) -> None:
    """The answer of the service does not name them; the error has all of them with their indexes."""
    addresses = [*(f"p{number}@example.com" for number in range(100)), ANN, "nobody", BOB, "some@body@"]
    with pytest.raises(BadRequest) as caught:
        list(open_client(partner).look_up("email", addresses))
    assert caught.value.parameter == "address"
    assert [(bad.item_index, bad.item) for bad in caught.value.item_errors] == [(101, "nobody"), (103, "some@body@")]


def test_lone_surrogate_is_refused(open_client: Opener, partner: Partner) -> None:
    """It is not looked up as another address."""
    with pytest.raises(BadRequest):
        list(open_client(partner).look_up("email", ["\ud800@example.com"]))


@pytest.mark.parametrize("bad", [5, b"ann@example.com", Item(ANN), "x" * 1025])
def test_impossible_address_is_named_before_the_request(open_client: Opener, partner: Partner, bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="Address 101 "):
        list(open_client(partner).look_up("email", [ANN] * 101 + [bad]))


def test_no_addresses_make_no_request(open_client: Opener, partner: Partner) -> None:
    assert list(open_client(partner, base_url="https://localhost:9").look_up("email", [])) == []


def test_looking_up_needs_the_permission(open_client: Opener, new_partner: Callable[..., Partner]) -> None:
    with pytest.raises(InsufficientScope):
        list(open_client(new_partner(permissions=frozenset({"unsubscribe"}))).look_up("email", [ANN]))


def test_error_of_the_iterable_is_raised(open_client: Opener, partner: Partner) -> None:
    def broken() -> Iterator[str]:
        yield ANN
        raise LookupError("the file ended")

    with pytest.raises(LookupError, match="the file ended"):
        list(open_client(partner).look_up("email", broken()))

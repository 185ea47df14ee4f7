"""Following changes with both clients at a real server. Source: docs/interface.md section D6 (GET)."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from stoplist_client import ConfigurationError, InvalidCursor, Item, NotUnderstood, TransportFailed

from tests.client.partners import Opener, Partner
from tests.services.fault_kinds import DROP, Alter, Reply, is_api
from tests.services.faults import Faults

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def people(count: int) -> list[str]:
    return [f"p{number}@example.com" for number in range(count)]


def test_all_records_are_read_then_only_changes(open_client: Opener, partner: Partner) -> None:
    """A call without a cursor reads every record once, in the order of change; the last cursor leads to later ones."""
    client = open_client(partner)
    client.unsubscribe("email", people(25))
    changes = client.changes("email", limit=10)
    assert changes.cursor is None
    records = list(changes)
    assert [record.address for record in records] == people(25)
    assert [record.seq for record in records] == sorted(record.seq for record in records)
    client.unsubscribe("email", ["late@example.com"])
    later = client.changes("email", cursor=changes.cursor)
    assert [record.address for record in later] == ["late@example.com"]
    assert list(client.changes("email", cursor=later.cursor)) == []


def test_record_has_all_fields(open_client: Opener, partner: Partner) -> None:
    """Times are datetimes with an offset."""
    client = open_client(partner)
    before = datetime.now(UTC)
    client.unsubscribe("email", [Item("Ann@Example.com", "2026-03-01T13:00:00.250+01:00", "complaint", "hotline")])
    (record,) = client.changes("email")
    assert msgspec.structs.asdict(record) | {"id": "", "recorded_at": None} == {
        "id": "",
        "org_slug": partner.org_slug,
        "group_id": partner.group_id,
        "address": "ann@example.com",
        "status": "unsubscribed",
        "reason": "complaint",
        "source": "hotline",
        "occurred_at": NOON.replace(microsecond=250_000),
        "recorded_at": None,
        "seq": 1,
        "address_digest": None,
    }
    assert record.id.startswith("uns_")
    assert abs((record.recorded_at - before).total_seconds()) < 3600


def test_cursor_advances_after_the_last_record_of_a_page(open_client: Opener, partner: Partner) -> None:
    """It advances when the next record is requested, and at the end: a crash before that loses nothing."""
    client = open_client(partner)
    client.unsubscribe("email", people(4))
    changes, cursors = client.changes("email", limit=2), []
    for _ in range(4):
        next(changes)
        cursors.append(changes.cursor)
    assert cursors[:2] == [None, None]
    assert cursors[2] == cursors[3] is not None
    with pytest.raises(StopIteration):
        next(changes)
    assert changes.cursor not in cursors
    with pytest.raises(StopIteration):
        next(changes)
    resumed = client.changes("email", cursor=cursors[3])
    assert [record.address for record in resumed] == people(4)[2:]


def test_second_loop_continues_after_the_last_record(open_client: Opener, partner: Partner) -> None:
    client = open_client(partner)
    client.unsubscribe("email", people(5))
    changes, seen = client.changes("email", limit=2), []
    for record in changes:
        seen.append(record.address)
        if len(seen) == 3:
            break
    seen += [record.address for record in changes]
    assert seen == people(5)


def test_pages_are_complete(open_client: Opener, partner: Partner) -> None:
    """Each with its cursor; the cursor of the changes follows when the next page is requested."""
    client = open_client(partner)
    client.unsubscribe("email", people(5))
    changes, kept = client.changes("email", limit=2), []
    for page in changes.pages():
        kept.append((len(page.records), page.has_more, changes.cursor))
        last_cursor = page.next_cursor
    assert [(count, has_more) for count, has_more, _ in kept] == [(2, True), (2, True), (1, False)]
    assert kept[0][2] is None
    assert len({cursor for _, _, cursor in kept}) == 3
    assert changes.cursor == last_cursor


def test_empty_pages_do_not_end_the_iteration(open_client: Opener, partner: Partner) -> None:
    """Pages without records of the group are empty."""
    client = open_client(partner, group_id=partner.other_group_id)
    # A page examines at most 50 000 records, so it ends before the one of the group.
    client.unsubscribe("email", people(50_001), group_id=partner.group_id)
    client.unsubscribe("email", ["ann@example.com"])
    pages = list(client.changes("email").pages())
    assert [(len(page.records), page.has_more) for page in pages] == [(0, True), (1, False)]
    assert [record.address for record in client.changes("email")] == ["ann@example.com"]
    everything = client.changes("email", every_group=True)
    assert sum(len(page.records) for page in everything.pages()) == 50_002


def test_cursor_of_another_feed_is_refused(open_client: Opener, partner: Partner) -> None:
    client = open_client(partner)
    client.unsubscribe("email", people(1))
    changes = client.changes("email")
    list(changes)
    with pytest.raises(InvalidCursor):
        list(client.changes("sms", cursor=changes.cursor))


@pytest.mark.parametrize("options", [{"limit": 0}, {"limit": 10_001}, {"limit": "5"}, {"cursor": 5}, {"cursor": b"x"}])
def test_invalid_arguments_are_refused_before_a_request(
    open_client: Opener, partner: Partner, options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError):
        open_client(partner).changes("email", **options)


def test_iteration_can_continue_after_a_failure(open_client: Opener, partner: Partner) -> None:
    """An error does not count as the end."""
    open_client(partner).unsubscribe("email", people(4))
    with Faults(partner.service.base_url, partner.service.server.ca.parent) as between:
        client = open_client(partner, base_url=between.base_url, attempts=1)
        changes = client.changes("email", limit=2)
        seen = [next(changes).address, next(changes).address]
        between.next(DROP, when=is_api)
        with pytest.raises(TransportFailed):
            next(changes)
        seen += [record.address for record in changes]
    assert seen == people(4)


def test_page_that_leads_to_itself_is_refused(open_client: Opener, partner: Partner) -> None:
    """Otherwise the client would read forever."""
    open_client(partner).unsubscribe("email", people(4))
    with Faults(partner.service.base_url, partner.service.server.ca.parent) as between:
        first: list[Reply] = []

        def remember(page: Reply) -> Reply:
            first.append(page)
            return first[0]

        client = open_client(partner, base_url=between.base_url)
        between.next(Alter(remember), Alter(remember), when=is_api)
        with pytest.raises(NotUnderstood, match="leads to the same page"):
            list(client.changes("email", limit=2))


@pytest.mark.parametrize(
    "told",
    [
        Reply(status=200, headers={"content-type": "text/html"}, body=b"<html>Please sign in</html>"),
        Reply(status=200, body=b""),
        Reply(status=204),
        Reply(status=200, body=b'{"items": [], "next_cursor": null, "has_more": false}'),
        Reply(status=302, headers={"location": "https://localhost/elsewhere"}),
    ],
    ids=["html", "empty", "204", "look-up", "redirect"],
)
def test_foreign_answer_is_no_page(
    open_client: Opener, partner: Partner, told: Reply, new_partner: Callable[..., Partner]
) -> None:
    """It is raised as such, and never taken for the end."""
    with Faults(partner.service.base_url, partner.service.server.ca.parent) as between:
        client = open_client(partner, base_url=between.base_url)
        between.next(told, when=is_api)
        with pytest.raises(NotUnderstood, match="base_url") as caught:
            list(client.changes("email"))
    assert caught.value.status == told.status

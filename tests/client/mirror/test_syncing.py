"""A synchronised mirror equals the service, whatever happened meanwhile (docs/interface.md section D6)."""

import random
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stoplist_client import (
    Client,
    ConfigurationError,
    Item,
    MemoryStore,
    Mirror,
    NotMirrored,
    NotUnderstood,
    StoplistClientError,
    UnauthorizedOrganization,
)
from stoplist_client.mirror import FeedSynced

from tests.client.partners import Partner, Service
from tests.services.fault_kinds import is_api
from tests.services.faults import Faults
from tests.services.http_messages import Reply

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def test_mirror_equals_the_service(partner: Partner, client: Client, new_mirror: Callable[..., Mirror]) -> None:
    """Read at once or change by change: new records, reversals, and reversals of reversals, in all groups."""
    followed = new_mirror(client, page_records=4)
    followed.follow("email")
    dice = random.Random(7)  # noqa: S311 - it deals acts, not secrets
    at = LONG_AGO
    for _ in range(30):
        at += timedelta(seconds=1)
        people = [Item(f"p{dice.randrange(25)}@example.org", at) for _ in range(dice.randrange(1, 9))]
        group = dice.choice([partner.group_id, partner.other_group_id, None])
        submit = dice.choice([client.unsubscribe, client.unsubscribe, client.resubscribe])
        submit("email", people, group_id=group, all_groups=group is None)
        if dice.random() < 0.7:
            followed.sync()
    followed.sync()
    at_once = new_mirror(client, name="at-once.db", page_records=4)
    at_once.follow("email")
    at_once.sync()
    there = list(client.changes("email"))
    assert len(there) > 20
    assert list(followed.records("email")) == there
    assert list(at_once.records("email")) == there
    assert [feed.records for feed in (*followed.feeds(), *at_once.feeds())] == [len(there)] * 2
    for person in range(25):
        for group in (partner.group_id, partner.other_group_id, None):
            bars = {one.group_id for one in there if (one.address, one.status) == (_of(person), "unsubscribed")}
            expected = bool(bars & {group, None})
            assert followed.is_barred("email", _of(person), group_id=group) == expected
            assert at_once.is_barred("email", _of(person), group_id=group) == expected


def test_changes_during_the_first_read_are_kept_once(partner: Partner, client: Client, mirror: Mirror) -> None:
    """A record that is changed before the end is read again, and only the newer version is kept."""
    client.unsubscribe("email", [Item(_of(number), LONG_AGO) for number in range(10)])

    def change(progress: FeedSynced) -> None:
        if progress.pages == 1:
            client.resubscribe("email", [Item(_of(0), LONG_AGO + timedelta(days=1))])
            client.unsubscribe("email", [Item(_of(10), LONG_AGO)])

    mirror.sync(change)
    assert list(mirror.records("email")) == list(client.changes("email"))
    assert not mirror.is_barred("email", _of(0), group_id=partner.group_id)
    assert mirror.is_barred("email", _of(1), group_id=partner.group_id)


def test_interrupted_synchronisation_continues(client: Client, mirror: Mirror) -> None:
    """Stored pages are not requested again."""
    client.unsubscribe("email", [_of(number) for number in range(10)])

    def stop(progress: FeedSynced) -> None:
        if progress.pages == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mirror.sync(stop)
    (feed,) = mirror.sync().feeds
    assert (feed.pages, feed.records) == (2, 4)
    assert list(mirror.records("email")) == list(client.changes("email"))
    (feed,) = mirror.sync().feeds
    assert (feed.pages, feed.records, feed.was_rebuilt) == (1, 0, False)


def test_progress_is_reported_for_each_page(client: Client, mirror: Mirror) -> None:
    """The report has the totals so far; the last one is the result."""
    client.unsubscribe("email", [_of(number) for number in range(7)])
    told: list[FeedSynced] = []
    done = mirror.sync(told.append)
    assert [(one.pages, one.records) for one in told] == [(1, 3), (2, 6), (3, 7)]
    assert done.feeds == (told[-1],)
    assert (done.pages, done.records, done.missing, done.was_rebuilt) == (3, 7, 0, False)


def test_several_processes_may_synchronise_at_once(
    partner: Partner, client: Client, new_mirror: Callable[..., Mirror]
) -> None:
    """Three synchronise one file, first from nothing and then while records change: nothing is lost or doubled."""
    new_mirror().follow("email", org_slug=partner.org_slug)
    client.unsubscribe("email", [Item(_of(number), LONG_AGO) for number in range(100)])
    mirrors = [new_mirror(client, page_records=3) for _ in range(3)]
    errors: list[BaseException] = []

    def work(mirror: Mirror) -> None:
        try:
            for _ in range(4):
                mirror.sync()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(mirror,)) for mirror in mirrors]
    for thread in threads:
        thread.start()
    for number in range(20):
        client.resubscribe("email", [Item(_of(number), LONG_AGO + timedelta(days=1))])
    for thread in threads:
        thread.join()
    assert not errors
    mirrors[0].sync()
    there = list(client.changes("email"))
    assert list(mirrors[0].records("email")) == there
    assert mirrors[0].feeds()[0].records == len(there) == 100


def test_organizations_and_channels_share_a_file(
    new_partner: Callable[..., Partner], new_mirror: Callable[..., Mirror]
) -> None:
    """Each answers separately; following again changes nothing."""
    partners = [new_partner(), new_partner()]
    mirror = new_mirror()
    for partner in partners:
        mirror.follow("email", "sms", org_slug=partner.org_slug)
        mirror.follow("sms", org_slug=partner.org_slug)
    for partner in partners:
        with partner.client(org_slug=partner.org_slug, store=MemoryStore()) as client:
            client.unsubscribe("email", [f"{partner.org_slug}@example.org"])
            client.unsubscribe("sms", ["+14155550123"] if partner is partners[0] else ["+14155550124"])
            with pytest.raises(UnauthorizedOrganization) as refused:
                new_mirror(client).sync()
            theirs = next(one for one in partners if one is not partner)
            assert f"email of {theirs.org_slug}" in str(refused.value), "people are told which of them it was"
            assert refused.value.code == "unauthorized_organization"
    one, other = partners
    assert [(feed.org_slug, feed.channel, feed.records) for feed in mirror.feeds()] == [
        (partner.org_slug, channel, 1) for partner in partners for channel in ("email", "sms")
    ]
    for ours, theirs in ((one, other), (other, one)):
        asked: dict[str, Any] = {"org_slug": ours.org_slug, "group_id": ours.group_id}
        assert mirror.is_barred("email", f"{ours.org_slug}@example.org", **asked)
        assert not mirror.is_barred("email", f"{theirs.org_slug}@example.org", **asked)
    assert mirror.is_barred("sms", "+14155550123", org_slug=one.org_slug, group_id=one.group_id)
    assert not mirror.is_barred("sms", "+14155550123", org_slug=other.org_slug, group_id=other.group_id)


def test_unfollowed_feed_does_not_answer(
    partner: Partner, client: Client, mirror: Mirror, new_mirror: Callable[..., Mirror], tmp_path: Path
) -> None:
    """Nor for earlier connections; a feed that is followed later is never used in its place."""
    client.unsubscribe("email", ["ann@example.org"])
    client.unsubscribe("sms", ["+14155550123"])
    mirror.sync()
    mirror.follow("sms")
    mirror.sync()
    reader = new_mirror()
    asked: dict[str, Any] = {"org_slug": partner.org_slug, "group_id": partner.group_id}
    assert reader.is_barred("sms", "+14155550123", **asked)
    assert not list(reader.filter_allowed("sms", ["+14155550123"], **asked))
    with pytest.raises(NotMirrored, match="phone"):
        mirror.unfollow("sms", "phone")
    with pytest.raises(ConfigurationError, match="channel"):
        mirror.unfollow()
    assert reader.is_barred("sms", "+14155550123", **asked)
    mirror.unfollow("sms")
    assert [feed.channel for feed in reader.feeds()] == ["email"]
    with closing(sqlite3.connect(tmp_path / "mirror.db")) as connection:
        for table in ("records", "states", "copies"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (1,), table  # noqa: S608
    mirror.follow("phone")
    mirror.sync()  # an empty list
    for ask in (
        lambda: reader.is_barred("sms", "+14155550123", **asked),
        lambda: list(reader.filter_allowed("sms", ["+14155550123"], **asked)),
    ):
        with pytest.raises(NotMirrored):
            ask()
    mirror.follow("sms")
    mirror.sync()
    assert reader.is_barred("sms", "+14155550123", **asked)
    assert reader.is_barred("email", "ann@example.org", **asked)


def test_unfollow_makes_the_other_organization_the_only_one(
    partner: Partner, client: Client, mirror: Mirror, new_mirror: Callable[..., Mirror]
) -> None:
    client.unsubscribe("email", ["ann@example.org"])
    mirror.sync()
    reader = new_mirror()
    mirror.follow("email", org_slug="another")
    with pytest.raises(ConfigurationError, match="org_slug"):
        reader.is_barred("email", "ann@example.org", group_id=partner.group_id)
    with pytest.raises(ConfigurationError, match="org_slug"):
        reader.unfollow("email")
    reader.unfollow("email", org_slug="another")
    mirror.sync()
    assert reader.is_barred("email", "ann@example.org", group_id=partner.group_id)
    reader.unfollow("email")
    assert reader.feeds() == ()


def test_feed_may_be_unfollowed_while_it_is_read(
    client: Client, mirror: Mirror, new_mirror: Callable[..., Mirror]
) -> None:
    """Another process may do so: the synchronisation goes on with the others."""
    client.unsubscribe("email", [_of(number) for number in range(10)])
    client.unsubscribe("sms", ["+14155550123"])
    mirror.follow("sms")
    other = new_mirror(client)

    def stop(progress: FeedSynced) -> None:
        if progress.channel == "email":
            other.unfollow("email")

    assert [(feed.channel, feed.records) for feed in mirror.sync(stop).feeds] == [("sms", 1)]
    assert [feed.channel for feed in mirror.feeds()] == ["sms"]


@pytest.mark.parametrize(
    ("is_empty", "problem"), [(False, "leads to the same page"), (True, "no records")], ids=["to itself", "empty"]
)
def test_page_without_progress_is_refused(
    service: Service, partner: Partner, client: Client, new_mirror: Callable[..., Mirror], is_empty: bool, problem: str
) -> None:
    """Otherwise the mirror would read forever."""
    client.unsubscribe("email", [_of(number) for number in range(5)])
    page = next(client.changes("email", limit=2).pages())
    items = [] if is_empty else [msgspec.structs.asdict(record) for record in page.records]
    body = msgspec.json.encode({"items": items, "next_cursor": page.next_cursor, "has_more": True})
    with Faults(service.base_url, service.server.ca.parent) as proxy:
        options: dict[str, Any] = {"base_url": proxy.base_url, "ca_file": str(proxy.ca), "store": MemoryStore()}
        proxy.next(*[Reply(status=200, body=body)] * 20, when=is_api)
        with partner.client(org_slug=partner.org_slug, **options) as cached:
            mirror = new_mirror(cached)
            mirror.follow("email")
            with pytest.raises(NotUnderstood, match=problem):
                mirror.sync()


def test_mirror_belongs_to_one_service(client: Client, mirror: Mirror, new_mirror: Callable[..., Mirror]) -> None:
    elsewhere = Client(
        "https://localhost:1", client_id="svc_ci_x", client_secret="svc_cs_x", store=MemoryStore(), attempts=1
    )
    with elsewhere, pytest.raises(ConfigurationError, match="localhost:1"):
        new_mirror(elsewhere)


def test_follow_and_sync_need_organization_and_client(
    partner: Partner, new_mirror: Callable[..., Mirror], tmp_path: Path
) -> None:
    """A mirror without a client creates no file."""
    mirror = new_mirror()
    assert not (tmp_path / "mirror.db").exists()
    with pytest.raises(NotMirrored):
        mirror.feeds()
    with pytest.raises(ConfigurationError, match="org_slug"):
        mirror.follow("email")
    with pytest.raises(ConfigurationError, match="org_slug"):
        mirror.follow("email", org_slug="Acme Inc.")
    with pytest.raises(ConfigurationError, match="channel"):
        mirror.follow(org_slug="acme")
    assert not (tmp_path / "mirror.db").exists()
    mirror.follow("email", org_slug="acme")
    with pytest.raises(ConfigurationError, match="client"):
        mirror.sync()


def test_unavailable_service_leaves_the_mirror_unchanged(partner: Partner, client: Client, mirror: Mirror) -> None:
    """The error is the client's, and the mirror goes on answering."""
    client.unsubscribe("email", [_of(1)])
    mirror.sync()
    client.close()
    with pytest.raises(StoplistClientError):
        mirror.sync()
    assert mirror.is_barred("email", _of(1), group_id=partner.group_id)


def _of(number: int) -> str:
    return f"p{number}@example.org"

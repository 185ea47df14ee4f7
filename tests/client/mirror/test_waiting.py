"""`Mirror.sync(wait=…)`: the service answers once something has changed (docs/interface.md section D14)."""

import threading
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from stoplist_client import Client, ConfigurationError, Mirror, UnauthorizedOrganization
from stoplist_client.flows.flow import Answer, Send
from stoplist_client.mirror.held_pages import HeldPages
from stoplist_client.mirror.poll_interval import interval_s
from stoplist_client.mirror.reading import FetchedPage
from stoplist_client.transport import wire

from tests.client.partners import Partner


def changed(mirror: Mirror) -> list[tuple[str, int]]:
    """Wait until something has changed, and return the channels and the number of their changes."""
    while not (synced := mirror.sync(wait=30)).records:
        pass
    return [(feed.channel, feed.records) for feed in synced.feeds]


def test_sync_returns_as_soon_as_something_has_changed(mirror: Mirror, client: Client) -> None:
    """The change is submitted while the request waits, by another thread."""
    mirror.sync()
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(changed(mirror)))
    waiting.start()
    while not mirror._held.awaited():
        pass
    client.unsubscribe("email", ["ann@example.com"], all_groups=True)
    waiting.join(60)
    assert found == [[("email", 1)]]
    assert mirror.is_barred("email", "ann@example.com", group_id=None)


def test_the_first_synchronisation_is_not_held(mirror: Mirror, client: Client) -> None:
    """Without a cursor there is nothing to wait for; it reads all pages."""
    client.unsubscribe("email", [f"person{number}@example.com" for number in range(7)], all_groups=True)
    assert (mirror.sync(wait=30).records, mirror.feeds()[0].records) == (7, 7)


def test_the_requests_about_other_feeds_go_on(mirror: Mirror, client: Client) -> None:
    """A change of one feed does not end the wait for the other, and the next call takes its answer."""
    mirror.follow("sms")
    mirror.sync()
    client.unsubscribe("email", ["ann@example.com"], all_groups=True)
    assert changed(mirror) == [("email", 1)]
    (held,) = mirror._held._by_feed.values()
    assert held.position.channel == "sms"
    client.unsubscribe("sms", ["+12125550123"], all_groups=True)
    assert ("sms", 1) in changed(mirror)
    assert held.page.is_done


def test_a_page_that_another_process_was_faster_with_is_read_again(
    mirror: Mirror, client: Client, new_mirror: Callable[..., Mirror]
) -> None:
    """The request was sent before the other process advanced the cursor."""
    mirror.follow("sms")
    mirror.sync()
    client.unsubscribe("sms", ["+12125550123"], all_groups=True)
    assert changed(mirror) == [("sms", 1)]
    (held,) = mirror._held._by_feed.values()
    client.unsubscribe("email", ["ann@example.com"], all_groups=True)
    held.page.result()
    assert new_mirror(client).sync().records == 1
    client.unsubscribe("email", ["ben@example.com"], all_groups=True)
    assert ("email", 1) in changed(mirror)
    assert [record.address for record in mirror.records("email")] == ["ann@example.com", "ben@example.com"]


def test_a_refused_feed_is_not_asked_about_for_a_minute(
    partner: Partner, client: Client, new_mirror: Callable[..., Mirror]
) -> None:
    """Otherwise it would use up the key's limit, and end each wait for the others at once."""
    now_s = [1_000_000.0]
    mirror = new_mirror(client, clock=lambda: now_s[0])
    mirror.follow("email", org_slug="nobody")
    mirror.follow("email")
    with pytest.raises(UnauthorizedOrganization):
        mirror.sync()
    client.unsubscribe("email", ["ann@example.com"], all_groups=True)
    assert changed(mirror) == [("email", 1)]
    now_s[0] += 60
    with pytest.raises(UnauthorizedOrganization, match="nobody"):
        mirror.sync(wait=1)


def test_an_unfollowed_feed_is_no_longer_awaited(mirror: Mirror, client: Client) -> None:
    mirror.follow("sms")
    mirror.sync()
    client.unsubscribe("sms", ["+12125550123"], all_groups=True)
    assert changed(mirror) == [("sms", 1)]
    mirror.unfollow("email")
    client.unsubscribe("sms", ["+12125550124"], all_groups=True)
    assert changed(mirror) == [("sms", 1)]
    assert mirror._held.awaited() == set()


@pytest.mark.parametrize("wait", [0, 31, -1, 1.5, "30"])
def test_the_wait_is_from_1_to_30_whole_seconds(mirror: Mirror, wait: Any) -> None:
    with pytest.raises(ConfigurationError, match="from 1 to 30"):
        mirror.sync(wait=wait)


def test_a_held_answer_has_a_longer_read_timeout() -> None:
    """Its read timeout is that of the wait and 15 s; all other timeouts stay those of the client."""
    timeout = httpx2.Timeout(5.0, connect=2.0, pool=None)
    held = Send(method="GET", url="/x", headers={}, read_timeout_s=45.0)
    assert wire.request_arguments(held, timeout)["timeout"] == httpx2.Timeout(
        connect=2.0, read=45.0, write=5.0, pool=None
    )
    assert wire.request_arguments(Send(method="GET", url="/x", headers={}), timeout)["timeout"] == timeout


def page(*, applied: bool = True, remaining: int = 59, renewed_s: int = 60, asked_s: float = 100.0) -> FetchedPage:
    """Return an answer to a request that was sent at `asked_s` and asked to be held."""
    headers = {"ratelimit": f'"api";r={remaining};t={renewed_s}'} | (
        {"preference-applied": "wait=30"} if applied else {}
    )
    answer = Answer(status=200, headers=headers, body=b"")
    return FetchedPage(answer=answer, next_cursor="c", has_more=False, asked_s=asked_s, is_waited_for=True)


def pause_after(*pages: FetchedPage, now_s: float = 100.0) -> float:
    held = HeldPages()
    for one in pages:
        held.note_answer(1, one)
    return held.pause_s(now_s)


def test_a_feed_is_asked_about_every_3_seconds_at_most() -> None:
    """The time since the request counts, so an answer that was held is followed by the next request at once."""
    plenty = page(remaining=600)
    assert [pause_after(plenty, now_s=now_s) for now_s in (100, 101, 103, 130, 40)] == [3, 2, 0, 0, 3]


def test_half_of_the_limit_is_left_to_others() -> None:
    assert [interval_s(f'"api";r={r};t=60') for r in (60, 10, 3, 2, 1, 0)] == [2, 12, 60, 60, 60, 60]
    assert interval_s("") == 0
    assert pause_after(page(remaining=10)) == 12
    assert pause_after(page(remaining=11), page(remaining=10)) == 24
    assert pause_after(page(remaining=10), now_s=107.0) == 5


def test_the_pauses_after_answers_that_were_not_held_grow() -> None:
    """They grow to a minute; one answer that was held ends this."""
    held, pauses = HeldPages(), []
    for applied in (False, False, False, False, False, False, True):
        held.note_answer(1, page(applied=applied, remaining=600))
        pauses.append(held.pause_s(100.0))
    assert pauses == [6, 12, 24, 48, 60, 60, 3]


def test_an_answer_not_held_lengthens_its_own_feeds_pause() -> None:
    """A mirror of many feeds always gets some, since the service holds 16 requests of a key."""
    held = HeldPages()
    held.note_answer(1, page(applied=True, remaining=600))
    for _ in range(3):
        held.note_answer(2, page(applied=False, remaining=600))
    assert held.pause_s(100.0) == 3
    assert [held.is_due(feed_no, 103.0) for feed_no in (1, 2)] == [True, False]
    assert [held.is_due(2, now_s) for now_s in (123.9, 124.0, 60.0)] == [False, True, True]

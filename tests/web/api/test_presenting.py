"""Presenting a cursor says that everything up to it is stored (docs/interface.md section D14, Propagation)."""

from typing import Any

from stoplist.unsubscribes.channel import CHANNELS, feed_id
from tests.builders import sql
from tests.unsubscribes.partner import out
from tests.web.api.partner import ApiPartner
from tests.web.api.test_waiting import WaitingReader

AHEAD = ("prefer", "read-ahead")
_STORED = """
SELECT group_no, position, current_ms, anew_ms, asked_ms FROM feed_followers WHERE feed_id = :feed_id ORDER BY group_no
"""


async def stored(partner: ApiPartner) -> list[tuple[Any, ...]]:
    """Write what was noted, and return it: group, position, when it was presented last, reading anew since, asked."""
    await partner.app.parts.positions.flush(partner.app.database)
    number = feed_id(partner.organization_id, CHANNELS["email"])
    rows = await partner.app.database.all(sql(_STORED), feed_id=number)
    return [(row["group_no"], row["position"], row["current_ms"], row["anew_ms"], row["asked_ms"]) for row in rows]


def test_a_cursor_is_noted_when_it_is_presented(partner: ApiPartner) -> None:
    """It is not noted when it is given out. A refused request, a look-up and reading ahead move nothing."""
    partner.submit(out("ann@x.org"), out("bob@x.org"))
    began_ms = partner.clock.now_ms()
    page = partner.get({"limit": "1"}).json()
    assert partner.app.run(stored(partner)) == [(0, 0, None, began_ms, began_ms)]
    partner.clock.advance(1)
    cursor = page["next_cursor"]
    for query in ({"cursor": cursor[:-1] + ("A" if cursor[-1] != "A" else "B")}, {"address": "ann@x.org"}):
        partner.get(query)
    assert partner.app.run(stored(partner)) == [(0, 0, None, began_ms, began_ms)]
    ahead = partner.get({"cursor": cursor}, AHEAD)
    assert ahead.header("preference-applied") == "read-ahead"
    assert partner.app.run(stored(partner)) == [(0, 0, None, began_ms, began_ms + 1_000)]
    assert partner.get({"cursor": cursor}, ("prefer", "read-ahead=1")).header("preference-applied") is None
    assert partner.app.run(stored(partner)) == [(0, 1, began_ms + 1_000, None, began_ms + 1_000)]


def test_reading_anew_ahead_notes_nothing_but_the_request(partner: ApiPartner) -> None:
    partner.get({"group_id": partner.group_id}, AHEAD)
    assert partner.app.run(stored(partner)) == [(1, 0, None, None, partner.clock.now_ms())]


def test_a_held_request_is_noted_once_when_it_is_accepted(partner: ApiPartner) -> None:
    """Its later rounds use a cursor of the service, which the client has never presented."""

    async def main() -> None:
        reader = WaitingReader(partner)
        await reader.submit("ann@x.org")
        presented_ms = partner.clock.now_ms()
        held = await reader.wait(group_id=partner.group_id)
        partner.clock.advance(5)
        await reader.submit("bob@x.org", group_id=other)
        await reader.held_again()
        assert [row[:3] for row in await stored(partner)] == [(1, 1, presented_ms)]
        await reader.submit("cid@x.org")
        assert (await held).header("preference-applied") == "wait=30"
        assert [row[:3] for row in await stored(partner)] == [(1, 1, presented_ms)]
        ahead = await reader.wait(prefer="wait=30, read-ahead")
        await reader.submit("dan@x.org")
        assert (await ahead).header("preference-applied") == "wait=30, read-ahead"
        assert [row[:2] for row in await stored(partner)] == [(0, 0), (1, 1)]

    other = partner.new_group("Reminders")
    partner.app.run(main())

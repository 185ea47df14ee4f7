"""Batches and look-ups whose items take long (docs/interface.md section D8, Processor time)."""

import asyncio
import json
from unittest.mock import AsyncMock
from urllib.parse import urlencode

import pytest

from stoplist.web import processing_time
from stoplist.web.body import ClientGone
from tests.unsubscribes.partner import out
from tests.web.api.partner import JSON, ApiPartner, path
from tests.web.application import Answer, Application

SLOW = [f"ann@b\N{LATIN SMALL LETTER U WITH DIAERESIS}cher-{number}.example" for number in range(50)]


class SteppingClock:
    """A clock of processor time by which every slice of work takes a second."""

    def __init__(self) -> None:
        self._now_ns = 0

    def __call__(self) -> int:
        self._now_ns += 1_000_000_000
        return self._now_ns


@pytest.fixture
def partner_short_of_time(partner_on_sqlite: ApiPartner, monkeypatch: pytest.MonkeyPatch) -> ApiPartner:
    """A partner at a server that grants its keys hardly any time, and does all work of a request in one slice."""
    monkeypatch.setattr("stoplist.slicing.SLICE_NS", 10**12)
    monkeypatch.setattr(processing_time, "MAX_EXTRA_S", 0.0001)
    monkeypatch.setattr(processing_time, "_LEAST_NS", 0)
    monkeypatch.setattr(processing_time, "_PLAIN_ITEM_NS", 0)
    partner = partner_on_sqlite
    return partner.at(Application(partner.app.run, partner.app.database, partner.app.clock))


def test_a_key_that_used_its_time_is_refused_for_a_minute(partner_short_of_time: ApiPartner) -> None:
    """A batch that used it in its last slice is stored; those after it are not read."""
    assert partner_short_of_time.submit(*map(out, SLOW)).json()["created"] == len(SLOW)
    refused = partner_short_of_time.submit(out("new@example.com"))
    assert (refused.status, refused.error, refused.header("retry-after")) == (429, "rate_limited", "60")
    assert partner_short_of_time.get({"address": SLOW[0]}).status == 200
    assert partner_short_of_time.get([("address", SLOW[0]), ("address", SLOW[1])]).status == 429
    partner_short_of_time.clock.advance(60)
    assert partner_short_of_time.submit(out("new@example.com")).json()["created"] == 1


def test_look_ups_of_several_addresses_use_the_time_too(partner_short_of_time: ApiPartner) -> None:
    assert partner_short_of_time.get([("address", address) for address in SLOW]).status == 200
    assert partner_short_of_time.submit(out("new@example.com")).status == 429


def test_a_batch_ends_unstored_once_its_client_has_left(
    partner_on_sqlite: ApiPartner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may send it again and is answered; until then it would only take time."""
    monkeypatch.setattr("stoplist.slicing.SLICE_NS", 0)
    monkeypatch.setattr(processing_time.MeteredWork, "pause", AsyncMock(side_effect=ClientGone))
    assert partner_on_sqlite.submit(*map(out, SLOW)).status == 0  # no answer
    monkeypatch.undo()
    assert partner_on_sqlite.feed() == []


def test_batches_under_way_end_once_their_key_has_used_its_time(
    partner_on_sqlite: ApiPartner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that began together: each alone would be accepted."""
    partner = partner_on_sqlite
    monkeypatch.setattr("stoplist.slicing.SLICE_NS", 0)
    monkeypatch.setattr("stoplist.slicing.time.thread_time_ns", SteppingClock())
    two = [json.dumps({"items": [out(f"ann{number}@{name}.example") for number in range(60)]}) for name in "ab"]

    async def together() -> list[Answer]:
        headers = [partner.authorization, JSON]
        posts = [partner.app.answer("POST", path("email"), headers=[*headers], body=body.encode()) for body in two]
        return await asyncio.gather(*posts)

    assert [answer.status for answer in partner.app.run(together())] == [429, 429]
    assert partner.feed() == []
    partner.clock.advance(60)
    assert partner.post(two[0].encode()).json()["created"] == 60


def test_a_look_up_ends_once_its_client_has_left(
    partner_on_sqlite: ApiPartner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoplist.slicing.SLICE_NS", 0)
    partner, left = partner_on_sqlite, asyncio.Event()
    left.set()
    query = urlencode([("address", address) for address in SLOW])
    looked_up = partner.app.answer("GET", f"{path('email')}?{query}", headers=[partner.authorization], left=left)
    assert partner.app.run(looked_up).status == 0  # no answer

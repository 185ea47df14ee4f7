"""What one key may have on its way counts in memory, not in bytes on the wire (docs/interface.md section D4)."""

import gzip

import pytest

from stoplist.web import app as app_module
from stoplist.web.body import MemoryQuota
from tests.web.api.partner import Partner
from tests.web.application import Application

ROOM = 4000


@pytest.fixture
def cramped(partner: Partner, monkeypatch: pytest.MonkeyPatch) -> Partner:
    """The same partner at a server that has little room for it."""
    monkeypatch.setattr(app_module, "MemoryQuota", lambda max_bytes: MemoryQuota(max_bytes=ROOM))
    app = partner.app
    return partner.at(Application(app.run, app.database, app.clock))


@pytest.mark.parametrize(("size", "status"), [(ROOM, 400), (ROOM + 1, 429)])
def test_a_batch_takes_the_room_of_what_is_unpacked(cramped: Partner, size: int, status: int) -> None:
    """What is small on the wire may be a thousand times as much afterwards."""
    assert cramped.post(gzip.compress(b" " * size), ("content-encoding", "gzip")).status == status


@pytest.mark.parametrize(("limit", "status"), [(10, 200), (11, 429)])
def test_a_page_takes_the_room_of_its_records(cramped: Partner, limit: int, status: int) -> None:
    """Whoever asks for many big pages at once, and reads none, would fill the memory as well."""
    assert cramped.get({"limit": str(limit)}).status == status


def test_what_was_answered_gives_its_room_back(cramped: Partner) -> None:
    """One after the other there is always room."""
    assert [cramped.get({"limit": "10"}).status for _ in range(3)] == [200] * 3

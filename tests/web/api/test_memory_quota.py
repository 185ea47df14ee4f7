"""The memory quota of a key counts bytes in memory, not on the wire (docs/interface.md section D4)."""

import gzip

import pytest

from stoplist.web import app as app_module
from stoplist.web.body import MemoryQuota
from tests.web.api.partner import ApiPartner
from tests.web.application import Application

QUOTA_BYTES = 4000


@pytest.fixture
def limited(partner: ApiPartner, monkeypatch: pytest.MonkeyPatch) -> ApiPartner:
    """A partner at a server with a small memory quota."""
    monkeypatch.setattr(app_module, "MemoryQuota", lambda max_bytes: MemoryQuota(max_bytes=QUOTA_BYTES))
    app = partner.app
    return partner.at(Application(app.run, app.database, app.clock))


@pytest.mark.parametrize(("size", "status"), [(QUOTA_BYTES, 400), (QUOTA_BYTES + 1, 429)])
def test_a_batch_reserves_its_decompressed_size(limited: ApiPartner, size: int, status: int) -> None:
    """A body may be a thousand times as large after decompression."""
    assert limited.post(gzip.compress(b" " * size), ("content-encoding", "gzip")).status == status


@pytest.mark.parametrize(("limit", "status"), [(10, 200), (11, 429)])
def test_a_page_reserves_the_size_of_its_records(limited: ApiPartner, limit: int, status: int) -> None:
    """A client that requests many large pages at once, and reads none, would fill the memory as well."""
    assert limited.get({"limit": str(limit)}).status == status


def test_an_answered_request_frees_its_memory(limited: ApiPartner) -> None:
    assert [limited.get({"limit": "10"}).status for _ in range(3)] == [200] * 3

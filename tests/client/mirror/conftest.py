"""A client of an organization, and mirrors that are closed after the test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stoplist_client import Client, MemoryStore, Mirror

from tests.client.partners import Partner


@pytest.fixture
def client(partner: Partner) -> Iterator[Client]:
    """A client of the partner's organization, without a group."""
    with partner.client(org_slug=partner.org_slug, store=MemoryStore()) as client:
        yield client


@pytest.fixture
def new_mirror(tmp_path: Path) -> Iterator[Callable[..., Mirror]]:
    """Creates a mirror with this name in the test's folder."""
    made: list[Mirror] = []

    def make(client: Client | None = None, *, name: str = "mirror.db", **options: Any) -> Mirror:
        made.append(Mirror(tmp_path / name, client, **options))
        return made[-1]

    yield make
    for mirror in made:
        mirror.close()


@pytest.fixture
def mirror(client: Client, new_mirror: Callable[..., Mirror]) -> Mirror:
    """A mirror of the partner's e-mail list with small pages, not synchronised yet."""
    mirror = new_mirror(client, page_records=3)
    mirror.follow("email")
    return mirror

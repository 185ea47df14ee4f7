"""The audit is read newest first, in bounded steps, by the roles of docs/interface.md section D11."""

from collections.abc import Sequence
from typing import Any

import pytest

from stoplist.actor import ADMIN, VIEWER, Actor, Role
from stoplist.audit import reading, trail
from stoplist.audit.reading import AuditPage, export_audit, list_audit
from stoplist.db import Database, Transaction
from stoplist.errors import Forbidden, Missing
from tests.audit.operations import exported
from tests.builders import ADMINISTRATOR, make_organization, migrated, on_each_database
from tests.deployment import in_own_loop
from tests.fakes import FakeClock

ZOE = Actor(kind="person", id="zoe@example.org", source_ip="192.0.2.7", request_id="0" * 24)
ADA = Actor(kind="person", id="ada@example.org")


def admin(*slugs: str, **roles: Role) -> Actor:
    """Return an admin of these organizations, with further roles."""
    return Actor(kind="person", id="reader@example.org", roles=dict.fromkeys(slugs, ADMIN) | roles)


async def note(
    database: Database,
    at_ms: int,
    *organizations: str,
    actor: Actor = ZOE,
    action: str = "key.update",
    target: str = "svc_ci_1",
    **detail: Any,
) -> None:
    """Append one entry to the audit."""

    async def unit(transaction: Transaction) -> None:
        await trail.record(transaction, actor, action, target, at_ms=at_ms, organizations=organizations, **detail)

    await database.write(unit)


async def make_organizations(database: Database, *slugs: str) -> None:
    """Create organizations at the time 0, before all entries of a test."""
    clock = FakeClock()
    clock.jump(-clock.now_ms() / 1000)
    for slug in slugs:
        await make_organization(database, clock, slug)


async def times(database: Database, actor: Actor, **filters: Any) -> list[int]:
    """Return the times of the entries that the actor finds, from 1 on, and check that pages of two have the same."""
    filters.setdefault("from_ms", 1)
    all_entries = await list_audit(actor, database, **filters)
    all_times = [entry.at_ms for entry in all_entries.entries]
    by_page: list[int] = []
    before_id = None
    while True:
        page = await list_audit(actor, database, before_id=before_id, limit=2, **filters)
        by_page += [entry.at_ms for entry in page.entries]
        assert len(page.entries) <= 2
        if page.older is None:
            break
        before_id = page.older
    assert by_page == all_times
    return all_times


@on_each_database
async def test_an_entry_is_read_as_it_was_written(database: Database) -> None:
    """Actor, source, action, target, time, detail, and the organizations that it concerns."""
    await make_organizations(database, "acme", "bolt")
    await note(database, 5, "bolt", "acme", label="Zoë's", was=None)
    [entry] = (await list_audit(ADMINISTRATOR, database, from_ms=1)).entries
    assert (entry.at_ms, entry.actor_kind, entry.actor_id) == (5, "person", "zoe@example.org")
    assert (entry.source_ip, entry.request_id) == ("192.0.2.7", "0" * 24)
    assert (entry.action, entry.target) == ("key.update", "svc_ci_1")
    assert (entry.detail, entry.organizations) == ({"label": "Zoë's", "was": None}, ["acme", "bolt"])


@on_each_database
async def test_entries_are_newest_first(database: Database) -> None:
    """Time decides, not the order of writing; within a millisecond the one written later comes first."""
    for at_ms, target in ((7, "a"), (9, "b"), (8, "c"), (8, "d"), (1, "e")):
        await note(database, at_ms, target=target)
    page = await list_audit(ADMINISTRATOR, database)
    assert [entry.target for entry in page.entries] == ["b", "d", "c", "a", "e"]
    assert (page.older, page.is_cut) == (None, False)
    assert await times(database, ADMINISTRATOR) == [9, 8, 8, 7, 1]


@on_each_database
async def test_filters_match_exactly_and_together(database: Database) -> None:
    """Person, action, target, from a time on and before a time; for an administrator and for an admin."""
    await make_organizations(database, "acme")
    await note(database, 1, "acme", actor=ADA)
    await note(database, 2, "acme", action="key.create")
    await note(database, 3, "acme", target="svc_ci_2")
    await note(database, 4, "acme", actor=ADA, action="key.create", target="svc_ci_2")
    for actor in (ADMINISTRATOR, admin("acme")):
        assert await times(database, actor) == [4, 3, 2, 1]
        assert await times(database, actor, person="ada@example.org") == [4, 1]
        assert await times(database, actor, person="ada@example") == []
        assert await times(database, actor, action="key.create") == [4, 2]
        assert await times(database, actor, target="svc_ci_2") == [4, 3]
        assert await times(database, actor, target="svc_ci_2", action="key.update") == [3]
        assert await times(database, actor, target="svc_ci_2", person="zoe@example.org") == [3]
        assert await times(database, actor, person="ada@example.org", action="key.create") == [4]
        assert await times(database, actor, from_ms=2, until_ms=4) == [3, 2]
        assert await times(database, actor, from_ms=2, until_ms=4, target="svc_ci_1") == [2]
        assert await times(database, actor, from_ms=4, until_ms=4) == []
        for odd in ("", "\0", "\ud800", "x" * 100_000, "' OR 1=1 --"):
            for name in ("person", "action", "target"):
                assert await times(database, actor, **{name: odd}) == []
        assert await times(database, actor, from_ms=-(2**70), until_ms=2**70) == [4, 3, 2, 1, 0]


@on_each_database
async def test_an_admin_reads_only_entries_of_their_organizations(database: Database) -> None:
    """No filter shows an entry of the deployment, or one that also concerns another organization."""
    await make_organizations(database, "acme", "bolt", "cord")
    await note(database, 1)
    await note(database, 2, "acme")
    await note(database, 3, "bolt")
    await note(database, 4, "acme", "bolt")
    await note(database, 5, "acme", "cord")
    for filters in ({}, {"target": "svc_ci_1"}, {"person": "zoe@example.org"}, {"action": "key.update"}):
        given: dict[str, Any] = filters
        assert await times(database, ADMINISTRATOR, **given) == [5, 4, 3, 2, 1]
        assert await times(database, admin("acme"), **given) == [2]
        assert await times(database, admin("bolt"), **given) == [3]
        assert await times(database, admin("acme", "bolt"), **given) == [4, 3, 2]
        assert await times(database, admin("acme", bolt=VIEWER), **given) == [2]
        assert await times(database, admin("nowhere"), **given) == []
    assert [entry.at_ms for entry in await exported(admin("acme", "bolt"), database, from_ms=1)] == [4, 3, 2]


@on_each_database
async def test_viewers_and_partners_do_not_read_the_audit(database: Database) -> None:
    """An export is Forbidden before its first line."""
    for actor in (Actor(kind="person", id="x", roles={"acme": VIEWER}), Actor(kind="client", id="svc_ci_1")):
        with pytest.raises(Forbidden):
            await list_audit(actor, database)
        with pytest.raises(Forbidden):
            export_audit(actor, database)


@on_each_database
async def test_a_page_examines_a_bounded_number_of_rows(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may end with fewer entries than the limit, or none; the next pages have the rest, each entry once."""
    monkeypatch.setattr(reading, "MAX_SCANNED", 3)
    await make_organizations(database, "acme", "bolt")
    for at_ms in range(1, 11):
        await note(
            database,
            at_ms,
            "acme",
            *(["bolt"] if at_ms % 4 else []),
            action="key.create" if at_ms == 1 else "key.update",
        )
    for actor, expected in ((ADMINISTRATOR, [1]), (admin("acme", "bolt"), [1]), (admin("acme"), [])):
        pages = await all_pages(database, actor, action="key.create", person="zoe@example.org")
        assert [entry.at_ms for page in pages for entry in page.entries] == expected
        assert [page.is_cut for page in pages] == [True] * (len(pages) - 1) + [False]
        assert all(page.examined == 3 for page in pages)
        assert len(pages) == 4
    assert [entry.at_ms for page in await all_pages(database, admin("acme")) for entry in page.entries] == [8, 4]
    full = await list_audit(ADMINISTRATOR, database, limit=2)
    assert (len(full.entries), full.is_cut, full.older) == (2, False, full.entries[-1].audit_id)


@on_each_database
async def test_an_export_has_all_entries_in_slices(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in the order of the pages; no slice is empty, even if many rows were examined for it."""
    monkeypatch.setattr(reading, "MAX_SCANNED", 3)
    monkeypatch.setattr(reading, "MAX_PAGE_SIZE", 2)
    for at_ms in range(1, 12):
        await note(database, at_ms, target="b" if at_ms in (1, 2, 3, 11) else "a", action=f"key.{at_ms % 2}")
    slices = [entries async for entries in export_audit(ADMINISTRATOR, database, target="a")]
    assert [entry.at_ms for entries in slices for entry in entries] == [10, 9, 8, 7, 6, 5, 4]
    assert all(0 < len(entries) <= 2 for entries in slices)
    assert [entry.at_ms for entry in await exported(ADMINISTRATOR, database, action="key.1", until_ms=9)] == [
        7,
        5,
        3,
        1,
    ]


@on_each_database
async def test_an_unknown_page_is_missing(database: Database) -> None:
    """Any number that is not an entry's is unknown."""
    for before_id in (0, -1, 7, 2**63, 2**80):
        with pytest.raises(Missing):
            await list_audit(ADMINISTRATOR, database, before_id=before_id)


@in_own_loop
async def test_paging_is_stable_while_others_write(database_url: str) -> None:
    """No entry is seen twice or missed; entries written meanwhile are newer."""
    async with migrated(database_url) as database:
        for at_ms in range(1, 21):
            await note(database, at_ms)
        seen: list[int] = []
        before_id = None
        for turn in range(10):
            page = await list_audit(ADMINISTRATOR, database, before_id=before_id, limit=2)
            await note(database, 100 + turn)
            seen += [entry.at_ms for entry in page.entries]
            before_id = page.older
        assert seen == list(range(20, 0, -1))


async def all_pages(database: Database, actor: Actor, **filters: Any) -> Sequence[AuditPage]:
    """Return all pages, newest first."""
    pages = [await list_audit(actor, database, from_ms=1, **filters)]
    while pages[-1].older is not None:
        pages.append(await list_audit(actor, database, from_ms=1, before_id=pages[-1].older, **filters))
    return pages

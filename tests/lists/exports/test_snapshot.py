"""An export shows one moment, whatever is written while it is read. docs/interface.md sections D6 and D12."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoplist.db import Database
from stoplist.lists.exports import snapshot
from stoplist.records.reversal import reverse
from tests.deployment import SharedDatabase, in_loop
from tests.lists.exports.export_fixture import begin, csv_rows, exported
from tests.unsubscribes.partner import OptOutDeployment, Organization, back, out
from tests.unsubscribes.people import BOSS

# A batch: people by number, each out (False) or back (True), and whether it is for all groups.
BATCH = st.tuples(st.lists(st.tuples(st.integers(0, 7), st.booleans()), min_size=1, max_size=6), st.booleans())
BATCHES = st.lists(BATCH, max_size=5)


class Paused:
    """An export that is read part by part, with anything else in between."""

    def __init__(self, parts: Any) -> None:
        self._parts, self._read, self.is_over = parts, b"", False

    async def read_on(self) -> None:
        part = await anext(self._parts, None)
        self._read, self.is_over = self._read + (part or b""), part is None

    async def rows(self) -> list[dict[str, str]]:
        while not self.is_over:
            await self.read_on()
        return csv_rows(self._read)


async def write(organization: Organization, batch: Any) -> None:
    people, for_all = batch
    organization.deployment.clock.advance(1)
    now = organization.deployment.ago(0)
    items = [back(f"p{n}@x.org", now) if is_back else out(f"p{n}@x.org", now) for n, is_back in people]
    await organization.submit(*items, all_groups=for_all)


@settings(max_examples=25, deadline=None)
@given(before=BATCHES, between=st.lists(BATCHES, max_size=6), size=st.integers(1, 5))
def test_writes_meanwhile_do_not_tear_an_export(
    shared_database: SharedDatabase, before: Any, between: Any, size: int
) -> None:
    """It holds exactly the records as they were when it began, and its cursor goes on from there."""

    async def body(deployment: OptOutDeployment) -> None:
        organization = await deployment.new_organization()
        for batch in before:
            await write(organization, batch)
        exports, cursors = [], []
        for wanted in ({}, {"has_history": True}, {"status": "unsubscribed"}):
            expected = await exported(organization, **wanted)
            export = await begin(organization, **wanted)
            exports.append((Paused(aiter(export.parts())), expected))
            cursors.append(export.next_cursor)
        for batches in between:
            for batch in batches:
                await write(organization, batch)
            for paused, _ in exports:
                await paused.read_on()
        for paused, expected in exports:
            assert await paused.rows() == expected
        states = {row["id"]: int(row["seq"]) for row in exports[0][1]}
        changed = {record.id: record.seq for record in await organization.feed(cursors[0])}
        assert states | changed == {record.id: record.seq for record in await organization.feed()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot, "PAGE_STATES", size)
        deployment = OptOutDeployment.on(shared_database)
        deployment.run(body(deployment))


@in_loop
async def test_a_naive_model_agrees_with_an_export(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records at a moment are the last states up to its number, one for each id, in order."""
    chance = random.Random(12)  # noqa: S311 - the same examples every time
    organization = await deployment.new_organization()
    monkeypatch.setattr(snapshot, "PAGE_STATES", 7)

    async def write_some(batches: int) -> None:
        for _ in range(batches):
            people = [(chance.randrange(40), chance.random() < 0.4) for _ in range(chance.randrange(1, 9))]
            await write(organization, (people, chance.random() < 0.3))

    await write_some(30)
    export = await begin(organization)
    head = (await organization.rows("feeds", "feed_id"))[0]["head_seq"]
    paused = Paused(aiter(export.parts()))
    while not paused.is_over:
        await paused.read_on()
        await write_some(2)
    mistake = await organization.submit(*(out(f"p{n}@x.org") for n in range(40)))
    await reverse(BOSS, deployment.stores, mistake.submission_id or "")
    states = [*await organization.rows("unsubscribe_versions", "seq"), *await organization.rows("unsubscribes", "seq")]
    latest: dict[Any, int] = {}
    for state in sorted(states, key=lambda state: state["seq"]):
        if state["seq"] <= head:
            latest[state["address"], state["group_no"]] = state["seq"]
    assert [int(row["seq"]) for row in await paused.rows()] == sorted(latest.values())
    assert len(latest) > 40


@in_loop
async def test_a_record_that_moves_between_two_reads_is_not_missed(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is it exported twice: the change falls between the read of the records and that of the versions."""
    organization = await deployment.new_organization()
    await organization.submit(*(out(f"p{n}@x.org") for n in range(5)))
    expected = await exported(organization)
    export = await begin(organization)
    await organization.submit(back("p0@x.org", deployment.ago(0)), out("p9@x.org"))
    read, writes = deployment.database.one_large, iter([["p1@x.org", "p4@x.org"]])

    async def read_and_write(query: Any, **values: Any) -> Any:
        row = await read(query, **values)
        for address in next(writes, []):
            deployment.clock.advance(1)
            await organization.submit(back(address, deployment.ago(0)))
        return row

    monkeypatch.setattr(type(deployment.database), "one_large", _as_method(read_and_write))
    assert csv_rows(b"".join([part async for part in export.parts()])) == expected


@in_loop
async def test_an_undisturbed_export_reads_no_versions(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many versions there are: they are read only if something was written since it began."""
    organization = await deployment.new_organization()
    for _ in range(3):
        deployment.clock.advance(1)
        await organization.submit(out("ann@x.org"), back("ben@x.org", deployment.ago(0)))
        deployment.clock.advance(1)
        await organization.submit(back("ann@x.org", deployment.ago(0)), out("ben@x.org"))
    read, queries = deployment.database.one_large, []

    async def noted(query: Any, **values: Any) -> Any:
        queries.append(query.name)
        return await read(query, **values)

    monkeypatch.setattr(type(deployment.database), "one_large", _as_method(noted))
    await exported(organization)
    assert queries == ["current_states"]


def _as_method(function: Any) -> Any:
    async def method(_: Database, query: Any, **values: Any) -> Any:
        return await function(query, **values)

    return method

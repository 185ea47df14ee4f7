"""Opt-outs of single people that arrive together are stored together, each as its own submission.

Source: docs/interface.md section D15.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from stoplist.actor import Actor
from stoplist.db import Database, Transaction, Unit
from stoplist.errors import StoreUnavailable
from stoplist.organizations.target import Target, TargetGroup
from stoplist.proof.feed_states import compare_states
from stoplist.unsubscribes.act_groups import _MAX_ACTS, ActGroups, SubmittedAct
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import Item
from tests.deployment import in_loop
from tests.unsubscribes.busy_database import BusyDatabase
from tests.unsubscribes.partner import OptOutDeployment, Organization, back, out

LINK_KEY = "lnk_0123456789abcdef"


def clicker(number: int, link_key_id: str = LINK_KEY) -> Actor:
    """Return a person who clicks, with a request of their own."""
    return Actor(kind="link", id=link_key_id, source_ip=f"192.0.2.{number % 250}", request_id=f"{number:024x}")


async def click_all(
    organization: Organization, acts: ActGroups, addresses: Sequence[str], *, group_no: int | None = 1, **actor: str
) -> list[SubmittedAct]:
    """Return the results of these people's opt-outs, which arrive at the same moment."""
    group = None if group_no is None else TargetGroup(group_no, organization.default_group)
    target = Target(organization.organization_id, organization.slug, group, None)
    return await asyncio.gather(
        *(
            acts.submit(
                clicker(number, **actor),
                CHANNELS[organization.channel],
                target,
                Item(address=address, source="one_click"),
            )
            for number, address in enumerate(addresses)
        )
    )


def acts_on(deployment: OptOutDeployment) -> ActGroups:
    return ActGroups(deployment.database, deployment.clock)


async def stored_shape(organization: Organization) -> dict[str, Any]:
    """Return what is stored, without random ids and the order within one transaction."""

    async def rows(table: str, *columns: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row[column] for column in columns) for row in await organization.rows(table, "1"))

    state = ("address", "status", "reason", "source", "occurred_ms", "latest_act_ms")
    return {
        "records": await rows("unsubscribes", *state, "is_confirmed", "group_no"),
        "versions": await rows("unsubscribe_versions", *state, "group_no"),
        "days": await rows("feed_days", "day", "status", "reason", "changes", "standing"),
        "submissions": await rows(
            "submissions", "actor_kind", "received", "created", "updated", "unchanged", "outranked", "rejected"
        ),
    }


@in_loop
async def test_each_act_has_a_submission_of_its_own(deployment: OptOutDeployment) -> None:
    """With the request and the address that it came from, and the number of its change; in few transactions."""
    organization = await deployment.new_organization()
    await organization.submit(out("first@x.org"))
    writes = deployment.database.counts.writes
    people = [f"p{number}@x.org" for number in range(3 * _MAX_ACTS)]
    results = await click_all(organization, acts_on(deployment), people)
    assert deployment.database.counts.writes - writes < len(people)
    records = {row["submission_id"]: row for row in (await organization.rows("unsubscribes", "seq"))[1:]}
    submissions = {row["submission_id"]: row for row in await organization.rows("submissions", "1")}
    assert all(result.is_changed for result in results)
    assert len(records) == len(submissions) - 1 == len(people)
    for number, (address, (submission_id, _)) in enumerate(zip(people, results, strict=True)):
        assert submission_id is not None
        record, submission = records[submission_id], submissions[submission_id]
        assert record["address"] == address
        assert submission["first_seq"] == submission["last_seq"] == record["seq"]
        assert (submission["request_id"], submission["source_ip"]) == (f"{number:024x}", f"192.0.2.{number % 250}")
        assert (submission["actor_kind"], submission["actor_id"]) == ("link", LINK_KEY)
    assert (await compare_states(deployment.database)).differing == []


@in_loop
async def test_acts_together_store_what_they_store_one_after_the_other(deployment: OptOutDeployment) -> None:
    """People are new, opted out or came back before, have just clicked, or click twice."""
    shapes = []
    addresses = [f"{name}@x.org" for name in ("new", "out", "back", "again", "new", "back", "out", "moment", "fresh")]
    for is_together in (True, False):
        organization, acts = await deployment.new_organization(), acts_on(deployment)
        await organization.submit(
            out("out@x.org", deployment.ago(90_000)), back("back@x.org", deployment.ago(80_000)), out("other@x.org")
        )
        await click_all(organization, acts, ["again@x.org"])
        deployment.clock.advance(5)
        await click_all(organization, acts, ["moment@x.org"])
        if is_together:
            await click_all(organization, acts, addresses)
        else:
            for address in addresses:
                await click_all(organization, acts, [address])
        shape = await stored_shape(organization)
        shapes.append(msgspec.json.encode(shape))
        deployment.clock.advance(-5)
    assert shapes[0] == shapes[1]
    assert (await compare_states(deployment.database)).differing == []


@in_loop
async def test_a_person_who_clicks_at_once_for_two_keys_is_confirmed(deployment: OptOutDeployment) -> None:
    """Another key is somebody else: its act is stored, too."""
    organization, acts = await deployment.new_organization(), acts_on(deployment)
    await asyncio.gather(
        *(click_all(organization, acts, ["ann@x.org"], link_key_id=f"lnk_000000000000000{number}") for number in (1, 2))
    )
    (record,) = await organization.rows("unsubscribes", "seq")
    assert record["is_confirmed"] == 1
    assert len(await organization.rows("submissions", "1")) == 2


@in_loop
async def test_a_second_click_while_others_wait_stores_nothing(deployment: OptOutDeployment) -> None:
    """The records of who joins others are read behind the lock alone, so it shows there."""
    organization = await deployment.new_organization()
    await click_all(organization, acts_on(deployment), ["ann@x.org"])
    busy: Any = BusyDatabase(deployment.database)
    acts = ActGroups(busy, deployment.clock)
    first = asyncio.create_task(click_all(organization, acts, ["bob@x.org"]))
    await busy.was_asked.wait()
    deployment.clock.advance(0.5)
    second = asyncio.create_task(click_all(organization, acts, ["ann@x.org"]))
    await asyncio.sleep(0)  # for it to join the first
    busy.is_free.set()
    assert [(await first)[0].is_changed, *await second] == [True, SubmittedAct(None, is_changed=False)]
    assert len(await organization.rows("submissions", "1")) == 2


class RolledBackError(Exception):
    """Undoes a unit."""


class _Unsteady:
    """A database that rolls back the first run of each unit, or refuses every write."""

    def __init__(self, database: Database, *, is_away: bool = False) -> None:
        self._database, self._is_away = database, is_away

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def write(self, unit: Unit[Any], **options: Any) -> Any:
        if self._is_away:
            raise StoreUnavailable("The database is away.")

        async def rolled_back(transaction: Transaction) -> None:
            await unit(transaction)
            raise RolledBackError

        with pytest.raises(RolledBackError):
            await self._database.write(rolled_back, **options)
        return await self._database.write(unit, **options)


@in_loop
async def test_a_group_may_run_again_after_a_rollback(deployment: OptOutDeployment) -> None:
    """A deadlock, say: the second run stores all, once."""
    organization = await deployment.new_organization()
    await organization.submit(back("back@x.org", deployment.ago(9_000)), out("out@x.org"))
    unsteady: Any = _Unsteady(deployment.database)
    people = ["back@x.org", "out@x.org", "new@x.org", "new@x.org"]
    results = await click_all(organization, ActGroups(unsteady, deployment.clock), people)
    assert [result.is_changed for result in results] == [True, False, True, False]
    assert len(await organization.rows("submissions", "1")) == 1 + 3
    assert (await compare_states(deployment.database)).differing == []


@in_loop
async def test_a_store_that_fails_is_told_to_everybody_who_waits(deployment: OptOutDeployment) -> None:
    """Nothing is stored, and the next click is not refused for it."""
    organization = await deployment.new_organization()
    await organization.submit(out("first@x.org"))
    unsteady: Any = _Unsteady(deployment.database, is_away=True)
    acts, people = ActGroups(unsteady, deployment.clock), ["ann@x.org", "bob@x.org"]
    outcomes = await asyncio.gather(
        *(click_all(organization, acts, [address]) for address in people), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable, StoreUnavailable]
    unsteady._is_away = False
    assert (await click_all(organization, acts, people))[0].is_changed


@in_loop
async def test_a_request_that_is_cancelled_stops_no_other(deployment: OptOutDeployment) -> None:
    """The first one of a group, too; what it asked for is stored all the same."""
    organization = await deployment.new_organization()
    await organization.submit(out("first@x.org"))
    busy: Any = BusyDatabase(deployment.database)
    acts = ActGroups(busy, deployment.clock)
    first = asyncio.create_task(click_all(organization, acts, ["ann@x.org"]))
    await busy.was_asked.wait()
    first.cancel()
    second = asyncio.create_task(click_all(organization, acts, ["bob@x.org"]))
    busy.is_free.set()
    assert (await second)[0].is_changed
    assert len(await organization.rows("unsubscribes", "seq")) == 3

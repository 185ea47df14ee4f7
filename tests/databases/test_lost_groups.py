"""Records of a group that the accounts have lost are never read as another's, and get their group back.

A restore of the accounts alone makes them. Source: docs/interface.md section D1, Feeds apart.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple
from unittest.mock import AsyncMock

import pytest

from stoplist.errors import StoreUnavailable
from stoplist.lists.imports.listing import find_import, imports_into, list_imports
from stoplist.maintenance import lost_groups
from stoplist.maintenance.after_restore import after_restore
from stoplist.maintenance.lost_groups import LostGroups, find_lost_groups
from stoplist.organizations.groups import create_group, list_groups, rename_group
from stoplist.organizations.store import find_organization
from stoplist.organizations.target import Target
from stoplist.proof.feed_states import compare_states, complete_states
from stoplist.proof.propagation import propagation, since_when
from stoplist.records.history import show_record
from stoplist.records.listing import list_records
from stoplist.records.search import search
from stoplist.records.submission_list import list_submissions
from stoplist.records.submissions import find_submission
from stoplist.rights.erasure_unit import ErasureUnit
from stoplist.unsubscribes.channel import CHANNELS
from tests.builders import ADMINISTRATOR, audit_rows, execute, value
from tests.deployment import in_loop
from tests.lists.exports.export_fixture import begin, whole
from tests.proof.test_propagation import present
from tests.unsubscribes.naive import naive_state
from tests.unsubscribes.partner import OptOutDeployment, Organization, addresses, out, records

EMAIL = CHANNELS["email"]
LOST_NAME = "Group 2, lost in a restore"


class Lost(NamedTuple):
    """An organization that has lost its second group, the id that this had, and the submission that it got."""

    organization: Organization
    group_id: str
    submission_id: str


async def lose_group(deployment: OptOutDeployment) -> Lost:
    """Opt ann out of a new group, and ben out of the default one; then lose the new one, as a restore does."""
    organization = await deployment.new_organization()
    group_id = await organization.new_group("Offers")
    submitted = await organization.submit(out("ann@x.org"), group_id=group_id)
    await organization.submit(out("ben@x.org"))
    assert submitted.submission_id is not None
    await lose(deployment, group_id)
    return Lost(organization, group_id, submitted.submission_id)


async def lose(deployment: OptOutDeployment, group_id: str) -> None:
    await execute(deployment.database, "DELETE FROM groups WHERE group_id = :group_id", group_id=group_id)


async def numbers(organization: Organization) -> dict[int, str]:
    """Return the names of the organization's groups by number."""
    found = await list_groups(ADMINISTRATOR, organization.deployment.database, org_slug=organization.slug)
    query = "SELECT group_no FROM groups WHERE group_id = :group_id"
    return {
        await value(organization.deployment.database, query, group_id=group.group_id): group.name for group in found
    }


@pytest.fixture(autouse=True)
def every_group_is_there_afterwards(deployment: OptOutDeployment) -> None:
    """Give every group back that an earlier test of this module has lost."""
    deployment.run(after_restore(ADMINISTRATOR, deployment.database, deployment.clock))


READS: dict[str, Callable[[Lost], Awaitable[object]]] = {
    "follow": lambda lost: lost.organization.follow(),
    "look up": lambda lost: lost.organization.look_up("ann@x.org"),
    "export": lambda lost: _export(lost.organization, "csv"),
    "export as NDJSON": lambda lost: _export(lost.organization, "ndjson"),
    "export the history": lambda lost: _export(lost.organization, "csv", has_history=True),
    "list": lambda lost: list_records(
        ADMINISTRATOR, lost.organization.deployment.database, org_slug=lost.organization.slug, channel=EMAIL
    ),
    "search": lambda lost: search(
        ADMINISTRATOR, lost.organization.deployment.database, "ann@x.org", org_slug=lost.organization.slug
    ),
    "show a record": lambda lost: show_record(
        ADMINISTRATOR,
        lost.organization.deployment.database,
        org_slug=lost.organization.slug,
        channel=EMAIL,
        seq=1,
    ),
    "show a submission": lambda lost: find_submission(
        ADMINISTRATOR, lost.organization.deployment.database, lost.submission_id
    ),
    "erase": lambda lost: _erase(lost.organization, "ann@x.org"),
    "compare states": lambda lost: compare_states(lost.organization.deployment.database),
    "complete states": lambda lost: _complete_states(lost.organization),
}


async def _export(organization: Organization, layout: str, *, has_history: bool = False) -> None:
    await whole(await begin(organization, layout=layout, has_history=has_history))


async def _erase(organization: Organization, address: str) -> None:
    deployment = organization.deployment
    erased = await find_organization(deployment.database, organization.slug)
    await ErasureUnit(ADMINISTRATOR, deployment.stores, EMAIL, erased, address).run()


async def _complete_states(organization: Organization) -> None:
    """Complete the state of the feed after an older program has written to it."""
    database = organization.deployment.database
    write = "UPDATE feeds SET writes = writes + 1, head_seq = head_seq + 1, state_seq = {} WHERE feed_id = :feed_id"
    await execute(database, write.format("0"), feed_id=organization.feed_id)
    try:
        await complete_states(database, pause_s=0)
    finally:
        await execute(database, "DELETE FROM unsubscribes WHERE feed_id = :feed_id", feed_id=organization.feed_id)


@pytest.mark.parametrize("read", READS)
@in_loop
async def test_nothing_is_said_of_its_records(deployment: OptOutDeployment, read: str) -> None:
    """503, and the text says what an operator must do: not that there is no record, nor one for all groups."""
    with pytest.raises(StoreUnavailable, match="`stoplist after-restore`"):
        await READS[read](await lose_group(deployment))


@in_loop
async def test_other_groups_and_people_are_read_as_before(deployment: OptOutDeployment) -> None:
    organization = (await lose_group(deployment)).organization
    assert addresses(await organization.look_up("ben@x.org")) == ["ben@x.org"]
    assert addresses(await organization.follow(group_id=organization.default_group)) == ["ben@x.org"]
    await organization.submit(out("cleo@x.org"))


@in_loop
async def test_lists_of_submissions_name_it_as_lost(deployment: OptOutDeployment) -> None:
    """They show many organizations, so one group must not make them fail. It must not be taken for all groups."""
    organization = (await lose_group(deployment)).organization
    page = await list_submissions(ADMINISTRATOR, deployment.database, org_slug=organization.slug)
    # Both of one moment.
    assert {(one.group_id, one.group_name) for one in page.submissions} == {
        (organization.default_group, "Newsletter"),
        (None, LOST_NAME),
    }


@in_loop
async def test_nothing_is_claimed_of_who_read_it(deployment: OptOutDeployment) -> None:
    """A reader of a lost group is not taken for one of the whole feed. Who reads the whole feed is shown."""
    organization = (await lose_group(deployment)).organization
    await present(organization, 2, group_no=2)
    other = await organization.new_partner()
    await present(organization, 2, by=other)
    found = await propagation(ADMINISTRATOR, deployment.stores, hours=1, org_slug=organization.slug)
    assert [(one.client_id, one.group_id) for one in found] == [(other.id, None)]
    since = await since_when(
        ADMINISTRATOR,
        deployment.stores,
        org_slug=organization.slug,
        channel=EMAIL,
        group_id=organization.default_group,
        seq=2,
    )
    assert {one.client_id: one.since_ms is None for one in since} == {organization.partner.id: True, other.id: False}


INSERT_IMPORT = """
INSERT INTO imports (feed_id, import_id, group_no, state, options, file_name, actor_kind, actor_id, started_ms, counts,
                     row_count, sha256, rejects_bytes, lease_until_ms)
VALUES (:feed_id, 'imp_' || lpad(CAST(CAST(:feed_id AS BIGINT) AS TEXT), 22, '0'), 2, 'ended', '{"now_ms": 1}',
        'list.csv', 'command', 'tester', 1, '{}', 0, '', 0, 0)
"""


@in_loop
async def test_after_restore_gives_it_back(deployment: OptOutDeployment) -> None:
    """With its number and a new id, so that its opt-outs hold. A second time there is nothing to do."""
    organization, old_id, submission_id = await lose_group(deployment)
    result = await after_restore(ADMINISTRATOR, deployment.database, deployment.clock)
    assert result.groups == 1
    assert await numbers(organization) == {1: "Newsletter", 2: LOST_NAME}
    ann, ben = records(await organization.follow())
    assert (ann.address, ben.group_id) == ("ann@x.org", organization.default_group)
    assert ann.group_id not in (None, old_id, organization.default_group)
    assert addresses(await organization.follow(group_id=ann.group_id)) == ["ann@x.org"]
    assert (await find_submission(ADMINISTRATOR, deployment.database, submission_id)).group_name == LOST_NAME
    (row,) = [row for row in await audit_rows(deployment.database) if row.target == ann.group_id]
    assert (row.action, row.actor) == ("group.recreate", "command tester")
    assert row.detail == {"org_slug": organization.slug, "name": LOST_NAME}
    assert (await after_restore(ADMINISTRATOR, deployment.database, deployment.clock)).groups == 0


@in_loop
async def test_the_state_of_the_feed_is_computed_anew(deployment: OptOutDeployment) -> None:
    """The id of the group is part of it. Partners must read everything again anyway."""
    organization = (await lose_group(deployment)).organization
    await after_restore(ADMINISTRATOR, deployment.database, deployment.clock)
    page = await organization.follow()
    assert page.state == naive_state(records(page), 2)
    compared = await compare_states(deployment.database)
    assert (compared.differing, compared.open) == ([], 0)


@in_loop
async def test_an_end_halfway_leaves_the_groups_to_the_next_attempt(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the state would be wrong from then on."""
    organization = (await lose_group(deployment)).organization
    with monkeypatch.context() as patch:
        patch.setattr(lost_groups, "recreate_group", AsyncMock(side_effect=StoreUnavailable("The program ends here.")))
        with pytest.raises(StoreUnavailable, match="ends here"):
            await after_restore(ADMINISTRATOR, deployment.database, deployment.clock)
    assert (await after_restore(ADMINISTRATOR, deployment.database, deployment.clock)).groups == 1
    page = await organization.follow()
    assert page.state == naive_state(records(page), 2)


@in_loop
async def test_no_group_gets_its_number(deployment: OptOutDeployment) -> None:
    """Numbers in between, of which there is nothing, stay free."""
    organization = await deployment.new_organization()
    lost = [await organization.new_group(name) for name in ("Offers", "News", "Events")]
    await organization.submit(out("ann@x.org"), group_id=lost[-1])
    for group_id in lost:
        await lose(deployment, group_id)
    await after_restore(ADMINISTRATOR, deployment.database, deployment.clock)
    await create_group(ADMINISTRATOR, deployment.database, deployment.clock, org_slug=organization.slug, name="Offers")
    assert await numbers(organization) == {1: "Newsletter", 4: "Group 4, lost in a restore", 5: "Offers"}
    assert addresses(await organization.feed()) == ["ann@x.org"]


@in_loop
async def test_its_name_may_be_taken(deployment: OptOutDeployment) -> None:
    organization = (await lose_group(deployment)).organization
    await rename_group(
        ADMINISTRATOR, deployment.database, deployment.clock, group_id=organization.default_group, name=LOST_NAME
    )
    await after_restore(ADMINISTRATOR, deployment.database, deployment.clock)
    assert (await numbers(organization))[2].startswith(f"{LOST_NAME} (grp_")


ONLY_IN = {
    "submissions": "UPDATE submissions SET group_no = 2 WHERE feed_id = :feed_id",
    "imports": INSERT_IMPORT,
    "readers": "INSERT INTO feed_followers (feed_id, client_id, group_no, generation, position) "
    "VALUES (:feed_id, 'key', 2, '', 0)",
}


@pytest.mark.parametrize("statement", ONLY_IN.values(), ids=ONLY_IN)
@in_loop
async def test_it_is_found_without_records_too(deployment: OptOutDeployment, statement: str) -> None:
    organization = await deployment.new_organization()
    await organization.submit(out("ann@x.org"))
    await execute(deployment.database, statement, feed_id=organization.feed_id)
    assert await find_lost_groups(deployment.database) == [
        LostGroups(organization.feed_id, organization.organization_id, frozenset({2}))
    ]


@in_loop
async def test_a_large_feed_is_read_page_by_page(deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record of the lost group may be on any page."""
    monkeypatch.setattr(lost_groups, "ROWS_AT_ONCE", 2)
    for position in range(5):
        organization = await deployment.new_organization()
        group_id = await organization.new_group("Offers")
        for number in range(5):
            await organization.submit(
                out(f"p{number}@x.org"), group_id=group_id if number == position else organization.default_group
            )
        await lose(deployment, group_id)
        assert await find_lost_groups(deployment.database) == [
            LostGroups(organization.feed_id, organization.organization_id, frozenset({2}))
        ]
        await after_restore(ADMINISTRATOR, deployment.database, deployment.clock)


@in_loop
async def test_imports_into_it_are_named_and_not_gone_on_with(deployment: OptOutDeployment) -> None:
    lost = await lose_group(deployment)
    organization = lost.organization
    await execute(deployment.database, INSERT_IMPORT, feed_id=organization.feed_id)
    (listed,) = await list_imports(ADMINISTRATOR, deployment.database, org_slug=organization.slug)
    assert (listed.group_id, listed.group_name) == (None, LOST_NAME)
    with pytest.raises(StoreUnavailable, match="`stoplist after-restore`"):
        await find_import(ADMINISTRATOR, deployment.database, listed.import_id)
    target = Target(organization.organization_id, organization.slug, group=None, default_group=None)
    assert await imports_into(ADMINISTRATOR, deployment.database, EMAIL, target) == []

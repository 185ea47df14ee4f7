"""The submissions of what a person sees, newest first. docs/interface.md sections D9 and D11."""

import random
from typing import Any

import pytest

from stoplist.actor import Actor
from stoplist.errors import Missing, Refused
from stoplist.lists.imports.reversal import reverse_import, submissions_of
from stoplist.records.reversal import reverse
from stoplist.records.submission_list import ListedSubmission, list_submissions
from stoplist.records.submissions import find_submission
from stoplist.unsubscribes.channel import CHANNELS
from tests.deployment import in_loop
from tests.lists.imports.importer import Importer, list_of
from tests.unsubscribes.partner import OptOutDeployment, Organization, out
from tests.unsubscribes.people import BOSS, admin, person, viewer


async def listed(actor: Actor, deployment: OptOutDeployment, *, limit: int = 3, **wanted: Any) -> list[str]:
    """Return the ids on all pages."""
    found: list[str] = []
    before = None
    while True:
        page = await list_submissions(actor, deployment.database, before=before, limit=limit, **wanted)
        assert len(page.submissions) <= limit
        found += [one.submission_id for one in page.submissions]
        before = page.older
        if before is None:
            return found


async def sent(organization: Organization, address: str, **target: Any) -> str:
    answer = await organization.submit(out(address), **target)
    assert answer.submission_id is not None
    return answer.submission_id


@in_loop
async def test_a_listed_submission_has_all_fields(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    submission_id = await sent(organization, "ann@x.org")
    for_all = await sent(organization.on("sms"), "+442079460018", all_groups=True)
    reversal = await reverse(BOSS, deployment.stores, submission_id)
    page = await list_submissions(viewer(organization), deployment.database, channel=CHANNELS["email"])
    (found,) = [one for one in page.submissions if one.submission_id == submission_id]
    assert found == ListedSubmission(
        submission_id=submission_id,
        org_slug=organization.slug,
        channel="email",
        group_id=organization.default_group,
        group_name="Newsletter",
        actor_kind="client",
        actor_id=organization.partner.id,
        label="partner",
        source_ip="192.0.2.1",
        received_ms=deployment.now_ms,
        received=1,
        created=1,
        updated=0,
        unchanged=0,
        outranked=0,
        rejected=0,
        reversed_by=reversal.submission_id,
    )
    (other,) = (await list_submissions(viewer(organization), deployment.database, channel=CHANNELS["sms"])).submissions
    assert (other.submission_id, other.channel, other.group_id, other.reversed_by) == (for_all, "sms", None, None)


@in_loop
async def test_filters_find_the_same_as_a_full_scan(deployment: OptOutDeployment) -> None:
    """Newest first, page by page, over several organizations and channels, with many of the same millisecond."""
    chance = random.Random(5)  # noqa: S311 - the same examples every time
    begin_ms = deployment.now_ms
    organizations = [await deployment.new_organization() for _ in range(2)]
    second = await organizations[0].new_partner()
    made: list[tuple[int, str, str, str, str]] = []
    for number in range(60):
        deployment.clock.advance(chance.choice([0, 0, 0.001, 60]))
        organization = chance.choice(organizations).on(chance.choice(["email", "sms"]))
        by = second if organization.slug == organizations[0].slug and chance.random() < 0.5 else organization.partner
        address = f"p{number}@x.org" if organization.channel == "email" else f"+4420794600{number:02}"
        submission_id = await sent(organization, address, by=by)
        made.append((deployment.now_ms, submission_id, organization.slug, organization.channel, by.id))
    made.sort(reverse=True)
    actor = viewer(*organizations)
    times = sorted({at_ms for at_ms, *_ in made})
    for slug in (None, organizations[0].slug):
        for channel in (None, "sms"):
            for client_id in (None, second.id):
                for from_ms, until_ms in ((None, None), (times[3], None), (None, times[-3]), (times[2], times[-2])):
                    wanted: dict[str, Any] = {
                        "org_slug": slug,
                        "client_id": client_id,
                        "from_ms": from_ms,
                        "until_ms": until_ms,
                    }
                    found = await listed(actor, deployment, channel=CHANNELS[channel] if channel else None, **wanted)
                    assert found == [
                        submission_id
                        for at_ms, submission_id, org_slug, name, sender in made
                        if slug in (None, org_slug)
                        and channel in (None, name)
                        and client_id in (None, sender)
                        and (from_ms or begin_ms) <= at_ms < (until_ms or deployment.now_ms + 1)
                    ], wanted


@in_loop
async def test_people_find_what_their_organizations_received(deployment: OptOutDeployment) -> None:
    """A key of two organizations shows each of their people their own part alone."""
    first, second = await deployment.new_organization(), await deployment.new_organization()
    both = await deployment.new_partner(first.slug, second.slug, default_organization=first.slug)
    ids = [await sent(first, "ann@x.org", by=both), await sent(second, "ann@x.org", by=both)]
    assert await listed(viewer(first), deployment, client_id=both.id) == ids[:1]
    assert await listed(admin(second), deployment, client_id=both.id) == ids[1:]
    assert sorted(await listed(BOSS, deployment, client_id=both.id)) == sorted(ids)
    assert await listed(person("nobody@staff.example"), deployment, client_id=both.id) == []
    assert await listed(person("nobody@staff.example"), deployment) == []
    with pytest.raises(Missing):
        await listed(viewer(first), deployment, org_slug=second.slug)
    with pytest.raises(Refused) as refused:
        await listed(BOSS, deployment, client_id="svc_ci_\0")
    assert refused.value.field == "key"
    assert await listed(BOSS, deployment, client_id="svc_ci_" + "0" * 22) == []


@in_loop
async def test_an_import_is_one_line(deployment: OptOutDeployment) -> None:
    """It has the counts of all its parts; the page of each part names the import."""
    organization = await deployment.new_organization()
    before = await sent(organization, "ann@x.org")
    deployment.clock.advance(1)
    rows = [("nobody", 1), *((f"p{number}@x.org", deployment.now_ms - number) for number in range(10))]
    imported = await Importer(organization, rows_per_part=3).take(list_of(rows))
    deployment.clock.advance(1)
    after = await sent(organization, "ben@x.org")
    parts = await submissions_of(deployment.stores, imported)
    assert len(parts) == 4
    for wanted in ({}, {"org_slug": organization.slug, "channel": CHANNELS["email"]}):
        assert await listed(viewer(organization), deployment, limit=1, **wanted) == [after, parts[-1], before]
    (line,) = [
        one
        for one in (await list_submissions(viewer(organization), deployment.database)).submissions
        if one.import_id is not None
    ]
    assert (line.import_id, line.received, line.created, line.rejected) == (imported.import_id, 11, 10, 1)
    for part in parts:
        assert (await find_submission(viewer(organization), deployment.database, part)).import_id == imported.import_id
    assert (await find_submission(viewer(organization), deployment.database, before)).import_id is None


@in_loop
async def test_the_reversal_of_an_import_is_one_line(deployment: OptOutDeployment) -> None:
    """Also one that was interrupted. A part that was reversed by itself before has a line of its own."""
    organization = await deployment.new_organization()
    rows = [(f"p{number}@x.org", deployment.now_ms - number) for number in range(10)]
    imported = await Importer(organization, rows_per_part=3).take(list_of(rows))
    deployment.clock.advance(1)
    alone = await reverse(BOSS, deployment.stores, (await submissions_of(deployment.stores, imported))[-1])
    deployment.clock.advance(1)
    async for _ in reverse_import(BOSS, deployment.stores, imported.import_id):
        break
    async for _ in reverse_import(BOSS, deployment.stores, imported.import_id):
        pass
    lines = (await list_submissions(viewer(organization), deployment.database)).submissions
    assert [(one.import_id, one.reversed_import_id, one.received, one.created, one.updated) for one in lines] == [
        (None, imported.import_id, 7, 0, 7),
        (None, None, 3, 0, 3),
        (imported.import_id, None, 10, 10, 0),
    ]
    assert lines[1].submission_id == alone.submission_id
    assert lines[2].reversed_by == alone.submission_id

"""Acts by links count like any others, in the overview, the reasons, the daily counts and the state of the feed."""

from stoplist.links.opt_out import undo_opt_out
from stoplist.proof.feed_states import compare_states
from stoplist.records.daily_counts import RecentChanges, recent_changes, totals
from tests.builders import ADMINISTRATOR
from tests.deployment import in_loop
from tests.links.link_sender import SOMEBODY, new_sender
from tests.unsubscribes.partner import OptOutDeployment, out


@in_loop
async def test_clicks_and_undo_are_counted(deployment: OptOutDeployment) -> None:
    """Source: docs/interface.md section D15."""
    organization = await deployment.new_organization()
    sender = await new_sender(organization)
    database, slug = deployment.database, organization.slug

    async def changes() -> RecentChanges:
        return await recent_changes(ADMINISTRATOR, database, deployment.clock, days=1, org_slug=slug)

    async def counts() -> tuple[int, int, int, int]:
        (today,) = [one for one in (await changes()).days if one.channel == "email"]
        (now,) = [one for one in await totals(ADMINISTRATOR, database, org_slug=slug) if one.channel == "email"]
        return today.unsubscribed, today.resubscribed, now.unsubscribed, now.resubscribed

    await organization.submit(out("partner@x.org"), all_groups=True)
    clicked = await sender.click("ann@x.org")
    await sender.click("bob@x.org")
    assert await counts() == (3, 0, 3, 0)
    deployment.clock.advance(2)
    await sender.click("bob@x.org")  # changes no record
    assert await counts() == (3, 0, 3, 0)
    assert clicked.submission_id is not None
    link = await sender.link("ann@x.org")
    await undo_opt_out(deployment.stores, link, clicked.submission_id, request=SOMEBODY)
    assert await counts() == (3, 1, 2, 1)
    assert [(one.reason, one.unsubscribed) for one in (await changes()).reasons] == [("unsubscribe", 3)]
    comparison = await compare_states(database)
    assert comparison.compared >= 1
    assert comparison.differing == []

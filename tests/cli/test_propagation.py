"""`stoplist propagation` (docs/interface.md sections D9 and D14)."""

import asyncio
import json

from stoplist.proof.positions import Positions
from stoplist.unsubscribes.feed import find_feed_by_id
from tests.builders import execute, on_database
from tests.cli.command_line import Prompt
from tests.unsubscribes.partner import Organization, opt_out_deployment, out


async def two_readers(url: str) -> Organization:
    """Make a feed of two changes, the first an hour older than the limit, and a key that has taken the first."""
    async with opt_out_deployment(url) as deployment:
        organization = await deployment.new_organization()
        await organization.submit(out("a@x.org"), out("b@x.org"))
        await execute(deployment.database, "UPDATE unsubscribes SET recorded_ms = 1000")
        positions, feed = Positions(), await find_feed_by_id(deployment.database, organization.feed_id)
        assert feed is not None
        positions.note(feed, (organization.partner.id, 0), 1, now_ms=2_000)
        await positions.flush(deployment.database)
        return organization


def test_a_key_behind_the_clock_makes_the_command_fail(empty: Prompt) -> None:
    """It fails with `--json` too; another organization, or a clock that runs for a year, changes nothing here."""
    empty.ok("migrate")
    organization = asyncio.run(two_readers(empty.database_url))
    result = empty.run("propagation")
    assert result.status == 1
    assert f"({organization.partner.id})" in result.out
    result = empty.run("propagation", "--org", organization.slug, "--json")
    (one,) = json.loads(result.out)
    assert (result.status, one["standing"], one["position"], one["changes_behind"]) == (1, "behind", 1, 1)
    assert (one["client_id"], one["org_slug"], one["channel"], one["group_id"]) == (
        organization.partner.id,
        organization.slug,
        "email",
        None,
    )
    assert one["oldest_seconds"] > 3600 * 8760
    assert one["last_asked_at"] == "1970-01-01T00:00:02.000Z"
    doctor = empty.run("doctor")
    assert organization.partner.id in doctor.out
    assert "propagation" in doctor.out
    on_database(empty.database_url, execute, "UPDATE feed_followers SET position = 2")
    assert empty.run("propagation").status == 0


def test_an_organization_without_feeds_has_no_propagation(prompt: Prompt) -> None:
    assert "no feed yet" in prompt.ok("propagation", "--org", "acme")
    assert prompt.json("propagation") == []
    prompt.refused("propagation", "--org", "nobody")

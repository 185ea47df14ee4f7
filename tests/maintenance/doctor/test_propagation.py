"""The doctor names keys that are behind the propagation limit (docs/interface.md section D14)."""

import asyncio
from pathlib import Path

from stoplist.maintenance.doctor.propagation import propagated
from stoplist.proof.follower import MUST_FOLLOW
from stoplist.proof.marks import set_mark
from stoplist.unsubscribes.channel import CHANNELS
from tests.builders import ADMINISTRATOR, execute, migrate_to, on_database
from tests.maintenance.doctor.installation import settings
from tests.unsubscribes.partner import opt_out_deployment, out


def test_a_key_that_is_behind_is_a_warning(tmp_path: Path, database_url: str) -> None:
    """Here one that must follow, and never has: its first change is of 1970."""
    examined = settings(tmp_path, DATABASE_URL=database_url)

    async def body() -> str:
        async with opt_out_deployment(database_url) as deployment:
            organization = await deployment.new_organization()
            await organization.submit(out("a@x.org"))
            await execute(deployment.database, "UPDATE unsubscribes SET recorded_ms = 1000")
            assert (await propagated(examined)).status == "ok"
            await set_mark(
                ADMINISTRATOR,
                deployment.stores,
                org_slug=organization.slug,
                channel=CHANNELS["email"],
                client_id=organization.partner.id,
                mark=MUST_FOLLOW,
            )
            return organization.partner.id

    client_id = asyncio.run(body())
    found = asyncio.run(propagated(examined))
    assert (found.status, client_id in found.text, "48 h" in found.text) == ("warning", True, True)


def test_a_schema_without_positions_is_not_checked(tmp_path: Path, empty_database_url: str) -> None:
    on_database(empty_database_url, migrate_to, 14)
    found = asyncio.run(propagated(settings(tmp_path, DATABASE_URL=empty_database_url)))
    assert (found.status, "`stoplist migrate`" in found.text) == ("not checked", True)

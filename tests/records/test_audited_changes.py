"""People's changes are committed together with their audit rows, also on a Citus, where the rows are on two nodes.

Citus commits in two phases if a statement makes it copy rows to a node. Source: docs/interface.md section D1, Sharding.
"""

import asyncio

from stoplist.records.reversal import reverse
from tests.builders import ADMINISTRATOR
from tests.records.test_manual_entry import by_hand
from tests.unsubscribes.partner import out
from tests.unsubscribes.test_one_feed import recorded


def test_only_changes_beside_an_audit_row_are_copied_to_their_node(database_url: str) -> None:
    """A partner's batch is sent whole to the node of its feed."""

    async def body() -> list[set[str]]:
        async with recorded(database_url) as (deployment, recorder):
            organization = await deployment.new_organization()
            await organization.submit(out("first@x.org"))
            by_step = []
            recorder.units.clear()
            done = await organization.submit(out("ann@x.org"))
            by_step.append({name for unit in recorder.units for name in unit.names})
            recorder.units.clear()
            await by_hand(organization, "ben@x.org")
            by_step.append({name for unit in recorder.units for name in unit.names})
            recorder.units.clear()
            assert done.submission_id is not None
            await reverse(ADMINISTRATOR, deployment.stores, done.submission_id)
            by_step.append({name for unit in recorder.units for name in unit.names})
        return by_step

    puts = [{name for name in names if name.startswith(("add_rec", "put_rec"))} for names in asyncio.run(body())]
    assert puts == [{"add_records"}, {"put_records_with_audit"}, {"put_records_with_audit"}]

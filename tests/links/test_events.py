"""Clicks on links that do not work are counted in memory, and written once a minute (docs/interface.md section D15)."""

from unittest.mock import AsyncMock

import pytest

from stoplist.errors import StoreUnavailable
from stoplist.links.events import LinkEvents
from stoplist.links.keys import show_link_key
from tests.builders import ADMINISTRATOR
from tests.deployment import in_loop
from tests.links.link_sender import new_sender
from tests.unsubscribes.partner import OptOutDeployment


@in_loop
async def test_counts_that_were_not_written_are_kept(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next write contains them, and those that came meanwhile."""
    events, sender = LinkEvents(), await new_sender(await deployment.new_organization())
    database, key_id = deployment.database, sender.key.key_id

    events.turned_away(key_id, b"ann")
    events.unusable(key_id, now_ms=5)
    with monkeypatch.context() as patch:
        patch.setattr(database, "write", AsyncMock(side_effect=StoreUnavailable("away")))
        with pytest.raises(StoreUnavailable):
            await events.flush(database)
    events.turned_away(key_id, b"bob")
    await events.flush(database)
    await events.flush(database)
    key = await show_link_key(ADMINISTRATOR, database, key_id)
    assert (key.turned_away, key.unusable, key.last_unusable_ms) == (2, 1, 5)

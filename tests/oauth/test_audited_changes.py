"""The audit records a key's rights and ceilings before and after each change (docs/interface.md section D9)."""

from typing import Any

from stoplist.db import Database
from stoplist.oauth.ceilings import set_ceilings
from stoplist.oauth.credentials import Changes, update_credential
from tests.builders import ADMINISTRATOR, audit_rows, make_key, make_organization, on_each_database
from tests.fakes import FakeClock

FIRST = {
    "label": "partner",
    "covers": ["acme"],
    "default_organization": "acme",
    "permissions": ["read", "unsubscribe"],
    "refresh_needs_secret": False,
}


async def last_detail(database: Database, action: str) -> dict[str, Any]:
    """Return the details of the last audit row, which must be of this action."""
    row = (await audit_rows(database))[-1]
    assert row.action == action
    return row.detail


@on_each_database
async def test_a_change_of_rights_is_recorded_with_the_old_ones(database: Database, clock: FakeClock) -> None:
    """The rows alone tell the whole history."""
    await make_organization(database, clock)
    await make_organization(database, clock, "bolt")
    client_id = (await make_key(database, clock)).credential.client_id
    assert await last_detail(database, "key.create") == FIRST
    second = FIRST | {"label": "new"}
    await update_credential(ADMINISTRATOR, database, clock, client_id=client_id, changes=Changes(label="new"))
    assert await last_detail(database, "key.update") == second | {"was": FIRST}
    changes = Changes(organizations=["bolt"], permissions=frozenset(("read",)), refresh_needs_secret=True)
    await update_credential(ADMINISTRATOR, database, clock, client_id=client_id, changes=changes)
    third = second | {"covers": ["bolt"], "default_organization": "bolt", "permissions": ["read"]}
    third |= {"refresh_needs_secret": True}
    assert await last_detail(database, "key.update") == third | {"was": second}


@on_each_database
async def test_a_change_of_ceilings_is_recorded_with_the_old_ones(database: Database, clock: FakeClock) -> None:
    """None stands for the default, which may differ from one release to the next."""
    await make_organization(database, clock)
    client_id = (await make_key(database, clock)).credential.client_id

    async def detail(token: int | str | None, api: int | str | None) -> dict[str, Any]:
        await set_ceilings(
            ADMINISTRATOR, database, clock, client_id=client_id, token_per_minute=token, api_per_minute=api
        )
        return await last_detail(database, "key.limits")

    nothing = {"token_per_minute": None, "api_per_minute": None}
    both = {"token_per_minute": 7, "api_per_minute": 5}
    assert await detail(7, 5) == both | {"was": nothing}
    assert await detail(None, "default") == both | {"api_per_minute": None, "was": both}

"""A click reads the state of its key every time, and nothing twice (docs/decisions/0026-clicks.md)."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from stoplist_addresses.link_tokens import LinkContent

from stoplist.errors import StoreUnavailable
from stoplist.links.clicked_link import ClickedLink, EndedLink, find_link
from stoplist.links.key_secrets import renew_link_keys
from stoplist.links.keys import revoke_link_key
from stoplist.organizations.groups import create_group
from tests.builders import ADMINISTRATOR
from tests.deployment import in_loop
from tests.links.link_sender import new_sender
from tests.unsubscribes.partner import SECRET_KEY, OptOutDeployment

NEW_KEY = "a key that replaces the former one, quite soon"


@in_loop
async def test_a_click_on_a_known_key_reads_twice(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Key, organization and group in one statement, feed and records in another; a stored click reads no more."""
    organization = await deployment.new_organization()
    sender = await new_sender(organization)
    group = await create_group(
        ADMINISTRATOR, deployment.database, deployment.clock, org_slug=organization.slug, name="News"
    )
    await sender.click("ann@x.org", group_id=group.group_id)
    reads = Counter[str]()
    for name in ("one", "all", "rows", "one_large"):
        read = getattr(deployment.database, name)

        async def counted(*args: Any, _read: Any = read, _name: str = name, **values: Any) -> Any:
            reads[_name] += 1
            return await _read(*args, **values)

        monkeypatch.setattr(deployment.database, name, counted)
    assert (await sender.click("bob@x.org", group_id=group.group_id)).submission_id is not None
    assert reads == {"rows": 2}


@in_loop
async def test_a_known_key_is_given_up_with_its_stored_text(deployment: OptOutDeployment) -> None:
    """Encrypted anew it works on, revoked it does not, from the next click on; another secret key reads nothing."""
    organization = await deployment.new_organization()
    sender = await new_sender(organization)
    token = sender.key.token(LinkContent("email", None, "ann@x.org"))
    both = msgspec.structs.replace(deployment.stores, secret_keys=(NEW_KEY, SECRET_KEY))
    assert isinstance(await find_link(deployment.stores, token), ClickedLink)
    await renew_link_keys(deployment.database, (NEW_KEY, SECRET_KEY))
    assert isinstance(await find_link(both, token), ClickedLink)
    with pytest.raises(StoreUnavailable):
        await find_link(deployment.stores, token)
    await revoke_link_key(ADMINISTRATOR, deployment.database, deployment.clock, link_key_id=sender.key.key_id)
    assert isinstance(await find_link(both, token), EndedLink)

"""People who click links of a key, at the level of the operation."""

from typing import Any, NamedTuple

from stoplist_addresses.link_tokens import LinkContent, LinkKey

from stoplist.actor import Actor
from stoplist.links.clicked_link import ClickedLink, find_link
from stoplist.links.keys import create_link_key
from stoplist.links.opt_out import OptedOut, opt_out
from stoplist.unsubscribes.act_groups import ActGroups
from tests.builders import ADMINISTRATOR
from tests.unsubscribes.partner import SECRET_KEY, Organization

SOMEBODY = Actor(kind="link", id="", source_ip="192.0.2.5", request_id="0" * 24)


class LinkSender(NamedTuple):
    """An organization with a link key."""

    organization: Organization
    key: LinkKey

    async def link(self, address: str, *, group_id: str | None = None) -> ClickedLink:
        """Return the link of a person, as the server reads it."""
        token = self.key.token(LinkContent(self.organization.channel, group_id, address))
        found = await find_link(self.organization.deployment.stores, token)
        assert isinstance(found, ClickedLink)
        return found

    async def click(self, address: str, *, group_id: str | None = None) -> OptedOut:
        """Opt a person out by a link."""
        link = await self.link(address, group_id=group_id)
        stores = self.organization.deployment.stores
        return await opt_out(
            ActGroups(stores.database, stores.clock),
            link,
            everything=False,
            default_source="one_click",
            request=SOMEBODY,
        )

    async def states(self) -> dict[str, tuple[str, str, int | None, int]]:
        """Return status, reason, latest act and confirmation of each address."""
        rows: list[dict[str, Any]] = await self.organization.rows("unsubscribes", "address, group_no")
        return {
            row["address"]: (row["status"], row["reason"], row["latest_act_ms"], row["is_confirmed"]) for row in rows
        }


async def new_sender(organization: Organization) -> LinkSender:
    """Return a sender of the organization, with a new link key."""
    deployment = organization.deployment
    made = await create_link_key(
        ADMINISTRATOR, deployment.database, deployment.clock, secret_keys=(SECRET_KEY,), org_slug=organization.slug
    )
    return LinkSender(organization, LinkKey(made.link_key))

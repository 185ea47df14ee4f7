"""One call to erase somebody in an organization of the tests."""

from typing import Any

from stoplist.actor import Actor
from stoplist.proof.feed_states import compare_states
from stoplist.rights.erasure import ErasedFeed, erase_person
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.erased import digest_of, erased_form, key_bytes
from tests.builders import ADMINISTRATOR, value
from tests.unsubscribes.partner import Organization


async def erase(
    organization: Organization, address: str, *, by: Actor = ADMINISTRATOR, **options: Any
) -> list[ErasedFeed]:
    """Erase the person of this address in the organization, on its channel."""
    given: dict[str, Any] = {"org_slug": organization.slug, "is_all_upgraded": True} | options
    channel = CHANNELS[organization.channel]
    return await erase_person(by, organization.deployment.stores, channel, address, **given)


async def assert_states_are_right(organization: Organization) -> None:
    """Assert that the states of all feeds are those of their records."""
    assert (await compare_states(organization.deployment.database)).differing == []


async def digest_in(organization: Organization, address: str) -> str:
    """Return the digest of the address in the feed of the organization."""
    key = await value(
        organization.deployment.database,
        "SELECT digest_key FROM feeds WHERE feed_id = :feed_id",
        feed_id=organization.feed_id,
    )
    digest = digest_of(erased_form(key_bytes(key), address))
    assert digest is not None
    return digest

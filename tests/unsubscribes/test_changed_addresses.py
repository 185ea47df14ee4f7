"""Stored addresses that the rules of this release would write differently (docs/interface.md sections D7 and D9)."""

from contextlib import aclosing

import pytest

from stoplist.db import Database
from stoplist.errors import Refused
from stoplist.organizations.organizations import close_organization
from stoplist.unsubscribes import changed_addresses as module
from stoplist.unsubscribes.changed_addresses import ChangedAddress, find_changed_addresses
from tests.builders import ADMINISTRATOR, STRANGER, execute, migrated, on_each_database
from tests.deployment import in_own_loop
from tests.fakes import FakeClock
from tests.unsubscribes.partner import OptOutDeployment, Organization, out


async def rewrite(database: Database, address: str, stored: str) -> None:
    """Store this address as another release wrote it."""
    text = "UPDATE unsubscribes SET address = :stored WHERE address = :address"
    assert await execute(database, text, stored=stored, address=address)


async def found(database: Database) -> tuple[int, list[ChangedAddress]]:
    """Return the number of examined addresses, and all that would change."""
    parts = [part async for part in find_changed_addresses(ADMINISTRATOR, database)]
    return sum(part.addresses for part in parts), [one for part in parts for one in part.changed]


@on_each_database
async def test_canonical_addresses_are_not_listed(database: Database, clock: FakeClock) -> None:
    """Includes addresses beyond ASCII, which the order of the key must not lose."""
    assert await found(database) == (0, [])
    acme = await OptOutDeployment(database, clock).new_organization()
    await acme.submit(*map(out, ("Zoë@Example.com", "a@bücher.example", "z@example.com", "\U0001f600@example.com")))
    await acme.on("phone").submit(out("+44 (0)20 7946 0958"))
    assert await found(database) == (5, [])


@on_each_database
async def test_changed_addresses_are_listed_with_their_new_form(database: Database, clock: FakeClock) -> None:
    """The list is by feed and address: organization, channel, stored address, and the new form or the error."""
    deployment = OptOutDeployment(database, clock)
    acme, beta = await deployment.new_organization(), await deployment.new_organization()
    await beta.on("sms").submit(out("+525512345678"), out("+14155550123"))
    await acme.submit(*map(out, ("ann@example.com", "bob@example.com", "cleo@example.com")))
    await rewrite(database, "+525512345678", "+5215512345678")
    await rewrite(database, "cleo@example.com", "Cleo@example.com")
    await rewrite(database, "bob@example.com", "bob@localhost")
    await close_organization(ADMINISTRATOR, database, clock, slug=beta.slug)
    count, (upper, local, mexican) = await found(database)
    assert count == 5
    assert upper == ChangedAddress(acme.slug, "email", "Cleo@example.com", canonical="cleo@example.com")
    assert (local.org_slug, local.address, local.canonical) == (acme.slug, "bob@localhost", None)
    assert local.error is not None
    assert "single label" in local.error
    assert mexican == ChangedAddress(beta.slug, "sms", "+5215512345678", canonical="+525512345678")


async def _fill(acme: Organization) -> list[str]:
    """Store seven addresses, three of them in several groups, each with a capital, in the order of the key."""
    others = [await acme.new_group("Reminders"), await acme.new_group("Offers")]
    addresses = [f"{name}@example.com" for name in "abcdefg"]
    await acme.submit(*map(out, addresses))
    for group_id in others:
        await acme.submit(*map(out, addresses[::3]), group_id=group_id)
    await acme.submit(out(addresses[0]), all_groups=True)
    await execute(acme.deployment.database, "UPDATE unsubscribes SET address = upper(address)")
    return [address.upper() for address in addresses]


@pytest.mark.parametrize("page_rows", [1, 2, 3, 4, 5, 14, 15])
@in_own_loop
async def test_every_address_is_examined_once_wherever_a_page_ends(
    database_url: str, clock: FakeClock, page_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records of one address (one per group) may be on two pages."""
    monkeypatch.setattr(module, "_PAGE_ROWS", page_rows)
    async with migrated(database_url) as database:
        addresses = await _fill(await OptOutDeployment(database, clock).new_organization())
        count, changed = await found(database)
        assert (count, [one.address for one in changed]) == (7, addresses)


@pytest.mark.parametrize("count", [199, 200, 201, 450])
@in_own_loop
async def test_every_address_is_examined_once_wherever_a_slice_ends(
    database_url: str, clock: FakeClock, count: int
) -> None:
    """A page comes in slices, and the records of one address may be in two of them."""
    async with migrated(database_url) as database:
        acme = await OptOutDeployment(database, clock).new_organization()
        items = [out(f"{number:04d}@example.com") for number in range(count)]
        await acme.submit(*items)
        await acme.submit(*items, all_groups=True)
        await acme.submit(*items, group_id=await acme.new_group("Reminders"))
        assert await found(database) == (count, [])


@on_each_database
async def test_no_snapshot_lasts_longer_than_a_page(database: Database, clock: FakeClock) -> None:
    """A snapshot held for hours would keep PostgreSQL from vacuuming and SQLite from checkpointing its log."""
    acme = await OptOutDeployment(database, clock).new_organization()
    await acme.submit(out("a@example.com"), out("b@example.com"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PAGE_ROWS", 1)
        async with aclosing(find_changed_addresses(ADMINISTRATOR, database)) as parts:
            seen = [await anext(parts)]
            await acme.submit(out("c@example.com"))
            seen += [part async for part in parts]
    assert sum(part.addresses for part in seen) == 3


@on_each_database
async def test_only_administrators_may_examine_addresses(database: Database) -> None:
    with pytest.raises(Refused, match="administrator"):
        await anext(aiter(find_changed_addresses(STRANGER, database)))

"""The list of erasures beside the backups repeats them after a restore (docs/interface.md section D13)."""

import json

import msgspec
import pytest

from stoplist.errors import Forbidden, Refused
from stoplist.rights.erasure_list import Applied, Erasure, apply_erasures, list_erasures, read_erasures
from tests.builders import ADMINISTRATOR, execute
from tests.deployment import in_loop
from tests.rights.eraser import digest_in, erase
from tests.unsubscribes.partner import OptOutDeployment, Organization, back, out, records
from tests.unsubscribes.people import admin

ANN, BOB = "ann@example.org", "bob@example.org"


async def listed(organization: Organization) -> list[Erasure]:
    found = [one async for one in list_erasures(ADMINISTRATOR, organization.deployment.database)]
    return [one for one in found if one.org_slug == organization.slug]


async def apply(organization: Organization, erasures: list[Erasure]) -> Applied:
    return await apply_erasures(ADMINISTRATOR, organization.deployment.stores, erasures, is_all_upgraded=True)


@in_loop
async def test_it_names_nobody_and_can_be_applied_anywhere_the_feed_is(deployment: OptOutDeployment) -> None:
    """A database that was restored has the same key, and the address again."""
    organization = await deployment.new_organization()
    await organization.submit(out(ANN), out(BOB))
    await erase(organization, ANN)
    written = [msgspec.json.encode(one) for one in await listed(organization)]
    assert not [line for line in written if b"ann@" in line]
    erasures = read_erasures([*written, b"", b"\n"])
    assert await apply(organization, erasures) == Applied(already=1)
    digest = await digest_in(organization, ANN)
    for table in ("unsubscribes", "unsubscribe_versions"):
        text = f"UPDATE {table} SET address = :plain WHERE feed_id = :feed_id AND address = :form"  # noqa: S608
        names = {"plain": ANN, "form": f"erased:{digest}"}
        await execute(deployment.database, text, feed_id=organization.feed_id, **names)
    assert await apply(organization, erasures) == Applied(erased=1)
    (record,) = records(await organization.look_up(ANN))
    assert (record.status, record.address_digest) == ("unsubscribed", digest)


@in_loop
async def test_who_resubscribed_since_is_not_erased_again(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    await organization.submit(out(ANN, deployment.ago(5)))
    await erase(organization, ANN)
    erasures = await listed(organization)
    deployment.clock.advance(60)
    await organization.submit(back(ANN, deployment.ago(0)))
    assert await apply(organization, erasures) == Applied(returned=1)
    assert records(await organization.look_up(ANN))[0].status == "resubscribed"


@in_loop
async def test_what_cannot_be_applied_is_named(deployment: OptOutDeployment) -> None:
    """Another key, or no such feed; an unknown person is only counted."""
    organization = await deployment.new_organization()
    await organization.submit(out(ANN))
    await erase(organization, ANN)
    (erasure,) = await listed(organization)
    other_key = msgspec.structs.replace(erasure, key_fingerprint="0" * 16)
    nowhere = msgspec.structs.replace(erasure, org_slug="nowhere")
    unknown = msgspec.structs.replace(erasure, address_digest="0" * 64)
    done = await apply(organization, [other_key, nowhere, unknown])
    assert [(one.org_slug, one.address_digest) for one in done.unapplied] == [
        (organization.slug, erasure.address_digest),
        ("nowhere", erasure.address_digest),
    ]
    assert done.unknown == 1


@in_loop
async def test_the_list_is_for_administrators(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    actor = admin(organization)
    with pytest.raises(Forbidden):
        await anext(list_erasures(actor, deployment.database))
    with pytest.raises(Forbidden):
        await apply_erasures(actor, deployment.stores, [], is_all_upgraded=True)


def test_another_file_is_refused_with_its_line() -> None:
    with pytest.raises(Refused, match="Line 2"):
        read_erasures([b"", json.dumps({"address": ANN}).encode()])

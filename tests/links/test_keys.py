"""Link keys: who may create and end them, and what is stored of them (docs/interface.md section D15)."""

import pytest
from stoplist_addresses.link_tokens import LinkKey, is_link_key

from stoplist.actor import Actor
from stoplist.db.encrypted_column import SLICE_ROWS
from stoplist.errors import Forbidden, Missing, SettingsError
from stoplist.links import keys
from stoplist.links.key_secrets import encrypted_link_key, renew_link_keys, unreadable_link_keys
from stoplist.links.model import LinkKeyDetails, NewLinkKey
from stoplist.organizations.organizations import close_organization, set_link_page
from tests.builders import ADMINISTRATOR, audit_rows, contents, execute, refused, sql
from tests.deployment import in_loop
from tests.unsubscribes.partner import SECRET_KEY, OptOutDeployment, Organization

NEW_KEY = "a key that replaces the former one, quite soon"


async def created(organization: Organization, actor: Actor = ADMINISTRATOR) -> NewLinkKey:
    deployment = organization.deployment
    return await keys.create_link_key(
        actor, deployment.database, deployment.clock, secret_keys=(SECRET_KEY,), org_slug=organization.slug
    )


def admin_of(organization: Organization, role: str = "admin") -> Actor:
    return Actor(kind="person", id="ann@example.org", roles={organization.slug: role})  # type: ignore[dict-item]


@in_loop
async def test_a_link_key_is_shown_once_and_stored_encrypted(deployment: OptOutDeployment) -> None:
    """No table has it in clear; its id is that which its tokens carry."""
    organization = await deployment.new_organization()
    made = await created(organization)
    assert is_link_key(made.link_key)
    assert made.details == LinkKeyDetails(
        link_key_id=LinkKey(made.link_key).key_id,
        org_slug=organization.slug,
        state="active",
        created_ms=deployment.now_ms,
        retired_ms=None,
        revoked_ms=None,
        turned_away=0,
        unusable=0,
        last_unusable_ms=None,
    )
    assert made.link_key not in repr(await contents(deployment.database, "link_keys", "audit"))
    assert made.link_key not in repr(made)
    assert await keys.list_link_keys(ADMINISTRATOR, deployment.database) == [made.details]
    last = (await audit_rows(deployment.database))[-1]
    assert (last.action, last.target) == ("link_key.create", made.details.link_key_id)


@in_loop
async def test_admins_of_the_organization_manage_its_link_keys(deployment: OptOutDeployment) -> None:
    """Viewers see them; to others they do not exist. Forgetting is for administrators alone."""
    organization, other = await deployment.new_organization(), await deployment.new_organization()
    database, clock = deployment.database, deployment.clock
    made = await created(organization, admin_of(organization))
    link_key_id = made.details.link_key_id
    viewer, stranger = admin_of(organization, "viewer"), admin_of(other)
    assert await keys.show_link_key(viewer, database, link_key_id) == made.details
    assert await keys.list_link_keys(stranger, database) == []
    with pytest.raises(Missing):
        await keys.show_link_key(stranger, database, link_key_id)
    with pytest.raises(Missing):
        await keys.count_acts(stranger, database, link_key_id, since_ms=0)
    for operation in (keys.retire_link_key, keys.revoke_link_key):
        with pytest.raises(Forbidden):
            await operation(viewer, database, clock, link_key_id=link_key_id)
        with pytest.raises(Missing):
            await operation(stranger, database, clock, link_key_id=link_key_id)
        assert await operation(admin_of(organization), database, clock, link_key_id=link_key_id)
    with pytest.raises(Forbidden):
        await created(organization, viewer)
    with pytest.raises(Forbidden):
        await keys.forget_link_key(
            admin_of(organization), database, clock, secret_keys=(NEW_KEY,), link_key_id=link_key_id
        )


@in_loop
async def test_a_closed_organization_gets_no_more_link_keys(deployment: OptOutDeployment) -> None:
    """Those that exist stay, because their links go on working."""
    organization = await deployment.new_organization()
    made = await created(organization)
    await close_organization(ADMINISTRATOR, deployment.database, deployment.clock, slug=organization.slug)
    await refused(deployment.database, created(organization), "closed")
    assert (await keys.show_link_key(ADMINISTRATOR, deployment.database, made.details.link_key_id)).has_working_links


@in_loop
async def test_retiring_and_revoking_are_recorded_once(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    link_key_id = (await created(organization)).details.link_key_id
    database, clock = deployment.database, deployment.clock
    for _ in range(2):
        retired = await keys.retire_link_key(ADMINISTRATOR, database, clock, link_key_id=link_key_id)
        assert (retired.state, retired.retired_ms) == ("retired", deployment.now_ms)
    for _ in range(2):
        revoked = await keys.revoke_link_key(ADMINISTRATOR, database, clock, link_key_id=link_key_id)
        assert (revoked.state, revoked.revoked_ms) == ("revoked", deployment.now_ms)
    await refused(
        database, keys.retire_link_key(ADMINISTRATOR, database, clock, link_key_id=link_key_id), "nothing to retire"
    )
    actions = [row.action for row in await audit_rows(database) if row.target == link_key_id]
    assert actions == ["link_key.create", "link_key.retire", "link_key.revoke"]


@in_loop
async def test_a_new_first_key_takes_the_link_keys_over(deployment: OptOutDeployment) -> None:
    """Second on all hosts, then first, then alone; in slices."""
    organization = await deployment.new_organization()
    ids = sorted([(await created(organization)).details.link_key_id for _ in range(3)])
    for number in range(SLICE_ROWS):
        link_key_id = f"lnk_{number:016x}"
        await execute(
            deployment.database,
            "INSERT INTO link_keys (link_key_id, organization_id, secret, created_ms, turned_away, unusable)"
            " VALUES (:link_key_id, :organization_id, :secret, 0, 0, 0)",
            link_key_id=link_key_id,
            organization_id=organization.organization_id,
            secret=encrypted_link_key((SECRET_KEY,), link_key_id, "text"),
        )
    assert await unreadable_link_keys(deployment.database, (NEW_KEY,)) == sorted(
        [*ids, *(f"lnk_{number:016x}" for number in range(SLICE_ROWS))]
    )
    for secret_keys in ((SECRET_KEY, NEW_KEY), (NEW_KEY, SECRET_KEY), (NEW_KEY,)):
        await renew_link_keys(deployment.database, secret_keys)
        assert await unreadable_link_keys(deployment.database, secret_keys[:1]) == []
    before = await contents(deployment.database, "link_keys")
    await renew_link_keys(deployment.database, (NEW_KEY,))
    assert await contents(deployment.database, "link_keys") == before


@in_loop
async def test_a_link_key_moved_to_another_row_cannot_be_read(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    one, other = [(await created(organization)).details.link_key_id for _ in range(2)]
    await execute(
        deployment.database,
        "UPDATE link_keys SET secret = (SELECT secret FROM link_keys WHERE link_key_id = :one)"
        " WHERE link_key_id = :other",
        one=one,
        other=other,
    )
    assert await unreadable_link_keys(deployment.database, (SECRET_KEY,)) == [other]


@in_loop
async def test_a_lost_secret_key_is_overcome_before_the_start(deployment: OptOutDeployment) -> None:
    """The refusal of the start names the link key and the way on; nothing is changed, and no other key is created."""
    organization = await deployment.new_organization()
    database, clock = deployment.database, deployment.clock
    link_key_id = (await created(organization)).details.link_key_id
    before = await contents(database, "link_keys")
    with pytest.raises(SettingsError) as failure:
        await renew_link_keys(database, (NEW_KEY,))
    assert link_key_id in failure.value.text
    assert "`stoplist link-key forget ID`" in failure.value.text
    assert await contents(database, "link_keys") == before
    create = keys.create_link_key(ADMINISTRATOR, database, clock, secret_keys=(NEW_KEY,), org_slug=organization.slug)
    await refused(database, create, link_key_id)
    for secret_keys, text in (((), "proves nothing"), ((NEW_KEY, SECRET_KEY), "can be read")):
        forget = keys.forget_link_key(ADMINISTRATOR, database, clock, secret_keys=secret_keys, link_key_id=link_key_id)
        await refused(database, forget, text)
    for _ in range(2):
        forgotten = await keys.forget_link_key(
            ADMINISTRATOR, database, clock, secret_keys=(NEW_KEY,), link_key_id=link_key_id
        )
        assert forgotten.state == "forgotten"
    await renew_link_keys(database, (NEW_KEY,))
    assert [row["secret"] for row in await database.all(sql("SELECT secret FROM link_keys"))] == ["lost"]


@in_loop
async def test_the_opt_out_page_is_set_by_admins(deployment: OptOutDeployment) -> None:
    """They may set that of a closed organization, whose links go on working; wrong values are refused."""
    organization = await deployment.new_organization()
    database, clock, slug = deployment.database, deployment.clock, organization.slug
    await close_organization(ADMINISTRATOR, database, clock, slug=slug)
    for line, colour, expected in (
        (" privacy@example.com ", "#0A66C2", ("privacy@example.com", "#0a66c2")),
        ("", "", (None, None)),
    ):
        changed = await set_link_page(
            admin_of(organization), database, clock, slug=slug, contact_line=line, accent_colour=colour
        )
        assert (changed.contact_line, changed.accent_colour) == expected
    for line, colour in (("two\nlines", ""), ("x" * 201, ""), ("", "red"), ("", "#0a66c"), ("", "#0a66c2;")):
        await refused(
            database,
            set_link_page(ADMINISTRATOR, database, clock, slug=slug, contact_line=line, accent_colour=colour),
            "contact line|colour",
        )
    with pytest.raises(Forbidden):
        await set_link_page(
            admin_of(organization, "viewer"), database, clock, slug=slug, contact_line="", accent_colour=""
        )

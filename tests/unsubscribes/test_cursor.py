"""Cursors: opaque, authenticated, bound to their request, and never expiring (docs/interface.md section D6)."""

import base64
import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stoplist.errors import InvalidCursor
from stoplist.maintenance.after_restore import after_restore
from stoplist.unsubscribes.cursor import make_cursor, read_cursor
from tests.builders import ADMINISTRATOR, execute
from tests.constants import DAY_S
from tests.deployment import in_loop
from tests.unsubscribes.partner import SECRET_KEY, OptOutDeployment, Organization, addresses, out

OTHER_KEY = "o" * 32
BOUND: dict[str, Any] = {"feed_id": 17, "generation": "a generation", "group_id": None}
CURSOR = make_cursor([SECRET_KEY], **BOUND, seq=7)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@given(st.integers(0, 2**63 - 1), st.sampled_from([None, "grp_1"]))
def test_a_cursor_holds_the_readers_position(seq: int, group_id: str | None) -> None:
    """It uses only characters that no query string changes."""
    bound = {**BOUND, "group_id": group_id}
    cursor = make_cursor([SECRET_KEY], **bound, seq=seq)
    assert re.fullmatch("[A-Za-z0-9_-]{32}", cursor)
    assert read_cursor([SECRET_KEY], cursor, **bound) == seq


@pytest.mark.parametrize(
    "other", [{"feed_id": 18}, {"feed_id": 1}, {"generation": "another"}, {"generation": ""}, {"group_id": "grp_1"}]
)
def test_a_cursor_is_bound_to_feed_generation_and_group(other: dict[str, Any]) -> None:
    """Each separately."""
    with pytest.raises(InvalidCursor):
        read_cursor([SECRET_KEY], CURSOR, **{**BOUND, **other})


def test_a_cursor_is_valid_for_one_group_only() -> None:
    """Nor with a group instead of none, or the other way round."""
    of_group = make_cursor([SECRET_KEY], **{**BOUND, "group_id": "grp_1"}, seq=7)
    for group_id in (None, "grp_2", "grp_1|"):
        with pytest.raises(InvalidCursor):
            read_cursor([SECRET_KEY], of_group, **{**BOUND, "group_id": group_id})


@pytest.mark.parametrize("index", range(32))
@pytest.mark.parametrize("step", [1, 2, 32])
def test_a_cursor_altered_anywhere_is_refused(index: int, step: int) -> None:
    altered = ALPHABET[(ALPHABET.index(CURSOR[index]) + step) % 64]
    with pytest.raises(InvalidCursor):
        read_cursor([SECRET_KEY], CURSOR[:index] + altered + CURSOR[index + 1 :], **BOUND)


@pytest.mark.parametrize(
    "cursor",
    ["", " ", CURSOR[:-1], CURSOR + "A", CURSOR + "=", " " + CURSOR[1:], CURSOR[:-1] + "=", CURSOR[:-1] + "+",
     CURSOR[:-1] + "ä", "\0" * 32, "٣" * 32, "A" * 32, "-" * 32, CURSOR * 2, "AAAA" + CURSOR[:28], "=" * 32],
)  # fmt: skip
def test_malformed_cursors_are_refused(cursor: str) -> None:
    """Too short, too long, of other characters, or all zeros."""
    with pytest.raises(InvalidCursor) as refusal:
        read_cursor([SECRET_KEY], cursor, **BOUND)
    assert "anew" in refusal.value.text


@given(st.text() | st.binary(min_size=24, max_size=24).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_any_other_text_is_refused_without_a_server_error(cursor: str) -> None:
    assume(cursor != CURSOR)
    with pytest.raises(InvalidCursor):
        read_cursor([SECRET_KEY], cursor, **BOUND)


def test_the_first_key_signs_and_all_verify() -> None:
    """So keys can be changed unnoticed: a new key is added last, then moved first, then the old one is removed."""
    assert read_cursor([OTHER_KEY, SECRET_KEY], CURSOR, **BOUND) == 7
    renewed = make_cursor([OTHER_KEY, SECRET_KEY], **BOUND, seq=7)
    assert renewed != CURSOR
    assert read_cursor([SECRET_KEY, OTHER_KEY], renewed, **BOUND) == 7
    for keys, cursor in (([OTHER_KEY], CURSOR), ([SECRET_KEY], renewed)):
        with pytest.raises(InvalidCursor):
            read_cursor(keys, cursor, **BOUND)


# As the operations issue them


async def refused(organization: Organization, cursor: str | None, **asked: Any) -> None:
    with pytest.raises(InvalidCursor):
        await organization.follow(cursor, **asked)


@in_loop
async def test_a_cursor_is_refused_for_another_request(deployment: OptOutDeployment) -> None:
    """Another organization, channel or group, from or to no group, and another secret key are others."""
    organization = await deployment.new_organization()
    other_group = await organization.new_group("Reminders")
    await organization.submit(out("a@x.org"))
    cursor = (await organization.follow()).next_cursor
    of_group = (await organization.follow(group_id=organization.default_group)).next_cursor
    await refused(await deployment.new_organization(), cursor)
    for channel in ("sms", "phone"):
        await refused(organization.on(channel), cursor)
    await refused(organization, cursor, group_id=organization.default_group)
    await refused(organization, of_group)
    await refused(organization, of_group, group_id=other_group)
    await refused(organization, cursor, secret_keys=(OTHER_KEY,))
    await refused(organization, "")
    assert addresses(await organization.follow(cursor, secret_keys=(OTHER_KEY, SECRET_KEY))) == []
    assert addresses(await organization.follow(of_group, group_id=organization.default_group)) == []


@in_loop
async def test_another_partner_of_the_organization_may_use_a_cursor(deployment: OptOutDeployment) -> None:
    """A cursor is bound to what is read, not to the reader."""
    organization = await deployment.new_organization()
    cursor = (await organization.follow()).next_cursor
    colleague = organization._replace(partner=await organization.new_partner())
    assert addresses(await colleague.follow(cursor)) == []


@in_loop
async def test_a_cursor_never_expires(deployment: OptOutDeployment) -> None:
    """Ten years later it returns what has changed since."""
    organization = await deployment.new_organization()
    cursor = (await organization.follow()).next_cursor
    deployment.clock.advance(10 * 365 * DAY_S)
    await organization.submit(out("a@x.org"))
    assert addresses(await organization.follow(cursor)) == ["a@x.org"]


@in_loop
async def test_after_a_restore_every_cursor_is_refused(deployment: OptOutDeployment) -> None:
    """Readers start again without a cursor, and the new cursors are valid."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org"))
    cursors = [(await organization.on(channel).follow()).next_cursor for channel in ("email", "sms", "phone")]
    await after_restore(ADMINISTRATOR, deployment.database, deployment.clock)
    for channel, cursor in zip(("email", "sms", "phone"), cursors, strict=True):
        await refused(organization.on(channel), cursor)
    page = await organization.follow()
    assert addresses(page) == ["a@x.org"]
    assert addresses(await organization.follow(page.next_cursor)) == []


@in_loop
async def test_two_feeds_never_share_a_generation(deployment: OptOutDeployment) -> None:
    """Nor does a feed that is created again with the same number: a reader of the old one must start again."""
    organization = await deployment.new_organization()
    cursor = (await organization.follow()).next_cursor
    await organization.on("sms").follow()
    rows = [await organization.on(channel).rows("feeds", "feed_id") for channel in ("email", "sms")]
    generations = {row["generation"] for (row,) in rows}
    assert len(generations) == 2
    await execute(deployment.database, "DELETE FROM feeds WHERE feed_id = :feed_id", feed_id=organization.feed_id)
    await refused(organization, cursor)


@in_loop
async def test_a_cursor_beyond_the_head_is_refused(deployment: OptOutDeployment) -> None:
    """After a restore without new generations, its reader would skip changes with numbers already seen."""
    organization = await deployment.new_organization()
    await organization.submit(*(out(f"p{n}@x.org") for n in range(3)))
    cursor = (await organization.follow()).next_cursor
    number = (await organization.rows("feeds", "feed_id"))[0]["feed_id"]
    await execute(deployment.database, "UPDATE feeds SET head_seq = 2 WHERE feed_id = :feed_id", feed_id=number)
    with pytest.raises(InvalidCursor):
        await organization.follow(cursor)


def test_a_cursor_has_one_spelling() -> None:
    """The other base64 alphabet's characters for `-` and `_` are refused."""
    seqs = (seq for seq in range(1_000))
    cursor = next(c for seq in seqs if {"-", "_"} <= set(c := make_cursor([SECRET_KEY], **BOUND, seq=seq)))
    for altered in (cursor.replace("-", "+"), cursor.replace("_", "/"), cursor + "=", cursor[:-1], f"{cursor}\n"):
        with pytest.raises(InvalidCursor):
            read_cursor([SECRET_KEY], altered, **BOUND)

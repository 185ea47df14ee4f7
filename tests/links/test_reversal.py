"""The acts of a stolen link key are taken back (docs/interface.md sections D11 and D15)."""

import pytest

from stoplist.actor import Actor
from stoplist.errors import Forbidden, Missing, Refused
from stoplist.links import reversal
from stoplist.links.keys import count_acts
from stoplist.links.opt_out import undo_opt_out
from stoplist.records.reversal import count_reversal, left_out
from stoplist.records.reversal_plan import Reversal
from tests.builders import ADMINISTRATOR
from tests.deployment import in_loop
from tests.links.link_sender import SOMEBODY, LinkSender, new_sender
from tests.unsubscribes.partner import OptOutDeployment, out


async def reversed_by(sender: LinkSender, *, since_ms: int = 0, until_ms: int | None = None) -> Reversal:
    stores = sender.organization.deployment.stores
    reversing = reversal.reverse_link_key(
        ADMINISTRATOR, stores, sender.key.key_id, since_ms=since_ms, until_ms=until_ms
    )
    return [counts async for counts in reversing][-1]


@in_loop
async def test_only_what_others_sent_again_is_left_out(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same key repeating itself is no confirmation; acts of partners and of other keys stay."""
    monkeypatch.setattr(reversal, "_PAGE_SIZE", 2)
    organization = await deployment.new_organization()
    thief, honest = await new_sender(organization), await new_sender(organization)
    await organization.submit(out("before@x.org"), all_groups=True)
    for address in ("alone@x.org", "repeated@x.org", "partner@x.org", "both@x.org", "other@x.org"):
        deployment.clock.advance(2)
        await thief.click(address)
    deployment.clock.advance(2)
    await honest.click("honest@x.org")
    for address in ("repeated@x.org", "both@x.org"):
        await thief.click(address)
    for address in ("partner@x.org", "both@x.org"):
        await organization.submit(out(address), all_groups=True)
    await honest.click("other@x.org")
    confirmations = {address: state[3] for address, state in (await thief.states()).items()}
    assert confirmations == {
        "alone@x.org": 0,
        "before@x.org": 0,
        "both@x.org": 1,
        "honest@x.org": 0,
        "other@x.org": 1,
        "partner@x.org": 1,
        "repeated@x.org": 2,
    }
    stores = deployment.stores
    counts = await reversal.count_link_key_reversal(ADMINISTRATOR, stores, thief.key.key_id, since_ms=0)
    assert (counts.corrected, counts.confirmed, counts.left_out) == (2, 3, 3)
    done = await reversed_by(thief)
    assert counts.agrees_with(done)
    states = await thief.states()
    taken_back = {address for address, state in states.items() if state[:3] == ("resubscribed", "correction", None)}
    assert taken_back == {"alone@x.org", "repeated@x.org"}
    assert all(state[0] == "unsubscribed" for address, state in states.items() if address not in taken_back)
    again = await reversed_by(thief)
    assert (again.changes, again.taken_back) == (0, 2)


@in_loop
async def test_the_reversal_of_one_submission_counts_repetitions(deployment: OptOutDeployment) -> None:
    """Section 11 as ever: the person clicked again, so an administrator does not take one click back."""
    organization = await deployment.new_organization()
    sender = await new_sender(organization)
    first = await sender.click("ann@x.org")
    deployment.clock.advance(2)
    assert (await sender.click("ann@x.org")).submission_id is None
    assert first.submission_id is not None
    counts = await count_reversal(ADMINISTRATOR, deployment.stores, first.submission_id)
    assert (counts.changes, counts.confirmed) == (0, 1)
    assert [one.why for one in await left_out(ADMINISTRATOR, deployment.stores, first.submission_id)] == ["confirmed"]


@in_loop
async def test_only_the_acts_of_the_time_are_taken_back(deployment: OptOutDeployment) -> None:
    """The first moment included, the last not. Undoing is no act to take back."""
    organization = await deployment.new_organization()
    sender = await new_sender(organization)
    times: list[int] = []
    for address in ("a@x.org", "b@x.org", "c@x.org", "d@x.org"):
        deployment.clock.advance(60)
        times.append(deployment.now_ms)
        clicked = await sender.click(address)
    assert clicked.submission_id is not None
    link = await sender.link("d@x.org")
    assert (await undo_opt_out(deployment.stores, link, clicked.submission_id, request=SOMEBODY)).is_undone
    acts = await count_acts(ADMINISTRATOR, deployment.database, sender.key.key_id, since_ms=times[1])
    assert acts == 3
    done = await reversed_by(sender, since_ms=times[1], until_ms=times[2])
    assert done.changes == 1
    states = {address: state[0] for address, state in (await sender.states()).items()}
    assert states == {
        "a@x.org": "unsubscribed",
        "b@x.org": "resubscribed",
        "c@x.org": "unsubscribed",
        "d@x.org": "resubscribed",
    }


@in_loop
async def test_nobody_undoes_what_another_sender_sent(deployment: OptOutDeployment) -> None:
    """The field of the page is signed; the operation trusts it no further."""
    organization = await deployment.new_organization()
    sender, other = await new_sender(organization), await new_sender(organization)
    clicked = await sender.click("ann@x.org")
    sent = await organization.submit(out("ben@x.org"))
    for submission_id in (clicked.submission_id, sent.submission_id):
        assert submission_id is not None
        with pytest.raises(Missing):
            await undo_opt_out(deployment.stores, await other.link("ann@x.org"), submission_id, request=SOMEBODY)


@in_loop
async def test_only_administrators_take_acts_back(deployment: OptOutDeployment) -> None:
    """They take back only as many as they were shown."""
    organization = await deployment.new_organization()
    sender = await new_sender(organization)
    await sender.click("ann@x.org")
    stores, key_id = deployment.stores, sender.key.key_id
    admin = Actor(kind="person", id="ann@example.org", roles={organization.slug: "admin"})
    with pytest.raises(Forbidden):
        await reversal.count_link_key_reversal(admin, stores, key_id, since_ms=0)
    with pytest.raises(Missing):
        await reversal.count_link_key_reversal(ADMINISTRATOR, stores, "lnk_0000000000000000", since_ms=0)
    stale = Reversal(corrected=2)
    with pytest.raises(Refused):
        async for _ in reversal.reverse_link_key(ADMINISTRATOR, stores, key_id, since_ms=0, expected=stale):
            pass
    assert (await sender.states())["ann@x.org"][0] == "unsubscribed"

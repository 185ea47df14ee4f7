"""A record with its whole history. docs/interface.md sections D5, D6 and D11."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from stoplist.db.query import Query
from stoplist.errors import Missing
from stoplist.oauth.credentials import Changes, update_credential
from stoplist.organizations.groups import retire_group
from stoplist.records import history
from stoplist.records.history import RecordDetails, Sender, show_record
from stoplist.unsubscribes.channel import CHANNELS
from tests.builders import ADMINISTRATOR, make_key
from tests.deployment import in_loop
from tests.unsubscribes.partner import OptOutDeployment, Organization, back, out
from tests.unsubscribes.people import viewer


async def shown(organization: Organization, seq: int, **arguments: Any) -> RecordDetails:
    """Return the record of that number as a viewer of the organization sees it."""
    arguments.setdefault("org_slug", organization.slug)
    channel = CHANNELS[organization.channel]
    return await show_record(
        viewer(organization), organization.deployment.database, channel=channel, seq=seq, **arguments
    )


async def coming_and_going(deployment: OptOutDeployment, times: int) -> Organization:
    """Let Ann opt out and come back this many times, one second apart; others act in between."""
    organization = await deployment.new_organization()
    for n in range(times):
        deployment.clock.advance(1)
        ann = (
            back("ann@x.org", deployment.ago(100))
            if n % 2
            else out("ann@x.org", deployment.ago(100), source=f"form {n}")
        )
        await organization.submit(ann)
        await organization.submit(out(f"p{n}@x.org"))
    return organization


@in_loop
async def test_every_seq_of_a_record_finds_it(deployment: OptOutDeployment) -> None:
    """The present number and superseded ones; numbers of others find others."""
    organization = await coming_and_going(deployment, 5)
    ann = await shown(organization, 9)
    assert (ann.address, ann.seq) == ("ann@x.org", 9)
    for seq in (1, 3, 5, 7):
        assert await shown(organization, seq) == ann
    for n, seq in enumerate((2, 4, 6, 8, 10)):
        assert (await shown(organization, seq)).address == f"p{n}@x.org"


@in_loop
async def test_history_lists_every_state_with_its_sender(deployment: OptOutDeployment) -> None:
    """Newest first: the times of act and arrival, reason, source, submission, actor and address."""
    organization = await deployment.new_organization()
    start_ms = deployment.now_ms
    web = await make_key(deployment.database, deployment.clock, organization.slug, label="Web shop")
    partner = organization.partner
    shop = organization._replace(
        partner=type(partner)(
            kind="client", id=web.credential.client_id, may=partner.may, source_ip="192.0.2.44", request_id="aa" * 12
        )
    )
    first = await shop.submit(out("ann@x.org", deployment.ago(5_000), reason="complaint", source="a letter"))
    deployment.clock.advance(10)
    second = await organization.submit(back("ann@x.org", deployment.ago(1_000)))
    deployment.clock.advance(10)
    third = await shop.submit(out("ann@x.org"))
    record = await shown(organization, 2)
    senders = {
        "shop": Sender(
            actor_kind="client",
            actor_id=web.credential.client_id,
            label="Web shop",
            source_ip="192.0.2.44",
            request_id="aa" * 12,
            reverses=None,
        ),
        "partner": Sender(
            actor_kind="client",
            actor_id=partner.id,
            label="partner",
            source_ip=partner.source_ip,
            request_id=partner.request_id,
            reverses=None,
        ),
    }
    assert [
        (v.seq, v.status, v.reason, v.source, v.occurred_ms - start_ms, v.recorded_ms - start_ms)
        for v in record.versions
    ] == [
        (3, "unsubscribed", "unsubscribe", None, 20_000, 20_000),
        (2, "resubscribed", "consent", None, 9_000, 10_000),
        (1, "unsubscribed", "complaint", "a letter", -5_000, 0),
    ]
    assert [v.submission_id for v in record.versions] == [one.submission_id for one in (third, second, first)]
    assert [v.sender for v in record.versions] == [senders["shop"], senders["partner"], senders["shop"]]
    assert (record.id, record.address, record.seq) == (first.items[0].id, "ann@x.org", 3)  # type: ignore[index]
    assert (record.org_slug, record.org_name, record.channel) == (organization.slug, organization.slug.title(), "email")
    assert (record.latest_act_ms, record.is_confirmed, record.is_cut) == (deployment.now_ms, False, False)


@in_loop
async def test_a_label_is_shown_only_to_those_who_see_the_key(deployment: OptOutDeployment) -> None:
    """The new label of a key that has left the organization is not for the organization's viewers."""
    organization, other = await deployment.new_organization(), await deployment.new_organization()
    await organization.submit(out("ann@x.org"))
    left = Changes(label="Secret plan", organizations=[other.slug])
    await update_credential(
        ADMINISTRATOR, deployment.database, deployment.clock, client_id=organization.partner.id, changes=left
    )
    channel = CHANNELS[organization.channel]
    for actor, label in (
        (viewer(organization), None),
        (viewer(organization, other), "Secret plan"),
        (ADMINISTRATOR, "Secret plan"),
    ):
        record = await show_record(actor, deployment.database, org_slug=organization.slug, channel=channel, seq=1)
        sender = record.versions[0].sender
        assert sender is not None
        assert (sender.actor_id, sender.label) == (organization.partner.id, label)


@in_loop
async def test_history_has_states_superseded_within_one_batch(deployment: OptOutDeployment) -> None:
    """A batch may hold several acts of one person; each is a change."""
    organization = await deployment.new_organization()
    answer = await organization.submit(
        out("ann@x.org", deployment.ago(30)),
        back("ann@x.org", deployment.ago(20)),
        out("ann@x.org", deployment.ago(10)),
    )
    for seq in (1, 2, 3):
        record = await shown(organization, seq)
        assert [v.seq for v in record.versions] == [3, 2, 1]
        assert {v.submission_id for v in record.versions} == {answer.submission_id}


@in_loop
async def test_the_latest_act_and_its_confirmation_are_shown(deployment: OptOutDeployment) -> None:
    """They can be later than the present state: the person opted out again."""
    organization = await deployment.new_organization()
    await organization.submit(out("ann@x.org", deployment.ago(5_000)))
    await organization.submit(out("ann@x.org", deployment.ago(1_000)), by=await organization.new_partner())
    record = await shown(organization, 1)
    assert record.occurred_ms == deployment.now_ms - 5_000
    assert (record.latest_act_ms, record.is_confirmed) == (deployment.now_ms - 1_000, True)


@pytest.mark.parametrize(
    ("all_groups", "group"),
    list(itertools.product([None, "unsubscribed", "resubscribed"], ["unsubscribed", "resubscribed"])),
)
@in_loop
async def test_all_records_of_an_address_decide_what_it_bars(
    deployment: OptOutDeployment, all_groups: str | None, group: str
) -> None:
    """Messages of a group are barred by its own record or the all-groups record; other messages by the latter only."""
    organization = await deployment.new_organization()
    acts = {"unsubscribed": out("ann@x.org", deployment.ago(0)), "resubscribed": back("ann@x.org", deployment.ago(0))}
    await organization.submit(out("ben@x.org"), all_groups=True)
    await organization.submit(acts[group])
    if all_groups is not None:
        await organization.submit(acts[all_groups], all_groups=True)
    record = await shown(organization, 2)
    wholly = all_groups == "unsubscribed"
    assert (record.bars, record.is_barred) == (group == "unsubscribed", wholly or group == "unsubscribed")
    assert record.all_groups_barred is wholly
    expected: list[tuple[Any, ...]] = [("Newsletter", group, record.bars, record.is_barred, 2)]
    if all_groups is not None:
        expected.insert(0, (None, all_groups, wholly, wholly, 3))
        assert (await shown(organization, 3)).group_records == record.group_records
    assert [(s.group_name, s.status, s.bars, s.is_barred, s.seq) for s in record.group_records] == expected


@in_loop
async def test_records_of_retired_groups_are_shown(deployment: OptOutDeployment) -> None:
    """They have the group's name."""
    organization = await deployment.new_organization()
    await organization.submit(out("ann@x.org"))
    await retire_group(ADMINISTRATOR, deployment.database, deployment.clock, group_id=organization.default_group)
    record = await shown(organization, 1)
    assert (record.group_id, record.group_name) == (organization.default_group, "Newsletter")


@in_loop
async def test_a_long_history_is_cut(deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest states are shown, and `is_cut` is true."""
    organization = await coming_and_going(deployment, 5)
    monkeypatch.setattr(history, "MAX_VERSIONS", 5)
    record = await shown(organization, 1)
    assert ([v.seq for v in record.versions], record.is_cut) == ([9, 7, 5, 3, 1], False)
    monkeypatch.setattr(history, "MAX_VERSIONS", 4)
    record = await shown(organization, 1)
    assert ([v.seq for v in record.versions], record.is_cut) == ([9, 7, 5, 3], True)


@pytest.mark.parametrize("seq", [0, -1, 11, 2**63 - 1, 2**63, 2**80])
@in_loop
async def test_an_unknown_seq_is_missing(deployment: OptOutDeployment, seq: int) -> None:
    """One beyond what the database can hold is missing too."""
    organization = await coming_and_going(deployment, 5)
    with pytest.raises(Missing):
        await shown(organization, seq)
    with pytest.raises(Missing):
        await shown(organization.on("sms"), 1)


@in_loop
async def test_a_record_of_a_hidden_organization_is_missing(deployment: OptOutDeployment) -> None:
    """The answer does not tell that it exists."""
    ours, theirs = await coming_and_going(deployment, 1), await coming_and_going(deployment, 1)
    with pytest.raises(Missing) as refusal:
        await shown(ours, 1, org_slug=theirs.slug)
    with pytest.raises(Missing) as unknown:
        await shown(ours, 1, org_slug="nobody")
    assert refusal.value.text.replace(theirs.slug, "nobody") == unknown.value.text


@in_loop
async def test_a_concurrent_change_is_in_the_history_at_most_once(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is shown as it was when it was read, whenever the change comes."""
    for statement in range(5):
        organization = await coming_and_going(deployment, 3)
        deployment.clock.advance(1)
        questions = itertools.count()
        ask = deployment.database.all

        async def late(
            query: Query,
            *,
            at: int = statement,
            organization: Organization = organization,
            questions: Iterator[int] = questions,
            ask: Any = ask,
            **values: Any,
        ) -> Any:
            if next(questions) == at:
                await organization.submit(back("ann@x.org", deployment.ago(0)))
            return await ask(query, **values)

        monkeypatch.setattr(deployment.database, "all", late)
        record = await shown(organization, 1)
        monkeypatch.setattr(deployment.database, "all", ask)
        assert [v.seq for v in record.versions] in ([5, 3, 1], [7, 5, 3, 1])
        assert record.versions[0].seq == record.seq

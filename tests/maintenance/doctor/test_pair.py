"""The doctor's checks of two databases: each finding says which one, and what one lacks is named.

Source: docs/interface.md section D1, Feeds apart.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db.query import json_text
from stoplist.maintenance.doctor.checks import run_checks
from stoplist.maintenance.doctor.database import connections, database
from stoplist.maintenance.doctor.feed_states import feed_states
from stoplist.maintenance.doctor.finding import Finding
from stoplist.maintenance.doctor.pair import lost_groups
from stoplist.maintenance.doctor.postgresql import CheckedPart, parts_of
from stoplist.maintenance.doctor.propagation import propagated
from stoplist.settings import Settings
from tests.builders import Apart, execute, on_database
from tests.db import citus
from tests.maintenance.doctor.installation import settings, statuses, texts
from tests.services.postgresql import run_statements
from tests.unsubscribes.partner import OptOutDeployment, opt_out_deployment, out

EACH = ("database", "schema", "environment", "copy", "role", "durability", "clock")
TOGETHER = ("pair", "foreign feeds", "lost feeds", "outboxes")
NOWHERE = "postgresql://stoplist:hush@127.0.0.1:1/none"


def of_pair(folder: Path, url: str, feeds: str, **variables: str) -> Settings:
    return settings(folder, DATABASE_URL=url, FEEDS_URL=feeds, **variables)


def check(folder: Path, url: str, feeds: str, **variables: str) -> list[Finding]:
    return asyncio.run(database(of_pair(folder, url, feeds, **variables), is_environment_set=True)).findings


def change(url: Apart, work: Callable[[OptOutDeployment], Awaitable[Any]]) -> None:
    """Do this to the deployment."""

    async def body() -> None:
        async with opt_out_deployment(url) as deployment:
            await work(deployment)

    asyncio.run(body())


def test_both_databases_are_checked_and_told_apart(tmp_path: Path, apart_url: Apart) -> None:
    """The tests' PostgreSQL runs without fsync, which is noticed of each. Its connections are counted once."""
    by_check = statuses(check(tmp_path, apart_url, apart_url.feeds))
    assert list(by_check) == [
        *(f"{name} ({part})" for part in ("accounts", "feeds") for name in EACH),
        "connections",
        *TOGETHER,
    ]
    assert [name for name, status in by_check.items() if status != "ok"] == [
        "durability (accounts)",
        "durability (feeds)",
    ]


@pytest.mark.parametrize("away", ["accounts", "feeds"])
def test_the_one_that_is_away_is_named(tmp_path: Path, apart_url: Apart, away: str) -> None:
    """With its setting and without its password. The other one is checked."""
    urls = {"accounts": str(apart_url), "feeds": apart_url.feeds} | {away: NOWHERE}
    findings = check(tmp_path, urls["accounts"], urls["feeds"])
    by_check = statuses(findings)
    assert by_check[f"database ({away})"] == "wrong"
    assert [name for name, status in by_check.items() if status == "not checked"] == [
        *(f"{name} ({away})" for name in (*EACH[1:], "connections")),
        *TOGETHER,
    ]
    setting = {"accounts": "STOPLIST_DATABASE_URL", "feeds": "STOPLIST_FEEDS_URL"}[away]
    (text,) = [one.text for one in findings if one.check == f"database ({away})"]
    assert setting in text
    assert "hush" not in text


def test_a_database_of_feeds_without_a_schema_is_named(tmp_path: Path, apart_url: Apart) -> None:
    run_statements(apart_url.feeds, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    by_check = statuses(check(tmp_path, apart_url, apart_url.feeds))
    assert (by_check["schema (accounts)"], by_check["schema (feeds)"]) == ("ok", "wrong")
    assert {by_check[name] for name in TOGETHER} == {"not checked"}
    configured = of_pair(tmp_path, apart_url, apart_url.feeds)
    for finding in (propagated(configured), feed_states(configured)):
        assert asyncio.run(finding).status == "not checked"


def test_two_that_do_not_belong_together_are_wrong(tmp_path: Path, apart_url: Apart) -> None:
    """Nothing is said of what one lacks of the other."""
    for accounts, feeds in ((apart_url.feeds, apart_url), (apart_url, apart_url)):
        by_check = statuses(check(tmp_path, accounts, feeds))
        assert [by_check[name] for name in TOGETHER] == ["wrong", *["not checked"] * 3]
    run_statements(apart_url.feeds, "UPDATE deployment SET pair_id = 'another'")
    assert "do not belong together" in texts(check(tmp_path, apart_url, apart_url.feeds), "wrong")


@pytest.mark.parametrize(
    ("part", "text"), [("accounts", "set STOPLIST_FEEDS_URL"), ("feeds", "database of a deployment's feeds")]
)
def test_one_of_a_pair_alone_is_wrong(tmp_path: Path, apart_url: Apart, part: str, text: str) -> None:
    configured = settings(tmp_path, DATABASE_URL={"accounts": str(apart_url), "feeds": apart_url.feeds}[part])
    found = asyncio.run(database(configured, is_environment_set=True)).findings
    assert statuses(found)["pair"] == "wrong"
    assert text in texts(found, "wrong")


def test_two_of_different_environments_are_wrong(tmp_path: Path, apart_url: Apart) -> None:
    run_statements(apart_url.feeds, "UPDATE deployment SET environment = 'production'")
    by_check = statuses(check(tmp_path, apart_url, apart_url.feeds))
    assert (by_check["environment (accounts)"], by_check["environment (feeds)"]) == ("ok", "wrong")
    assert by_check["pair"] == "wrong"


def test_an_unfinished_copy_into_either_is_wrong(tmp_path: Path, apart_url: Apart) -> None:
    run_statements(apart_url.feeds, "INSERT INTO copy_progress VALUES ('feeds', 1, 1, 1)")
    by_check = statuses(check(tmp_path, apart_url, apart_url.feeds))
    assert (by_check["copy (accounts)"], by_check["copy (feeds)"]) == ("ok", "wrong")
    states = asyncio.run(feed_states(of_pair(tmp_path, apart_url, apart_url.feeds)))
    assert states.status == "not checked"
    assert "With STOPLIST_FEEDS_URL: `stoplist copy` has not finished" in states.text


def test_feeds_of_other_and_of_lost_organizations_are_named(tmp_path: Path, apart_url: Apart) -> None:
    """By slug and channel, with the remedy. Lost ones need attention: they may be meant to stay lost."""
    slugs = []

    async def restore(deployment: OptOutDeployment) -> None:
        for organization in [await deployment.new_organization("sms"), await deployment.new_organization()]:
            await organization.submit(out("+15005550006" if organization.channel == "sms" else "ann@x.org"))
            slugs.append(organization.slug)
        await execute(deployment.database, "UPDATE organizations SET uid = 'new' WHERE slug = :slug", slug=slugs[0])
        lost = "UPDATE organizations SET organization_id = 1000 WHERE slug = :slug"
        await execute(deployment.database, "DELETE FROM groups WHERE organization_id > 1")
        await execute(deployment.database, "DELETE FROM client_organizations WHERE organization_id > 1")
        await execute(deployment.database, "UPDATE clients SET default_organization_id = 1")
        await execute(deployment.database, lost, slug=slugs[1])

    change(apart_url, restore)
    findings = check(tmp_path, apart_url, apart_url.feeds)
    (foreign,) = [one for one in findings if one.check == "foreign feeds"]
    (lost,) = [one for one in findings if one.check == "lost feeds"]
    assert (foreign.status, lost.status) == ("wrong", "warning")
    assert f"opened the feeds of {slugs[0]}, sms:" in foreign.text
    assert "stoplist after-restore" in foreign.text
    assert "organization 2, email." in lost.text


def test_entries_that_wait_for_minutes_are_counted(tmp_path: Path, apart_url: Apart) -> None:
    """A server moves them within seconds, so those of now are nothing to worry about."""
    now_ms = Clock().now_ms()
    body = json_text(trail.Entry(0, "command", "a", "b", "c", "person.erase", "d", "{}", []))
    values = [f"(17, '{age_s}', 'audit', '{body}', {now_ms - 1_000 * age_s})" for age_s in (0, 240, 360, 3_600)]
    insert = f"INSERT INTO feed_outbox VALUES {', '.join(values)}"  # noqa: S608 - numbers
    run_statements(apart_url.feeds, insert)
    (finding,) = [one for one in check(tmp_path, apart_url, apart_url.feeds) if one.check == "outboxes"]
    assert finding.status == "warning"
    assert finding.text.startswith("2 entries")


def test_entries_that_no_server_can_read_are_named(tmp_path: Path, apart_url: Apart) -> None:
    """At once, and with what to do: no server moves them."""
    run_statements(apart_url.feeds, f"INSERT INTO feed_outbox VALUES (17, 'e1', 'audit', 'x', {Clock().now_ms()})")  # noqa: S608
    (finding,) = [one for one in check(tmp_path, apart_url, apart_url.feeds) if one.check == "outboxes"]
    assert finding.status == "wrong"
    assert "e1 of feed 17. If a newer release wrote them" in finding.text


def test_each_server_must_take_its_part_of_the_pools(tmp_path: Path) -> None:
    """Half a pool leads to the accounts and all of it to the feeds; on one server both count."""
    configured = of_pair(tmp_path, NOWHERE, NOWHERE, DATABASE_POOL="21", WORKERS="2")

    def found(*servers: tuple[datetime, int]) -> list[tuple[str, str]]:
        parts = [
            CheckedPart(part, [], server={"started_at": started_at, "connections": available})
            for part, (started_at, available) in zip(parts_of(configured), servers, strict=True)
        ]
        return [(one.check, one.status) for one in connections(parts, configured)]

    one, other = (datetime(2026, 11, 20, hour, tzinfo=UTC) for hour in (1, 2))
    assert found((one, 22), (other, 42)) == [("connections (accounts)", "ok"), ("connections (feeds)", "ok")]
    assert found((one, 21), (other, 41)) == [("connections (accounts)", "wrong"), ("connections (feeds)", "wrong")]
    assert found((one, 64), (one, 64)) == [("connections", "ok")]
    assert found((one, 63), (one, 63)) == [("connections", "wrong")]


def test_nodes_are_looked_for_where_the_feeds_are(tmp_path: Path, apart_url: Apart) -> None:
    insert = "INSERT INTO pg_dist_node (nodeid, groupid, nodename, is_reached) VALUES (1, 0, 'gone', false)"
    on_database(apart_url.feeds, citus.install)
    run_statements(apart_url.feeds, insert)
    assert "Not reached by the coordinator: gone:5432" in texts(check(tmp_path, apart_url, apart_url.feeds), "wrong")


def test_lost_groups_are_named_by_a_deep_look(tmp_path: Path, apart_url: Apart) -> None:
    """The states of feeds cannot be compared until `after-restore` has given the groups back."""
    configured, slugs = of_pair(tmp_path, apart_url, apart_url.feeds), []

    async def lose(deployment: OptOutDeployment) -> None:
        organization = await deployment.new_organization()
        slugs.append(organization.slug)
        group_id = await organization.new_group("Offers")
        await organization.submit(out("ann@x.org"), group_id=group_id)
        assert statuses([*await lost_groups(configured), await feed_states(configured)]) == {
            "groups": "ok",
            "states of feeds": "ok",
        }
        await execute(deployment.database, "DELETE FROM groups WHERE group_id = :group_id", group_id=group_id)

    change(apart_url, lose)
    (finding,) = asyncio.run(lost_groups(configured))
    assert finding.status == "wrong"
    assert f"{slugs[0]}, email (2)." in finding.text
    assert "run `stoplist after-restore`" in finding.text
    states = asyncio.run(feed_states(configured))
    assert states.status == "not checked"
    assert "stoplist after-restore" in states.text


def test_foreign_feeds_are_no_damaged_ones(tmp_path: Path, apart_url: Apart) -> None:
    """Their states are of groups of somebody else; and nobody has followed them for this organization."""
    configured = of_pair(tmp_path, apart_url, apart_url.feeds)

    async def make_foreign(deployment: OptOutDeployment) -> None:
        organization = await deployment.new_organization()
        await organization.submit(out("ann@x.org"))
        await execute(deployment.database, "UPDATE groups SET group_id = 'grp_other'")
        assert (await feed_states(configured)).status == "wrong"
        await execute(deployment.database, "UPDATE organizations SET uid = 'new'")

    change(apart_url, make_foreign)
    assert asyncio.run(feed_states(configured)).status == "ok"
    assert asyncio.run(propagated(configured)).status == "ok"


def test_the_whole_doctor_reads_both(tmp_path: Path, apart_url: Apart) -> None:
    """Cursors of the feeds need the secret key, people of the accounts are counted, and nothing fails."""

    async def submit(deployment: OptOutDeployment) -> None:
        await (await deployment.new_organization()).submit(out("ann@x.org"))

    change(apart_url, submit)
    environ = {
        "STOPLIST_DATABASE_URL": str(apart_url),
        "STOPLIST_FEEDS_URL": apart_url.feeds,
        "STOPLIST_LIMITS_URL": "memory:",
        "STOPLIST_DATA_DIR": str(tmp_path),
    }
    findings = asyncio.run(run_checks(environ, env_file=tmp_path / ".env", data_dir=None, is_deep=True))
    by_check = statuses(findings)
    assert by_check["secret key"] == "wrong"
    assert {by_check[name] for name in ("people", "link keys", "propagation", "groups", "states of feeds")} == {"ok"}


def test_a_url_of_feeds_beside_a_file_is_a_wrong_setting(tmp_path: Path) -> None:
    environ = {"STOPLIST_FEEDS_URL": NOWHERE, "STOPLIST_DATA_DIR": str(tmp_path)}
    findings = asyncio.run(run_checks(environ, env_file=tmp_path / ".env", data_dir=None))
    assert "STOPLIST_DATABASE_URL must be postgresql://…" in texts(findings, "wrong")

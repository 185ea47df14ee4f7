"""The command `sync`."""

import json
import re
import signal
import sqlite3
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from stoplist_client import MirrorDiverged
from stoplist_client.cli.watch_loop import backoff_s
from stoplist_client.mirror import Mirror
from stoplist_client.model import Item

from tests.client.cli.command_runner import (
    COMMAND,
    LogIn,
    RunCommand,
    environment,
    run_process,
    variables_of,
)
from tests.client.mirror.restorable import Restorable, give_out_digest
from tests.client.partners import Partner
from tests.constants import PATIENCE_S
from tests.e2e.server_process import ProcessOutput
from tests.services.managed_program import reserve_port

NewPartner = Callable[..., Partner]


def _feeds(path: Path) -> set[tuple[str, str]]:
    with Mirror(path) as mirror:
        return {(feed.org_slug, feed.channel) for feed in mirror.feeds()}


def test_first_run_follows_three_channels(
    cli: RunCommand, partner: Partner, log_in: LogIn, client_folder: Path
) -> None:
    """The channels are those of the profile's organization.

    Only the owner can read the mirror; the next run reports only changes.
    """
    log_in(partner)
    with partner.client() as client:
        client.unsubscribe("email", ["ann@example.com", "bob@example.com"])
    result = cli("sync")
    assert (result.status, result.err_text) == (0, "")
    org = partner.org_slug
    assert result.out_text == f"{org} email: 2 changes\n{org} sms: 0 changes\n{org} phone: 0 changes\n"
    path = client_folder / "mirror-default.db"
    assert _feeds(path) == {(org, "email"), (org, "sms"), (org, "phone")}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with partner.client() as client:
        client.unsubscribe("sms", ["+14155550100"])
    assert [(feed["channel"], feed["records"]) for feed in cli("sync", "--json").json["feeds"]] == [
        ("email", 0),
        ("sms", 1),
        ("phone", 0),
    ]


def test_options_add_to_what_is_followed(cli: RunCommand, partner: Partner, log_in: LogIn, tmp_path: Path) -> None:
    """--channel and --org limit the first run, and later ones add; without them, everything followed is read."""
    log_in(partner)
    path = tmp_path / "own.db"
    assert cli("sync", "--mirror", str(path), "--channel", "email").status == 0
    assert _feeds(path) == {(partner.org_slug, "email")}
    result = cli("sync", "--mirror", str(path), "--channel", "sms", "--org", partner.org_slug)
    assert len(result.out_text.splitlines()) == 2
    assert _feeds(path) == {(partner.org_slug, "email"), (partner.org_slug, "sms")}
    cli("sync", "--mirror", str(path), "--channel", "fax").assert_failed(2, "email, sms or phone")
    cli("sync", "--every", "0").assert_failed(2, "--every")


def test_organization_that_the_mirror_does_not_follow_is_named(
    cli: RunCommand, partner: Partner, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stderr names it: a mirror keeps following what it followed, whatever the variable says now."""
    log_in(partner)
    assert cli("sync").err_text == ""
    monkeypatch.setenv("STOPLISTCLIENT_ORG", "acme-shoes")
    result = cli("sync")
    assert result.status == 0
    assert f"This mirror follows {partner.org_slug}, but not acme-shoes" in result.err_text
    assert cli("sync", "--org", partner.org_slug).err_text == ""


def test_folder_is_readable_by_its_owner_only(
    cli: RunCommand, partner: Partner, set_variables: Callable[[Partner], None], client_folder: Path
) -> None:
    set_variables(partner)
    assert cli("sync").status == 0
    assert stat.S_IMODE(client_folder.stat().st_mode) == 0o700


def test_organization_must_be_known(
    cli: RunCommand, partner: Partner, set_variables: Callable[[Partner], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing organization is refused, and so is one that the key may not read."""
    set_variables(partner)
    monkeypatch.delenv("STOPLISTCLIENT_ORG")
    cli("sync").assert_failed(1, "--org")
    cli("sync", "--org", "nobody").assert_failed(1, "403 unauthorized_organization")


def test_other_files_are_not_overwritten(cli: RunCommand, partner: Partner, log_in: LogIn, tmp_path: Path) -> None:
    """A misspelt --mirror destroys nothing."""
    log_in(partner)
    path = tmp_path / "letters.txt"
    path.write_text("Dear all")
    cli("sync", "--mirror", str(path)).assert_failed(1, str(path))
    assert path.read_text() == "Dear all"


def test_lost_opt_outs_are_submitted_again(cli: RunCommand, restorable: Restorable, log_in: LogIn) -> None:
    """They are reported and stay barred; --submit-missing submits them with their time, group, reason and source."""
    partner = restorable.new_partner()
    log_in(partner)
    when = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
    lost = [Item(f"{name}@example.com", when, "complaint", "hotline") for name in ("ann", "bob")]
    backup = restorable.backup()
    with partner.client() as client:
        client.unsubscribe("email", lost[:1], group_id=partner.other_group_id)
        client.unsubscribe("email", lost[1:], all_groups=True)
    assert cli("sync", "--channel", "email").status == 0
    restorable.restore(backup)
    result = cli("sync")
    assert (result.status, result.out_text.count("read from the beginning")) == (0, 1)
    assert "lost 2 opt-outs" in result.err_text
    assert "--submit-missing" in result.err_text
    assert cli("check", "email", "--any-group", stdin=b"ann@example.com\nbob@example.com\n").out == b""
    assert "Submitted 2 opt-outs again that the service had lost." in cli("sync", "--submit-missing").out_text
    again = cli("sync", "--submit-missing", "--json").json
    assert (again["feeds"][0]["missing"], again["submitted_again"]) == (0, 0)
    with partner.client() as client:
        found = [(r.address, r.group_id, r.occurred_at, r.reason, r.source) for r in client.changes("email")]
    assert sorted(found) == [
        ("ann@example.com", partner.other_group_id, when, "complaint", "hotline"),
        ("bob@example.com", None, when, "complaint", "hotline"),
    ]


def test_outranked_opt_out_no_longer_bars(cli: RunCommand, restorable: Restorable, log_in: LogIn) -> None:
    """A consent that is submitted twice shows its first time, but its second one outranks the opt-out."""
    partner = restorable.new_partner()
    log_in(partner)
    consents, lost = ("2026-03-01T10:00:00Z", "2026-03-01T14:00:00Z"), "2026-03-01T12:00:00Z"
    with partner.client() as client:
        client.resubscribe("email", ["ann@example.com"], occurred_at=consents[0])
        backup = restorable.backup()
        client.unsubscribe("email", ["ann@example.com"], occurred_at=lost)
        assert cli("sync", "--channel", "email").status == 0
        restorable.restore(backup)
        client.resubscribe("email", ["ann@example.com"], occurred_at=consents[1])
        assert "Submitted 1 opt-out again" in cli("sync", "--submit-missing").out_text
        assert cli("sync").status == 0
    assert cli("check", "email", "--any-group", stdin=b"ann@example.com\n").out == b"ann@example.com\n"


def test_refused_opt_outs_do_not_block_others(
    cli: RunCommand, restorable: Restorable, log_in: LogIn, client_folder: Path
) -> None:
    """Opt-outs of a retired group and of an address that is no longer valid are counted, and stay barred.

    All others are submitted again. No address is printed.
    """
    partner = restorable.new_partner()
    log_in(partner)
    backup = restorable.backup()
    with partner.client() as client:
        client.unsubscribe("email", ["ann@example.com"], group_id=partner.other_group_id)
        client.unsubscribe("email", ["bob@example.com", "eve@example.com"], group_id=partner.group_id)
        client.unsubscribe("email", ["dan@example.com"], all_groups=True)
        assert cli("sync", "--channel", "email").status == 0
        restorable.restore(backup)
        restorable.service.installation.run("group", "retire", partner.other_group_id)
        assert cli("sync").status == 0
        with closing(sqlite3.connect(client_folder / "mirror-default.db")) as connection, connection:
            connection.execute("UPDATE missing SET address = 'eve' WHERE address = 'eve@example.com'")
        result = cli("sync", "--submit-missing")
        assert result.status == 1
        assert "Submitted 2 opt-outs again that the service had lost." in result.out_text
        retired, invalid = sorted(result.err_text.splitlines(), key=lambda line: "no @" in line)
        feed = f"{partner.org_slug} email"
        assert f"{feed}, {partner.other_group_id}: the service lost 1 opt-out" in retired
        assert "403 unauthorized_organization" in retired
        assert f"{feed}, {partner.group_id}: the service lost 1 opt-out" in invalid
        assert "example.com" not in result.err_text
        again = cli("sync", "--submit-missing", "--json")
        assert (again.status, again.json["submitted_again"]) == (1, 0)
        assert [one["opt_outs"] for one in again.json["refused_again"]] == [1, 1]
        assert again.json["feeds"][0]["missing"] == 2
        people = ["ann@example.com", "bob@example.com", "eve@example.com", "dan@example.com"]
        found = list(client.look_up("email", people, every_group=True))
        assert [len(one.records) for one in found] == [0, 1, 0, 1]
    assert cli("check", "email", "--any-group", stdin=b"ann@example.com\n").out == b""


def _partner_with_lost_opt_out(cli: RunCommand, restorable: Restorable, log_in: LogIn) -> Partner:
    """Return a partner with a profile and a mirror that has ann's opt-out, which the service has lost."""
    partner = restorable.new_partner()
    log_in(partner)
    backup = restorable.backup()
    with partner.client() as client:
        client.unsubscribe("email", ["ann@example.com"])
        assert cli("sync", "--channel", "email").status == 0
    restorable.restore(backup)
    return partner


def test_unreadable_organization_does_not_block_others(cli: RunCommand, restorable: Restorable, log_in: LogIn) -> None:
    """The others are read and their lost opt-outs submitted again; the status is 1, and the message says what to do."""
    partner = _partner_with_lost_opt_out(cli, restorable, log_in)
    result = cli("sync", "--org", "nobody", "--channel", "email", "--submit-missing")
    assert result.status == 1
    assert f"{partner.org_slug} email: 0 changes, read from the beginning" in result.out_text
    assert "Submitted 1 opt-out again that the service had lost." in result.out_text
    assert "403 unauthorized_organization" in result.err_text
    assert "`stoplist-client sync --unfollow --org nobody --channel email`" in result.err_text
    with partner.client() as client:
        assert len(next(client.look_up("email", ["ann@example.com"])).records) == 1
    result = cli("sync", "--unfollow", "--org", "nobody", "--channel", "email")
    assert (result.status, result.out_text) == (0, "nobody email: no longer followed.\n")
    assert cli("sync").status == 0


def test_forget_missing_gives_up_lost_opt_outs(
    cli: RunCommand, restorable: Restorable, log_in: LogIn, client_folder: Path
) -> None:
    """The service of a closed organization never accepts them again, so they must be given up explicitly."""
    partner = _partner_with_lost_opt_out(cli, restorable, log_in)
    assert cli("sync").status == 0
    path = client_folder / "mirror-default.db"
    unfollow = ("sync", "--unfollow", "--org", partner.org_slug)
    cli(*unfollow).assert_failed(1, "1 in all", "--submit-missing", "--forget-missing")
    assert _feeds(path) == {(partner.org_slug, "email")}
    assert cli(*unfollow, "--forget-missing").status == 0
    assert _feeds(path) == set()


def test_unfollow_needs_a_followed_feed(cli: RunCommand, partner: Partner, log_in: LogIn, client_folder: Path) -> None:
    """The error lists what is followed; --unfollow alone, or with options that read, is wrong usage."""
    log_in(partner)
    cli("sync", "--unfollow", "--org", partner.org_slug).assert_failed(1, "There is no mirror")
    assert cli("sync", "--channel", "email", "--channel", "sms").status == 0
    for options in (["--org", "nobody"], ["--channel", "phone"], ["--channel", "phone", "--channel", "email"]):
        cli("sync", "--unfollow", *options).assert_failed(1, "does not follow", f"email of {partner.org_slug}")
    for options in ([], ["--channel", "email", "--watch"], ["--channel", "email", "--submit-missing"]):
        cli("sync", "--unfollow", *options).assert_failed(2, "--unfollow")
    cli("sync", "--forget-missing").assert_failed(2, "--unfollow")
    path = client_folder / "mirror-default.db"
    assert _feeds(path) == {(partner.org_slug, "email"), (partner.org_slug, "sms")}
    assert cli("sync", "--unfollow", "--channel", "sms").status == 0
    assert _feeds(path) == {(partner.org_slug, "email")}
    assert cli("sync", "--unfollow", "--org", partner.org_slug).status == 0
    assert _feeds(path) == set()


@contextmanager
def _watch(*more: str, **variables: str) -> Iterator[tuple[subprocess.Popen[str], ProcessOutput, ProcessOutput]]:
    """Run `sync --watch` as a process, with its output; the process is killed if the test has not ended it."""
    process = subprocess.Popen(
        [COMMAND, "sync", "--watch", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(PYTHONUNBUFFERED="1", **variables),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = ProcessOutput(process.stdout), ProcessOutput(process.stderr)
    try:
        yield process, out, err
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        out.finish()
        err.finish()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_watch_runs_until_a_signal(cli: RunCommand, partner: Partner, log_in: LogIn, ending: signal.Signals) -> None:
    """It reads new submissions; SIGTERM and SIGINT end it with 0, and nothing is printed."""
    log_in(partner)
    with _watch("--every", "1") as (process, out, err):
        assert out.wait_for(f"{partner.org_slug} phone: 0 changes")
        with partner.client() as client:
            client.unsubscribe("email", ["ann@example.com"])
        assert out.wait_for(f"{partner.org_slug} email: 1 change\n")
        process.send_signal(ending)
        assert process.wait(PATIENCE_S) == 0
        err.finish()
        assert err.text == ""
    assert cli("check", "email", "--any-group", "--fail-if-barred", stdin=b"ann@example.com\n").status == 3


def test_watch_learns_of_a_change_without_asking_often(partner: Partner, log_in: LogIn) -> None:
    """The requests wait at the service, since there is no --every."""
    log_in(partner)
    with _watch() as (process, out, err):
        assert out.wait_for(f"{partner.org_slug} phone: 0 changes")
        with partner.client() as client:
            client.unsubscribe("sms", ["+12125550123"])
            assert out.wait_for(f"{partner.org_slug} sms: 1 change\n")
            client.unsubscribe("email", ["ann@example.com"])
            assert out.wait_for(f"{partner.org_slug} email: 1 change\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        err.finish()
        assert err.text == ""


def test_watch_survives_an_unavailable_service(partner: Partner) -> None:
    """It reports the problem and the time of the retry, and can be ended while it waits."""
    with reserve_port() as closed:
        port = closed.getsockname()[1]
        variables = variables_of(partner) | {"STOPLISTCLIENT_BASE_URL": f"https://localhost:{port}"}
        with _watch("--every", "1h", **variables) as (process, out, err):
            assert err.wait_for("Trying again in")
            assert re.search(r"No answer from the service.*Trying again in [5-8] s\.\n", err.text)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
            assert out.text == ""


def test_watch_ends_on_permanent_errors(partner: Partner) -> None:
    """A refused key ends it with 1."""
    variables = variables_of(partner) | {"STOPLISTCLIENT_CLIENT_SECRET": "svc_cs_" + "x" * 43}
    result = run_process("sync", "--watch", variables=variables)
    result.assert_failed(1, "401 invalid_client")


def test_watch_goes_on_without_an_unreadable_organization(partner: Partner, log_in: LogIn, client_folder: Path) -> None:
    """It is reported once, with what to do; the others are read."""
    log_in(partner)
    with Mirror(client_folder / "mirror-default.db") as mirror:
        mirror.follow("email", org_slug="nobody")
        mirror.follow("email", org_slug=partner.org_slug)
    with _watch("--every", "1") as (process, out, err):
        assert out.wait_for(f"{partner.org_slug} email: 0 changes")
        assert err.wait_for("--unfollow --org nobody")
        with partner.client() as client:
            client.unsubscribe("email", ["ann@example.com"])
        assert out.wait_for(f"{partner.org_slug} email: 1 change\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        err.finish()
        assert err.text.count("\n") == 1


def _diverging(cli: RunCommand, partner: Partner) -> None:
    """Synchronise a mirror of ann's opt-out, and let the service give out another digest."""
    with partner.client() as client:
        client.unsubscribe("email", ["ann@example.com"])
    assert cli("sync", "--channel", "email").status == 0
    give_out_digest(partner.service, partner.org_slug, "0" * 64)


def test_mirror_that_differs_from_the_service_is_reported(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """Status 1, after the feed was read anew; the new copy is the best there is, and answers."""
    log_in(partner)
    _diverging(cli, partner)
    result = cli("sync")
    assert result.status == 1
    assert "read from the beginning because the mirror differed from the service" in result.out_text
    assert f"email of {partner.org_slug} differs from the service, although it was read anew" in result.err_text
    assert result.err_text.count("\n") == 1
    result = cli("sync", "--json")
    assert (result.status, result.json["feeds"][0]["is_diverged"]) == (1, True)
    assert cli("check", "email", "--any-group", stdin=b"ann@example.com\nbob@example.com\n").out == b"bob@example.com\n"


def test_damaged_mirror_allows_nobody_until_it_is_read_anew(
    cli: RunCommand, partner: Partner, log_in: LogIn, client_folder: Path
) -> None:
    """`check` fails with status 1 and prints no address, unless all are barred; `sync` heals it."""
    log_in(partner)
    with partner.client() as client:
        client.unsubscribe("email", ["ann@example.com", "bob@example.com"])
    assert cli("sync", "--channel", "email").status == 0
    path = client_folder / "mirror-default.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM records WHERE address = 'bob@example.com'")
    with Mirror(path) as mirror, pytest.raises(MirrorDiverged):
        mirror.verify()
    cli("check", "email", "--any-group", stdin=b"ann@example.com\neve@example.com\n").assert_failed(1, "synchronise it")
    assert cli("check", "email", "--any-group", stdin=b"ann@example.com\n").status == 0
    result = cli("sync")
    assert (result.status, result.err_text) == (0, "")
    assert cli("check", "email", "--any-group", stdin=b"bob@example.com\neve@example.com\n").out == b"eve@example.com\n"


def test_watch_goes_on_while_the_mirror_differs(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """It is reported once, and not again with each change until the copy agrees; changes are applied."""
    log_in(partner)
    _diverging(cli, partner)
    with _watch() as (process, out, err):
        assert err.wait_for("although it was read anew")
        for people, changes in ((["bob"], "1 change"), (["eve", "fay"], "2 changes")):
            with partner.client() as client:
                client.unsubscribe("email", [f"{name}@example.com" for name in people])
            assert out.wait_for(f"{partner.org_slug} email: {changes}\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        err.finish()
        assert err.text.count("\n") == 1


def test_watch_prints_one_json_object_per_line(partner: Partner, log_in: LogIn) -> None:
    log_in(partner)
    with _watch("--every", "1", "--json") as (process, out, _):
        assert out.wait_for("}\n{")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        out.finish()
        first, second = map(json.loads, out.text.splitlines()[:2])
        assert len(first["feeds"]) == len(second["feeds"]) == 3


def test_waits_grow_and_stay_bounded() -> None:
    """5 s at first, doubled each time, at most five minutes or --every, plus jitter."""
    assert [backoff_s(failures, 60, 0) for failures in (1, 2, 3, 7, 100)] == [5, 10, 20, 300, 300]
    assert backoff_s(1, 1, 0) == 1
    assert backoff_s(100, 3600, 0) == 3600
    assert backoff_s(1, 60, 0.5) == 6.25

"""sync."""

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
from stoplist_client.cli.watch_loop import backoff_s
from stoplist_client.mirror import Mirror
from stoplist_client.model import Item

from tests.client.cli.typing_commands import COMMAND, PATIENCE_S, Logged, Typed, environment, run, variables_of
from tests.client.mirror.restoring import Restorable
from tests.client.partners import Partner, Service
from tests.e2e.running import Lines, Place
from tests.services.keeping import reserve_port

NewPartner = Callable[..., Partner]


def _followed(path: Path) -> set[tuple[str, str]]:
    with Mirror(path) as mirror:
        return {(feed.org_slug, feed.channel) for feed in mirror.feeds()}


def test_the_first_run_follows_the_three_channels(
    typed: Typed, partner: Partner, log_in: Logged, client_folder: Path
) -> None:
    """Of the organization of the profile; the next one tells what changed. The mirror is for its owner alone."""
    log_in(partner)
    with partner.client() as client:
        client.unsubscribe("email", ["ann@example.com", "bob@example.com"])
    done = typed("sync")
    assert (done.status, done.told) == (0, "")
    org = partner.org_slug
    assert done.text == f"{org} email: 2 changes\n{org} sms: 0 changes\n{org} phone: 0 changes\n"
    path = client_folder / "mirror-default.db"
    assert _followed(path) == {(org, "email"), (org, "sms"), (org, "phone")}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with partner.client() as client:
        client.unsubscribe("sms", ["+14155550100"])
    assert [(feed["channel"], feed["records"]) for feed in typed("sync", "--json").json["feeds"]] == [
        ("email", 0),
        ("sms", 1),
        ("phone", 0),
    ]


def test_options_say_what_is_followed_and_add_to_it(
    typed: Typed, partner: Partner, log_in: Logged, tmp_path: Path
) -> None:
    """--channel and --org narrow the first run; later they add; without them all that is followed is read."""
    log_in(partner)
    path = tmp_path / "own.db"
    assert typed("sync", "--mirror", str(path), "--channel", "email").status == 0
    assert _followed(path) == {(partner.org_slug, "email")}
    done = typed("sync", "--mirror", str(path), "--channel", "sms", "--org", partner.org_slug)
    assert len(done.text.splitlines()) == 2
    assert _followed(path) == {(partner.org_slug, "email"), (partner.org_slug, "sms")}
    typed("sync", "--mirror", str(path), "--channel", "fax").failed(2, "email, sms and phone")
    typed("sync", "--every", "0").failed(2, "--every")


def test_the_folder_is_for_its_owner_alone(
    typed: Typed, partner: Partner, set_variables: Callable[[Partner], None], client_folder: Path
) -> None:
    """Also where sync is what makes it."""
    set_variables(partner)
    assert typed("sync").status == 0
    assert stat.S_IMODE(client_folder.stat().st_mode) == 0o700


def test_the_organization_must_be_known(
    typed: Typed, partner: Partner, set_variables: Callable[[Partner], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where neither profile nor option names one, and one that the key is not for, are refused."""
    set_variables(partner)
    monkeypatch.delenv("STOPLISTCLIENT_ORG")
    typed("sync").failed(1, "--org")
    typed("sync", "--org", "nobody").failed(1, "403 unauthorized_organization")


def test_a_file_that_is_no_mirror_is_left_alone(typed: Typed, partner: Partner, log_in: Logged, tmp_path: Path) -> None:
    """A misspelt --mirror destroys nothing."""
    log_in(partner)
    path = tmp_path / "letters.txt"
    path.write_text("Dear all")
    typed("sync", "--mirror", str(path)).failed(1, str(path))
    assert path.read_text() == "Dear all"


@pytest.fixture(scope="module")
def restorable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restorable]:
    """A server of the module's own, whose database can be put back to an earlier state."""
    place = Place(tmp_path_factory.mktemp("restorable"))
    with place.serving() as server:
        yield Restorable(Service(place, server))


def test_what_the_service_lost_is_submitted_again(typed: Typed, restorable: Restorable, log_in: Logged) -> None:
    """It is told, stays barred, and with --submit-missing the service has it again: time, group, reason and source."""
    partner = restorable.new_partner()
    log_in(partner)
    when = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
    lost = [Item(f"{name}@example.com", when, "complaint", "hotline") for name in ("ann", "bob")]
    backup = restorable.backup()
    with partner.client() as client:
        client.unsubscribe("email", lost[:1], group_id=partner.other_group_id)
        client.unsubscribe("email", lost[1:], all_groups=True)
    assert typed("sync", "--channel", "email").status == 0
    restorable.restore(backup)
    done = typed("sync")
    assert (done.status, done.text.count("read anew")) == (0, 1)
    assert "lost 2 opt-outs" in done.told
    assert "--submit-missing" in done.told
    assert typed("check", "email", "--any-group", stdin=b"ann@example.com\nbob@example.com\n").out == b""
    assert "2 opt-outs that the service had lost: submitted again." in typed("sync", "--submit-missing").text
    again = typed("sync", "--submit-missing", "--json").json
    assert (again["feeds"][0]["missing"], again["submitted_again"]) == (0, 0)
    with partner.client() as client:
        found = [(r.address, r.group_id, r.occurred_at, r.reason, r.source) for r in client.changes("email")]
    assert sorted(found) == [
        ("ann@example.com", partner.other_group_id, when, "complaint", "hotline"),
        ("bob@example.com", None, when, "complaint", "hotline"),
    ]


def test_what_the_service_outranks_bars_no_longer_than_until_then(
    typed: Typed, restorable: Restorable, log_in: Logged
) -> None:
    """A consent said twice shows its first moment; the second is what stands against the opt-out that is sent again."""
    partner = restorable.new_partner()
    log_in(partner)
    consents, lost = ("2026-03-01T10:00:00Z", "2026-03-01T14:00:00Z"), "2026-03-01T12:00:00Z"
    with partner.client() as client:
        client.resubscribe("email", ["ann@example.com"], occurred_at=consents[0])
        backup = restorable.backup()
        client.unsubscribe("email", ["ann@example.com"], occurred_at=lost)
        assert typed("sync", "--channel", "email").status == 0
        restorable.restore(backup)
        client.resubscribe("email", ["ann@example.com"], occurred_at=consents[1])
        assert "submitted again" in typed("sync", "--submit-missing").text
        assert typed("sync").status == 0
    assert typed("check", "email", "--any-group", stdin=b"ann@example.com\n").out == b"ann@example.com\n"


def test_what_the_service_refuses_holds_up_no_other_opt_out(
    typed: Typed, restorable: Restorable, log_in: Logged, client_folder: Path
) -> None:
    """A group that was retired meanwhile, and an address that is none any more: they are counted, and stay barred.

    All else is submitted again, and so the next time only these are left. Addresses are not told.
    """
    partner = restorable.new_partner()
    log_in(partner)
    backup = restorable.backup()
    with partner.client() as client:
        client.unsubscribe("email", ["ann@example.com"], group_id=partner.other_group_id)
        client.unsubscribe("email", ["bob@example.com", "eve@example.com"], group_id=partner.group_id)
        client.unsubscribe("email", ["dan@example.com"], all_groups=True)
        assert typed("sync", "--channel", "email").status == 0
        restorable.restore(backup)
        restorable.service.place.run("group", "retire", partner.other_group_id)
        assert typed("sync").status == 0
        with closing(sqlite3.connect(client_folder / "mirror-default.db")) as connection, connection:
            connection.execute("UPDATE missing SET address = 'eve' WHERE address = 'eve@example.com'")
        done = typed("sync", "--submit-missing")
        assert done.status == 1
        assert "2 opt-outs that the service had lost: submitted again." in done.text
        retired, invalid = sorted(done.told.splitlines(), key=lambda line: "no @" in line)
        feed = f"{partner.org_slug} email"
        assert f"{feed}, {partner.other_group_id}: 1 opt-out that the service had lost" in retired
        assert "403 unauthorized_organization" in retired
        assert f"{feed}, {partner.group_id}: 1 opt-out that the service had lost" in invalid
        assert "example.com" not in done.told
        again = typed("sync", "--submit-missing", "--json")
        assert (again.status, again.json["submitted_again"]) == (1, 0)
        assert [one["opt_outs"] for one in again.json["refused_again"]] == [1, 1]
        assert again.json["feeds"][0]["missing"] == 2
        people = ["ann@example.com", "bob@example.com", "eve@example.com", "dan@example.com"]
        found = list(client.look_up("email", people, every_group=True))
        assert [len(one.records) for one in found] == [0, 1, 0, 1]
    assert typed("check", "email", "--any-group", stdin=b"ann@example.com\n").out == b""


def _partner_of_a_lost_opt_out(typed: Typed, restorable: Restorable, log_in: Logged) -> Partner:
    """Logged in, with a mirror of e-mail that has ann's opt-out, which the service was then put back before."""
    partner = restorable.new_partner()
    log_in(partner)
    backup = restorable.backup()
    with partner.client() as client:
        client.unsubscribe("email", ["ann@example.com"])
        assert typed("sync", "--channel", "email").status == 0
    restorable.restore(backup)
    return partner


def test_an_organization_that_the_key_may_not_read_holds_up_nothing(
    typed: Typed, restorable: Restorable, log_in: Logged
) -> None:
    """The others are read, and what they lost is submitted again; it ends with 1, and says the way out."""
    partner = _partner_of_a_lost_opt_out(typed, restorable, log_in)
    done = typed("sync", "--org", "nobody", "--channel", "email", "--submit-missing")
    assert done.status == 1
    assert f"{partner.org_slug} email: 0 changes, read anew" in done.text
    assert "1 opt-out that the service had lost: submitted again." in done.text
    assert "403 unauthorized_organization" in done.told
    assert "`stoplist-client sync --unfollow --org nobody --channel email`" in done.told
    with partner.client() as client:
        assert len(next(client.look_up("email", ["ann@example.com"])).records) == 1
    done = typed("sync", "--unfollow", "--org", "nobody", "--channel", "email")
    assert (done.status, done.text) == (0, "nobody email: not followed any more.\n")
    assert typed("sync").status == 0


def test_what_stands_here_alone_is_given_up_on_purpose_only(
    typed: Typed, restorable: Restorable, log_in: Logged, client_folder: Path
) -> None:
    """Where an organization was closed, nobody takes its opt-outs again: it goes when that is said in so many words."""
    partner = _partner_of_a_lost_opt_out(typed, restorable, log_in)
    assert typed("sync").status == 0
    path = client_folder / "mirror-default.db"
    unfollow = ("sync", "--unfollow", "--org", partner.org_slug)
    typed(*unfollow).failed(1, "counts 1", "--submit-missing", "--forget-missing")
    assert _followed(path) == {(partner.org_slug, "email")}
    assert typed(*unfollow, "--forget-missing").status == 0
    assert _followed(path) == set()


def test_what_is_not_followed_cannot_be_unfollowed(
    typed: Typed, partner: Partner, log_in: Logged, client_folder: Path
) -> None:
    """It is told with what is; and --unfollow alone, or with what reads, is wrong usage."""
    log_in(partner)
    typed("sync", "--unfollow", "--org", partner.org_slug).failed(1, "There is no mirror")
    assert typed("sync", "--channel", "email", "--channel", "sms").status == 0
    for options in (["--org", "nobody"], ["--channel", "phone"], ["--channel", "phone", "--channel", "email"]):
        typed("sync", "--unfollow", *options).failed(1, "does not follow", f"email of {partner.org_slug}")
    for options in ([], ["--channel", "email", "--watch"], ["--channel", "email", "--submit-missing"]):
        typed("sync", "--unfollow", *options).failed(2, "--unfollow")
    typed("sync", "--forget-missing").failed(2, "--unfollow")
    path = client_folder / "mirror-default.db"
    assert _followed(path) == {(partner.org_slug, "email"), (partner.org_slug, "sms")}
    assert typed("sync", "--unfollow", "--channel", "sms").status == 0
    assert _followed(path) == {(partner.org_slug, "email")}
    assert typed("sync", "--unfollow", "--org", partner.org_slug).status == 0
    assert _followed(path) == set()


@contextmanager
def _watching(*more: str, **variables: str) -> Iterator[tuple[subprocess.Popen[str], Lines, Lines]]:
    """`sync --watch` as a process, with what it prints and tells; it is killed if the test has not ended it."""
    process = subprocess.Popen(
        [COMMAND, "sync", "--watch", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(PYTHONUNBUFFERED="1", **variables),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = Lines(process.stdout), Lines(process.stderr)
    try:
        yield process, out, err
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        out.finish()
        err.finish()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_watching_goes_on_until_a_signal(
    typed: Typed, partner: Partner, log_in: Logged, ending: signal.Signals
) -> None:
    """What is submitted while it runs comes in; SIGTERM and SIGINT end it with 0 and without a word."""
    log_in(partner)
    with _watching("--every", "1") as (process, out, err):
        assert out.holds(f"{partner.org_slug} phone: 0 changes")
        with partner.client() as client:
            client.unsubscribe("email", ["ann@example.com"])
        assert out.holds(f"{partner.org_slug} email: 1 change\n")
        process.send_signal(ending)
        assert process.wait(PATIENCE_S) == 0
        err.finish()
        assert err.text == ""
    assert typed("check", "email", "--any-group", "--fail-if-barred", stdin=b"ann@example.com\n").status == 3


def test_watching_survives_a_service_that_is_away(partner: Partner) -> None:
    """It says what is wrong and when it tries again, and can be ended while it waits."""
    with reserve_port() as closed:
        port = closed.getsockname()[1]
        variables = variables_of(partner) | {"STOPLISTCLIENT_BASE_URL": f"https://localhost:{port}"}
        with _watching("--every", "1h", **variables) as (process, out, err):
            assert err.holds("Trying again in")
            assert re.search(r"No answer from the service.*Trying again in [5-8] s\.\n", err.text)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
            assert out.text == ""


def test_watching_ends_where_waiting_cannot_help(partner: Partner) -> None:
    """A key that is refused is told, with 1, so that whoever runs it learns of it."""
    variables = variables_of(partner) | {"STOPLISTCLIENT_CLIENT_SECRET": "svc_cs_" + "x" * 43}
    done = run("sync", "--watch", variables=variables)
    done.failed(1, "401 invalid_client")


def test_watching_goes_on_without_an_organization_that_the_key_may_not_read(
    partner: Partner, log_in: Logged, client_folder: Path
) -> None:
    """It is told once, with the way out; the others are read and told as ever."""
    log_in(partner)
    with Mirror(client_folder / "mirror-default.db") as mirror:
        mirror.follow("email", org_slug="nobody")
        mirror.follow("email", org_slug=partner.org_slug)
    with _watching("--every", "1") as (process, out, err):
        assert out.holds(f"{partner.org_slug} email: 0 changes")
        assert err.holds("--unfollow --org nobody")
        with partner.client() as client:
            client.unsubscribe("email", ["ann@example.com"])
        assert out.holds(f"{partner.org_slug} email: 1 change\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        err.finish()
        assert err.text.count("\n") == 1


def test_watching_prints_an_object_a_line(partner: Partner, log_in: Logged) -> None:
    """With --json each round is one line."""
    log_in(partner)
    with _watching("--every", "1", "--json") as (process, out, _):
        assert out.holds("}\n{")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        out.finish()
        first, second = map(json.loads, out.text.splitlines()[:2])
        assert len(first["feeds"]) == len(second["feeds"]) == 3


def test_waits_grow_and_stay_bounded() -> None:
    """5 s at first, doubled each time, at most five minutes or what --every says; always a bit apart by chance."""
    assert [backoff_s(failures, 60, 0) for failures in (1, 2, 3, 7, 100)] == [5, 10, 20, 300, 300]
    assert backoff_s(1, 1, 0) == 1
    assert backoff_s(100, 3600, 0) == 3600
    assert backoff_s(1, 60, 0.5) == 6.25

"""The programs in client/examples, as processes against a real server."""

import hashlib
import hmac
import importlib.util
import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import stoplist_client

from tests.client.partners import Partner
from tests.constants import PATIENCE_S
from tests.e2e.server_process import ProcessOutput
from tests.services.fault_kinds import RESET, Hold, Reply, is_api
from tests.services.faults import Faults
from tests.services.managed_program import reserve_port

EXAMPLES = Path(stoplist_client.__file__).parents[2] / "examples"
WEBHOOK_SECRET = "shared with those who send"


@pytest.fixture
def between(partner: Partner) -> Iterator[Faults]:
    """A proxy in front of the service, through which the programs connect."""
    with Faults(partner.service.base_url, partner.service.server.ca.parent) as proxy:
        yield proxy


@pytest.fixture
def variables(partner: Partner, between: Faults, tmp_path: Path) -> dict[str, str]:
    """The environment variables of a partner."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return kept | {
        "PYTHONPATH": str(Path(stoplist_client.__file__).parents[1]),
        "PYTHONWARNINGS": "error",
        "STOPLISTCLIENT_BASE_URL": between.base_url,
        "STOPLISTCLIENT_CA_FILE": str(between.ca),
        "STOPLISTCLIENT_CLIENT_ID": partner.key.client_id,
        "STOPLISTCLIENT_CLIENT_SECRET": partner.key.client_secret,
        "STOPLISTCLIENT_ORG": partner.org_slug,
        "STOPLISTCLIENT_DIR": str(tmp_path / "client"),
        "WEBHOOK_SECRET": WEBHOOK_SECRET,
    }


@contextmanager
def start_example(
    name: str, *arguments: str | Path, folder: Path, variables: dict[str, str], stderr: int = subprocess.PIPE
) -> Iterator[Any]:
    """Run an example as a process in this folder; it is killed at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, EXAMPLES / name, *arguments],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            sys.stderr.write(process.communicate()[1] or "")


def run_example(name: str, *arguments: str | Path, folder: Path, variables: dict[str, str]) -> tuple[int, str, str]:
    """Run an example to its end, and return exit status, stdout and stderr."""
    with start_example(name, *arguments, folder=folder, variables=variables) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err


def statuses(partner: Partner, channel: Any, *addresses: str) -> list[str]:
    """Return the status of each address in the default group, `-` for no record."""
    with partner.client(group_id=partner.group_id) as client:
        found = list(client.look_up(channel, addresses))
    return [one.records[0].status if one.records else "-" for one in found]


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until this is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# nightly_import.py


def test_import_stores_all_rows_except_invalid_ones(
    partner: Partner, variables: dict[str, str], tmp_path: Path
) -> None:
    """Exit status 3, and each invalid row with its number and reason on stderr."""
    file = tmp_path / "shop.csv"
    file.write_text(
        "address,occurred_at,reason\n"
        "ann@example.com,2026-03-01T09:30:00Z,complaint\n"
        "no address,2026-03-01T09:30:00Z,\n"
        "bob@example.org,2026-03-01T10:45:12+01:00,\n"
    )
    status, out, err = run_example("nightly_import.py", file, folder=tmp_path, variables=variables)
    assert (status, out) == (3, "3 rows: 2 new, 0 changed, 0 known, 0 outranked by a later act, 1 not valid\n")
    assert err.startswith("row 2: ")
    assert err.count("\n") == 1
    assert statuses(partner, "email", "ann@example.com", "bob@example.org") == ["unsubscribed"] * 2
    assert sorted(path.name for path in tmp_path.glob("shop.csv*")) == ["shop.csv"]


def test_killed_import_continues_where_it_stopped(between: Faults, variables: dict[str, str], tmp_path: Path) -> None:
    """The next run sends only unanswered rows; refused rows of the first run still count."""
    file = tmp_path / "shop.csv"
    people = [f"n{number}@example.com" if number != 7 else "nobody" for number in range(10_003)]
    file.write_text("address,occurred_at\n" + "".join(f"{person},2026-03-01T09:30:00Z\n" for person in people))
    held = Hold()
    between.next(None, held, when=is_api)
    with start_example("nightly_import.py", file, folder=tmp_path, variables=variables) as process:
        held.wait()  # the service has stored the second batch, and the program does not know
        process.kill()
        held.release()
    asked = sum(map(is_api, between.arrived))
    status, out, err = run_example("nightly_import.py", file, folder=tmp_path, variables=variables)
    assert (status, err) == (3, "")
    assert out == "3 rows: 0 new, 0 changed, 3 known, 0 outranked by a later act, 0 not valid\n"
    assert sum(map(is_api, between.arrived)) == asked + 1


def import_killed_after_a_batch(between: Faults, variables: dict[str, str], folder: Path) -> Path:
    """Return a file of 10 001 rows whose import was killed after the first 10 000."""
    file = folder / "shop.csv"
    people = (f"n{number}@example.com" for number in range(10_001))
    file.write_text("address,occurred_at\n" + "".join(f"{person},2026-03-01T09:30:00Z\n" for person in people))
    held = Hold()
    between.next(None, held, when=is_api)
    with start_example("nightly_import.py", file, folder=folder, variables=variables) as process:
        held.wait()
        process.kill()
        held.release()
    return file


def test_import_of_a_changed_file_starts_again(
    partner: Partner, between: Faults, variables: dict[str, str], tmp_path: Path
) -> None:
    """The progress of one night's file skips no rows of the next."""
    file = import_killed_after_a_batch(between, variables, tmp_path)
    file.write_text("address,occurred_at\nann@example.com,2026-03-01T09:30:00Z\n")
    status, _, err = run_example("nightly_import.py", file, folder=tmp_path, variables=variables)
    assert (status, err) == (0, "")
    assert statuses(partner, "email", "ann@example.com") == ["unsubscribed"]


def test_import_with_another_key_starts_again(
    partner: Partner, new_partner: Callable[..., Partner], between: Faults, variables: dict[str, str], tmp_path: Path
) -> None:
    """A rehearsal with another key does not count."""
    file = import_killed_after_a_batch(between, variables, tmp_path)
    other = new_partner()
    variables |= {
        "STOPLISTCLIENT_CLIENT_ID": other.key.client_id,
        "STOPLISTCLIENT_CLIENT_SECRET": other.key.client_secret,
    }
    status, out, err = run_example("nightly_import.py", file, folder=tmp_path, variables=variables)
    assert (status, err) == (0, "")
    assert out.startswith("10001 rows: 10001 new, ")


def test_import_to_another_service_starts_again(between: Faults, variables: dict[str, str], tmp_path: Path) -> None:
    """The same key at another base address. (In the test it is the same service, so all rows are known.)"""
    file = import_killed_after_a_batch(between, variables, tmp_path)
    variables["STOPLISTCLIENT_BASE_URL"] = between.base_url.replace("localhost", "LOCALHOST")
    assert variables["STOPLISTCLIENT_BASE_URL"] != between.base_url
    status, out, err = run_example("nightly_import.py", file, folder=tmp_path, variables=variables)
    assert (status, err) == (0, "")
    assert out.startswith("10001 rows: ")


@pytest.mark.parametrize("left", ["", "[[", "[[1, 2], 1", "3", "\x00\x00\x00"])
def test_damaged_progress_file_is_ignored(
    partner: Partner, variables: dict[str, str], tmp_path: Path, left: str
) -> None:
    file = tmp_path / "shop.csv"
    file.write_text("address,occurred_at\nann@example.com,2026-03-01T09:30:00Z\n")
    (tmp_path / "shop.csv.progress").write_text(left)
    status, _, err = run_example("nightly_import.py", file, folder=tmp_path, variables=variables)
    assert (status, err) == (0, "")
    assert statuses(partner, "email", "ann@example.com") == ["unsubscribed"]
    assert sorted(path.name for path in tmp_path.glob("shop.csv*")) == ["shop.csv"]


def test_unclosed_quote_is_an_error(variables: dict[str, str], tmp_path: Path) -> None:
    """It is not read as one row with an invalid address."""
    file = tmp_path / "shop.csv"
    file.write_text(
        'address,occurred_at\n"ann@example.com,2026-03-01T09:30:00Z\nbob@example.com,2026-03-01T09:30:00Z\n'
    )
    status, out, err = run_example("nightly_import.py", file, folder=tmp_path, variables=variables)
    assert (status, out) == (1, "")
    assert err.startswith(f"nightly import: {file} is not CSV from row 1 on")
    assert err.count("\n") == 1


def test_failed_import_prints_one_line(variables: dict[str, str], tmp_path: Path) -> None:
    """A wrong file or a wrong key leads to exit status 1 and no traceback."""
    file = tmp_path / "shop.csv"
    file.write_text("mail\nann@example.com\n")
    told = run_example("nightly_import.py", file, folder=tmp_path, variables=variables)
    assert told == (1, "", "nightly import: KeyError: 'address'\n")
    file.write_text("address,occurred_at\nann@example.com,2026-03-01T09:30:00Z\n")
    variables["STOPLISTCLIENT_CLIENT_SECRET"] = "svc_cs_wrong"
    status, out, err = run_example("nightly_import.py", file, folder=tmp_path, variables=variables)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("nightly import: InvalidClient: 401 invalid_client")


# webhook_receiver.py


@contextmanager
def receiver(folder: Path, variables: dict[str, str], stderr: int = subprocess.PIPE) -> Iterator[Callable[..., int]]:
    """Run a receiver; yields a function that posts a webhook and returns the status of the answer."""
    with start_example("webhook_receiver.py", "0", folder=folder, variables=variables, stderr=stderr) as process:
        output = ProcessOutput(process.stdout)
        assert output.wait_for("Listening on port ")
        url = f"http://127.0.0.1:{output.text.split()[-1]}"

        def post(path: str, message: Any, *, secret: str = WEBHOOK_SECRET) -> int:
            body = json.dumps(message).encode()
            signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
            headers = {"X-Signature": signature}
            return httpx.post(
                url + path, content=body, headers=headers, timeout=PATIENCE_S, trust_env=False
            ).status_code

        yield post
        process.kill()
        output.finish()


def queued(folder: Path) -> list[tuple[str, str | None]]:
    """Return address and refusal of the rows in the receiver's queue."""
    with closing(sqlite3.connect(folder / "opt-outs.db", timeout=PATIENCE_S)) as connection:
        return connection.execute("SELECT address, refused FROM queue ORDER BY id").fetchall()


def test_webhook_becomes_an_opt_out(partner: Partner, variables: dict[str, str], tmp_path: Path) -> None:
    """A STOP and a complaint; the queue is empty afterwards."""
    with receiver(tmp_path, variables) as post:
        assert post("/sms", {"from": "+14155550123", "text": " stop "}) == 204
        assert post("/complaint", {"recipient": "Ann@Example.com", "timestamp": "2026-03-01T09:30:00Z"}) == 204
        wait_until(lambda: queued(tmp_path) == [])
    with partner.client() as client:
        (stop,) = next(client.look_up("sms", ["+14155550123"])).records
        (complaint,) = next(client.look_up("email", ["ann@example.com"])).records
    assert (stop.status, stop.reason) == ("unsubscribed", "stop_keyword")
    assert (complaint.status, complaint.reason) == ("unsubscribed", "complaint")
    assert complaint.occurred_at.isoformat() == "2026-03-01T09:30:00+00:00"


def test_no_webhook_is_lost(partner: Partner, between: Faults, variables: dict[str, str], tmp_path: Path) -> None:
    """The receiver stores what it answers with 204, even if the service is unavailable and it is killed."""
    between.otherwise(lambda request: RESET)
    with receiver(tmp_path, variables) as post:
        assert post("/sms", {"from": "+14155550123", "text": "STOP"}) == 204
    assert [address for address, _ in queued(tmp_path)] == ["+14155550123"]
    between.forget()
    with receiver(tmp_path, variables):
        wait_until(lambda: queued(tmp_path) == [])
    assert statuses(partner, "sms", "+14155550123") == ["unsubscribed"]


def test_refused_opt_out_is_kept_and_blocks_no_other(
    partner: Partner, variables: dict[str, str], tmp_path: Path
) -> None:
    """The reason is kept with it; a time in the future counts as now."""
    with receiver(tmp_path, variables) as post:
        assert post("/complaint", {"recipient": "nobody"}) == 204
        assert post("/complaint", {"recipient": "ann@example.com", "timestamp": "2990-01-01T00:00:00Z"}) == 204
        wait_until(lambda: len(queued(tmp_path)) == 1 and queued(tmp_path)[0][1] is not None)
        assert post("/sms", {"from": "+14155550123", "text": "STOP"}) == 204
        wait_until(lambda: [address for address, _ in queued(tmp_path)] == ["nobody"])
    assert statuses(partner, "email", "ann@example.com") == ["unsubscribed"]


def test_other_requests_are_not_queued(variables: dict[str, str], tmp_path: Path) -> None:
    """A wrong signature, another path, another JSON, and an SMS with another text."""
    with receiver(tmp_path, variables) as post:
        assert post("/sms", {"from": "+14155550123", "text": "STOP"}, secret="another") == 401
        assert post("/fax", {}) == 404
        assert post("/sms", {"text": "STOP"}) == 400
        assert post("/sms", ["STOP"]) == 400
        assert post("/complaint", {"recipient": "ann@example.com", "timestamp": "yesterday"}) == 400
        assert post("/sms", {"text": "x" * 65_536}) == 413
        assert post("/sms", {"from": "+14155550123", "text": "Thank you!"}) == 204
        assert queued(tmp_path) == []


@pytest.mark.parametrize("text", ["STOP.", "Stop!", "stop\n", "\u201cSTOP\u201d", "Stop all", "\u00a0stop\u2026"])
def test_stop_may_have_punctuation_and_white_space(variables: dict[str, str], tmp_path: Path, text: str) -> None:
    with reserve_port() as closed:
        variables["STOPLISTCLIENT_BASE_URL"] = f"https://localhost:{closed.getsockname()[1]}"
        with receiver(tmp_path, variables) as post:
            assert post("/sms", {"from": "+14155550123", "text": text}) == 204
        assert [address for address, _ in queued(tmp_path)] == ["+14155550123"]


@pytest.mark.parametrize(
    ("timestamp", "status"), [("0001-01-01T00:00:00+05:00", 400), ("9999-12-31T23:59:59-05:00", 204)]
)
def test_time_out_of_range_is_answered(variables: dict[str, str], tmp_path: Path, timestamp: str, status: int) -> None:
    """A time before the year 1 is refused with 400; one after 9999 counts as now."""
    with receiver(tmp_path, variables) as post:
        assert post("/complaint", {"recipient": "ann@example.com", "timestamp": timestamp}) == status


def test_opt_out_with_a_refused_time_counts_as_now(partner: Partner, variables: dict[str, str], tmp_path: Path) -> None:
    """The clock of this host was wrong when it was queued; it must not be lost."""
    with receiver(tmp_path, variables) as post:
        with closing(sqlite3.connect(tmp_path / "opt-outs.db", timeout=PATIENCE_S)) as connection, connection:
            connection.execute(
                "INSERT INTO queue (channel, address, occurred_at) VALUES ('sms', '+14155550123', ?)",
                ("2990-01-01T00:00:00.000+00:00",),
            )
        assert post("/sms", {"from": "+14155550124", "text": "STOP"}) == 204
        wait_until(lambda: queued(tmp_path) == [])
    assert statuses(partner, "sms", "+14155550123", "+14155550124") == ["unsubscribed"] * 2


def test_queue_is_readable_by_its_owner_only(variables: dict[str, str], tmp_path: Path) -> None:
    """It contains addresses."""
    with receiver(tmp_path, variables):
        assert stat.S_IMODE((tmp_path / "opt-outs.db").stat().st_mode) == 0o600


def test_closed_log_does_not_stop_the_receiver(
    partner: Partner, between: Faults, variables: dict[str, str], tmp_path: Path
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    refused = threading.Event()

    def refuse(request: object) -> Reply:
        refused.set()
        return Reply(status=405)

    between.otherwise(refuse)
    try:
        with receiver(tmp_path, variables, stderr=writing) as post:
            assert post("/sms", {"from": "+14155550123", "text": "STOP"}) == 204
            assert refused.wait(PATIENCE_S)
            between.forget()
            assert post("/sms", {"from": "+14155550124", "text": "STOP"}) == 204
            wait_until(lambda: queued(tmp_path) == [])
    finally:
        os.close(writing)
    assert statuses(partner, "sms", "+14155550123", "+14155550124") == ["unsubscribed"] * 2


@pytest.mark.parametrize(("what", "ends"), [("ZeroDivisionError", False), ("SystemExit", True)])
def test_receiver_ends_with_its_submitter(variables: dict[str, str], tmp_path: Path, what: str, ends: bool) -> None:
    """An error is logged, and the queue waits; if the thread ends, the process ends."""
    script = f"""
import sys
import webhook_receiver

def broken(*_):
    raise {what}("ann@example.com")

webhook_receiver.submit_some = broken
webhook_receiver.main(0)
"""
    variables["PYTHONPATH"] += os.pathsep + str(EXAMPLES)
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        if ends:
            assert process.wait(PATIENCE_S) == 1
        else:
            assert process.stderr.readline() == b"The queue waits: ZeroDivisionError\n"
            assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


# scrub_before_campaign.py


@pytest.fixture
def campaign(partner: Partner, tmp_path: Path) -> tuple[str | Path, ...]:
    """The arguments for a list of four: one opted out of the newsletter, and one of all groups."""
    with partner.client() as client:
        client.unsubscribe("email", ["ann@example.com"], group_id=partner.group_id)
        client.unsubscribe("email", ["bob@example.com"], group_id=partner.other_group_id)
        client.unsubscribe("email", ["eve@example.com"], all_groups=True)
    recipients = tmp_path / "recipients.txt"
    recipients.write_text("Bob@Example.com\nANN@example.com\nnobody\neve@example.com\n")
    return recipients, tmp_path / "allowed.txt", partner.group_id


def test_list_is_scrubbed(campaign: tuple[str | Path, ...], variables: dict[str, str], tmp_path: Path) -> None:
    """Removed are those who opted out of the group or of all groups, and invalid addresses."""
    done = run_example("scrub_before_campaign.py", *campaign, folder=tmp_path, variables=variables)
    assert done == (0, "1 allowed, 2 barred, 1 invalid\n", "")
    assert (tmp_path / "allowed.txt").read_text() == "Bob@Example.com\n"


def test_recent_mirror_is_used_if_the_service_is_unavailable(
    campaign: tuple[str | Path, ...], between: Faults, variables: dict[str, str], tmp_path: Path
) -> None:
    assert run_example("scrub_before_campaign.py", *campaign, folder=tmp_path, variables=variables)[0] == 0
    between.otherwise(lambda request: RESET)
    status, out, err = run_example("scrub_before_campaign.py", *campaign, folder=tmp_path, variables=variables)
    assert (status, out) == (0, "1 allowed, 2 barred, 1 invalid\n")
    assert err.startswith("The mirror was not updated: ")


def test_old_mirror_writes_no_list(
    campaign: tuple[Path, Path, str],
    between: Faults,
    variables: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The list of the last campaign is removed too. (In the test, every mirror is too old.)"""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    scrub = load_example("scrub_before_campaign")
    assert scrub.main(*campaign) == 0
    monkeypatch.setattr(scrub, "MAX_AGE_S", 0.0)
    between.otherwise(lambda request: RESET)
    assert scrub.main(*campaign) == 1
    assert not campaign[1].exists()
    assert "No list was written: " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["recipients.txt", "linked.txt", "recipients", "missing.txt"])
def test_list_of_recipients_is_never_overwritten(
    campaign: tuple[Path, Path, str], variables: dict[str, str], tmp_path: Path, name: str
) -> None:
    """Its own name, a link, the temporary name and a missing list are refused."""
    recipients, allowed, group_id = campaign
    content = recipients.read_bytes()
    allowed.write_text("of the last campaign\n")
    target = tmp_path / name
    if name == "linked.txt":
        target.symlink_to(recipients)
    if name == "recipients":
        recipients = recipients.rename(tmp_path / "recipients.unfinished")
    given = (target, allowed) if name == "missing.txt" else (recipients, target)
    status, out, _ = run_example("scrub_before_campaign.py", *given, group_id, folder=tmp_path, variables=variables)
    assert (status, out) == (2, "")
    assert recipients.read_bytes() == content
    assert allowed.exists()


def test_byte_order_mark_is_ignored(
    campaign: tuple[Path, Path, str], variables: dict[str, str], tmp_path: Path
) -> None:
    """Spreadsheets write one."""
    campaign[0].write_text("Bob@Example.com\n", encoding="utf-8-sig")
    assert run_example("scrub_before_campaign.py", *campaign, folder=tmp_path, variables=variables)[0] == 0
    assert campaign[1].read_bytes() == b"Bob@Example.com\n"


def test_unreadable_list_leaves_no_partial_list(
    campaign: tuple[Path, Path, str], variables: dict[str, str], tmp_path: Path
) -> None:
    """The message shows no address."""
    campaign[0].write_bytes(b"Bob@Example.com\n" * 10_000 + b"j\xf6rg@example.com\n")
    status, out, err = run_example("scrub_before_campaign.py", *campaign, folder=tmp_path, variables=variables)
    assert (status, out) == (1, "")
    assert "not in UTF-8" in err
    assert sorted(path.name for path in tmp_path.glob("*.txt*")) == ["recipients.txt"]


def load_example(name: str) -> ModuleType:
    """Import an example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""The programs in client/examples do what they say, as processes of their own against a real server."""

import hashlib
import hmac
import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
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
from tests.e2e.running import PATIENCE_S, Lines
from tests.services.faults import Faults, faults
from tests.services.mishaps import RESET, Hold, is_api

EXAMPLES = Path(stoplist_client.__file__).parents[2] / "examples"
WEBHOOK_SECRET = "shared with those who send"


@pytest.fixture
def between(partner: Partner) -> Iterator[Faults]:
    """A proxy before the service, by which the programs reach it."""
    with faults(partner.service.base_url, partner.service.server.ca.parent) as proxy:
        yield proxy


@pytest.fixture
def variables(partner: Partner, between: Faults, tmp_path: Path) -> dict[str, str]:
    """What a partner has set when the programs run."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return kept | {
        "PYTHONPATH": str(Path(stoplist_client.__file__).parents[1]),
        "PYTHONWARNINGS": "error",
        "STOPLISTCLIENT_BASE_URL": between.base_url,
        "STOPLISTCLIENT_CA_FILE": str(between.ca),
        "STOPLISTCLIENT_CLIENT_ID": partner.key.client_id,
        "STOPLISTCLIENT_CLIENT_SECRET": partner.key.secret,
        "STOPLISTCLIENT_ORG": partner.org_slug,
        "STOPLISTCLIENT_DIR": str(tmp_path / "client"),
        "WEBHOOK_SECRET": WEBHOOK_SECRET,
    }


@contextmanager
def program(name: str, *arguments: str | Path, folder: Path, variables: dict[str, str]) -> Iterator[Any]:
    """An example as a process, in this folder; it is killed at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, EXAMPLES / name, *arguments],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        sys.stderr.write(process.communicate()[1] or "")


def ended(name: str, *arguments: str | Path, folder: Path, variables: dict[str, str]) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of an example that comes to its end."""
    with program(name, *arguments, folder=folder, variables=variables) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err


def statuses(partner: Partner, channel: Any, *addresses: str) -> list[str]:
    """What the service knows of these in the default group; `-` where it knows nothing."""
    with partner.client(group_id=partner.group_id) as client:
        found = list(client.look_up(channel, addresses))
    return [one.records[0].status if one.records else "-" for one in found]


def until(is_so: Callable[[], bool]) -> None:
    """Returns once it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# nightly_import.py


def test_the_nightly_import_stores_all_but_the_rows_that_it_names(
    partner: Partner, variables: dict[str, str], tmp_path: Path
) -> None:
    """Exit status 3, and each bad row with its number and its reason on stderr."""
    file = tmp_path / "shop.csv"
    file.write_text(
        "address,occurred_at,reason\n"
        "ann@example.com,2026-03-01T09:30:00Z,complaint\n"
        "no address,2026-03-01T09:30:00Z,\n"
        "bob@example.org,2026-03-01T10:45:12+01:00,\n"
    )
    status, out, err = ended("nightly_import.py", file, folder=tmp_path, variables=variables)
    assert (status, out) == (3, "3 rows: 2 new, 0 changed, 0 known, 0 outranked by a later act, 1 not acceptable\n")
    assert err.startswith("row 2: ")
    assert err.count("\n") == 1
    assert statuses(partner, "email", "ann@example.com", "bob@example.org") == ["unsubscribed"] * 2
    assert sorted(path.name for path in tmp_path.glob("shop.csv*")) == ["shop.csv"]


def test_a_nightly_import_that_was_killed_goes_on_where_it_was(
    between: Faults, variables: dict[str, str], tmp_path: Path
) -> None:
    """The second run sends what was not answered, and nothing else; refused rows of the first still count."""
    file = tmp_path / "shop.csv"
    people = [f"n{number}@example.com" if number != 7 else "nobody" for number in range(10_003)]
    file.write_text("address,occurred_at\n" + "".join(f"{person},2026-03-01T09:30:00Z\n" for person in people))
    held = Hold()
    between.next(None, held, when=is_api)
    with program("nightly_import.py", file, folder=tmp_path, variables=variables) as process:
        held.wait()  # the service has stored the second batch, and the program does not know
        process.kill()
        held.release()
    asked = sum(map(is_api, between.arrived))
    status, out, err = ended("nightly_import.py", file, folder=tmp_path, variables=variables)
    assert (status, err) == (3, "")
    assert out == "3 rows: 0 new, 0 changed, 3 known, 0 outranked by a later act, 0 not acceptable\n"
    assert sum(map(is_api, between.arrived)) == asked + 1


def test_a_nightly_import_begins_anew_with_another_file_of_the_same_name(
    partner: Partner, variables: dict[str, str], tmp_path: Path
) -> None:
    """What was noted of one night's file does not skip rows of the next."""
    file = tmp_path / "shop.csv"
    file.write_text("address,occurred_at\nann@example.com,2026-03-01T09:30:00Z\n")
    (tmp_path / "shop.csv.progress").write_text("10 123456789 1 0")
    status, _, err = ended("nightly_import.py", file, folder=tmp_path, variables=variables)
    assert (status, err) == (0, "")
    assert statuses(partner, "email", "ann@example.com") == ["unsubscribed"]


def test_a_nightly_import_that_fails_says_so_in_a_line(variables: dict[str, str], tmp_path: Path) -> None:
    """A file of another kind, and a key that is none: exit status 1, and no traceback."""
    file = tmp_path / "shop.csv"
    file.write_text("mail\nann@example.com\n")
    told = ended("nightly_import.py", file, folder=tmp_path, variables=variables)
    assert told == (1, "", "nightly import: KeyError: 'address'\n")
    file.write_text("address,occurred_at\nann@example.com,2026-03-01T09:30:00Z\n")
    variables["STOPLISTCLIENT_CLIENT_SECRET"] = "svc_cs_wrong"
    status, out, err = ended("nightly_import.py", file, folder=tmp_path, variables=variables)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("nightly import: InvalidClient: 401 invalid_client")


# webhook_receiver.py


@contextmanager
def receiver(folder: Path, variables: dict[str, str]) -> Iterator[Callable[..., int]]:
    """A receiver that listens; what is yielded posts a webhook to it and tells the status of its answer."""
    with program("webhook_receiver.py", "0", folder=folder, variables=variables) as process:
        output = Lines(process.stdout)
        assert output.holds("Listening on port ")
        url = f"http://127.0.0.1:{output.text.split()[-1]}"

        def post(path: str, message: Any, *, secret: str = WEBHOOK_SECRET) -> int:
            body = json.dumps(message).encode()
            signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
            return httpx.post(url + path, content=body, headers={"X-Signature": signature}, trust_env=False).status_code

        yield post
        process.kill()
        output.finish()


def queued(folder: Path) -> list[tuple[str, str | None]]:
    """Address and refusal of what is in the receiver's queue."""
    with closing(sqlite3.connect(folder / "opt-outs.db")) as connection:
        return connection.execute("SELECT address, refused FROM queue ORDER BY id").fetchall()


def test_a_webhook_becomes_an_opt_out(partner: Partner, variables: dict[str, str], tmp_path: Path) -> None:
    """A STOP and a complaint; the queue is empty afterwards."""
    with receiver(tmp_path, variables) as post:
        assert post("/sms", {"from": "+14155550123", "text": " stop "}) == 204
        assert post("/complaint", {"recipient": "Ann@Example.com", "timestamp": "2026-03-01T09:30:00Z"}) == 204
        until(lambda: queued(tmp_path) == [])
    with partner.client() as client:
        (stop,) = next(client.look_up("sms", ["+14155550123"])).records
        (complaint,) = next(client.look_up("email", ["ann@example.com"])).records
    assert (stop.status, stop.reason) == ("unsubscribed", "stop_keyword")
    assert (complaint.status, complaint.reason) == ("unsubscribed", "complaint")
    assert complaint.occurred_at.isoformat() == "2026-03-01T09:30:00+00:00"


def test_no_webhook_is_lost_while_the_service_is_away_and_the_receiver_is_killed(
    partner: Partner, between: Faults, variables: dict[str, str], tmp_path: Path
) -> None:
    """What was answered with 204 is stored in the end."""
    between.otherwise(lambda request: RESET)
    with receiver(tmp_path, variables) as post:
        assert post("/sms", {"from": "+14155550123", "text": "STOP"}) == 204
    assert [address for address, _ in queued(tmp_path)] == ["+14155550123"]
    between.forget()
    with receiver(tmp_path, variables):
        until(lambda: queued(tmp_path) == [])
    assert statuses(partner, "sms", "+14155550123") == ["unsubscribed"]


def test_what_the_service_does_not_accept_is_kept_and_stops_nobody_else(
    partner: Partner, variables: dict[str, str], tmp_path: Path
) -> None:
    """With the reason, for somebody to look at; a moment in the future counts as now."""
    with receiver(tmp_path, variables) as post:
        assert post("/complaint", {"recipient": "nobody"}) == 204
        assert post("/complaint", {"recipient": "ann@example.com", "timestamp": "2990-01-01T00:00:00Z"}) == 204
        until(lambda: len(queued(tmp_path)) == 1 and queued(tmp_path)[0][1] is not None)
        assert post("/sms", {"from": "+14155550123", "text": "STOP"}) == 204
        until(lambda: [address for address, _ in queued(tmp_path)] == ["nobody"])
    assert statuses(partner, "email", "ann@example.com") == ["unsubscribed"]


def test_webhooks_of_strangers_and_those_that_say_nothing_are_not_queued(
    variables: dict[str, str], tmp_path: Path
) -> None:
    """A wrong signature, another path, no JSON of ours, and an SMS that says something else."""
    with receiver(tmp_path, variables) as post:
        assert post("/sms", {"from": "+14155550123", "text": "STOP"}, secret="another") == 401
        assert post("/fax", {}) == 404
        assert post("/sms", {"text": "STOP"}) == 400
        assert post("/sms", ["STOP"]) == 400
        assert post("/complaint", {"recipient": "ann@example.com", "timestamp": "yesterday"}) == 400
        assert post("/sms", {"text": "x" * 65_536}) == 413
        assert post("/sms", {"from": "+14155550123", "text": "Thank you!"}) == 204
        assert queued(tmp_path) == []


# scrub_before_campaign.py


@pytest.fixture
def campaign(partner: Partner, tmp_path: Path) -> tuple[str | Path, ...]:
    """The arguments for a list of four, of whom one opted out of the newsletter, and one of all."""
    with partner.client() as client:
        client.unsubscribe("email", ["ann@example.com"], group_id=partner.group_id)
        client.unsubscribe("email", ["bob@example.com"], group_id=partner.other_group_id)
        client.unsubscribe("email", ["eve@example.com"], all_groups=True)
    recipients = tmp_path / "recipients.txt"
    recipients.write_text("Bob@Example.com\nANN@example.com\nnobody\neve@example.com\n")
    return recipients, tmp_path / "allowed.txt", partner.group_id


def test_a_list_is_scrubbed(campaign: tuple[str | Path, ...], variables: dict[str, str], tmp_path: Path) -> None:
    """Out are those who left the group or all groups, and what is no address; the others stay as they were spelt."""
    done = ended("scrub_before_campaign.py", *campaign, folder=tmp_path, variables=variables)
    assert done == (0, "1 allowed, 2 barred, 1 no address\n", "")
    assert (tmp_path / "allowed.txt").read_text() == "Bob@Example.com\n"


def test_a_list_is_scrubbed_from_a_mirror_that_is_new_enough_while_the_service_is_away(
    campaign: tuple[str | Path, ...], between: Faults, variables: dict[str, str], tmp_path: Path
) -> None:
    """It says that it could not be brought up to date."""
    assert ended("scrub_before_campaign.py", *campaign, folder=tmp_path, variables=variables)[0] == 0
    between.otherwise(lambda request: RESET)
    status, out, err = ended("scrub_before_campaign.py", *campaign, folder=tmp_path, variables=variables)
    assert (status, out) == (0, "1 allowed, 2 barred, 1 no address\n")
    assert err.startswith("The mirror stays as it was: ")


def test_no_list_is_written_from_a_mirror_that_is_too_old(
    campaign: tuple[Path, Path, str],
    between: Faults,
    variables: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not even the list of the last campaign is left. (Here what is too old is set to be everything.)"""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    scrub = loaded("scrub_before_campaign")
    assert scrub.main(*campaign) == 0
    monkeypatch.setattr(scrub, "MAX_AGE_S", 0.0)
    between.otherwise(lambda request: RESET)
    assert scrub.main(*campaign) == 1
    assert not campaign[1].exists()
    assert "No list was written: " in capsys.readouterr().err


def loaded(name: str) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

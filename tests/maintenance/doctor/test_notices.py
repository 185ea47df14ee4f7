"""The doctor's findings on notices (docs/interface.md section D16)."""

import asyncio
from pathlib import Path

import pytest

from stoplist.db import Database
from stoplist.maintenance.doctor.finding import Finding
from stoplist.maintenance.doctor.notices import NoticeFailures, notices, read_notices
from tests.builders import execute, on_each_database
from tests.constants import HOUR_S
from tests.fakes import FakeClock
from tests.maintenance.doctor.installation import settings
from tests.notices.operator import NoticeDeployment

SECRET = "whsec_" + "A" * 32
MAIL = "smtps://a%40b.example:pw@mail.example"


def found(folder: Path, failures: list[NoticeFailures], **variables: str) -> list[Finding]:
    return asyncio.run(notices(failures, settings(folder, **variables)))


def test_no_way_is_no_fault(tmp_path: Path) -> None:
    """Something may not have been delivered: nothing was meant to deliver it."""
    (finding,) = found(tmp_path, [NoticeFailures("webhook", 3, 0, "HTTP 500")])
    assert finding.status == "ok"
    assert "Nothing delivers them" in finding.text


@pytest.mark.parametrize(("host", "status"), [("127.0.0.1", "wrong"), ("[::1]", "wrong"), ("8.8.8.8", "ok")])
def test_a_webhook_must_lead_to_a_public_address(tmp_path: Path, host: str, status: str) -> None:
    variables = {"NOTICE_URL": f"https://{host}/in", "NOTICE_SECRET": SECRET}
    (finding,) = found(tmp_path, [], **variables)
    assert finding.status == status
    (finding,) = found(tmp_path, [], **variables, NOTICE_ALLOW_PRIVATE="yes")
    assert finding.status == "ok"


def test_only_failures_of_a_way_that_is_set_are_told(tmp_path: Path) -> None:
    failures = [NoticeFailures("webhook", 3, 0, "HTTP 500"), NoticeFailures("mail", 1, 2, "SMTP 550")]
    (finding,) = found(tmp_path, failures, SMTP_URL=MAIL)
    assert finding.status == "warning"
    assert "By mail, 1 have waited for over an hour and 2 were given up" in finding.text
    assert "SMTP 550" in finding.text
    assert "pw" not in finding.text


@on_each_database
async def test_failures_are_counted_by_way(database: Database, clock: FakeClock) -> None:
    """They count after an hour; what was delivered and what had nobody to tell do not."""
    deployment = NoticeDeployment(database, clock)
    await deployment.person("ann@example.org", is_administrator=True)
    waiting, given_up, _, nobody = [await deployment.add() for _ in range(4)]
    fail = "UPDATE notice_deliveries SET attempts = 1, last_error = :error, ended_ms = :ended_ms WHERE notice_id = :id"
    await execute(database, fail, id=waiting, error="HTTP 500", ended_ms=None)
    await execute(database, fail, id=given_up, error="SMTP 550", ended_ms=clock.now_ms())
    await execute(database, fail, id=nobody, error="nobody to tell", ended_ms=clock.now_ms())
    clock.advance(HOUR_S - 1)
    assert await read_notices(database, clock.now_ms()) == [
        NoticeFailures("mail", 0, 1, "SMTP 550"),
        NoticeFailures("webhook", 0, 1, "SMTP 550"),
    ]
    clock.advance(2)
    assert await read_notices(database, clock.now_ms()) == [
        NoticeFailures("mail", 1, 1, "SMTP 550"),
        NoticeFailures("webhook", 1, 1, "SMTP 550"),
    ]
    clock.advance(7 * 24 * HOUR_S)
    assert await read_notices(database, clock.now_ms()) == []

"""The measurements of a chore for the metrics: the database, the certificate and the last backup."""

import asyncio
import time
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest

from stoplist.db.last_backup import note_backup
from stoplist.db.query import Query
from stoplist.errors import StoreUnavailable
from stoplist.limits.memory import MemoryLimiter
from stoplist.proof.held_requests import HeldRequests
from stoplist.server.certificate_end import certificate_end_s
from stoplist.server.development_ca import issue
from stoplist.server.measurement import measure
from stoplist.settings import Settings, load
from stoplist.web.metric_collectors import Measured
from stoplist.web.metrics import Metrics
from tests.builders import Apart, execute, opened
from tests.constants import DAY_S
from tests.fakes import FakeClock
from tests.services.promtool import Phase, Promtool

# A certificate is made for a year.
LIFE_S = 365 * DAY_S


class LostDatabase:
    """A database that does not answer."""

    async def one(self, query: Query, **values: object) -> None:
        raise StoreUnavailable("The database is away.")


def write_certificate(folder: Path, *, days_left: float) -> None:
    made = issue(["localhost"], now_s=int(time.time() + days_left * DAY_S - LIFE_S), known_authority=None)
    (folder / "cert.pem").write_bytes(made.server.certificate)


def settings_for(database_url: str, folder: Path) -> Settings:
    variables = {"DATABASE_URL": database_url, "TLS_CERT": str(folder / "cert.pem"), "TLS_KEY": str(folder / "key.pem")}
    return load({f"STOPLIST_{name}": value for name, value in variables.items()}, env_file=folder / "absent.env")


async def pages(database_url: str, folder: Path) -> list[str]:
    """Return the metrics before certificate and backup are renewed, afterwards, and without the database."""
    settings = settings_for(database_url, folder)
    found = []
    async with opened(database_url) as database:
        metrics = Metrics(database, MemoryLimiter(FakeClock()), HeldRequests(database))

        async def add(current: Any = database) -> None:
            await measure(settings, current, metrics.measured, now_ms=0)
            found.append(generate_latest(metrics.registry).decode())

        write_certificate(folder, days_left=13)
        await add()
        write_certificate(folder, days_left=90)
        assert note_backup(Path(database_url.removeprefix("sqlite:///")))
        await add()
        await add(LostDatabase())
    return found


def test_certificate_backup_and_lost_database_raise_their_alarms(
    sqlite_url: str, tmp_path: Path, promtool: Promtool
) -> None:
    """And each goes once its cause has gone."""
    neglected, cared_for, lost = asyncio.run(pages(sqlite_url, tmp_path))
    phases = [
        Phase(neglected, 20, frozenset(("StoplistCertificateEnds", "StoplistBackupOld"))),
        Phase(cared_for, 20),
        Phase(lost, 20, frozenset(("StoplistNotReady",))),
        Phase(cared_for, 20),
        Phase(None, 20, frozenset(("StoplistNotReady",))),
    ]
    promtool.assert_alarms({"one server": phases}, now_s=time.time())


def settings_behind_proxy(database_url: str, folder: Path) -> Settings:
    return load(
        {
            "STOPLIST_DATABASE_URL": database_url,
            "STOPLIST_TRUSTED_PROXIES": "10.0.0.1",
            "STOPLIST_LIMITS_URL": "memory:",
            "STOPLIST_SECRET_KEY": "k" * 32,
        },
        env_file=folder / "absent.env",
    )


def test_behind_a_proxy_and_on_postgresql_there_is_nothing_to_measure(postgresql_url: str, tmp_path: Path) -> None:
    """The proxy has the certificate, and PostgreSQL has tools for backups of its own."""
    settings = settings_behind_proxy(postgresql_url, tmp_path)

    async def main() -> Measured:
        measured = Measured()
        async with opened(postgresql_url) as database:
            await measure(settings, database, measured, now_ms=0)
        return measured

    measured = asyncio.run(main())
    assert (measured.certificate_end_s, measured.backup_s, measured.is_store_lost) == (None, None, False)
    assert measured.outbox_oldest_s is None


def test_an_entry_that_waits_beside_its_feed_raises_an_alarm(
    apart_url: Apart, tmp_path: Path, promtool: Promtool
) -> None:
    """Within minutes, until it has been moved. The age is that of the oldest."""
    settings = settings_behind_proxy(apart_url, tmp_path)

    async def main() -> list[str]:
        found = []
        async with opened(apart_url) as database:
            metrics = Metrics(database, MemoryLimiter(FakeClock()), HeldRequests(database))

            async def add(now_ms: int) -> None:
                await measure(settings, database, metrics.measured, now_ms=now_ms)
                found.append(generate_latest(metrics.registry).decode())

            await add(1_000_000)
            for added_ms in (1_000, 9_000):
                await execute(
                    database,
                    "INSERT INTO feed_outbox VALUES (17, :name, 'audit', '', :at)",
                    name=f"{added_ms}",
                    at=added_ms,
                )
            await add(301_000)
            await add(301_001)
            await execute(database, "DELETE FROM feed_outbox WHERE feed_id = 17")
            await add(400_000)
        return found

    nothing, lately, late, moved = asyncio.run(main())
    alarm = frozenset(("StoplistAuditBehind",))
    phases = [Phase(nothing, 20), Phase(lately, 20), Phase(late, 20, alarm), Phase(moved, 20)]
    promtool.assert_alarms({"one server": phases}, now_s=time.time())


def test_an_unreadable_certificate_is_not_shown(tmp_path: Path) -> None:
    """A half-written file must not end the chore."""
    for content in (b"", b"no PEM"):
        (tmp_path / "cert.pem").write_bytes(content)
        assert certificate_end_s(tmp_path / "cert.pem") is None
    assert certificate_end_s(tmp_path / "absent.pem") is None

"""If any process is killed during a synchronisation, the mirror ends up equal to the service, record for record.

Meanwhile it answers, and never allows anybody who is barred.
"""

import contextlib
import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from stoplist_client import Client, Item, MemoryStore, Mirror, NotMirrored

from tests.client.mirror.restorable import Restorable
from tests.client.partners import Partner
from tests.constants import PATIENCE_S, ROOT

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
ALWAYS = [f"always-{number}@example.org" for number in range(200)]


@pytest.mark.parametrize("kills", [4, pytest.param(16, marks=pytest.mark.slow)])
def test_kill_9_during_sync_loses_nothing(
    restorable: Restorable, new_mirror: Callable[..., Mirror], tmp_path: Path, kills: int
) -> None:
    """SIGKILL at random times, also during rebuilds, while records change and the service is restored."""
    dice = random.Random()  # noqa: S311 - it deals moments, not secrets
    partner = restorable.new_partner()
    path = tmp_path / "mirror.db"
    with partner.client(org_slug=partner.org_slug, store=MemoryStore()) as client:
        client.unsubscribe("email", [Item(address, LONG_AGO) for address in ALWAYS])
        new_mirror(client).follow("email")
        with _write_records(client, partner) as written, _query_mirror(path, partner) as answers:
            for kill in range(kills):
                with _syncer(path, partner) as process:
                    assert process.stdout is not None
                    process.stdout.readline()  # it is at work; what comes next are many pages, or a swap
                    threading.Event().wait(dice.random() * 0.2)
                _check_consistency(path)
                if kill == kills // 8:
                    new_mirror(client).sync()  # the first read is over at last: from here on it answers
                if kill % 4 == 1:
                    restorable.restore()
        assert not written.errors, written.errors
        assert not answers.errors, answers.errors
        mirror = new_mirror(client, page_records=100)
        mirror.sync()
        there = list(client.changes("email"))
        assert list(mirror.records("email")) == there
        assert mirror.feeds()[0].records == len(there)
        assert mirror.feeds()[0].missing == 0
        for record in there:
            barred = mirror.is_barred("email", record.address or "", group_id=partner.group_id)
            assert barred == (record.status == "unsubscribed")
        assert answers.count > 0
        assert written.count > 0


class _Work:
    """The work of a thread until it is stopped."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.count = 0
        self.errors: list[BaseException] = []


@contextlib.contextmanager
def _working(step: Callable[[_Work], None]) -> Iterator[_Work]:
    work = _Work()

    def run() -> None:
        try:
            while not work.is_over.is_set():
                step(work)
        except BaseException as error:
            work.errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield work
    finally:
        work.is_over.set()
        thread.join(PATIENCE_S)


def _write_records(client: Client, partner: Partner) -> contextlib.AbstractContextManager[_Work]:
    """Opt people out and in, a few at a time."""
    dice = random.Random(1)  # noqa: S311

    def step(work: _Work) -> None:
        work.count += 1
        at = LONG_AGO + timedelta(seconds=work.count)
        people = [Item(f"p{dice.randrange(150)}@example.org", at) for _ in range(5)]
        (client.unsubscribe if dice.random() < 0.6 else client.resubscribe)("email", people)
        work.is_over.wait(0.02)

    return _working(step)


@contextlib.contextmanager
def _query_mirror(path: Path, partner: Partner) -> Iterator[_Work]:
    """Check that permanent opt-outs are barred in each answer, one by one and in bulk."""
    dice = random.Random(2)  # noqa: S311

    def step(work: _Work) -> None:
        try:
            assert mirror.is_barred("email", dice.choice(ALWAYS), group_id=partner.group_id)
            assert not list(mirror.filter_allowed("email", dice.sample(ALWAYS, 20), group_id=partner.group_id))
        except NotMirrored:
            assert work.count == 0, "it had answered before"
            work.is_over.wait(0.05)
            return
        work.count += 1
        work.is_over.wait(0.002)  # the others need the processor, too

    with Mirror(path) as mirror, _working(step) as work:
        yield work


@contextlib.contextmanager
def _syncer(path: Path, partner: Partner) -> Iterator["subprocess.Popen[str]"]:
    """Run a syncer process, which is killed at the end."""
    access = json.dumps(partner.access | {"org_slug": partner.org_slug})
    with subprocess.Popen(
        [sys.executable, "-m", "tests.client.mirror.syncer", str(path), access],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _check_consistency(path: Path) -> None:
    """Check between two kills that everything in the file fits together."""
    with Mirror(path) as mirror, mirror._file.own_connection() as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        answering = "SELECT copy_no FROM feeds WHERE copy_no IS NOT NULL"
        for torn in (
            # Records without a state, and states without a record.
            f"SELECT count(*) FROM records LEFT JOIN states USING (copy_no, address, group_no, seq)"  # noqa: S608
            f" WHERE copy_no IN ({answering}) AND states.is_barred IS NOT records.is_barred",
            f"SELECT count(*) FROM states LEFT JOIN records USING (copy_no, address, group_no, seq)"  # noqa: S608
            f" WHERE copy_no IN ({answering}) AND records.id IS NULL",
        ):
            assert connection.execute(torn).fetchone() == (0,)

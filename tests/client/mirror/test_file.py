"""The file of a mirror: private, recognised by its header, never damaged, and never silently wrong."""

import json
import math
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from stoplist_client import AsyncClient, Client, ConfigurationError, MemoryStore, Mirror, MirrorError, MirrorTooOld
from stoplist_client.mirror import FeedSynced, on_disk

from tests.client.partners import Partner
from tests.constants import PATIENCE_S, ROOT

pytestmark = pytest.mark.interpreter

PEOPLE = [f"p{number}@example.org" for number in range(2_000)]


def test_file_is_readable_by_its_owner_only(client: Client, mirror: Mirror, tmp_path: Path) -> None:
    """Its sidecar files too; nothing else is left in the folder."""
    client.unsubscribe("email", ["ann@example.org"])
    mirror.sync()
    files = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("*mirror*")}
    assert files == {"mirror.db": 0o600, "mirror.db-wal": 0o600, "mirror.db-shm": 0o600}


@pytest.mark.parametrize("is_database", [True, False])
def test_other_database_is_refused_and_unchanged(
    client: Client, new_mirror: Callable[..., Mirror], tmp_path: Path, is_database: bool
) -> None:
    """No files are created beside it."""
    path = tmp_path / "mirror.db"
    if is_database:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE feeds (org_slug)")
    else:
        path.write_bytes(b"a letter to a friend")
    before = path.read_bytes()
    for its_client in (client, None):
        with pytest.raises(MirrorError, match="not a mirror"):
            new_mirror(its_client)
    assert path.read_bytes() == before
    assert list(tmp_path.glob("mirror.db*")) == [path]


@pytest.mark.parametrize("content", [b"", None])
def test_empty_file_and_folder_are_refused(
    new_mirror: Callable[..., Mirror], tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "mirror.db"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(MirrorError, match=r"mirror\.db"):
        new_mirror()


def test_newer_version_is_refused(mirror: Mirror, new_mirror: Callable[..., Mirror], tmp_path: Path) -> None:
    """The message says what to do."""
    with closing(sqlite3.connect(tmp_path / "mirror.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(MirrorError, match=r"version 99.*newer stoplist-client"):
        new_mirror()


def test_damaged_mirror_says_what_to_do(
    partner: Partner, client: Client, mirror: Mirror, new_mirror: Callable[..., Mirror], tmp_path: Path
) -> None:
    """It does not answer; deleted and read again, it answers, also programs that have it open."""
    client.unsubscribe("email", PEOPLE)
    quick = new_mirror(client)
    quick.sync()
    quick.close()
    mirror.close()
    with closing(sqlite3.connect(tmp_path / "mirror.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = tmp_path / "mirror.db"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    with pytest.raises(MirrorError, match=r"damaged.*Delete"):
        new_mirror(client).sync()
    with pytest.raises(MirrorError, match=r"damaged.*Delete"):
        new_mirror().is_barred("email", PEOPLE[0], group_id=partner.group_id)


def test_new_file_is_found_by_open_mirrors(
    partner: Partner, client: Client, new_mirror: Callable[..., Mirror], tmp_path: Path
) -> None:
    """Once the old one is too old for them, without a restart."""
    now_s = [1_800_000_000.0]
    options: dict[str, Any] = {"page_records": 500, "clock": lambda: now_s[0]}
    first = new_mirror(client, **options)
    first.follow("email")
    first.sync()
    reader = new_mirror(**options)
    asked: dict[str, Any] = {"group_id": partner.group_id}
    assert not reader.is_barred("email", PEOPLE[0], **asked)
    first.close()
    for path in tmp_path.glob("mirror.db*"):
        path.unlink()
    client.unsubscribe("email", PEOPLE)
    now_s[0] += 100_000
    for ask in (
        lambda: reader.is_barred("email", PEOPLE[0], **asked),
        lambda: list(reader.filter_allowed("email", PEOPLE[:1], **asked)),
    ):
        with pytest.raises(MirrorTooOld):
            ask()
    second = new_mirror(client, **options)
    # Other numbers than before: numbers cached for the old file must not be used for the new one.
    second.follow("sms", org_slug=partner.org_slug)
    second.follow("email")
    second.sync()
    assert reader.is_barred("email", PEOPLE[0], **asked)
    assert not list(reader.filter_allowed("email", PEOPLE[:1], **asked))


@pytest.mark.parametrize("asks", [True, False])
def test_partly_removed_mirror_is_refused(
    partner: Partner, client: Client, new_mirror: Callable[..., Mirror], tmp_path: Path, asks: bool
) -> None:
    """Leftover sidecar files would become part of a new mirror, which then was incomplete."""
    client.unsubscribe("email", PEOPLE[:100])
    path = tmp_path / "mirror.db"
    asked: dict[str, Any] = {"group_id": partner.group_id}
    first, reader = new_mirror(client), None
    first.follow("email")
    first.close()
    if asks:
        reader = new_mirror()
    _synchronise_and_be_killed(path, partner)
    if reader is not None:
        assert reader.is_barred("email", PEOPLE[0], **asked)
    assert (tmp_path / "mirror.db-wal").stat().st_size > 0
    path.unlink()
    makings: list[Callable[[], object]] = [lambda: new_mirror(client), new_mirror]
    if reader is not None:
        makings += [partial(reader.follow, "sms", org_slug="acme"), lambda: list(reader.records("email"))]
    for making in makings:
        with pytest.raises(MirrorError, match=r"mirror\.db-wal"):
            making()
    if reader is not None:
        assert reader.is_barred("email", PEOPLE[0], **asked)
        assert not list(reader.filter_allowed("email", PEOPLE[:100], **asked))
    assert sorted(tmp_path.glob("*mirror*")) == [tmp_path / "mirror.db-shm", tmp_path / "mirror.db-wal"]
    for rest in tmp_path.glob("mirror.db*"):
        rest.unlink()
    second = new_mirror(client)
    second.follow("email")
    assert second.sync().records == 100
    if reader is not None:
        reader.close()  # it has the files open that were removed, and leaves those alone that are there
    assert not list(second.filter_allowed("email", PEOPLE[:100], **asked))
    assert not list(new_mirror().filter_allowed("email", PEOPLE[:100], **asked))


def test_new_file_is_found_with_any_max_age(
    partner: Partner, client: Client, new_mirror: Callable[..., Mirror], tmp_path: Path
) -> None:
    """Such a program would never notice that its file was removed."""
    first = new_mirror(client)
    first.follow("email")
    first.sync()
    asked: dict[str, Any] = {"group_id": partner.group_id, "max_age_s": math.inf}
    readers = [new_mirror(), new_mirror()]
    for reader in readers:
        assert not reader.is_barred("email", PEOPLE[0], **asked)
    first.close()
    for path in tmp_path.glob("mirror.db*"):
        path.unlink()
    client.unsubscribe("email", PEOPLE[:1])
    second = new_mirror(client)
    second.follow("email")
    second.sync()
    deadline_s = time.monotonic() + PATIENCE_S
    one, many = readers
    while not one.is_barred("email", PEOPLE[0], **asked) or list(many.filter_allowed("email", PEOPLE[:1], **asked)):
        assert time.monotonic() < deadline_s, "it still answers out of the old one"


@pytest.mark.skipif(sys.platform == "win32", reason="There are no modes.")
@pytest.mark.parametrize("ending", ["", "-wal"])
@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_mirror_writable_by_others_is_refused(
    client: Client, mirror: Mirror, new_mirror: Callable[..., Mirror], tmp_path: Path, ending: str, mode: int
) -> None:
    """They would decide whom this user sends to. The message says what to do, and then it answers."""
    mirror.sync()
    path = tmp_path / f"mirror.db{ending}"
    path.chmod(mode)
    for its_client in (client, None):
        with pytest.raises(MirrorError, match=f"Other users may write.*mirror.db{ending}, .*chmod 600"):
            new_mirror(its_client)
    path.chmod(0o600)
    assert not new_mirror().is_barred("email", PEOPLE[0], group_id=None)


@pytest.mark.skipif(sys.platform == "win32", reason="There are no modes.")
@pytest.mark.parametrize("mode", [0o720, 0o702, 0o1777])
def test_folder_writable_by_others_is_refused(
    client: Client, mirror: Mirror, new_mirror: Callable[..., Mirror], tmp_path: Path, mode: int
) -> None:
    """They could replace the mirror. So no mirror is read there, and none is created."""
    mirror.sync()
    mirror.close()
    tmp_path.chmod(mode)
    try:
        for its_client in (client, None):
            with pytest.raises(MirrorError, match=r"Other users may write to .*folder.*chmod go-w"):
                new_mirror(its_client).is_barred("email", PEOPLE[0], group_id=None)
        with pytest.raises(MirrorError, match="Other users may write to"):
            on_disk.create(tmp_path / "another.db")
        assert not (tmp_path / "another.db").exists()
    finally:
        tmp_path.chmod(0o700)
    assert not new_mirror().is_barred("email", PEOPLE[0], group_id=None)


@pytest.mark.skipif(sys.platform == "win32", reason="There are no modes.")
def test_the_folder_of_a_links_target_counts(
    client: Client, mirror: Mirror, new_mirror: Callable[..., Mirror], tmp_path: Path
) -> None:
    """SQLite keeps its files beside the target, where others may write to them."""
    mirror.sync()
    mirror.close()
    shared = tmp_path / "shared"
    shared.mkdir()
    (tmp_path / "mirror.db").rename(shared / "mirror.db")
    (tmp_path / "mirror.db").symlink_to(shared / "mirror.db")
    shared.chmod(0o777)
    with pytest.raises(MirrorError, match=r"Other users may write to .*shared"):
        new_mirror(client).is_barred("email", PEOPLE[0], group_id=None)
    shared.chmod(0o700)
    assert not new_mirror().is_barred("email", PEOPLE[0], group_id=None)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="Files are given away by root alone.")
def test_mirror_of_another_user_is_refused(
    client: Client, mirror: Mirror, new_mirror: Callable[..., Mirror], tmp_path: Path
) -> None:
    """That user decides what is in it."""
    mirror.sync()
    os.chown(tmp_path / "mirror.db", 65_534, -1)
    for its_client in (client, None):
        with pytest.raises(MirrorError, match="another user"):
            new_mirror(its_client)


def test_async_client_is_refused(partner: Partner, tmp_path: Path) -> None:
    """No file is created."""
    for wrong in (AsyncClient(**partner.access, store=MemoryStore()), "https://localhost"):
        with pytest.raises(ConfigurationError, match="needs a Client"):
            Mirror(tmp_path / "mirror.db", wrong)  # type: ignore[arg-type]
    assert not list(tmp_path.glob("*mirror*"))


def test_full_disk_loses_nothing(
    partner: Partner, client: Client, mirror: Mirror, new_mirror: Callable[..., Mirror]
) -> None:
    """The error says so, the mirror goes on answering, and continues once there is space."""
    client.unsubscribe("email", ["ann@example.org"])
    mirror.sync()
    client.unsubscribe("email", PEOPLE)
    quick = new_mirror(client, page_records=500)
    whole = sqlite3.connect
    told: list[FeedSynced] = []

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        """Connect as if the disk had space for 40 more pages."""
        connection: sqlite3.Connection = whole(*arguments, **options)
        if "rw" in str(arguments[0]):
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages + 40}").fetchone()
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect)
        with pytest.raises(MirrorError, match="is full"):
            quick.sync(told.append)
        assert mirror.is_barred("email", "ann@example.org", group_id=partner.group_id)
    (feed,) = quick.sync().feeds
    assert feed.records == len(PEOPLE) - (told[-1].records if told else 0)
    assert list(quick.records("email")) == list(client.changes("email"))


def test_closed_mirror_is_refused(client: Client, mirror: Mirror) -> None:
    """Closing it again does nothing."""
    mirror.sync()
    mirror.close()
    mirror.close()
    for ask in (
        lambda: mirror.is_barred("email", "ann@example.org", group_id=None),
        lambda: list(mirror.filter_allowed("email", ["ann@example.org"], group_id=None)),
        lambda: list(mirror.records("email")),
        mirror.sync,
        mirror.feeds,
        lambda: mirror.follow("sms"),
    ):
        with pytest.raises(MirrorError, match="closed"):
            ask()


def test_threads_query_a_mirror_while_it_changes(
    partner: Partner, client: Client, mirror: Mirror, new_mirror: Callable[..., Mirror]
) -> None:
    """Each gets correct answers."""
    client.unsubscribe("email", PEOPLE[:100])
    mirror.sync()
    errors: list[BaseException] = []
    is_over = threading.Event()

    def ask() -> None:
        try:
            while not is_over.is_set():
                for person in PEOPLE[:100:25]:
                    assert mirror.is_barred("email", person, group_id=partner.group_id)
                assert not list(mirror.filter_allowed("email", PEOPLE[:100], group_id=partner.group_id))
                assert not mirror.is_barred("email", "nobody@example.org", group_id=partner.group_id)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(100, 105):
        client.unsubscribe("email", [PEOPLE[number]])
        mirror.sync()
    is_over.set()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_queries_import_no_network_code() -> None:
    """A mirror opens in a fraction of the time that a client needs."""
    loaded = "import sys, stoplist_client.mirror; print('httpx2' in sys.modules, 'sqlite3' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout == "False True\n"


_FORKING = """
import os, sys
from stoplist_client import Mirror

def ask(expected):
    assert mirror.is_barred("email", "p0@example.org", group_id=sys.argv[2]) is expected

with Mirror(sys.argv[1]) as mirror:
    ask(True)
    inherited = {os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if int(name) > 2
                 and os.path.exists(f"/proc/self/fd/{name}")}
    assert any("mirror.db" in path for path in inherited), inherited
    child = os.fork()
    if not child:
        held = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
                if os.path.exists(f"/proc/self/fd/{name}")]
        assert not any("mirror.db" in path for path in held), held
        ask(True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    ask(True)
print("asked")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="It looks at open files by /proc.")
def test_fork_closes_idle_connections(partner: Partner, client: Client, mirror: Mirror, tmp_path: Path) -> None:
    """Connections of SQLite hold no locks in a child; parent and child open their own."""
    client.unsubscribe("email", PEOPLE[:1])
    mirror.sync()
    done = subprocess.run(
        [sys.executable, "-c", _FORKING, str(tmp_path / "mirror.db"), partner.group_id],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("asked\n", "")


def _synchronise_and_be_killed(path: Path, partner: Partner) -> None:
    """End the process while it has the file open."""
    access = json.dumps(partner.access | {"org_slug": partner.org_slug})
    command = [sys.executable, "-m", "tests.client.mirror.syncer", str(path), access]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(7):  # once round, and on with it
            assert process.stdout.readline()
        process.kill()

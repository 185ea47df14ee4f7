"""The doctor's checks of the operating system."""

import resource
import shutil
from pathlib import Path

import pytest

from stoplist.maintenance.doctor import files
from stoplist.maintenance.doctor.files import (
    assess_disk_space,
    disk_space,
    file_modes,
    file_system,
    file_system_of,
    open_files,
)
from tests.fakes import DiskUsage
from tests.maintenance.doctor.installation import settings, texts

GIB = 1 << 30
PG = "postgresql://stoplist@127.0.0.1/stoplist"

MOUNTS = """\
40 22 0:35 / /srv rw,relatime - nfs4 nas:/export rw
41 40 254:2 / /srv/local\\040disk rw,relatime - xfs /dev/vdb rw
42 22 0:36 / /srvx rw - tmpfs tmpfs rw
43 22 0:37 / /mnt/far rw - fuse.sshfs host:/ rw
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
"""


@pytest.mark.parametrize(
    ("total", "free", "status"),
    [
        (100 * GIB, 50 * GIB, "ok"),
        (100 * GIB, 5 * GIB, "ok"),
        (100 * GIB, 5 * GIB - 1, "wrong"),
        (10 * GIB, GIB, "ok"),
        (10 * GIB, GIB - 1, "wrong"),
        (GIB // 2, GIB // 2, "wrong"),
        (0, 0, "wrong"),
    ],
)
def test_a_disk_needs_a_gibibyte_and_five_percent(total: int, free: int, status: str) -> None:
    """The larger of the two is required. The text names the folder."""
    finding = assess_disk_space(Path("/var/lib/stoplist"), total=total, free=free)
    assert finding.status == status
    assert "/var/lib/stoplist" in finding.text


def test_the_disks_of_data_and_database_are_both_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing folder is reported as not checked."""
    known = settings(tmp_path, DATABASE_URL=f"sqlite:///{tmp_path}/db/stoplist.db")
    checked: list[Path] = []

    def usage(folder: Path) -> DiskUsage:
        checked.append(folder)
        if folder.name == "db":
            raise FileNotFoundError(2, "No such file or directory")
        return DiskUsage(100 * GIB, 0, 50 * GIB)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    assert [finding.status for finding in disk_space(known)] == ["ok", "not checked"]
    assert checked == [tmp_path / "data", tmp_path / "db"]


def test_the_disk_of_postgresql_is_not_checked(tmp_path: Path) -> None:
    """It may be on another machine."""
    tmp_path.joinpath("data").mkdir()
    assert next(iter(reversed(list(disk_space(settings(tmp_path, DATABASE_URL=PG)))))).status == "not checked"


@pytest.fixture
def reachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that any account can reach, as far as the doctor sees."""
    mode_of_others = files._mode_of_others
    monkeypatch.setattr(
        files, "_mode_of_others", lambda path: 0o5 if path in tmp_path.parents else mode_of_others(path)
    )
    tmp_path.chmod(0o755)
    (tmp_path / "data").mkdir()
    return tmp_path


@pytest.mark.parametrize("name", ["stoplist.db", "stoplist.db-wal", "secret.key", "server-key.pem", "ca-key.pem"])
@pytest.mark.parametrize(("mode", "status"), [(0o600, "ok"), (0o640, "ok"), (0o604, "wrong"), (0o602, "wrong")])
def test_files_of_the_data_folder_must_not_be_open_to_others(
    reachable: Path, name: str, mode: int, status: str
) -> None:
    """The group may have access on purpose. The text has the command that fixes the mode."""
    path = reachable / "data" / name
    path.touch()
    path.chmod(mode)
    finding = file_modes(settings(reachable), {}, None)
    assert finding.status == status
    assert (f"`chmod o-rwx {path}`" in finding.text) == (status == "wrong")


def test_files_named_by_variables_must_not_be_open_to_others(reachable: Path) -> None:
    """The TLS key, the files of secrets, and a `.env` that holds one."""
    paths = {name: reachable / name for name in ("key.pem", "secret", "database", "limits", "env")}
    for path in paths.values():
        path.touch(0o644)
    known = settings(reachable, TLS_KEY=str(paths["key.pem"]))
    variables = {
        "STOPLIST_SECRET_KEY_FILE": str(paths["secret"]),
        "STOPLIST_DATABASE_URL_FILE": str(paths["database"]),
        "STOPLIST_LIMITS_URL_FILE": str(paths["limits"]),
    }
    text = file_modes(known, variables, paths["env"]).text
    assert all(str(path) in text for path in paths.values())


def test_a_closed_folder_protects_its_files(reachable: Path) -> None:
    """No other user can reach a file through it, whatever the file's mode."""
    (reachable / "data" / "secret.key").touch(0o644)
    assert file_modes(settings(reachable), {}, None).status == "wrong"
    reachable.chmod(0o700)
    assert file_modes(settings(reachable), {}, None).status == "ok"


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/srv", "nfs4"),
        ("/srv/stoplist", "nfs4"),
        ("/srv/local disk/stoplist", "xfs"),
        ("/srvx/stoplist", "tmpfs"),
        ("/srvy", "ext4"),
        ("/mnt/far/data", "fuse.sshfs"),
    ],
)
def test_the_file_system_is_that_of_the_innermost_mount(folder: str, kind: str) -> None:
    """Folders are compared by whole names; a space in one is written as an octal number."""
    assert file_system_of(Path(folder), MOUNTS) == kind


@pytest.mark.parametrize(("kind", "status"), [("ext4", "ok"), ("nfs4", "wrong"), ("fuse.sshfs", "wrong")])
def test_sqlite_must_be_on_a_local_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, status: str
) -> None:
    """SQLite's locks do not work on a network file system."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 254:1 / / rw shared:1 - {kind} /dev/x rw\n")
    monkeypatch.setattr(files, "_MOUNTS", mounts)
    assert file_system(settings(tmp_path)).status == status
    assert file_system(settings(tmp_path, DATABASE_URL=PG)).status == "not checked"
    monkeypatch.setattr(files, "_MOUNTS", tmp_path / "none")
    assert file_system(settings(tmp_path)).status == "not checked"


@pytest.mark.parametrize(
    ("hard", "status"), [(4_096, "ok"), (4_095, "wrong"), (1_024, "wrong"), (resource.RLIM_INFINITY, "ok")]
)
def test_a_server_needs_thousands_of_open_files(monkeypatch: pytest.MonkeyPatch, hard: int, status: str) -> None:
    """The hard limit counts: a server raises its own soft limit."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, hard))
    finding = open_files()
    assert finding.status == status
    assert ("LimitNOFILE" in texts([finding], "wrong")) == (status == "wrong")

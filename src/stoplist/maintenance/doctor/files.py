"""What the operating system knows: room on the disks, who may read the secrets, the file system, open files."""

import os
import resource
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from stoplist.db.opening import sqlite_path
from stoplist.maintenance.doctor.finding import Finding, not_checked, ok, wrong
from stoplist.secret_key import FILE_NAME
from stoplist.settings import Settings

LEAST_FREE_BYTES = 1 << 30
LEAST_FREE_PERCENT = 5
LEAST_OPEN_FILES = 4_096

_MOUNTS = Path("/proc/self/mountinfo")
# SQLite's locks and its shared memory do not hold between the machines that share such a file system.
_NETWORK = frozenset(
    ("nfs", "nfs3", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "beegfs", "gfs2")
)
_NETWORK_IN_FUSE = ("sshfs", "glusterfs", "s3fs", "rclone", "ceph", "davfs")
_SECRET_FILES = ("STOPLIST_SECRET_KEY_FILE", "STOPLIST_DATABASE_URL_FILE", "STOPLIST_LIMITS_URL_FILE")
SECRETS = ("STOPLIST_SECRET_KEY", "STOPLIST_DATABASE_URL", "STOPLIST_LIMITS_URL")


def disk_room(settings: Settings) -> Iterator[Finding]:
    """One finding a folder that is written to: the data folder and the database's."""
    database = sqlite_path(settings.database_url)
    folders = [settings.data_dir, *([] if database is None else [database.parent])]
    for folder in dict.fromkeys(one.absolute() for one in folders):
        try:
            usage = shutil.disk_usage(folder)
        except OSError as error:
            yield not_checked("disk room", f"{folder} cannot be looked at: {error.strerror}.")
            continue
        yield room(folder, total=usage.total, free=usage.free)
    if database is None:
        yield not_checked("disk room", "PostgreSQL's own disk cannot be seen from here: watch it where that runs.")


def room(folder: Path, *, total: int, free: int) -> Finding:
    """Wrong under 1 GiB or 5 % free."""
    percent = 100 * free // max(1, total)
    text = f"{folder} has {free / (1 << 30):.1f} GiB free ({percent} %)"
    if free >= LEAST_FREE_BYTES and percent >= LEAST_FREE_PERCENT:
        return ok("disk room", f"{text}.")
    return wrong(
        "disk room",
        f"{text}: free at least 1 GiB and {LEAST_FREE_PERCENT} %, or writes will soon be refused with 503.",
    )


def file_modes(settings: Settings, given: Mapping[str, str], secrets_file: Path | None) -> Finding:
    """Wrong where accounts other than the owner and the group may read or write what must stay secret.

    `given` are the variables that are set, `secrets_file` a `.env` that holds a secret.
    """
    open_to_all = [path for path in _existing(_secret_places(settings, given, secrets_file)) if _is_open(path)]
    if not open_to_all:
        return ok("file modes", "Nobody but owner and group may read the database, the keys and the files of secrets.")
    names = " ".join(map(str, open_to_all))
    return wrong("file modes", f"Any account of this machine may read or write these: run `chmod o-rwx {names}`.")


def file_system(settings: Settings) -> Finding:
    """Wrong where a SQLite file lies on a network file system."""
    database = sqlite_path(settings.database_url)
    if database is None:
        return not_checked("file system", "PostgreSQL keeps its own files.")
    try:
        kind = file_system_of(database.parent.resolve(), _MOUNTS.read_text("utf-8", "replace"))
    except OSError:
        return not_checked("file system", "This machine does not tell which file systems it has mounted.")
    if kind in _NETWORK or kind.startswith(tuple(f"fuse.{name}" for name in _NETWORK_IN_FUSE)):
        return wrong(
            "file system",
            f"The database lies on {kind}, where the locks and the shared memory of SQLite do not hold: move it to a "
            "disk of this machine, or to PostgreSQL (`stoplist copy`).",
        )
    return ok("file system", f"The database lies on {kind}.")


def file_system_of(folder: Path, mountinfo: str) -> str:
    """The kind of file system that `folder` is on, by the lines of /proc/self/mountinfo (proc(5))."""
    best, kind = "", "an unknown file system"
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        mounted_at = before.split(" ")[4].replace("\\040", " ")
        # Of two at one place the later one lies on top.
        if folder.is_relative_to(mounted_at) and len(mounted_at) >= len(best):
            best, kind = mounted_at, after.split(" ")[0]
    return kind


def open_files() -> Finding:
    """Wrong where a server could not hold open as many connections as one is made for."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return ok("open files", "A process started from here may have any number of them open.")
    text = f"A process started from here may have {hard} of them open"
    if hard >= LEAST_OPEN_FILES:
        return ok("open files", f"{text}; each connection takes one. (A systemd unit has a limit of its own.)")
    return wrong(
        "open files",
        f"{text}, and each connection takes one: set LimitNOFILE=65536 in the unit, or `ulimit -n 65536`.",
    )


def _secret_places(settings: Settings, given: Mapping[str, str], secrets_file: Path | None) -> Iterator[Path]:
    database = sqlite_path(settings.database_url)
    if database is not None:
        yield from (database.with_name(database.name + suffix) for suffix in ("", "-wal"))
    yield from (settings.data_dir / name for name in (FILE_NAME, "server-key.pem", "ca-key.pem"))
    yield from (Path(given[variable]) for variable in _SECRET_FILES if variable in given)
    if settings.tls_key is not None:
        yield settings.tls_key
    if secrets_file is not None:
        yield secrets_file


def _existing(paths: Iterable[Path]) -> list[Path]:
    return [path for path in dict.fromkeys(path.absolute() for path in paths) if os.path.exists(path)]


def _is_open(path: Path) -> bool:
    """Whether others may reach it: by its own mode, and those of all folders above it."""
    path = path.resolve()
    if not _others(path) & (stat.S_IROTH | stat.S_IWOTH):
        return False
    return all(_others(folder) & stat.S_IXOTH for folder in path.parents)


def _others(path: Path) -> int:
    return path.stat().st_mode & stat.S_IRWXO

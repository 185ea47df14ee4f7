"""Checks of the operating system: disk space, file modes of secrets, file system, open files."""

import os
import resource
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from stoplist.db.opening import sqlite_path
from stoplist.folders import folder_error
from stoplist.maintenance.doctor.finding import Finding, not_checked, ok, wrong
from stoplist.secret_key import FILE_NAME
from stoplist.settings import Settings

MIN_FREE_BYTES = 1 << 30
MIN_FREE_PERCENT = 5
MIN_OPEN_FILES = 4_096

_MOUNTS = Path("/proc/self/mountinfo")
# SQLite's locks and shared memory do not work between machines that share such a file system.
_NETWORK_FILE_SYSTEMS = frozenset(
    ("nfs", "nfs3", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "beegfs", "gfs2")
)
_NETWORK_FUSE_NAMES = ("sshfs", "glusterfs", "s3fs", "rclone", "ceph", "davfs")
SECRETS = (
    "STOPLIST_SECRET_KEY",
    "STOPLIST_DATABASE_URL",
    "STOPLIST_FEEDS_URL",
    "STOPLIST_LIMITS_URL",
    "STOPLIST_NOTICE_URL",
    "STOPLIST_NOTICE_SECRET",
    "STOPLIST_SMTP_URL",
)
_SECRET_FILES = tuple(f"{variable}_FILE" for variable in SECRETS)


def disk_space(settings: Settings) -> Iterator[Finding]:
    """Yield a finding for each folder that is written to: the data folder and the database's folder."""
    database = sqlite_path(settings.database_url)
    folders = [settings.data_dir, *([] if database is None else [database.parent])]
    for folder in dict.fromkeys(one.absolute() for one in folders):
        try:
            usage = shutil.disk_usage(folder)
        except OSError as error:
            yield not_checked("disk room", f"{folder} cannot be checked: {folder_error(folder, error)}.")
            continue
        yield assess_disk_space(folder, total=usage.total, free=usage.free)
    if database is None:
        yield not_checked("disk room", "PostgreSQL's own disk cannot be checked from here: monitor it on its host.")


def assess_disk_space(folder: Path, *, total: int, free: int) -> Finding:
    """Return the finding on a folder: wrong below 1 GiB or 5 % free."""
    percent = 100 * free // max(1, total)
    text = f"{folder} has {free / (1 << 30):.1f} GiB free ({percent} %)"
    if free >= MIN_FREE_BYTES and percent >= MIN_FREE_PERCENT:
        return ok("disk room", f"{text}.")
    return wrong(
        "disk room",
        f"{text}: free at least 1 GiB and {MIN_FREE_PERCENT} %, or writes will soon be refused with 503.",
    )


def file_modes(settings: Settings, variables: Mapping[str, str], secrets_file: Path | None) -> Finding:
    """Check that only owner and group can read or write the database, the keys and the files of secrets.

    `variables` are those that are set, `secrets_file` is a `.env` file that holds a secret.
    """
    open_to_all = [
        path for path in _existing(_secret_paths(settings, variables, secrets_file)) if _is_open_to_others(path)
    ]
    if not open_to_all:
        return ok("file modes", "Only owner and group can read the database, the keys and the files of secrets.")
    names = " ".join(map(str, open_to_all))
    return wrong("file modes", f"Any account on this machine can read or write these: run `chmod o-rwx {names}`.")


def file_system(settings: Settings) -> Finding:
    """Check the file system: wrong if a SQLite file is on a network file system."""
    database = sqlite_path(settings.database_url)
    if database is None:
        return not_checked("file system", "PostgreSQL manages its own files.")
    try:
        kind = file_system_of(database.parent.resolve(), _MOUNTS.read_text("utf-8", "replace"))
    except OSError:
        return not_checked("file system", "This machine does not show its mounted file systems.")
    if kind in _NETWORK_FILE_SYSTEMS or kind.startswith(tuple(f"fuse.{name}" for name in _NETWORK_FUSE_NAMES)):
        return wrong(
            "file system",
            f"The database is on {kind}, where SQLite's locks and shared memory do not work: move it to a disk of this "
            "machine, or to PostgreSQL (`stoplist copy`).",
        )
    return ok("file system", f"The database is on {kind}.")


def file_system_of(folder: Path, mountinfo: str) -> str:
    """Return the type of file system that `folder` is on. Source of the format: proc(5), /proc/self/mountinfo."""
    best, kind = "", "an unknown file system"
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        mounted_at = before.split(" ")[4].replace("\\040", " ")
        # Of two mounts at one path, the later one is visible.
        if folder.is_relative_to(mounted_at) and len(mounted_at) >= len(best):
            best, kind = mounted_at, after.split(" ")[0]
    return kind


def open_files() -> Finding:
    """Check the limit of open files: wrong if it is too low for the connections of a server."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return ok("open files", "A process started from here may have any number of files open.")
    text = f"A process started from here may have {hard} files open"
    if hard >= MIN_OPEN_FILES:
        return ok("open files", f"{text}; each connection takes one. (A systemd unit has its own limit.)")
    return wrong(
        "open files",
        f"{text}, and each connection takes one: set LimitNOFILE=65536 in the unit, or `ulimit -n 65536`.",
    )


def _secret_paths(settings: Settings, variables: Mapping[str, str], secrets_file: Path | None) -> Iterator[Path]:
    database = sqlite_path(settings.database_url)
    if database is not None:
        yield from (database.with_name(database.name + suffix) for suffix in ("", "-wal"))
    yield from (settings.data_dir / name for name in (FILE_NAME, "server-key.pem", "ca-key.pem"))
    yield from (Path(variables[variable]) for variable in _SECRET_FILES if variable in variables)
    if settings.tls_key is not None:
        yield settings.tls_key
    if secrets_file is not None:
        yield secrets_file


def _existing(paths: Iterable[Path]) -> list[Path]:
    return [path for path in dict.fromkeys(path.absolute() for path in paths) if os.path.exists(path)]


def _is_open_to_others(path: Path) -> bool:
    """Return whether other accounts can reach the file, by its mode and the modes of all folders above."""
    path = path.resolve()
    if not _mode_of_others(path) & (stat.S_IROTH | stat.S_IWOTH):
        return False
    return all(_mode_of_others(folder) & stat.S_IXOTH for folder in path.parents)


def _mode_of_others(path: Path) -> int:
    return path.stat().st_mode & stat.S_IRWXO

"""The command `scrub`."""

import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.client.cli.command_runner import COMMAND, LogIn, RunCommand, environment, run_process
from tests.client.partners import Partner
from tests.constants import PATIENCE_S
from tests.services.managed_program import wait_until

_CSV = (
    b"\xef\xbb\xbfid;name;E-Mail\r\n"
    b"1;\"Ann; \"\"A\"\"\r\nof X\";ann@example.com\r\n"
    b"2;\"Bob;\r\nof Y\";Bob@Example.com\r\n"
    b"\r\n"
    b"3;Cl\xe9o;\r\n"
    b"4;Dan;dan@example.com"
)  # fmt: skip
_ALLOWED = (
    b"\xef\xbb\xbfid;name;E-Mail\r\n"
    b"2;\"Bob;\r\nof Y\";Bob@Example.com\r\n"
    b"4;Dan;dan@example.com"
)  # fmt: skip
_OTHERS = (
    b"\xef\xbb\xbfid;name;E-Mail\r\n"
    b"1;\"Ann; \"\"A\"\"\r\nof X\";ann@example.com\r\n"
    b"3;Cl\xe9o;\r\n"
)  # fmt: skip


@pytest.fixture
def partner_with_mirror(cli: RunCommand, partner: Partner, log_in: LogIn) -> Partner:
    """A partner with a profile and a mirror in which ann is barred."""
    log_in(partner)
    with partner.client() as client:
        client.unsubscribe("email", ["ann@example.com"])
    assert cli("sync", "--channel", "email").status == 0
    return partner


@pytest.fixture
def list_csv(tmp_path: Path) -> Path:
    """A CSV file in which ann is barred, and one row has no address."""
    path = tmp_path / "list.csv"
    path.write_bytes(_CSV)
    path.chmod(0o640)
    return path


def test_allowed_rows_are_copied_byte_for_byte(
    cli: RunCommand, partner_with_mirror: Partner, list_csv: Path, tmp_path: Path
) -> None:
    """Byte order mark, quotes, line endings and bytes that are not UTF-8 are kept; the other rows go to --barred."""
    out, others = tmp_path / "out.csv", tmp_path / "others.csv"
    result = cli("scrub", "email", str(list_csv), str(out), "--any-group", "--barred", str(others))
    assert (result.status, result.out_text) == (3, "")
    assert result.err_text == "stoplist-client: 4 rows: 2 allowed, 1 barred, 1 without a valid address.\n"
    assert out.read_bytes() == _ALLOWED
    assert others.read_bytes() == _OTHERS
    assert stat.S_IMODE(out.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.glob("*.csv*")) == ["list.csv", "others.csv", "out.csv"]
    assert list(tmp_path.glob(".*")) == []


def test_json_has_the_counts(cli: RunCommand, partner_with_mirror: Partner, list_csv: Path, tmp_path: Path) -> None:
    result = cli("scrub", "email", str(list_csv), str(tmp_path / "out.csv"), "--any-group", "--json")
    assert (result.status, result.err) == (3, b"")
    assert result.json == {"rows": 4, "allowed": 2, "barred": 1, "invalid": 1}


def test_barred_rows_do_not_change_the_status(cli: RunCommand, partner_with_mirror: Partner, tmp_path: Path) -> None:
    path, out = tmp_path / "list.csv", tmp_path / "out.csv"
    path.write_bytes(b"email\nann@example.com\n")
    assert cli("scrub", "email", str(path), str(out), "--any-group").status == 0
    assert out.read_bytes() == b"email\n"


def test_existing_files_are_replaced_with_force_only(
    cli: RunCommand, partner_with_mirror: Partner, list_csv: Path, tmp_path: Path
) -> None:
    out, there = tmp_path / "out.csv", tmp_path / "there.csv"
    there.write_text("mine")
    cli("scrub", "email", str(list_csv), str(there), "--any-group").assert_failed(
        1, f"{there} already exists", "--force"
    )
    cli("scrub", "email", str(list_csv), str(out), "--any-group", "--barred", str(there)).assert_failed(1, "--force")
    assert there.read_text() == "mine"
    assert not out.exists()
    assert cli("scrub", "email", str(list_csv), str(there), "--any-group", "--force").status == 3
    assert there.read_bytes() == _ALLOWED


def test_input_and_outputs_must_be_different_files(
    cli: RunCommand, partner_with_mirror: Partner, list_csv: Path, tmp_path: Path
) -> None:
    """Another name and --force change nothing: the list must not be lost."""
    link = tmp_path / "link.csv"
    link.hardlink_to(list_csv)
    out = str(tmp_path / "out.csv")
    for arguments in (
        [str(list_csv), str(list_csv)],
        [str(list_csv), str(link)],
        [str(list_csv), str(tmp_path / "." / "list.csv")],
        [str(list_csv), out, "--barred", out],
        [str(list_csv), out, "--barred", str(list_csv)],
    ):
        cli("scrub", "email", *arguments, "--any-group", "--force").assert_failed(2, "same file")
    assert list_csv.read_bytes() == _CSV


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_only_regular_files_are_written(
    cli: RunCommand, partner_with_mirror: Partner, list_csv: Path, tmp_path: Path, kind: str
) -> None:
    """A device, pipe or folder is never replaced."""
    target = tmp_path / kind
    if kind == "pipe":
        os.mkfifo(target)
    else:
        target.mkdir()
    cli("scrub", "email", str(list_csv), str(target), "--any-group", "--force").assert_failed(1, "not a regular file")
    assert target.exists()
    assert not target.is_file()


def test_target_of_a_link_is_replaced(
    cli: RunCommand, partner_with_mirror: Partner, list_csv: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "real.csv").write_text("old")
    link = tmp_path / "link.csv"
    link.symlink_to(folder / "real.csv")
    assert cli("scrub", "email", str(list_csv), str(link), "--any-group", "--force").status == 3
    assert link.is_symlink()
    assert (folder / "real.csv").read_bytes() == _ALLOWED


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "empty"),
        (b"name\nAnn\n", "--column"),
        (b'email,name\ndan@example.com,"Dan\nann@example.com,Ann\n', "line 2 is not valid CSV"),
    ],
)
def test_unreadable_list_leaves_no_file(
    cli: RunCommand, partner_with_mirror: Partner, tmp_path: Path, content: bytes, text: str
) -> None:
    """A quote that is never closed must not include barred rows in the row of an allowed person."""
    path, out = tmp_path / "list.csv", tmp_path / "out.csv"
    path.write_bytes(content)
    cli("scrub", "email", str(path), str(out), "--any-group").assert_failed(1, text)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["list.csv"]


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        ([], 2, "Say which group the message is of"),
        (["--any-group", "--org", "other"], 1, "`stoplist-client sync`"),
        (["--any-group", "--max-age", "0"], 1, "--max-age any"),
        (["--any-group", "--column", "nothing"], 1, "The columns are: id, name, E-Mail"),
    ],
)
def test_no_file_without_an_answer_of_the_mirror(
    cli: RunCommand,
    partner_with_mirror: Partner,
    list_csv: Path,
    tmp_path: Path,
    options: list[str],
    status: int,
    text: str,
) -> None:
    cli("scrub", "email", str(list_csv), str(tmp_path / "out.csv"), *options).assert_failed(status, text)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["list.csv"]


@pytest.mark.parametrize(
    "options", [["--max-age", "0"], ["--org", "other"], ["--column", "nothing"], ["--profile", "no"]]
)
def test_force_removes_old_lists_even_on_failure(
    cli: RunCommand, partner_with_mirror: Partner, list_csv: Path, tmp_path: Path, options: list[str]
) -> None:
    """An old list, used by mistake, would reach people who opted out since."""
    out, others = tmp_path / "out.csv", tmp_path / "others.csv"
    out.write_text("old")
    others.write_text("old")
    result = cli("scrub", "email", str(list_csv), str(out), "--any-group", "--force", "--barred", str(others), *options)
    assert result.status == 1
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["list.csv"]


def test_wrong_usage_removes_nothing(
    cli: RunCommand, partner_with_mirror: Partner, list_csv: Path, tmp_path: Path
) -> None:
    """The list itself stays, and so does a file that --force would replace."""
    out = tmp_path / "out.csv"
    out.write_text("old")
    assert cli("scrub", "email", str(list_csv), str(list_csv), "--any-group", "--force").status == 2
    assert cli("scrub", "email", str(list_csv), str(out), "--any-group", "--max-age", "0").status == 1
    assert cli("scrub", "email", str(list_csv), str(out), "--any-group", "--max-age", "soon", "--force").status == 2
    assert (list_csv.read_bytes(), out.read_text()) == (_CSV, "old")


def test_missing_folder_is_named(cli: RunCommand, partner_with_mirror: Partner, list_csv: Path, tmp_path: Path) -> None:
    cli("scrub", "email", str(list_csv), str(tmp_path / "no" / "out.csv"), "--any-group").assert_failed(1, "no folder")


def test_kill_9_leaves_no_partial_file(partner_with_mirror: Partner, tmp_path: Path) -> None:
    """Run again, the command completes the file."""
    source, out = tmp_path / "list.csv", tmp_path / "out.csv"
    with _scrubbing(source, out) as process:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)
    assert not out.exists()
    source.unlink()
    source.write_bytes(b"email\ndan@example.com\n")
    result = run_process("scrub", "email", source, out, "--any-group")
    assert (result.status, out.read_bytes()) == (0, source.read_bytes())


def test_file_created_meanwhile_is_kept(partner_with_mirror: Partner, tmp_path: Path) -> None:
    """Another file of that name, created while rows are read, is not replaced."""
    out = tmp_path / "out.csv"
    with _scrubbing(tmp_path / "list.csv", out) as process:
        out.write_text("mine")
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert b"already exists" in err
    assert out.read_text() == "mine"
    assert list(tmp_path.glob(".*")) == []


@contextmanager
def _scrubbing(source: Path, out: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Let a process read a list that goes on, until its temporary file contains rows, whose removal the test proves."""
    os.mkfifo(source)
    process = subprocess.Popen(
        [COMMAND, "scrub", "email", source, out, "--any-group"], env=environment(), stderr=subprocess.PIPE
    )
    with open(source, "wb") as pipe:
        pipe.write(b"email\n" + b"dan@example.com\n" * 10_000)
        pipe.flush()
        wait_until(lambda: any(part.stat().st_size for part in out.parent.glob(".out.csv.*.part")), "rows")
        yield process


@pytest.mark.parametrize(
    ("ending", "status", "message"),
    [(signal.SIGINT, 130, b"Interrupted."), (signal.SIGTERM, 143, b"Terminated by SIGTERM.")],
)
def test_signal_leaves_no_file(
    partner_with_mirror: Partner, tmp_path: Path, ending: signal.Signals, status: int, message: bytes
) -> None:
    """The temporary file is removed too; the status is 128 plus the number of the signal."""
    with _scrubbing(tmp_path / "list.csv", tmp_path / "out.csv") as process:
        process.send_signal(ending)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err.strip()) == (status, b"stoplist-client: " + message)
    assert sorted(path.name for path in tmp_path.iterdir() if not path.is_dir()) == ["list.csv"]

"""scrub."""

import os
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from tests.client.cli.typing_commands import COMMAND, PATIENCE_S, Logged, Typed, environment, run
from tests.client.partners import Partner

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
def mirrored(typed: Typed, partner: Partner, log_in: Logged) -> Partner:
    """A partner, logged in, with a mirror in which ann is barred."""
    log_in(partner)
    with partner.client() as client:
        client.unsubscribe("email", ["ann@example.com"])
    assert typed("sync", "--channel", "email").status == 0
    return partner


@pytest.fixture
def list_csv(tmp_path: Path) -> Path:
    """A list in which ann is barred, and one row has no address."""
    path = tmp_path / "list.csv"
    path.write_bytes(_CSV)
    path.chmod(0o640)
    return path


def test_allowed_rows_are_copied_byte_for_byte(typed: Typed, mirrored: Partner, list_csv: Path, tmp_path: Path) -> None:
    """Byte order mark, quotes, line ends and bytes that are not UTF-8 stay; the others are counted, and may be kept."""
    out, others = tmp_path / "out.csv", tmp_path / "others.csv"
    done = typed("scrub", "email", str(list_csv), str(out), "--any-group", "--barred", str(others))
    assert (done.status, done.text) == (3, "")
    assert done.told == "stoplist-client: 4 rows: 2 allowed, 1 barred, 1 without an acceptable address.\n"
    assert out.read_bytes() == _ALLOWED
    assert others.read_bytes() == _OTHERS
    assert stat.S_IMODE(out.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.glob("*.csv*")) == ["list.csv", "others.csv", "out.csv"]
    assert list(tmp_path.glob(".*")) == []


def test_json_has_the_counts(typed: Typed, mirrored: Partner, list_csv: Path, tmp_path: Path) -> None:
    """On stdout, for scripts."""
    done = typed("scrub", "email", str(list_csv), str(tmp_path / "out.csv"), "--any-group", "--json")
    assert (done.status, done.err) == (3, b"")
    assert done.json == {"rows": 4, "allowed": 2, "barred": 1, "invalid": 1}


def test_a_list_of_good_addresses_ends_with_0(typed: Typed, mirrored: Partner, tmp_path: Path) -> None:
    """Barred people are what it is for, and no failure."""
    path, out = tmp_path / "list.csv", tmp_path / "out.csv"
    path.write_bytes(b"email\nann@example.com\n")
    assert typed("scrub", "email", str(path), str(out), "--any-group").status == 0
    assert out.read_bytes() == b"email\n"


def test_a_file_that_is_there_is_not_replaced(typed: Typed, mirrored: Partner, list_csv: Path, tmp_path: Path) -> None:
    """Neither the one for the allowed rows nor the one for the others, unless --force says so."""
    out, there = tmp_path / "out.csv", tmp_path / "there.csv"
    there.write_text("mine")
    typed("scrub", "email", str(list_csv), str(there), "--any-group").failed(1, f"{there} is there already", "--force")
    typed("scrub", "email", str(list_csv), str(out), "--any-group", "--barred", str(there)).failed(1, "--force")
    assert there.read_text() == "mine"
    assert not out.exists()
    assert typed("scrub", "email", str(list_csv), str(there), "--any-group", "--force").status == 3
    assert there.read_bytes() == _ALLOWED


def test_one_file_is_not_two(typed: Typed, mirrored: Partner, list_csv: Path, tmp_path: Path) -> None:
    """In, out and the others differ, also under another name and with --force: the list must not be lost."""
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
        typed("scrub", "email", *arguments, "--any-group", "--force").failed(2, "same file")
    assert list_csv.read_bytes() == _CSV


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_only_ordinary_files_are_written(
    typed: Typed, mirrored: Partner, list_csv: Path, tmp_path: Path, kind: str
) -> None:
    """A device, pipe or folder is not replaced by a file, whoever runs this."""
    target = tmp_path / kind
    if kind == "pipe":
        os.mkfifo(target)
    else:
        target.mkdir()
    typed("scrub", "email", str(list_csv), str(target), "--any-group", "--force").failed(1, "no ordinary file")
    assert target.exists()
    assert not target.is_file()


def test_a_link_is_followed(typed: Typed, mirrored: Partner, list_csv: Path, tmp_path: Path) -> None:
    """With --force what it leads to is replaced."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "real.csv").write_text("old")
    link = tmp_path / "link.csv"
    link.symlink_to(folder / "real.csv")
    assert typed("scrub", "email", str(list_csv), str(link), "--any-group", "--force").status == 3
    assert link.is_symlink()
    assert (folder / "real.csv").read_bytes() == _ALLOWED


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "empty"),
        (b"name\nAnn\n", "--column"),
        (b'email,name\ndan@example.com,"Dan\nann@example.com,Ann\n', "line 2 is not CSV"),
    ],
)
def test_a_list_that_cannot_be_read_leaves_nothing(
    typed: Typed, mirrored: Partner, tmp_path: Path, content: bytes, text: str
) -> None:
    """A quote that is never closed must not carry barred rows along in the row of somebody who is allowed."""
    path, out = tmp_path / "list.csv", tmp_path / "out.csv"
    path.write_bytes(content)
    typed("scrub", "email", str(path), str(out), "--any-group").failed(1, text)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["list.csv"]


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        ([], 2, "Say what the message is"),
        (["--any-group", "--org", "other"], 1, "`stoplist-client sync`"),
        (["--any-group", "--max-age", "0"], 1, "--max-age any"),
        (["--any-group", "--column", "nothing"], 1, "The columns are: id, name, E-Mail"),
    ],
)
def test_no_answer_is_no_file(
    typed: Typed, mirrored: Partner, list_csv: Path, tmp_path: Path, options: list[str], status: int, text: str
) -> None:
    """Whatever the mirror cannot answer leaves nothing behind."""
    typed("scrub", "email", str(list_csv), str(tmp_path / "out.csv"), *options).failed(status, text)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["list.csv"]


@pytest.mark.parametrize(
    "options", [["--max-age", "0"], ["--org", "other"], ["--column", "nothing"], ["--profile", "no"]]
)
def test_with_force_no_old_list_outlives_a_failure(
    typed: Typed, mirrored: Partner, list_csv: Path, tmp_path: Path, options: list[str]
) -> None:
    """Whoever goes on with what lies there would write to those who opted out since."""
    out, others = tmp_path / "out.csv", tmp_path / "others.csv"
    out.write_text("old")
    others.write_text("old")
    done = typed("scrub", "email", str(list_csv), str(out), "--any-group", "--force", "--barred", str(others), *options)
    assert done.status == 1
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["list.csv"]


def test_wrong_usage_removes_nothing(typed: Typed, mirrored: Partner, list_csv: Path, tmp_path: Path) -> None:
    """Neither the list itself, nor what only --force may replace."""
    out = tmp_path / "out.csv"
    out.write_text("old")
    assert typed("scrub", "email", str(list_csv), str(list_csv), "--any-group", "--force").status == 2
    assert typed("scrub", "email", str(list_csv), str(out), "--any-group", "--max-age", "0").status == 1
    assert typed("scrub", "email", str(list_csv), str(out), "--any-group", "--max-age", "soon", "--force").status == 2
    assert (list_csv.read_bytes(), out.read_text()) == (_CSV, "old")


def test_a_missing_folder_is_named(typed: Typed, mirrored: Partner, list_csv: Path, tmp_path: Path) -> None:
    """So that it can be made."""
    typed("scrub", "email", str(list_csv), str(tmp_path / "no" / "out.csv"), "--any-group").failed(1, "no folder")


def test_kill_9_leaves_no_half_file(mirrored: Partner, tmp_path: Path) -> None:
    """However far it was, under the name there is nothing; run again, it is complete."""
    source, out = tmp_path / "list.csv", tmp_path / "out.csv"
    os.mkfifo(source)
    process = subprocess.Popen([COMMAND, "scrub", "email", source, out, "--any-group"], env=environment())
    with open(source, "wb") as pipe:
        pipe.write(b"email\n" + b"dan@example.com\n" * 100_000)
        pipe.flush()
        _wait_for_rows(tmp_path)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
    assert not out.exists()
    source.unlink()
    source.write_bytes(b"email\ndan@example.com\n")
    done = run("scrub", "email", source, out, "--any-group")
    assert (done.status, out.read_bytes()) == (0, source.read_bytes())


def test_a_file_that_came_meanwhile_stays(mirrored: Partner, tmp_path: Path) -> None:
    """Somebody else's file of that name, made while rows were read, is not lost."""
    source, out = tmp_path / "list.csv", tmp_path / "out.csv"
    os.mkfifo(source)
    process = subprocess.Popen(
        [COMMAND, "scrub", "email", source, out, "--any-group"], env=environment(), stderr=subprocess.PIPE
    )
    with open(source, "wb") as pipe:
        pipe.write(b"email\n" + b"dan@example.com\n" * 10_000)
        pipe.flush()
        _wait_for_rows(tmp_path)
        out.write_text("mine")
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert b"is there already" in err
    assert out.read_text() == "mine"
    assert list(tmp_path.glob(".*")) == []


def _wait_for_rows(folder: Path) -> None:
    """Returns once the unfinished file holds some, and so is one that is taken away."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not any(part.stat().st_size for part in folder.glob(".out.csv.*.part")):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("ending", "status", "told"), [(signal.SIGINT, 130, b"Interrupted."), (signal.SIGTERM, 143, b"Ended by SIGTERM.")]
)
def test_a_signal_leaves_nothing(
    mirrored: Partner, tmp_path: Path, ending: signal.Signals, status: int, told: bytes
) -> None:
    """Not even the unfinished file; and it ends with 128 and the number of the signal."""
    source, out = tmp_path / "list.csv", tmp_path / "out.csv"
    os.mkfifo(source)
    process = subprocess.Popen(
        [COMMAND, "scrub", "email", source, out, "--any-group"], env=environment(), stderr=subprocess.PIPE
    )
    with open(source, "wb") as pipe:
        pipe.write(b"email\n" + b"dan@example.com\n" * 10_000)
        pipe.flush()
        _wait_for_rows(tmp_path)
        process.send_signal(ending)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err.strip()) == (status, b"stoplist-client: " + told)
    assert sorted(path.name for path in tmp_path.iterdir() if not path.is_dir()) == ["list.csv"]

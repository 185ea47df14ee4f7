"""`stoplist export`: files that appear whole or not at all. docs/interface.md sections D9 and D12."""

import base64
import csv
import gzip
import hmac
import io
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from stoplist.lists.exports.layouts import COLUMNS
from tests.cli.command_line import Prompt

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

STOPLIST = [sys.executable, "-c", "from stoplist.cli import main; main()"]
# Stops when a part is written, and waits for the signal.
INTERRUPTED_PROGRAM = """
import asyncio
from stoplist.cli import main
from stoplist.lists.exports.export import Export
async def parts(self):
    yield b"part"
    print("writing", flush=True)
    await asyncio.Event().wait()
Export.parts = parts
main()
"""


@pytest.fixture
def filled(prompt: Prompt) -> Prompt:
    """A prompt with an organization that has a group."""
    prompt.ok("group", "create", "--org", "acme", "--name", "Newsletter", "--default")
    return prompt


@pytest.mark.parametrize(
    ("name", "opened"), [("x.csv", bytes), ("x.csv.gz", gzip.decompress), ("x.zst", zstd.decompress)]
)
def test_the_name_says_how_a_file_is_compressed(filled: Prompt, name: str, opened: type[bytes]) -> None:
    """A new file is private, and its cursor is printed apart from the data."""
    result = filled.run("export", "--org", "acme", "--channel", "email", "--to", name)
    assert (result.status, result.out) == (0, "")
    assert result.err.startswith(f"Exported 0 lines to {name}.\nnext_cursor: ")
    path = filled.folder / name
    assert list(csv.reader(io.StringIO(opened(path.read_bytes()).decode()))) == [list(COLUMNS)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_json_has_the_cursor(filled: Prompt) -> None:
    answer = filled.json("export", "--org", "acme", "--channel", "sms", "--to", "x.ndjson", "--history")
    assert list(answer) == ["org_slug", "channel", "group_id", "path", "records", "next_cursor"]
    assert (answer["org_slug"], answer["channel"], answer["records"]) == ("acme", "sms", 0)
    assert answer["path"] == str(filled.folder / "x.ndjson")
    assert len(answer["next_cursor"]) == 32
    assert (filled.folder / "x.ndjson").read_bytes() == b""


def test_erased_persons_can_be_compared_with_an_address(filled: Prompt) -> None:
    """--json has the key of their digests, whose fingerprint stands in their rows."""
    (filled.folder / "list").write_text("ann@example.org\n")
    target = ("--org", "acme", "--channel", "email")
    filled.ok("import", "run", "list", *target, "--all-groups", "--as-of", "now", "--yes")
    filled.ok("person", "erase", "ann@example.org", *target, "--yes", "--all-upgraded")
    answer = filled.json("export", *target, "--to", "x.csv")
    (row,) = csv.DictReader(io.StringIO((filled.folder / "x.csv").read_text()))
    digest = hmac.digest(base64.urlsafe_b64decode(answer["digest_key"] + "="), b"ann@example.org", "sha256")
    assert (row["address"], row["address_digest"]) == ("", digest.hex())
    assert row["key_fingerprint"] == answer["key_fingerprint"]


def test_a_file_is_never_overwritten(filled: Prompt) -> None:
    (filled.folder / "x.csv").write_text("mine")
    assert "exists already, and an export overwrites nothing" in filled.refused(
        "export", "--org", "acme", "--channel", "email", "--to", "x.csv"
    )
    assert (filled.folder / "x.csv").read_text() == "mine"


def test_wrong_targets_and_options(filled: Prompt) -> None:
    assert "There is no folder" in filled.refused("export", "--org", "acme", "--channel", "email", "--to", "no/x.csv")
    assert "no organization" in filled.refused("export", "--org", "nope", "--channel", "email", "--to", "x")
    assert "no such group" in filled.refused(
        "export", "--org", "acme", "--channel", "email", "--to", "x", "--group", "grp_x"
    )
    assert "name a file" in filled.wrong_usage("export", "--org", "acme", "--channel", "email", "--to", "-", "--json")
    filled.wrong_usage("export", "--org", "acme", "--channel", "fax", "--to", "x")
    filled.wrong_usage("export", "--org", "acme", "--channel", "email")
    assert not (filled.folder / "x").exists()


def test_the_secret_key_is_needed_on_postgresql(on_postgresql: Prompt) -> None:
    """The cursor must be the servers' own."""
    on_postgresql.ok("migrate")
    on_postgresql.ok("org", "create", "acme", "--name", "Acme")
    command = ("export", "--org", "acme", "--channel", "email", "--to", "x.csv")
    assert "set STOPLIST_SECRET_KEY" in on_postgresql.refused(*command)
    on_postgresql.set(SECRET_KEY="k" * 32)
    assert on_postgresql.run(*command).status == 0


def test_the_standard_output_carries_the_records_alone(filled: Prompt) -> None:
    command = [*STOPLIST, "export", "--org", "acme", "--channel", "email", "--to", "-"]
    result = subprocess.run(command, cwd=filled.folder, capture_output=True, check=True)
    assert result.stdout == (",".join(COLUMNS) + "\r\n").encode()
    assert b"next_cursor: " in result.stderr


@pytest.mark.interpreter
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_export_leaves_no_file(filled: Prompt, sent: signal.Signals) -> None:
    command = [
        sys.executable,
        "-c",
        INTERRUPTED_PROGRAM,
        "export",
        "--org",
        "acme",
        "--channel",
        "email",
        "--to",
        "x.csv",
    ]
    with subprocess.Popen(command, cwd=filled.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        assert [path.name[:13] for path in left_over(filled)] == ["x.csv.partial"]
        process.send_signal(sent)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert b"The export was interrupted, and nothing was written." in errors
    assert left_over(filled) == []


def left_over(prompt: Prompt) -> list[Path]:
    return [path for path in prompt.folder.iterdir() if path.name != "data"]

"""The command line as a whole: exit statuses, help, and the choice of database and settings."""

import sqlite3
from pathlib import Path

import pytest

from stoplist import __version__
from stoplist.cli.main import COMMANDS
from tests.cli.command_line import Prompt

pytestmark = pytest.mark.interpreter

ID = "svc_ci_0123456789ABCDEFGHIJKL"
GROUP = "grp_0123456789ABCDEFGHIJKL"
NO_TEXT = "\udcff"  # as Python decodes a byte of the command line that is not UTF-8

# Every command that works on a database, with well-formed arguments.
ON_A_DATABASE = {
    "org create": ["org", "create", "beta", "--name", "Beta"],
    "org list": ["org", "list"],
    "org rename": ["org", "rename", "acme", "--name", "Acme"],
    "org close": ["org", "close", "acme"],
    "org set-default-group": ["org", "set-default-group", "acme", GROUP],
    "group create": ["group", "create", "--org", "acme", "--name", "Newsletter"],
    "group list": ["group", "list", "--org", "acme"],
    "group retire": ["group", "retire", GROUP],
    "key create": ["key", "create", "--label", "x", "--org", "acme"],
    "key list": ["key", "list"],
    "key show": ["key", "show", ID],
    "key deactivate": ["key", "deactivate", ID],
    "key activate": ["key", "activate", ID],
    "key revoke-tokens": ["key", "revoke-tokens", ID],
    "key rotate-secret": ["key", "rotate-secret", ID],
    "key limits": ["key", "limits", ID],
    "key update": ["key", "update", ID, "--label", "x"],
}

WRONG_USAGE = {
    "no command": [],
    "an unknown command": ["organization"],
    "an unknown option": ["--nonsense"],
    "a noun alone": ["org"],
    "an unknown verb": ["org", "delete", "acme"],
    "a missing argument": ["org", "create", "--name", "x"],
    "a missing name": ["org", "create", "beta"],
    "an argument too many": ["org", "close", "acme", "beta"],
    "an option without its value": ["org", "create", "beta", "--name"],
    "capital letters in a slug": ["org", "create", "Beta", "--name", "x"],
    "an underscore in a slug": ["org", "create", "be_ta", "--name", "x"],
    "a slug that is too long": ["org", "create", "b" * 64, "--name", "x"],
    "a slug that begins with a hyphen": ["org", "create", "--name", "x", "--", "-beta"],
    "an empty slug": ["org", "create", "", "--name", "x"],
    "an empty name": ["org", "create", "beta", "--name", " "],
    "a name that is too long": ["org", "create", "beta", "--name", "x" * 201],
    "a name on two lines": ["org", "create", "beta", "--name", "x\ny"],
    "a name that is no text": ["org", "create", "beta", "--name", NO_TEXT],
    "an id that is no text": ["key", "show", NO_TEXT],
    "a folder that is no text": ["org", "list", "--data-dir", NO_TEXT],
    "an empty name for the default group": ["org", "create", "beta", "--name", "x", "--default-group", ""],
    "a group without an organization": ["group", "create", "--name", "x"],
    "a key without a label": ["key", "create", "--org", "acme"],
    "a key without an organization": ["key", "create", "--label", "x"],
    "several organizations without a default": ["key", "create", "--label", "x", "--org", "acme", "--org", "beta"],
    "a default that is not among them": ["key", "create", "--label", "x", "--org", "acme", "--default-org", "beta"],
    "an unknown permission": ["key", "create", "--label", "x", "--org", "acme", "--permission", "write"],
    "a ceiling of none": ["key", "limits", ID, "--token-per-minute", "0"],
    "a ceiling below none": ["key", "limits", ID, "--api-per-minute", "-1"],
    "a ceiling that is no whole number": ["key", "limits", ID, "--api-per-minute", "1.5"],
    "a ceiling in other digits": ["key", "limits", ID, "--api-per-minute", "٣"],
    "a ceiling beyond all": ["key", "limits", ID, "--api-per-minute", "1" + "0" * 5000],
    "an empty ceiling": ["key", "limits", ID, "--api-per-minute", ""],
    "an update of nothing": ["key", "update", ID],
    "an update to a default that is not among them": ["key", "update", ID, "--org", "a", "--default-org", "b"],
    "an unknown environment": ["serve", "--environment", "staging"],
    "a port that is none": ["serve", "--port", "https"],
    "a port beyond all": ["serve", "--port", "65536"],
    "a host that is none": ["serve", "--host", "a host"],
    "no worker": ["serve", "--workers", "0"],
    "a demo in production": ["serve", "--demo", "--environment", "production"],
    "a data folder without a name": ["key", "list", "--data-dir", ""],
    "a data folder without a name for a server": ["serve", "--data-dir", ""],
    "JSON from a server": ["serve", "--json"],
}


@pytest.mark.parametrize("arguments", WRONG_USAGE.values(), ids=WRONG_USAGE)
def test_wrong_usage_exits_with_2(empty: Prompt, arguments: list[str]) -> None:
    """Unknown, missing, malformed and contradictory options are errors on stderr, and nothing is done."""
    text = empty.wrong_usage(*arguments)
    assert "Error: " in text or text.startswith("Usage: ")
    assert list(empty.folder.iterdir()) == []


@pytest.mark.parametrize("arguments", [["migrate"], ["org", "list"]], ids=" ".join)
def test_a_file_in_place_of_the_data_folder_is_named(empty: Prompt, arguments: list[str]) -> None:
    """The text does not only say that something exists there, or that it is no directory."""
    empty.data_dir.write_text("")
    assert "data is a file, not a folder" in empty.refused(*arguments)


def test_the_description_of_production_needs_a_base_address(empty: Prompt) -> None:
    """Its `servers` would name localhost."""
    empty.set(ENVIRONMENT="production")
    assert "STOPLIST_BASE_URL must be set in production" in empty.refused("openapi")


@pytest.mark.parametrize("arguments", ON_A_DATABASE.values(), ids=ON_A_DATABASE)
def test_without_a_database_the_error_names_migrate(empty: Prompt, arguments: list[str]) -> None:
    """The exit status is 1, and neither a file nor a folder is created."""
    text = empty.refused(*arguments)
    assert "`stoplist migrate`" in text
    assert "`stoplist serve`" in text
    assert list(empty.folder.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"This is no database at all. " * 200])
def test_a_file_that_is_no_database_is_refused(empty: Prompt, content: bytes) -> None:
    """The exit status is 1, and the file is unchanged."""
    empty.data_dir.mkdir()
    file = empty.data_dir / "stoplist.db"
    file.write_bytes(content)
    empty.refused("org", "list")
    assert file.read_bytes() == content


def test_a_database_of_another_program_is_refused(empty: Prompt) -> None:
    empty.data_dir.mkdir()
    with sqlite3.connect(empty.data_dir / "stoplist.db") as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    assert "no Stoplist database" in empty.refused("key", "list")


@pytest.mark.parametrize("arguments", ON_A_DATABASE.values(), ids=ON_A_DATABASE)
def test_every_command_takes_a_data_folder_and_json(empty: Prompt, arguments: list[str]) -> None:
    """`--data-dir` overrides the variable; the options may stand anywhere after the command."""
    empty.set(DATA_DIR=str(empty.folder / "elsewhere"))
    text = empty.refused(*arguments, "--json", "--data-dir", "here")
    assert "here/stoplist.db" in text


@pytest.mark.parametrize("arguments", ON_A_DATABASE.values(), ids=ON_A_DATABASE)
def test_the_options_of_all_commands_may_stand_first(empty: Prompt, arguments: list[str]) -> None:
    """They may precede the noun or the verb. One that stands after the command wins."""
    noun, *rest = arguments
    assert "here/stoplist.db" in empty.refused("--json", "--data-dir", "here", *arguments)
    assert "here/stoplist.db" in empty.refused("--data-dir=here", noun, "--json", *rest)
    assert "here/stoplist.db" in empty.refused("--data-dir", "there", noun, "--data-dir", "here", *rest)
    assert "here/stoplist.db" in empty.refused("--data-dir", "there", *arguments, "--data-dir", "here")


def test_json_before_the_command_is_printed(prompt: Prompt) -> None:
    """The same as after it; a command that prints none refuses it."""
    assert prompt.ok("--json", "key", "list") == prompt.ok("key", "--json", "list") == "[]\n"
    assert "--json" in prompt.wrong_usage("--json", "serve")
    for arguments in (
        ["--json"],
        ["--data-dir"],
        ["--data-dir", "key"],
        ["key", "--json"],
        ["--json", "--data-dir", "x"],
    ):
        prompt.wrong_usage(*arguments)


def test_the_former_name_of_a_command_works(empty: Prompt) -> None:
    """For one more minor release: scripts depend on it."""
    assert empty.ok("restored", "--help").partition("\n")[2] == empty.ok("after-restore", "--help").partition("\n")[2]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["keys"], "'key'"),
        (["organization"], "'org'"),
        (["grp"], "'group'"),
        (["dokter"], "'doctor'"),
        (["address"], "'addresses'"),
        (["key", "lst"], "'list'"),
        (["key", "rotate"], "'rotate-secret'"),
        (["user", "enabel"], "'enable'"),
        (["--data-dir", "x", "keys"], "'key'"),
    ],
)
def test_a_misspelt_command_is_answered_with_the_nearest(empty: Prompt, words: list[str], meant: str) -> None:
    assert f"No such command {words[-1]!r}. Did you mean {meant}" in empty.wrong_usage(*words)


def test_a_command_like_none_gets_no_suggestion(empty: Prompt) -> None:
    for name in ("xyzzy", ""):
        assert "Did you mean" not in empty.wrong_usage(name)


IDS_OF_NOTHING = ["svc_ci_0123456789ABCDEFGHIJKL", "x", "", "é", "'; DROP TABLE clients; --", "x" * 10_000]


@pytest.mark.parametrize("unknown", IDS_OF_NOTHING)
def test_an_unknown_id_exits_with_1(prompt: Prompt, unknown: str) -> None:
    """However it is spelt, an id or slug that does not exist is not found."""
    before = prompt.json("org", "list"), prompt.json("key", "list")
    commands = [words for words in ON_A_DATABASE.values() if words[:2] != ["org", "create"] and words[1] != "list"]
    for words in [*commands, ["group", "list", "--org", "acme"]]:
        prompt.refused(*(unknown if word in ("acme", ID, GROUP) else word for word in words))
    assert (prompt.json("org", "list"), prompt.json("key", "list")) == before


def test_a_wrong_setting_exits_with_1(prompt: Prompt) -> None:
    """The error names it, even if the command would not use it."""
    prompt.set(PORTT="8443")
    assert "STOPLIST_PORTT" in prompt.refused("org", "list")


def test_settings_are_read_from_a_file_too(prompt: Prompt) -> None:
    """`.env` in the working directory is read; a variable overrides it."""
    (prompt.folder / ".env").write_text("STOPLIST_DATA_DIR=elsewhere\n")
    assert "elsewhere/stoplist.db" in prompt.refused("org", "list")
    prompt.set(DATA_DIR="data")
    assert [org["slug"] for org in prompt.json("org", "list")] == ["acme"]


@pytest.mark.parametrize("environment", ["development", "production"])
def test_commands_work_in_the_environment_of_the_database(empty: Prompt, environment: str) -> None:
    """It does so in every STOPLIST_ENVIRONMENT."""
    empty.set(ENVIRONMENT=environment)
    empty.ok("migrate")
    for other in ("development", "production"):
        empty.set(ENVIRONMENT=other)
        assert empty.json("org", "list") == []


def test_a_database_url_overrides_the_data_folder(prompt: Prompt) -> None:
    """The folder given by `--data-dir` then contains no database."""
    moved = prompt.folder / "moved.db"
    (prompt.data_dir / "stoplist.db").rename(moved)
    prompt.set(DATABASE_URL=f"sqlite:///{moved}")
    assert [org["slug"] for org in prompt.json("org", "list", "--data-dir", "nowhere")] == ["acme"]
    assert not Path("nowhere").exists()


def every_command() -> list[list[str]]:
    return [[], *([name] for name in COMMANDS), *(words[:2] for words in ON_A_DATABASE.values())]


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_explains_a_command(empty: Prompt, words: list[str], flag: str) -> None:
    """It has a sentence on the command and explains the options; no line is too wide for a terminal."""
    text = empty.ok(*words, flag)
    usage, _, rest = text.partition("\n\n")
    assert usage.startswith(f"Usage: {' '.join(['stoplist', *words])}")
    assert rest.lstrip()[0].isupper()
    assert max(map(len, text.splitlines())) <= 100
    options = [line for line in text.splitlines() if line.startswith("  -")]
    assert all(len(line.split("  ")) > 2 or line.rstrip() == line for line in options)
    if len(words) == 2 and words[1] == "create":
        assert "Example: stoplist " in text


def test_the_help_lists_every_command(empty: Prompt) -> None:
    text = empty.ok("--help")
    assert all(f"  {name} " in text for name in COMMANDS)


def test_the_version_is_printed(empty: Prompt) -> None:
    assert empty.ok("--version") == f"stoplist {__version__}\n"

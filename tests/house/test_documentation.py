"""The documents and the code agree."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from stoplist.setting_table import VARIABLE_NAMES
from tests.constants import ROOT
from tests.house import checks

INTERFACE = "docs/interface.md"  # by name, so that the made-up citations below are not checked


def test_no_file_names_a_registry_a_machine_or_an_issue() -> None:
    """The project is self-contained, and installs from wherever the user's pip does."""
    assert checks.unwanted_words(ROOT) == []


def test_every_relative_link_works() -> None:
    assert checks.broken_links(ROOT) == []


def test_every_cited_section_exists() -> None:
    """Readers follow `docs/interface.md section N`."""
    assert checks.broken_citations(ROOT) == []


def test_documented_settings_are_those_that_exist() -> None:
    """docs/interface.md section D1 has exactly the settings that the product reads."""
    assert checks.documented_variables(ROOT) == set(VARIABLE_NAMES)


def test_no_file_mentions_a_setting_that_does_not_exist() -> None:
    """An operator who copies the old name of a renamed setting could not start."""
    mentioned = checks.mentioned_variables(ROOT)
    assert {name: path for name, path in mentioned.items() if name not in VARIABLE_NAMES} == {}


def test_every_decision_is_listed() -> None:
    """The list has number and file, in order."""
    folder = ROOT / "docs" / "decisions"
    names = [path.name for path in sorted(folder.glob("[0-9]*.md"))]
    listed = re.findall(r"^- \[(\d{4})\]\((\S+)\): ", (folder / "README.md").read_text(), re.MULTILINE)
    assert listed == [(name[:4], name) for name in names]


def test_the_first_two_commands_of_the_readme_serve_and_test() -> None:
    """A new reader runs the product first, then its tests."""
    assert checks.make_commands((ROOT / "README.md").read_text())[:2] == ["serve", "test"]


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "client/README.md", "docs/client.md", ".ci/run"])
def test_every_make_command_of_a_document_is_a_target(document: str) -> None:
    text = (ROOT / document).read_text()
    commands = checks.make_commands(text if document.endswith(".md") else f"```\n{text}\n```")
    assert commands
    assert set(commands) <= checks.make_targets((ROOT / "Makefile").read_text())


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], None]:
    """Return a function that writes a file to a small tree, whose interface has the sections 1, 3.1 and D2."""

    def put(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    put(".gitignore", "# left out\n.venv-*/\nbench/results/\n")
    put("docs/interface.md", "# All\n\n## 1. One\n\n### 3.1 Three\n\n## D2. Two words\n")
    return put


Write = Callable[[str, str], None]


@pytest.mark.parametrize(
    "text",
    [
        "from https://pypi" + ".org/simple",
        "cd /wo" + "rk/main",
        '"/home/' + 'someone/x"',
        "as iss" + "ue #3 asks",
    ],
)
def test_an_unwanted_word_is_found(text: str, write: Write, tmp_path: Path) -> None:
    """The check can fail."""
    write("src/x.py", f"# {text}\n")
    assert len(checks.unwanted_words(tmp_path)) == 1


@pytest.mark.parametrize("text", ["a/wo" + "rk/b", "an iss" + "ued token", "$HOME/ro" + "ot/x"])
def test_a_harmless_word_passes(text: str, write: Write, tmp_path: Path) -> None:
    """A relative path may happen to have the same name."""
    write("src/x.py", text)
    assert checks.unwanted_words(tmp_path) == []


def test_ignored_files_are_skipped(write: Write, tmp_path: Path) -> None:
    """Names and paths are matched as git does."""
    write(".venv-3.13/x.py", "")
    write("bench/x.py", "")
    (tmp_path / "bench" / "results").mkdir()
    write("bench/results/y.json", "")
    found = [str(path.relative_to(tmp_path)) for path in checks.files(tmp_path)]
    assert found == [".gitignore", "bench/x.py", "docs/interface.md"]


@pytest.mark.parametrize("link", ["gone.md", "interface.md#three", "interface.md#no-such", "#no-such"])
def test_a_broken_link_is_found(link: str, write: Write, tmp_path: Path) -> None:
    """A missing file and a missing heading both break a link."""
    write("docs/a.md", f"See [there]({link}).\n")
    assert checks.broken_links(tmp_path) == [f"docs/a.md: {link}"]


@pytest.mark.parametrize("link", ["interface.md", "../docs", "interface.md#d2-two-words", "https://example.org"])
def test_a_good_link_passes(link: str, write: Write, tmp_path: Path) -> None:
    """It leads to a file, a folder, a heading or an external site."""
    write("docs/a.md", f"See [there]({link}), and not\n```\n[this](at-all)\n```\n")
    assert checks.broken_links(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (f"{INTERFACE} section 1", []),
        (f"{INTERFACE} sections 3.1 and D2, row Clock; RFC 6749 section 5.2", []),
        (f"{INTERFACE} section 3.", ["3"]),
        (f"# {INTERFACE}\n    # section 1, D3", ["D3"]),
        (f"{INTERFACE} sections 1 to D2 and 3.4", ["3.4"]),
        (f"-- `{INTERFACE}` section D4", ["D4"]),
    ],
)
def test_citations_are_recognised(text: str, missing: list[str], write: Write, tmp_path: Path) -> None:
    """Lists of sections and citations over two lines; not sections of other texts."""
    write("src/x.py", text)
    assert checks.broken_citations(tmp_path) == [f"src/x.py: section {section}" for section in missing]


def test_the_commands_of_a_document_are_found() -> None:
    """Only text in code is a command."""
    text = "Just make it.\n\n```sh\nmake serve\ncd x && make test PYTEST=-x\n```\nThen `make PYTHON=p check`.\n"
    assert checks.make_commands(text) == ["serve", "test", "check"]


def test_the_targets_of_a_makefile_are_found() -> None:
    """Variables, patterns and stamps are not targets for people."""
    assert checks.make_targets("a := b\ntest-3.13: x\n.venv/x: y\n%/z: q\nserve: a\n\tmake no:\n") == {
        "test-3.13",
        "serve",
    }

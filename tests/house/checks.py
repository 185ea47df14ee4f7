"""Checks of every file in the repository. Each takes a tree and returns its faults."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

_SECTION = re.compile(r"D?\d+(?:\.\d+)*")
_HEADING = re.compile(rf"^#+ ({_SECTION.pattern})(?=[.\s])", re.MULTILINE)
_ANY_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
# `sections 3.1 and D2`, `section 9`, `sections 7, D4`, `sections 1 to 9`
_SECTIONS = rf"sections?\s+({_SECTION.pattern}(?:(?:,\s*|,?\s+(?:and|or|to)\s+){_SECTION.pattern})*)"
_LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CODE_SPAN = re.compile(r"`([^`\n]+)`")
_MAKE = re.compile(r"(?:^|[\n;&|$(] *)(?:exec +)?make +(?:[A-Z_]+=\S+ +)*([a-z][a-z0-9.-]*)")
_TARGET = re.compile(r"^([a-z][a-z0-9.-]*):(?!=)", re.MULTILINE)
_VARIABLE = re.compile(r"(?<![A-Z0-9_])STOPLIST_[A-Z0-9_]*[A-Z0-9](?![A-Z0-9_])")

# Each in two halves, because this file is searched too.
_UNWANTED = {
    "the host of a package registry": "pypi"
    r"\.org|python"
    r"hosted|npm"
    r"js\.|debian"
    r"\.org|crates"
    r"\.io",
    "a path of one machine": r"(?<![\w.$}/-])/(?:wo" r"rk|ro" r"ot|home/\w+)/",
    "the number of an issue": r"\biss" r"ues? #?\d",
}


def files(root: Path) -> list[Path]:
    """Return the files of the repository, without those named by `.gitignore`. Works without git too."""
    ignored = [".git", *_patterns(root / ".gitignore")]
    return sorted(_walk(root, root, ignored))


def unwanted_words(root: Path) -> list[str]:
    """Return words that tie the project to one machine, one registry or one issue tracker."""
    return [
        f"{path.relative_to(root)}: {what}, {found[0]!r}"
        for path in files(root)
        for what, needle in _UNWANTED.items()
        if (found := re.search(needle, _text(path)))
    ]


def broken_links(root: Path) -> list[str]:
    """Return relative links of the documents to a missing file or heading."""
    return [
        f"{document.relative_to(root)}: {link}"
        for document in _documents(root)
        for link in _LINK.findall(_FENCE.sub("", document.read_text()))
        if not _is_target_present(document, link)
    ]


def broken_citations(root: Path) -> list[str]:
    """Return cited sections of docs/interface.md that do not exist."""
    interface = root / "docs" / "interface.md"
    known = set(_HEADING.findall(interface.read_text()))
    cited = [
        (path, section)
        for path in files(root)
        if path.suffix in {".py", ".md", ".sql", ".toml"}
        for section in _cited_sections(path.read_text(), is_interface=path == interface)
    ]
    return [f"{path.relative_to(root)}: section {section}" for path, section in cited if section not in known]


def documented_variables(root: Path) -> set[str]:
    """Return the settings with a row or a sentence in docs/interface.md."""
    return set(_VARIABLE.findall((root / "docs" / "interface.md").read_text()))


def mentioned_variables(root: Path) -> dict[str, Path]:
    """Return every setting that a file mentions, by file; without tests, which make up unknown ones."""
    mentioned = [path for path in files(root) if "tests" not in path.relative_to(root).parts]
    return {name: path for path in mentioned for name in _VARIABLE.findall(_text(path))}


def make_commands(document: str) -> list[str]:
    """Return the make targets that a document tells its reader to run, in order."""
    codes = re.finditer(rf"{_FENCE.pattern}|{_CODE_SPAN.pattern}", document, _FENCE.flags)
    return [target for code in codes for target in _MAKE.findall(code[1] or code[0])]


def make_targets(makefile: str) -> set[str]:
    """Return the targets of a Makefile that are meant for people."""
    return set(_TARGET.findall(makefile))


def _text(path: Path) -> str:
    """Return the text of the file; nothing for a binary file."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        return ""


def _walk(folder: Path, root: Path, ignored: list[str]) -> Iterator[Path]:
    for path in folder.iterdir():
        relative = path.relative_to(root)
        if any(fnmatch(path.name, pattern) or fnmatch(str(relative), pattern) for pattern in ignored):
            continue
        if path.is_dir():
            yield from _walk(path, root, ignored)
        else:
            yield path


def _patterns(gitignore: Path) -> Iterator[str]:
    for line in gitignore.read_text().splitlines():
        if line and not line.startswith("#"):
            yield line.strip("/")


def _documents(root: Path) -> Iterable[Path]:
    return (path for path in files(root) if path.suffix == ".md")


def _is_target_present(document: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return True
    name, _, anchor = link.partition("#")
    target = document.parent / name if name else document
    return target.exists() and (not anchor or anchor in _anchors(target))


@cache
def _anchors(document: Path) -> frozenset[str]:
    """Return the anchors of the headings: lower case, spaces to hyphens, without other signs."""
    headings = _ANY_HEADING.findall(document.read_text())
    return frozenset(re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings)


def _cited_sections(text: str, *, is_interface: bool) -> list[str]:
    # A citation may span two lines of a comment.
    flat = re.sub(r"\s*\n\s*(?:#|--|\*|>)?\s*", " ", text)
    needle = _SECTIONS if is_interface else rf"docs/interface\.md`?\)?,?\s+{_SECTIONS}"
    return [section for cited in re.findall(needle, flat) for section in _SECTION.findall(cited)]

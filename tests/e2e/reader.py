"""A reader of documents: types every command in a shell, in order, and compares what is printed with what is stated.

The ids, secrets and cursors of a document stand for those that a reader gets: each is paired with the real one where it
first appears in an output, and every later command and output must agree with that pair.
"""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.running import PATIENCE_S, STOPLIST, Lines, Place, Server

BASE_URL = "https://localhost:8443"
"""That of a server for development, as documents name it."""

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\w+\.py)\b")
# Made by chance: ids, secrets, tokens; cursors, which have 32 characters and no prefix.
_CHANCE = re.compile(r"\b(?:(?:svc_[a-z]{2}|grp|sub|uns)_\w+|[A-Za-z0-9_-]{32})(?![\w-])")
# Of the moment: when the service recorded something, how much of a minute is left.
_NOW = re.compile(r'(?<="recorded_at":")[^"]+|(?<="recorded_at": ")[^"]+|(?<=;r=)\d+|(?<=;t=)\d+|(?<=created_at)\s+\S+')


class Block(NamedTuple):
    """A fenced block, and the output that is stated below it."""

    line: int
    language: str
    text: str
    stated: str


def blocks(document: Path) -> list[Block]:
    """What is to be typed or saved, in order, each with the output that follows it."""
    text = document.read_text()
    found: list[Block] = []
    for match in _BLOCK.finditer(text):
        language, content = match.groups()
        if language in ("sh", "python"):
            found.append(Block(text.count("\n", 0, match.start()) + 1, language, content, ""))
        else:
            assert language in ("text", "json"), match[0]
            assert not found[-1].stated, "an output belongs to the block above it"
            found[-1] = found[-1]._replace(stated=content)
    return found


class Reader:
    """Somebody who types what documents say, on the machine of their server, and compares what comes back.

    `known` has what the reader knows beforehand, by what stands for it in the documents.
    """

    def __init__(self, place: Place, server: Server, shell: "Shell", known: Mapping[str, str] | None = None) -> None:
        self._folder, self._shell = place.folder, shell
        self._base_url = server.base_url
        self._real = dict(known or {})

    def follow(self, document: Path) -> None:
        """Every block was done, from top to bottom, and printed what the document says."""
        for block in blocks(document):
            self._follow(block, f"{document.name}, line {block.line}")

    def _follow(self, block: Block, where: str) -> None:
        text = self._translated(block.text)
        if block.language == "sh":
            printed = self._shell.printed(text)
        elif file := _FILE.match(text):
            (self._folder / file[1]).write_text(text)
            printed = ""
        else:
            printed = self._shell.printed(f"python3 - <<'TYPED'\n{text}TYPED\n")
        self._compare(block.stated, printed, where)

    def _compare(self, stated: str, printed: str, where: str) -> None:
        self._pair(_CHANCE.findall(stated), _CHANCE.findall(printed), where)
        wanted, found = (_NOW.sub("NOW", text) for text in (self._translated(stated), printed))
        if stated.startswith("{"):
            assert list(documents(found)) == list(documents(wanted)), where
        else:
            assert [line.split() for line in found.splitlines()] == [line.split() for line in wanted.splitlines()], (
                where
            )

    def _pair(self, stated: list[str], printed: list[str], where: str) -> None:
        assert len(stated) == len(printed), f"{where}: {printed}"
        for example, real in zip(stated, printed, strict=True):
            assert self._real.setdefault(example, real) == real, f"{where}: {example} has stood for another one"
        assert len(set(self._real.values())) == len(self._real), f"{where}: two examples stand for the same"

    def _translated(self, text: str) -> str:
        real = _CHANCE.sub(lambda example: self._real.get(example[0], example[0]), text)
        return real.replace(BASE_URL, self._base_url)


class Shell:
    """A shell that stays open from one block to the next, and ends at the first command that fails."""

    def __init__(self, place: Place) -> None:
        self._process = subprocess.Popen(
            ["bash", "-e", "-o", "pipefail"],
            cwd=place.folder,
            env=place.variables | {"PATH": f"{STOPLIST.parent}:{place.variables['PATH']}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        self._output = Lines(self._process.stdout)
        self._typed = 0

    def printed(self, text: str) -> str:
        """What these commands print, the errors too."""
        assert self._process.stdin is not None
        self._typed += 1
        before, end = len(self._output.text), f"--- {self._typed} done\n"
        self._process.stdin.write(f"{text}\nprintf '\\n%s' '{end}'\n")
        self._process.stdin.flush()
        assert self._output.holds(f"\n{end}"), f"{text}\n{self._output.text[before:]}"
        return self._output.text[before:].removesuffix(f"\n{end}")

    def close(self) -> None:
        """It is gone, with what it may still be doing."""
        assert self._process.stdin is not None
        self._process.kill()
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._output.finish()


def documents(text: str) -> Iterator[Any]:
    """The JSON documents of a text, which stand one after the other."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text := text.rstrip()):
        document, end = decoder.raw_decode(text, at)
        yield document
        at = end + len(text[end:]) - len(text[end:].lstrip())

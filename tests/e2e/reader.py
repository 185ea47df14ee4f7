"""A reader of documents: runs every command in a shell, in order, and compares its output with the document.

The ids, secrets and cursors of a document stand for real ones: each is paired with the real value where it first
appears in an output, and every later command and output must agree with that pair.
"""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.constants import PATIENCE_S
from tests.e2e.server_process import STOPLIST, Installation, ProcessOutput, RunningServer

BASE_URL = "https://localhost:8443"
"""The URL of a development server in documents."""

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\w+\.py)\b")
# Random values: ids, secrets, tokens; cursors, which have 32 characters and no prefix.
_GENERATED = re.compile(r"\b(?:(?:svc_[a-z]{2}|grp|sub|uns)_\w+|[A-Za-z0-9_-]{32})(?![\w-])")
# Values that depend on the time: when something was recorded, and the remainder of a minute.
_TIMED = re.compile(
    r'(?<="recorded_at":")[^"]+|(?<="recorded_at": ")[^"]+|(?<=;r=)\d+|(?<=;t=)\d+|(?<=created_at)\s+\S+'
)


class Block(NamedTuple):
    """A fenced block of commands, and the output documented below it."""

    line: int
    language: str
    text: str
    expected: str


def blocks(document: Path) -> list[Block]:
    """Return the blocks to run or save, in order, each with its documented output."""
    text = document.read_text()
    result: list[Block] = []
    for match in _BLOCK.finditer(text):
        language, content = match.groups()
        if language in ("sh", "python"):
            result.append(Block(text.count("\n", 0, match.start()) + 1, language, content, ""))
        else:
            assert language in ("text", "json"), match[0]
            assert not result[-1].expected, "an output belongs to the block above it"
            result[-1] = result[-1]._replace(expected=content)
    return result


class Reader:
    """Runs what documents say, in the place of their server, and compares the output.

    `known` has real values by the examples that stand for them in the documents.
    """

    def __init__(
        self, installation: Installation, server: RunningServer, shell: "Shell", known: Mapping[str, str] | None = None
    ) -> None:
        self._folder, self._shell = installation.folder, shell
        self._base_url = server.base_url
        self._real = dict(known or {})

    def follow(self, document: Path) -> None:
        """Run every block from top to bottom, and assert that it prints what the document says."""
        for block in blocks(document):
            self._follow(block, f"{document.name}, line {block.line}")

    def _follow(self, block: Block, where: str) -> None:
        text = self._with_real_values(block.text)
        if block.language == "sh":
            run = self._shell.run(text)
        elif file := _FILE.match(text):
            (self._folder / file[1]).write_text(text)
            run = ""
        else:
            run = self._shell.run(f"python3 - <<'TYPED'\n{text}TYPED\n")
        self._compare(block.expected, run, where)

    def _compare(self, expected: str, run: str, where: str) -> None:
        self._pair(_GENERATED.findall(expected), _GENERATED.findall(run), where)
        documented, result = (_TIMED.sub("NOW", text) for text in (self._with_real_values(expected), run))
        if expected.startswith("{"):
            assert list(json_documents(result)) == list(json_documents(documented)), where
        else:
            assert [line.split() for line in result.splitlines()] == [
                line.split() for line in documented.splitlines()
            ], where

    def _pair(self, expected: list[str], run: list[str], where: str) -> None:
        assert len(expected) == len(run), f"{where}: {run}"
        for example, real in zip(expected, run, strict=True):
            assert self._real.setdefault(example, real) == real, f"{where}: {example} has stood for another one"
        assert len(set(self._real.values())) == len(self._real), f"{where}: two examples stand for the same"

    def _with_real_values(self, text: str) -> str:
        real = _GENERATED.sub(lambda example: self._real.get(example[0], example[0]), text)
        return real.replace(BASE_URL, self._base_url)


class Shell:
    """A shell that stays open from block to block, and ends at the first command that fails."""

    def __init__(self, installation: Installation) -> None:
        self._process = subprocess.Popen(
            ["bash", "-e", "-o", "pipefail"],
            cwd=installation.folder,
            env=installation.variables | {"PATH": f"{STOPLIST.parent}:{installation.variables['PATH']}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        self._output = ProcessOutput(self._process.stdout)
        self._typed = 0

    def run(self, text: str) -> str:
        """Run these commands and return what they print, errors included."""
        assert self._process.stdin is not None
        self._typed += 1
        before, end = len(self._output.text), f"--- {self._typed} done\n"
        self._process.stdin.write(f"{text}\nprintf '\\n%s' '{end}'\n")
        self._process.stdin.flush()
        assert self._output.wait_for(f"\n{end}"), f"{text}\n{self._output.text[before:]}"
        return self._output.text[before:].removesuffix(f"\n{end}")

    def close(self) -> None:
        """Kill the shell and its commands."""
        assert self._process.stdin is not None
        self._process.kill()
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._output.finish()


def json_documents(text: str) -> Iterator[Any]:
    """Yield the consecutive JSON documents of a text."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text := text.rstrip()):
        document, end = decoder.raw_decode(text, at)
        yield document
        at = end + len(text[end:]) - len(text[end:].lstrip())

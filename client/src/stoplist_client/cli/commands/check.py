"""`stoplist-client check`: the addresses that one may write to."""

from collections.abc import Iterable
from typing import Any, BinaryIO

import click
import msgspec

from stoplist_client.cli.address_lines import NOT_UTF_8, is_utf_8, slices_of_lines, standard_input, texts_of
from stoplist_client.cli.exit_status import end_not_all
from stoplist_client.cli.mirror_query import asked, asking_options
from stoplist_client.cli.options import Command, channel_argument
from stoplist_client.cli.printing import standard_error, standard_output
from stoplist_client.mirror import Checked
from stoplist_client.model import Channel


@click.command("check", cls=Command)
@channel_argument
@click.option("--fail-if-barred", is_flag=True, help="End with 3 if somebody is barred.")
@asking_options
def command(channel: Channel, fail_if_barred: bool, as_json: bool, **options: Any) -> None:
    """Print those addresses of stdin that a message may go to, as they came; the others go to stderr.

    stdin has an address a line; empty lines are left out. What is no address stands on stderr with a tab and the reason
    behind it, and the command then ends with 3. The answer is that of the mirror, which `stoplist-client sync` keeps;
    if it is older than --max-age, there is none. A message is of a group, of none, or one that nobody may get who opted
    out of anything: --group, --no-group or --any-group says which, unless the profile names a group.

    With --json all goes to stdout, an object a line: address, canonical, verdict (allowed, barred or invalid), problem.

    \b
    Examples:
      stoplist-client check email --group grp_… < recipients.txt > allowed.txt
      echo ann@example.com | stoplist-client check email --any-group --fail-if-barred
    """
    with asked(channel, **options) as (mirror, question):
        shown = _AsJson() if as_json else _AsLines()
        for lines in slices_of_lines(standard_input("an address a line")):
            some = [line for line in lines if not line.isspace()]
            shown.show(some, question.of(mirror, texts_of(some)))
    if shown.invalid or (fail_if_barred and shown.barred):
        end_not_all()


class _AsLines:
    """Allowed lines on stdout, the others on stderr; each slice is written out at once."""

    def __init__(self) -> None:
        self._out, self._err = standard_output(), standard_error()
        self.barred = self.invalid = 0

    def show(self, lines: list[bytes], checked: Iterable[Any]) -> None:
        allowed: list[bytes] = []
        others: list[bytes] = []
        for line, one in zip(lines, checked, strict=True):
            if one.verdict == "allowed":
                allowed.append(line)
            elif one.verdict == "barred":
                self.barred += 1
                others.append(line)
            else:
                self.invalid += 1
                others.append(b"%b\tinvalid: %b\n" % (line.rstrip(b"\r\n"), (_problem(one) or "").encode()))
        _write(self._out, allowed)
        if self._err is not None:
            _write(self._err, others)


class _AsJson:
    """An object a line on stdout."""

    def __init__(self) -> None:
        self._out = standard_output()
        self._encoder = msgspec.json.Encoder()
        self.barred = self.invalid = 0

    def show(self, _lines: list[bytes], checked: Iterable[Any]) -> None:
        self._out.write(self._encoder.encode_lines(self._counted(checked)))
        self._out.flush()

    def _counted(self, checked: Iterable[Any]) -> list[dict[str, Any]]:
        shown = []
        for one in checked:
            if one.verdict != "allowed":
                self.barred += one.verdict == "barred"
                self.invalid += one.verdict == "invalid"
            shown.append(
                {
                    "address": _unicode(one.address),
                    "canonical": one.canonical,
                    "verdict": one.verdict,
                    "problem": _problem(one),
                }
            )
        return shown


def _problem(one: Checked) -> str | None:
    return one.problem if is_utf_8(one.address) else NOT_UTF_8


def _write(stream: BinaryIO, lines: list[bytes]) -> None:
    if lines:
        stream.write(b"".join(lines) if lines[-1].endswith(b"\n") else b"".join(lines) + b"\n")
        stream.flush()


def _unicode(text: str) -> str:
    """The text as JSON can have it: bytes that were not UTF-8 are shown as such."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")

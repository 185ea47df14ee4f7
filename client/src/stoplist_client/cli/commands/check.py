"""`stoplist-client check`: print the addresses that a message may go to."""

from collections.abc import Iterable
from typing import Any, BinaryIO

import click
import msgspec

from stoplist_client.cli.address_lines import NOT_UTF_8, decode_lines, is_utf_8, slices_of_lines, standard_input
from stoplist_client.cli.escapes import escaped_json
from stoplist_client.cli.exit_status import exit_not_all_accepted
from stoplist_client.cli.mirror_query import open_mirror_query, query_options
from stoplist_client.cli.options import Command, channel_argument
from stoplist_client.cli.printing import standard_error, standard_output
from stoplist_client.mirror import Checked
from stoplist_client.model import Channel


@click.command("check", cls=Command)
@channel_argument
@click.option("--fail-if-barred", is_flag=True, help="Exit with status 3 if somebody is barred.")
@query_options
def command(channel: Channel, fail_if_barred: bool, as_json: bool, **options: Any) -> None:
    """Print those addresses of stdin that a message may go to, unchanged; the others go to stderr.

    Pass one address per line on stdin; empty lines are skipped. A line that is not a valid address goes to stderr,
    followed by a tab and the reason, and the exit status is then 3. The answers come from the mirror that
    `stoplist-client sync` updates. A mirror older than --max-age gives no answers.

    Choose who is barred with --group (those who opted out of that group or of all groups), --no-group (those who opted
    out of all groups) or --any-group (those who opted out of anything). The default is the group of the profile.

    With --json, stdout has one object per line: address, canonical, verdict (allowed, barred or invalid), problem.

    \b
    Examples:
      stoplist-client check email --group grp_… < recipients.txt > allowed.txt
      echo ann@example.com | stoplist-client check email --any-group --fail-if-barred
    """
    with open_mirror_query(channel, **options) as (mirror, query):
        printer = _JsonPrinter() if as_json else _LinePrinter()
        for lines in slices_of_lines(standard_input("one address per line")):
            non_empty = [line for line in lines if not line.isspace()]
            printer.show(non_empty, query.check(mirror, decode_lines(non_empty)))
    if printer.invalid or (fail_if_barred and printer.barred):
        exit_not_all_accepted()


class _LinePrinter:
    """Prints allowed lines on stdout and the others on stderr, and flushes after each slice."""

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


class _JsonPrinter:
    """Prints one JSON object per line on stdout."""

    def __init__(self) -> None:
        self._out = standard_output()
        self._encoder = msgspec.json.Encoder()
        self.barred = self.invalid = 0

    def show(self, _lines: list[bytes], checked: Iterable[Any]) -> None:
        self._out.write(escaped_json(self._encoder.encode_lines(self._json_objects(checked))))
        self._out.flush()

    def _json_objects(self, checked: Iterable[Any]) -> list[dict[str, Any]]:
        objects = []
        for one in checked:
            if one.verdict != "allowed":
                self.barred += one.verdict == "barred"
                self.invalid += one.verdict == "invalid"
            objects.append(
                {
                    "address": _unicode(one.address),
                    "canonical": one.canonical,
                    "verdict": one.verdict,
                    "problem": _problem(one),
                }
            )
        return objects


def _problem(one: Checked) -> str | None:
    return one.problem if is_utf_8(one.address) else NOT_UTF_8


def _write(stream: BinaryIO, lines: list[bytes]) -> None:
    if lines:
        stream.write(b"".join(lines) if lines[-1].endswith(b"\n") else b"".join(lines) + b"\n")
        stream.flush()


def _unicode(text: str) -> str:
    """Return the text with bytes that were not UTF-8 as backslash escapes, so that JSON can hold it."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")

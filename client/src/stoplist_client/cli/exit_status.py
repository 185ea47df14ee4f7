"""Errors of the command line: one line on stderr, and the exit status.

With `--debug` the traceback is printed too: files, lines and function names. Values and the messages of libraries are
left out, since they may contain addresses, tokens or secrets.
"""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO, TypeVar

import click

from stoplist_client.cli.escapes import escaped
from stoplist_client.cli.messages import message_of
from stoplist_client.errors import ConfigurationError, StoplistClientError

F = TypeVar("F", bound=Callable[..., Any])

FAILED, WRONG_USAGE, NOT_ALL_ACCEPTED, INTERRUPTED, TERMINATED = 1, 2, 3, 130, 143


class GlobalOptions:
    """The options that every command takes."""

    debug = False


class Terminated(BaseException):
    """The process received SIGTERM."""


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Raise Terminated on SIGTERM within this block, so that unfinished files are removed and locks released."""

    def end(_signal: int, _frame: object) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Failed(click.ClickException):
    """The command failed; the message says why and what would be right."""


def exit_not_all_accepted() -> NoReturn:
    """Exit with status 3: done, but not everything was accepted."""
    raise click.exceptions.Exit(NOT_ALL_ACCEPTED)


class WrongVariables(Failed):
    """The environment variables contradict each other, or the command line."""

    exit_code = WRONG_USAGE


def debug_option(command: F) -> F:
    """Add `--debug`, which every command takes."""
    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_set_debug,
        help="If the command fails, print a traceback too.",
    )(command)


def report_error(error: BaseException, global_options: GlobalOptions) -> int:
    """Report an error on stderr, and return the exit status."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILED
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        _discard_buffer(sys.stdout)
        return FAILED
    if global_options.debug:
        _print_frames(error)
    text, status = _text_and_status(error)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
    else:
        print_notice(text)
    return status


def print_notice(text: str) -> None:
    """Print one line on stderr, with control characters escaped. A closed stderr is ignored."""
    try:
        click.echo(escaped(f"stoplist-client: {text}", keeps_lines=True), err=True)
    except OSError:
        _discard_buffer(sys.stderr)


def _text_and_status(error: BaseException) -> tuple[str, int]:
    match error:
        case click.UsageError():
            where = f" See `{error.ctx.command_path} --help`." if error.ctx else ""
            # click prints choices on separate lines; an error is one line here.
            return f"{_sentence(' '.join(error.format_message().split()))}{where}", WRONG_USAGE
        case click.ClickException():
            return error.format_message(), error.exit_code
        case click.Abort() | KeyboardInterrupt():
            return "Interrupted.", INTERRUPTED
        case Terminated():
            return "Terminated by SIGTERM.", TERMINATED
        case ConfigurationError():
            return message_of(error), WRONG_USAGE
        case StoplistClientError():
            return message_of(error), FAILED
        case OSError():
            return _os_error_text(error), FAILED
    return f"This is a bug in stoplist-client ({_location(error)}): please report what --debug prints.", FAILED


def _os_error_text(error: OSError) -> str:
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return _sentence(": ".join([*names, error.strerror or type(error).__name__]))


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _location(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {os.path.basename(frames[-1].filename)}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


def _print_frames(error: BaseException | None) -> None:
    """Print the frames of an error and its causes. Messages are printed for our own errors alone."""
    while error is not None:
        for frame in traceback.extract_tb(error.__traceback__):
            click.echo(f"  {frame.filename}, line {frame.lineno}, in {frame.name}", err=True)
        text = f": {error}" if isinstance(error, StoplistClientError) else ""
        click.echo(escaped(f"{type(error).__name__}{text}", keeps_lines=True), err=True)
        error = error.__cause__ or error.__context__


def _set_debug(context: click.Context, _option: click.Parameter, value: bool) -> None:
    global_options = context.find_object(GlobalOptions)
    if global_options is not None and value:
        global_options.debug = True


def _discard_buffer(stream: TextIO | None) -> None:
    # Python flushes the buffer once more at exit, and would print a traceback when that fails again.
    if stream is None:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)

"""How a command ends that did not do what was asked: one line on stderr, and the exit status.

With `--debug` the way through the code is printed as well: files, lines and names of functions. Values are not, nor the
texts of libraries, since they may hold addresses, tokens or secrets.
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

from stoplist_client.cli.messages import spoken
from stoplist_client.errors import ConfigurationError, StoplistClientError

F = TypeVar("F", bound=Callable[..., Any])

FAILED, WRONG_USAGE, NOT_ALL, INTERRUPTED, TERMINATED = 1, 2, 3, 130, 143


class GlobalOptions:
    """What a command line asks for beside its command."""

    debug = False


class Terminated(BaseException):
    """SIGTERM came."""


@contextmanager
def hearing_sigterm() -> Iterator[None]:
    """Within, SIGTERM is Terminated, wherever it comes: so unfinished files are removed, and locks let go."""

    def end(_signal: int, _frame: object) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Failed(click.ClickException):
    """What was asked for was not done; the text says why and what would be right."""


def end_not_all() -> NoReturn:
    """The command ends as one that was done, though not everything was acceptable."""
    raise click.exceptions.Exit(NOT_ALL)


class WrongVariables(Failed):
    """The variables are at odds with each other, or with the command line."""

    exit_code = WRONG_USAGE


def debug_option(command: F) -> F:
    """`--debug`, which every command takes."""
    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_note_debug,
        help="If it fails, print the way through the code too.",
    )(command)


def ended(error: BaseException, wishes: GlobalOptions) -> int:
    """The exit status for what a command was ended by; stderr tells about it."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILED
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        _forget(sys.stdout)
        return FAILED
    if wishes.debug:
        _print_way(error)
    text, status = _text_and_status(error)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
    else:
        tell(text)
    return status


def tell(text: str) -> None:
    """One line on stderr; that nobody reads it is no further trouble."""
    try:
        click.echo(f"stoplist-client: {text}", err=True)
    except OSError:
        _forget(sys.stderr)


def _text_and_status(error: BaseException) -> tuple[str, int]:
    match error:
        case click.UsageError():
            where = f" See `{error.ctx.command_path} --help`." if error.ctx else ""
            # click puts the choices on lines of their own.
            return f"{_sentence(' '.join(error.format_message().split()))}{where}", WRONG_USAGE
        case click.ClickException():
            return error.format_message(), error.exit_code
        case click.Abort() | KeyboardInterrupt():
            return "Interrupted.", INTERRUPTED
        case Terminated():
            return "Ended by SIGTERM.", TERMINATED
        case ConfigurationError():
            return spoken(error), WRONG_USAGE
        case StoplistClientError():
            return spoken(error), FAILED
        case OSError():
            return _of_the_system(error), FAILED
    return f"This is a defect of the program ({_place(error)}): please report what --debug prints.", FAILED


def _of_the_system(error: OSError) -> str:
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return _sentence(": ".join([*names, error.strerror or type(error).__name__]))


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {os.path.basename(frames[-1].filename)}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


def _print_way(error: BaseException | None) -> None:
    """The frames of an error and of those it came from; only errors of our own have a text."""
    while error is not None:
        for frame in traceback.extract_tb(error.__traceback__):
            click.echo(f"  {frame.filename}, line {frame.lineno}, in {frame.name}", err=True)
        text = f": {error}" if isinstance(error, StoplistClientError) else ""
        click.echo(f"{type(error).__name__}{text}", err=True)
        error = error.__cause__ or error.__context__


def _note_debug(context: click.Context, _option: click.Parameter, value: bool) -> None:
    wishes = context.find_object(GlobalOptions)
    if wishes is not None and value:
        wishes.debug = True


def _forget(stream: TextIO | None) -> None:
    # What is left in the buffer would be tried again at the end of the process, and fail as loudly as it can.
    if stream is None:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)

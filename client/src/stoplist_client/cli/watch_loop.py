"""The loop of `sync --watch`."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from stoplist_client.cli.exit_status import Terminated, print_notice
from stoplist_client.cli.messages import message_of
from stoplist_client.cli.sync_round import SyncRound
from stoplist_client.environment import Environment
from stoplist_client.errors import ApiError, ConfigurationError, InvalidToken, StoplistClientError
from stoplist_client.mirror.poll_interval import MIN_INTERVAL_S
from stoplist_client.mirror.syncing import MAX_WAIT_S

_FIRST_WAIT_S, _USUAL_WAIT_S, _LONGEST_WAIT_S = 5.0, 60.0, 300.0


Synchronise: TypeAlias = Callable[[int | None], SyncRound]
"""Runs one round, which waits so many seconds for a change (None: reads all feeds at once)."""


def watch(synchronise: Synchronise, every_s: float | None) -> None:
    """Synchronise repeatedly until SIGTERM or Ctrl+C: every so many seconds, or (None) as soon as something changes.

    Errors that waiting cannot resolve are raised. After others, the pauses grow.
    """
    rounds = _WaitingRounds(synchronise) if every_s is None else _RegularRounds(synchronise, every_s)
    every_s = every_s or _USUAL_WAIT_S
    failures = 0
    with suppress(KeyboardInterrupt, Terminated):
        while True:
            try:
                wait_s = rounds.run()
                failures = 0
            except StoplistClientError as error:
                if not _is_transient(error):
                    raise
                failures += 1
                wait_s = backoff_s(failures, every_s, Environment().jitter())
                print_notice(f"{message_of(error)} Trying again in {wait_s:.0f} s.")
            time.sleep(wait_s)


class _RegularRounds:
    def __init__(self, synchronise: Synchronise, every_s: float) -> None:
        self._synchronise, self._every_s = synchronise, every_s

    def run(self) -> float:
        """Run one round, and return the pause after it."""
        self._synchronise(None)
        return self._every_s


class _WaitingRounds:
    """The first round reads all feeds, and so does one after a refusal, to tell whether the key is at fault."""

    def __init__(self, synchronise: Synchronise) -> None:
        self._synchronise, self._reads_all = synchronise, True

    def run(self) -> float:
        """Run one round, and return the pause after it."""
        done = self._synchronise(None if self._reads_all else MAX_WAIT_S)
        self._reads_all = not self._reads_all and isinstance(done.refusal, ApiError)
        return MIN_INTERVAL_S if done.pause_s is None else done.pause_s


def _is_transient(error: StoplistClientError) -> bool:
    """Return whether a retry may succeed without anybody's help."""
    if isinstance(error, ApiError) and not isinstance(error, InvalidToken):
        return error.status == 429 or error.status >= 500
    return not isinstance(error, ConfigurationError)


def backoff_s(failures: int, every_s: float, jitter: float) -> float:
    """Return the wait after this many failures in a row: at most five minutes or `every_s`, plus the jitter (0 to 1).

    The jitter adds up to half of the wait.
    """
    longest_s = max(every_s, _LONGEST_WAIT_S)
    return float(min(min(every_s, _FIRST_WAIT_S) * 2.0 ** min(failures - 1, 16), longest_s) * (1 + jitter / 2))

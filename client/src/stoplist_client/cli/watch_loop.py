"""The loop of `sync --watch`."""

import random
import time
from collections.abc import Callable
from contextlib import suppress

from stoplist_client.cli.exit_status import Terminated, print_notice
from stoplist_client.cli.messages import message_of
from stoplist_client.errors import ApiError, ConfigurationError, InvalidToken, StoplistClientError

_FIRST_WAIT_S, _LONGEST_WAIT_S = 5.0, 300.0


def watch(synchronise: Callable[[], object], every_s: float) -> None:
    """Call `synchronise` repeatedly until SIGTERM or Ctrl+C. Errors that waiting cannot resolve are raised."""
    failures = 0
    with suppress(KeyboardInterrupt, Terminated):
        while True:
            wait_s = every_s
            try:
                synchronise()
                failures = 0
            except StoplistClientError as error:
                if not _is_transient(error):
                    raise
                failures += 1
                wait_s = backoff_s(failures, every_s, random.random())  # noqa: S311 - jitter, not a secret
                print_notice(f"{message_of(error)} Trying again in {wait_s:.0f} s.")
            time.sleep(wait_s)


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

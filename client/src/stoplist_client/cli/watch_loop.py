"""`sync --watch`: the same again and again, for as long as it may help."""

import random
import time
from collections.abc import Callable
from contextlib import suppress

from stoplist_client.cli.exit_status import Terminated, tell
from stoplist_client.cli.messages import spoken
from stoplist_client.errors import ApiError, ConfigurationError, InvalidToken, StoplistClientError

_FIRST_WAIT_S, _LONGEST_WAIT_S = 5.0, 300.0


def watch(synchronise: Callable[[], object], every_s: float) -> None:
    """Goes on until SIGTERM or Ctrl+C, wherever it is; what cannot pass by itself is raised."""
    failures = 0
    with suppress(KeyboardInterrupt, Terminated):
        while True:
            wait_s = every_s
            try:
                synchronise()
                failures = 0
            except StoplistClientError as error:
                if not _may_pass(error):
                    raise
                failures += 1
                wait_s = backoff_s(failures, every_s, random.random())  # noqa: S311 - spreads them, and is no secret
                tell(f"{spoken(error)} Trying again in {wait_s:.0f} s.")
            time.sleep(wait_s)


def _may_pass(error: StoplistClientError) -> bool:
    """Whether the same may go well later without anybody doing anything."""
    if isinstance(error, ApiError) and not isinstance(error, InvalidToken):
        return error.status == 429 or error.status >= 500
    return not isinstance(error, ConfigurationError)


def backoff_s(failures: int, every_s: float, chance: float) -> float:
    """How long to wait after so many failures in a row; never much longer than usual, nor than five minutes."""
    longest_s = max(every_s, _LONGEST_WAIT_S)
    return float(min(min(every_s, _FIRST_WAIT_S) * 2.0 ** min(failures - 1, 16), longest_s) * (1 + chance / 2))

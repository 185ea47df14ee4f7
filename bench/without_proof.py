"""The `stoplist` command without the states of feeds and the positions of readers: the baseline of bench/proof.py.

A change stores a state that it does not compute, and a request notes nothing. The statements are the same.
"""

from typing import Any
from unittest.mock import patch

from stoplist.cli import main
from stoplist.proof.positions import Positions
from stoplist.unsubscribes import storing
from stoplist.unsubscribes.feed_state import FeedState


async def _state_after(*arguments: Any) -> FeedState:
    """Return a state that looks complete, so that no chore computes it later."""
    *_, new_head_seq, _ = arguments
    return FeedState(new_head_seq, 0, 0)


if __name__ == "__main__":
    with patch.object(storing, "_state_after", _state_after), patch.object(Positions, "note", lambda *_, **__: None):
        main()

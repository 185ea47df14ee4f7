"""How the tests ask a limiter that counts in this process."""

from collections.abc import Coroutine
from typing import Any

import pytest

from stoplist.limits.decision import RateDecision


def at_once(asked: Coroutine[Any, Any, RateDecision]) -> RateDecision:
    """The decision, which must be there without giving way to any other request."""
    with pytest.raises(StopIteration) as stop:
        asked.send(None)
    decision = stop.value.value
    assert isinstance(decision, RateDecision)
    return decision

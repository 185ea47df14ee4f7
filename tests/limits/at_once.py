"""Calls a limiter that counts in this process."""

from collections.abc import Coroutine
from typing import Any

import pytest

from stoplist.limits.decision import RateDecision


def at_once(pending_decision: Coroutine[Any, Any, RateDecision]) -> RateDecision:
    """Return the decision, which must not yield to any other request."""
    with pytest.raises(StopIteration) as stop:
        pending_decision.send(None)
    decision = stop.value.value
    assert isinstance(decision, RateDecision)
    return decision

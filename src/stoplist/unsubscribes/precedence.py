"""Decides which act wins: the later act of the person, not the later request. Pure rules, no I/O.

Source: docs/interface.md section D6.
"""

from stoplist.unsubscribes.model import UNSUBSCRIBED


def later_act_wins(status: str, latest_act_ms: int | None, offered_status: str, offered_ms: int) -> bool:
    """Return whether an act changes a record that shows `status` and whose latest known act was at `latest_act_ms`.

    Times are milliseconds since 1970 UTC; None means that no act is known. On a tie the opt-out wins, so that no
    reordering can undo an opt-out.
    """
    if status == offered_status:
        return False
    if latest_act_ms is None or offered_ms > latest_act_ms:
        return True
    return offered_ms == latest_act_ms and offered_status == UNSUBSCRIBED


def time_of_unstated(*, now_ms: int, latest_act_ms: int | None) -> int:
    """Return the time of an opt-out that states none: now, or later if needed, so that it always takes effect."""
    return now_ms if latest_act_ms is None else max(now_ms, latest_act_ms)

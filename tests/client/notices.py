"""All that can be learnt from an error: its texts, those of its causes, and the locals of our frames."""

import traceback
from types import FrameType

_BELOW = ("stoplist_client", "httpx2", "httpcore2", "msgspec")


def told_by(error: BaseException) -> str:
    """What logs and error trackers that print locals would have; of frames only those of the client, and below it."""
    told: list[str] = []
    one: BaseException | None = error
    while one is not None:
        told.append(f"{one!r} {one} {one.args}")
        # The frames of a test know all; those of the client, and of what is underneath, may not.
        frames = ((frame, line) for frame, line in traceback.walk_tb(one.__traceback__) if _is_below(frame))
        told += traceback.StackSummary.extract(frames, capture_locals=True).format()
        one = one.__cause__ or one.__context__
    return "\n".join(told)


def _is_below(frame: FrameType) -> bool:
    return str(frame.f_globals["__name__"]).partition(".")[0] in _BELOW

"""Everything that an error exposes: its message, those of its causes, and the locals of our frames."""

import traceback
from types import FrameType

_BELOW = ("stoplist_client", "httpx2", "httpcore2", "msgspec")


def exposed_by(error: BaseException) -> str:
    """Return what logs and error trackers would show, with the locals of the client's frames and those below."""
    told: list[str] = []
    one: BaseException | None = error
    while one is not None:
        told.append(f"{one!r} {one} {one.args}")
        # The frames of a test hold secrets; those of the client and of its libraries must not.
        frames = ((frame, line) for frame, line in traceback.walk_tb(one.__traceback__) if _is_below(frame))
        told += traceback.StackSummary.extract(frames, capture_locals=True).format()
        one = one.__cause__ or one.__context__
    return "\n".join(told)


def _is_below(frame: FrameType) -> bool:
    return str(frame.f_globals["__name__"]).partition(".")[0] in _BELOW

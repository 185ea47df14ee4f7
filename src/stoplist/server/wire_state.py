"""The state that all connections of one server share."""

from collections.abc import Callable

from uvicorn.server import ServerState

from stoplist.server.bounds import Bounds

OnOwnAnswer = Callable[[str, int], None]


class WireState(ServerState):
    """The state that all connections of one server share.

    `bad_request_code` returns the error code for a request that cannot be parsed, given its path ("" if unknown).
    `on_own_answer` is called with the request id and status of each answer that the application did not make.
    """

    def __init__(
        self,
        bounds: Bounds,
        *,
        now_s: float,
        bad_request_code: Callable[[str], str],
        on_own_answer: OnOwnAnswer,
    ) -> None:
        super().__init__()
        self.bounds = bounds
        self.now_s = now_s  # updated by every sweep
        self.is_leaving = False  # connections are still accepted, and close after their next answer
        self.is_draining = False
        self.bad_request_code = bad_request_code
        self.on_own_answer = on_own_answer

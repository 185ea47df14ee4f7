"""The state that all connections of one server share."""

from collections.abc import Callable, Sequence

from uvicorn.server import ServerState

from stoplist.server.bounds import Bounds
from stoplist.server.connection_table import ConnectionTable

OnOwnAnswer = Callable[[str, int, str | None], None]


class WireState(ServerState):
    """The state that all connections of one server share.

    `bad_request_code` returns the error code for a request that cannot be parsed, given its path ("" if unknown).
    `on_own_answer` is called with the request id, status and peer of each answer that the application did not make.
    `fixed_headers` are sent with every answer, beside the date.
    `is_trusted` says whether an address is that of a trusted proxy.
    """

    def __init__(
        self,
        bounds: Bounds,
        *,
        now_s: float,
        bad_request_code: Callable[[str], str],
        on_own_answer: OnOwnAnswer,
        fixed_headers: Sequence[tuple[bytes, bytes]] = (),
        is_trusted: Callable[[str], bool] = lambda _: False,
    ) -> None:
        super().__init__()
        self.bounds = bounds
        self.table = ConnectionTable(bounds, is_trusted)
        self.now_s = now_s  # updated by every sweep
        self.is_leaving = False  # connections are still accepted, and close after their next answer
        self.is_draining = False
        self.bad_request_code = bad_request_code
        self.on_own_answer = on_own_answer
        self.fixed_headers = fixed_headers

"""What can go wrong with a request or its answer, and with which requests: what tests tell the proxy of `faults.py`."""

import asyncio
import enum
import threading
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from tests.services.http_messages import Reply as Reply  # for whoever tells the proxy
from tests.services.http_messages import Request

_PATIENCE_S = 60.0


class Mishap(enum.Enum):
    """What becomes of a request, or of its answer."""

    DROP = "the connection is closed, and the server never sees the request"
    RESET = "the same, by TCP RST"
    LOSE = "the server answers, and the connection is closed instead of passing it on"
    CUT = "half of the server's answer is passed on, then the connection is closed"


DROP, RESET, LOSE, CUT = Mishap.DROP, Mishap.RESET, Mishap.LOSE, Mishap.CUT


class Hold:
    """The server answers, and its answer waits until `release`."""

    def __init__(self) -> None:
        self._answered, self._released = threading.Event(), threading.Event()

    def wait(self) -> None:
        """Returns when the server has answered. Raises TimeoutError."""
        if not self._answered.wait(_PATIENCE_S):
            raise TimeoutError("no request whose answer could be held")

    def release(self) -> None:
        """The client gets the answer. May be called before there is one."""
        self._released.set()

    async def pass_by(self) -> None:
        self._answered.set()
        while not self._released.is_set():  # noqa: ASYNC110 (it is set from another thread)
            await asyncio.sleep(0.005)


class Alter(msgspec.Struct, frozen=True):
    """The server answers, and the client is told what `change` makes of it."""

    change: Callable[[Reply], Reply]


Fault: TypeAlias = Mishap | Reply | Hold | Alter | None
"""A Reply is given instead of asking the server; None: the request passes."""
Which: TypeAlias = Callable[[Request], bool]


def is_any(request: Request) -> bool:
    """Every request."""
    return True


def is_refresh(request: Request) -> bool:
    """Presents a refresh token."""
    return request.grant_type == "refresh_token"


def is_credentials(request: Request) -> bool:
    """Asks for tokens by client_credentials."""
    return request.grant_type == "client_credentials"


def is_api(request: Request) -> bool:
    """Goes to the API, not to the token endpoint."""
    return request.path.startswith("/api/")

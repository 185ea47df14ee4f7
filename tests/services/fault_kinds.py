"""The faults that tests inject through the proxy of `faults.py`, and conditions that select requests."""

import asyncio
import enum
import threading
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from tests.constants import PATIENCE_S
from tests.services.http_messages import Reply as Reply  # for tests that import both
from tests.services.http_messages import Request


class ConnectionFault(enum.Enum):
    """A fault of the connection."""

    DROP = "the connection is closed, and the server never sees the request"
    RESET = "the same, by TCP RST"
    LOSE = "the server answers, and the connection is closed instead of passing it on"
    CUT = "half of the server's answer is passed on, then the connection is closed"


DROP, RESET, LOSE, CUT = ConnectionFault.DROP, ConnectionFault.RESET, ConnectionFault.LOSE, ConnectionFault.CUT


class EndlessFault(enum.Enum):
    """A fault that lasts until the client gives up."""

    INTERIM = "100 Continue again and again; the server never sees the request"


INTERIM = EndlessFault.INTERIM


class Hold:
    """Hold back the server's answer until `release`."""

    def __init__(self) -> None:
        self._answered, self._released = threading.Event(), threading.Event()

    def wait(self) -> None:
        """Wait until the server has answered. Raise TimeoutError if it does not."""
        if not self._answered.wait(PATIENCE_S):
            raise TimeoutError("there was no answer to hold back")

    def release(self) -> None:
        """Pass the answer on. May be called before there is one."""
        self._released.set()

    async def hold_answer(self) -> None:
        self._answered.set()
        while not self._released.is_set():  # noqa: ASYNC110 (it is set from another thread)
            await asyncio.sleep(0.005)


class Alter(msgspec.Struct, frozen=True):
    """Pass on the server's answer as changed by `change`."""

    change: Callable[[Reply], Reply]


Fault: TypeAlias = ConnectionFault | EndlessFault | Reply | Hold | Alter | None
"""A Reply is returned without asking the server; None passes the request."""
Which: TypeAlias = Callable[[Request], bool]


def is_any(request: Request) -> bool:
    """Select every request."""
    return True


def is_refresh(request: Request) -> bool:
    """Select requests that present a refresh token."""
    return request.grant_type == "refresh_token"


def is_credentials(request: Request) -> bool:
    """Select token requests by client_credentials."""
    return request.grant_type == "client_credentials"


def is_api(request: Request) -> bool:
    """Select requests to the API, not to the token endpoint."""
    return request.path.startswith("/api/")

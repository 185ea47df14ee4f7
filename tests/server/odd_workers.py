"""Worker processes that do not do what workers do: each takes the place of `stoplist.server.worker.main`.

They load next to nothing, so that they are there at once.
"""

import os
import signal
import socket
import time
from typing import Any

STARTED = b'{"about":"started"}\n'


def stuck(_settings: Any, _sockets: list[socket.socket], end: socket.socket) -> None:
    """Never says that it has started."""
    _until_the_parent_is_gone(end)


def serving(_settings: Any, _sockets: list[socket.socket], end: socket.socket) -> None:
    """Says that it has started, and ends by SIGTERM."""
    end.sendall(STARTED)
    _until_the_parent_is_gone(end)


def ending(_settings: Any, _sockets: list[socket.socket], end: socket.socket) -> None:
    """Says that it has started, and half of something else, and ends."""
    end.sendall(STARTED + b'{"about":"metr')


def lingering(_settings: Any, _sockets: list[socket.socket], end: socket.socket) -> None:
    """Has started, hangs up, and stays, whatever it is told."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end.sendall(STARTED)
    end.close()
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.01)


def _until_the_parent_is_gone(end: socket.socket) -> None:
    while end.recv(4096):
        pass

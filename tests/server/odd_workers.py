"""Worker processes that misbehave: each function takes the place of `stoplist.server.worker.main`.

They import next to nothing, so that they start at once.
"""

import os
import signal
import socket
import time
from typing import Any

STARTED = b'{"about":"started"}\n'


def stuck(_settings: Any, _sockets: list[socket.socket], end: socket.socket) -> None:
    """Never report the start."""
    _wait_for_supervisor_end(end)


def serving(_settings: Any, _sockets: list[socket.socket], end: socket.socket) -> None:
    """Report the start, and run until SIGTERM."""
    end.sendall(STARTED)
    _wait_for_supervisor_end(end)


def ending(_settings: Any, _sockets: list[socket.socket], end: socket.socket) -> None:
    """Report the start, send half a message, and exit."""
    end.sendall(STARTED + b'{"about":"metr')


def lingering(_settings: Any, _sockets: list[socket.socket], end: socket.socket) -> None:
    """Report the start, close the channel, and ignore SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end.sendall(STARTED)
    end.close()
    supervisor = os.getppid()
    while os.getppid() == supervisor:
        time.sleep(0.01)


def _wait_for_supervisor_end(end: socket.socket) -> None:
    while end.recv(4096):
        pass

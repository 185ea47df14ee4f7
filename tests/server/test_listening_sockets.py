"""The sockets that a server listens on. tests/e2e/test_stop.py and tests/e2e/test_workers.py have them in servers."""

import socket
from typing import Any

from stoplist.server.listening_sockets import drop_new_connections


class Refusing(socket.socket):
    """A socket to which the kernel grants no filter, as some kernels do for accounts without privileges."""

    def setsockopt(self, *arguments: Any) -> None:
        raise PermissionError(1, "Operation not permitted")


def test_a_stop_does_without_a_filter_where_there_is_none() -> None:
    with Refusing() as sock:
        drop_new_connections(sock)

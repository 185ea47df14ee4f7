"""The sockets that a server listens on: opened before it or its workers start, and emptied before they are closed."""

import contextlib
import ctypes
import errno
import select
import socket
import struct
import sys

from stoplist.errors import SettingsError

BACKLOG = 2048
LISTEN_SETTINGS = "STOPLIST_HOST and STOPLIST_PORT"
# Of <asm-generic/socket.h>, which the module `socket` does not name, and a filter program of one instruction, which
# accepts 0 bytes of each packet.
_SO_ATTACH_FILTER = 26
_DROP_ALL = struct.pack("@HBBI", 0x06, 0, 0, 0)
_REMEDIES = {
    errno.EADDRINUSE: "another process listens there already: stop it, or choose another port",
    errno.EACCES: "this user may not use it: choose a port of 1024 or above, or grant CAP_NET_BIND_SERVICE",
    errno.EADDRNOTAVAIL: "this machine has no such address: use 127.0.0.1 for local clients, 0.0.0.0 for all networks",
}


def open_sockets(host: str, port: int, settings_text: str = LISTEN_SETTINGS) -> list[socket.socket]:
    """Open listening sockets on every address of `host`, all on one port; port 0 chooses a free one.

    SettingsError, naming the settings in `settings_text`, if that is not possible.
    """
    sockets: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            actual_port = sockets[0].getsockname()[1] if sockets else port
            sockets.append(_listening_socket(family, (address, actual_port), is_v6_only=host != "::"))
    except OSError as error:
        for sock in sockets:
            sock.close()
        remedy = _REMEDIES.get(error.errno or 0, f"{error.strerror or error}")
        raise SettingsError(f"Cannot listen on {host} port {port} ({settings_text}): {remedy}.") from None
    return sockets


def drop_new_connections(sock: socket.socket) -> None:
    """Let the kernel ignore, on Linux, all further attempts to connect, for every process that has this socket.

    When a listening socket is closed, the kernel resets connections that no process has accepted yet, although their
    clients may have sent a request, and a balancer does not send such a request to another server. A client that is
    ignored tries to connect again after a second, and is then refused. Where the kernel grants no filter, as some do
    for accounts without privileges, nothing changes.
    """
    if sys.platform != "linux":
        return
    program = ctypes.create_string_buffer(_DROP_ALL)
    # A stop goes on without it: it must not end in an error because of some connections that nobody has accepted.
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", 1, ctypes.addressof(program)))


def has_unaccepted(sock: socket.socket) -> bool:
    """Return whether a connection waits to be accepted."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in infos))


def _listening_socket(family: socket.AddressFamily, address: tuple[str, int], *, is_v6_only: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, is_v6_only)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock

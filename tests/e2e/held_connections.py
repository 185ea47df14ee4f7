"""A program that holds many connections to a server from many addresses of 127.0.0.0/8, until its input ends.

Usage: held_connections.py PORT CA_FILE KIND NUMBER FIRST_NETWORK
"""

import contextlib
import socket
import ssl
import sys

_FROM_A_SOURCE = 900
_HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 60_000
_FORM = b"POST /settings/sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
_FORM += b"Content-Length: 8000\r\n\r\n" + b"email=" + b"x" * 7_000
# What is sent after the handshake, or None if there is to be none.
KINDS = {"no hello": None, "idle": b"", "head": _HEAD, "form": _FORM}


class Holder:
    """Opens connections to one server. Sessions are resumed, which takes both sides less time."""

    def __init__(self, port: int, ca_file: str) -> None:
        self._port = port
        self._context = ssl.create_default_context(cafile=ca_file)
        self._context.maximum_version = ssl.TLSVersion.TLSv1_2
        self._session: ssl.SSLSession | None = None

    def hold(self, sent: bytes | None, source: str) -> socket.socket:
        """Return a connection on which the server waits for more."""
        plain = socket.create_connection(("127.0.0.1", self._port), 60, source_address=(source, 0))
        if sent is None:
            return plain
        connection = self._context.wrap_socket(plain, server_hostname="localhost", session=self._session)
        self._session = connection.session
        connection.sendall(sent)
        return connection


def main() -> None:
    """Hold the connections; those that the server closes for others stay closed."""
    port, ca_file, kind, number, network = sys.argv[1:]
    holder, held = Holder(int(port), ca_file), []
    for count in range(int(number)):
        source = f"127.{network}.1.{1 + count // _FROM_A_SOURCE}"
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            held.append(holder.hold(KINDS[kind], source))
    sys.stdout.write("held\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()

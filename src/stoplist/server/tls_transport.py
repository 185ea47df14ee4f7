"""TLS over a plain transport, in little memory, and with no state before the client has sent anything.

uvloop's own TLS takes 50 KiB for a client that only connects, keeps up to 256 KiB of what was ever received at once,
and hides a connection until its handshake is complete. Source: docs/decisions/0034-connections.md.
"""

import asyncio
import ssl
from contextlib import suppress
from typing import Any, Protocol, cast

# OpenSSL keeps buffers of the size of the largest piece.
_PIECE_IN_BYTES, _PIECE_OUT_BYTES = 4 * 1024, 8 * 1024
# Of RFC 8446 section 5.1: the contents of one record.
_MAX_RECORD_BYTES = 16 * 1024


class SecuredProtocol(Protocol):
    """A protocol that sees its connection before the handshake."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take the transport. Nothing can be written yet."""

    def secured(self) -> None:
        """Note that the handshake is complete."""

    def data_received(self, data: bytes) -> None:
        """Take decrypted data."""

    def pause_writing(self) -> None:
        """Note that the client reads slowly."""

    def resume_writing(self) -> None:
        """Note that the client has read enough."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection is closed."""


class SecureTransport(asyncio.Transport, asyncio.Protocol):
    """The protocol of a plain transport, and the transport of another protocol."""

    def __init__(self, context: ssl.SSLContext, protocol: SecuredProtocol) -> None:
        super().__init__()
        self._context = context
        self._protocol: SecuredProtocol | None = protocol
        self._plain: asyncio.Transport
        self._incoming: ssl.MemoryBIO
        self._outgoing: ssl.MemoryBIO
        self._tls: ssl.SSLObject | None = None
        self._is_secured = self._is_paused = self._is_closing = self._is_input_dropped = False
        self._undelivered = b""  # received while reading was paused

    # Called by the plain transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Show the connection to the protocol, which may close it."""
        self._plain = cast("asyncio.Transport", transport)
        self._of_protocol.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """Decrypt data for the protocol, and answer what TLS itself asks."""
        if self._undelivered:
            data, self._undelivered = self._undelivered + data, b""
        if self._tls is None:
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        for at in range(0, len(data), _PIECE_IN_BYTES):
            if self._is_paused:
                self._undelivered = data[at:]
                return
            if self._is_closing or self._is_input_dropped:
                return
            self._incoming.write(data[at : at + _PIECE_IN_BYTES])
            if self._is_secured or self._shake_hands(self._tls):
                self._decrypt(self._tls)

    def eof_received(self) -> None:
        """Let the connection be closed."""

    def pause_writing(self) -> None:
        """Tell the protocol."""
        self._of_protocol.pause_writing()

    def resume_writing(self) -> None:
        """Tell the protocol."""
        self._of_protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the protocol, and break the reference cycles so that memory is freed at once."""
        self._is_closing = True
        self._of_protocol.connection_lost(exc)
        self._protocol, self._tls, self._undelivered = None, None, b""

    # Called by the protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send data; after `close` and before the handshake it is ignored."""
        tls = self._tls
        if tls is None or self._is_closing or self._is_input_dropped or not (self._is_secured and data):
            return
        try:
            for at in range(0, len(data), _PIECE_OUT_BYTES):
                tls.write(data[at : at + _PIECE_OUT_BYTES])
                self._plain.write(self._outgoing.read())
        except ssl.SSLError:
            self.abort()

    def can_write_eof(self) -> bool:
        """Return True: see `write_eof`."""
        return True

    def write_eof(self) -> None:
        """Close our side, with the alert `close_notify`, and drop whatever the client still sends."""
        if self._is_closing or self._is_input_dropped:
            return
        self._notify()
        self._is_input_dropped = True
        self._plain.write_eof()

    def close(self) -> None:
        """Close the connection once everything written is sent, with the alert `close_notify` at the end."""
        if self._is_closing:
            return
        self._is_closing = True
        if not self._is_input_dropped:
            self._notify()
        self._plain.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._is_closing = True
        self._plain.abort()

    def is_closing(self) -> bool:
        """Return whether the connection is closing or closed."""
        return self._is_closing or self._plain.is_closing()

    def pause_reading(self) -> None:
        """Pass no more data to the protocol until `resume_reading`."""
        if not self._is_paused:
            self._is_paused = True
            self._plain.pause_reading()

    def resume_reading(self) -> None:
        """Pass data to the protocol again, what was received already in the next turn."""
        if self._is_paused and not self.is_closing():
            self._is_paused = False
            self._plain.resume_reading()
            asyncio.get_running_loop().call_soon(self._deliver)

    def get_write_buffer_size(self) -> int:
        """Return how many encrypted bytes wait to be sent."""
        return self._plain.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the plain transport knows, or something about TLS."""
        if name == "sslcontext":
            return self._context
        if name == "ssl_object":
            return self._tls
        return self._plain.get_extra_info(name, default)

    # Internals

    @property
    def _of_protocol(self) -> SecuredProtocol:
        return cast("SecuredProtocol", self._protocol)

    def _shake_hands(self, tls: ssl.SSLObject) -> bool:
        """Continue the handshake, and return whether it is complete."""
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except (ssl.SSLError, OSError):
            self._flush()  # the alert that says why
            self._is_closing = True
            self._plain.close()
            return False
        self._is_secured = True
        self._flush()
        self._of_protocol.secured()
        return True

    def _decrypt(self, tls: ssl.SSLObject) -> None:
        """Pass all complete records to the protocol, unless it pauses or closes."""
        incoming = self._incoming
        try:
            while not (self._is_paused or self._is_closing or self._is_input_dropped):
                data = tls.read(_MAX_RECORD_BYTES)
                if not data:  # the client has closed its side
                    self.close()
                    return
                self._of_protocol.data_received(data)
                if not incoming.pending:
                    break
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLError, OSError):
            self._flush()
            self.abort()
            return
        if self._outgoing.pending:  # a key update, say
            self._flush()

    def _deliver(self) -> None:
        """Pass to the protocol what was received while reading was paused."""
        if self._tls is None or self._is_closing or not self._is_secured:
            return
        self._decrypt(self._tls)
        if self._undelivered and not self._is_paused:
            self.data_received(b"")

    def _notify(self) -> None:
        if self._tls is None or not self._is_secured:
            return
        # It would like to wait for the alert of the client, which needs no answer.
        with suppress(ssl.SSLError, OSError):
            self._tls.unwrap()
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending and not self._plain.is_closing():
            self._plain.write(self._outgoing.read())

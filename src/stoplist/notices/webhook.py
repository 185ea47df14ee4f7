"""Delivers a notice to the operator's own system: one POST, as Standard Webhooks has it.

It is bound as the request of a program within the operator's network must be: https alone, to an address that was
judged, without proxies and without redirects, for 15 seconds at most. Source: docs/interface.md section D16.
"""

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import h11

from stoplist.notices.outcome import DELIVERED, DeliveryOutcome, failed
from stoplist.notices.resolution import AddressRefused, LookUp, look_up, resolve
from stoplist.notices.signing import signature_headers

TIMEOUT_S = 15.0
MAX_ANSWER_BYTES = 16_384
_HTTPS_PORT = 443


class Webhook:
    """The operator's own system at an https URL; `secrets` sign, and any of them verifies."""

    def __init__(
        self,
        url: str,
        secrets: Sequence[bytes],
        *,
        is_private_allowed: bool = False,
        tls: ssl.SSLContext | None = None,
        look_up: LookUp = look_up,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "", parts.port or _HTTPS_PORT
        self._authority = parts.netloc
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._secrets, self._timeout_s = secrets, timeout_s
        self._is_private_allowed, self._look_up = is_private_allowed, look_up
        self._tls = tls or ssl.create_default_context()

    async def post(self, notice_id: str, body: str, *, now_ms: int) -> DeliveryOutcome:
        """Send the notice once, and return whether it was taken: any status of 2xx. Never raises."""
        request = self._request(notice_id, body.encode(), now_ms // 1000)
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._exchange(request)
        except AddressRefused:
            return DeliveryOutcome("the address is not public: see STOPLIST_NOTICE_ALLOW_PRIVATE")
        except (OSError, ssl.SSLError, h11.ProtocolError, ValueError, EOFError) as error:
            return failed(error)
        if 200 <= response.status_code < 300:
            return DELIVERED
        return DeliveryOutcome(f"HTTP {response.status_code}", _retry_after_s(response, now_ms))

    def _request(self, notice_id: str, body: bytes, now_s: int) -> list[h11.Event]:
        headers = [
            ("host", self._authority),
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("user-agent", "Stoplist"),
            ("connection", "close"),
            *signature_headers(notice_id, body, secrets=self._secrets, now_s=now_s),
        ]
        request = h11.Request(method="POST", target=self._target, headers=headers)
        return [request, h11.Data(data=body), h11.EndOfMessage()]

    async def _exchange(self, request: list[h11.Event]) -> h11.Response:
        reader, writer = await self._connect()
        try:
            connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_ANSWER_BYTES)
            writer.write(b"".join(connection.send(event) or b"" for event in request))
            await writer.drain()
            return await _read_head(connection, reader)
        finally:
            # Without the handshake that ends TLS: a receiver that hangs would not answer it.
            writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first address that answers, of those that the name has at this moment."""
        addresses = await resolve(
            self.host, self.port, is_private_allowed=self._is_private_allowed, look_up=self._look_up
        )
        for address in addresses[:-1]:
            with suppress(OSError):
                async with asyncio.timeout(self._timeout_s / len(addresses)):
                    return await self._open(address)
        return await self._open(addresses[-1])

    async def _open(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(address, self.port, ssl=self._tls, server_hostname=self.host)


async def _read_head(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Response:
    """Return the head of the answer, of at most MAX_ANSWER_BYTES; the rest is not read."""
    read_bytes = 0
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Response):
            return event
        if isinstance(event, h11.InformationalResponse):
            continue
        if event is not h11.NEED_DATA:
            raise h11.RemoteProtocolError("no answer of HTTP")
        # At the bound it reads nothing, which h11 takes for the end of the connection.
        received = await reader.read(MAX_ANSWER_BYTES - read_bytes)
        read_bytes += len(received)
        connection.receive_data(received)


def _retry_after_s(response: h11.Response, now_ms: int) -> int | None:
    """Return the seconds of `Retry-After`, in either of its forms; None if there are none, or they are malformed."""
    text = next((value.decode("latin-1") for name, value in response.headers if name == b"retry-after"), "")
    if text.isascii() and text.isdigit():
        return int(text[:9])
    with suppress(ValueError, OverflowError):
        return max(0, round(parsedate_to_datetime(text).timestamp() - now_ms / 1000))
    return None

"""Delivers e-mail through the mail server of the operator, over verified TLS. Source: docs/interface.md section D16."""

import asyncio
import ssl
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from typing import Any

import aiosmtplib

from stoplist.notices.mail_texts import MailText
from stoplist.notices.outcome import DELIVERED, DeliveryOutcome, failed
from stoplist.setting_values import SmtpServer

TIMEOUT_S = 30.0

_ENCODED_WORD = "=?"


class Mailer:
    """A mail server that accepts messages from this deployment."""

    def __init__(self, server: SmtpServer, *, tls: ssl.SSLContext | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._server, self._timeout_s = server, timeout_s
        self._tls = tls or ssl.create_default_context()

    async def send(self, recipient: str, text: MailText, *, message_id: str, now_ms: int) -> DeliveryOutcome:
        """Hand a message over once, and return whether the server took it. Never raises."""
        if _ENCODED_WORD in recipient:
            # A header would be read as another address: RFC 2047 section 5 has no encoded words in addresses.
            return DeliveryOutcome("the address cannot be written in a header")
        try:
            message = self._message(recipient, text, message_id=message_id, now_ms=now_ms)
            async with asyncio.timeout(self._timeout_s):
                await self._hand_over(message)
        except aiosmtplib.SMTPResponseException as error:
            return DeliveryOutcome(f"SMTP {error.code}")
        except (aiosmtplib.SMTPException, OSError, ssl.SSLError, ValueError) as error:
            return failed(error)
        return DELIVERED

    def _message(self, recipient: str, text: MailText, *, message_id: str, now_ms: int) -> EmailMessage:
        message = EmailMessage(policy=SMTP)
        message["From"] = self._server.sender
        message["To"] = recipient
        message["Subject"] = text.subject
        message["Date"] = formatdate(now_ms / 1000, usegmt=True)
        message["Message-ID"] = f"<{message_id}@{self._server.sender.rpartition('@')[2]}>"
        # RFC 3834: so that no absence notice answers.
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(text.body)
        return message

    async def _hand_over(self, message: EmailMessage) -> None:
        server = self._server
        # `start_tls=True` fails where the server offers none: a password is never sent in clear.
        client = aiosmtplib.SMTP(
            hostname=server.host,
            port=server.port,
            use_tls=not server.is_starttls,
            start_tls=server.is_starttls,
            tls_context=self._tls,
            username=server.user,
            password=server.password,
            timeout=self._timeout_s,
        )
        transport: Any = None  # asyncio's or uvloop's
        try:
            async with client:
                transport = client.transport
                await client.send_message(message)
        finally:
            if transport is not None:
                # Without the handshake that ends TLS: a server that hangs would not answer it.
                transport.abort()

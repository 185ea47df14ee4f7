"""A mail server: a real one on this machine, over TLS from the first byte or by STARTTLS."""

import asyncio
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, NamedTuple

from aiosmtpd.smtp import SMTP, AuthResult

from stoplist.setting_values import SmtpServer
from tests.notices.receiver import serving_tls

USER, PASSWORD, SENDER = "stoplist", "a password for mail", "no-reply@stoplist.example"


class MailServer(NamedTuple):
    """A running mail server, and what it took: recipients and messages."""

    port: int
    is_starttls: bool
    taken: list[tuple[list[str], EmailMessage]]

    def settings(self, **changes: Any) -> SmtpServer:
        """Return the setting that leads to it."""
        server = SmtpServer("localhost", self.port, self.is_starttls, USER, PASSWORD, SENDER)
        return server._replace(**changes)


class _Handler:
    def __init__(self, taken: list[tuple[list[str], EmailMessage]], refusal: str | None) -> None:
        self._taken, self._refusal = taken, refusal

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - its name
        if self._refusal is not None:
            return self._refusal
        message = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(message, EmailMessage)
        self._taken.append((list(envelope.rcpt_tos), message))
        return "250 OK"


def _authenticate(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
    return AuthResult(success=(data.login, data.password) == (USER.encode(), PASSWORD.encode()), handled=False)


@asynccontextmanager
async def mail_server(
    folder: Path, *, is_starttls: bool, offers_tls: bool = True, refusal: str | None = None
) -> AsyncIterator[MailServer]:
    """Run a mail server with a certificate of this folder; `refusal` is its answer to every message."""
    taken: list[tuple[list[str], EmailMessage]] = []
    tls, loop = serving_tls(folder, "localhost"), asyncio.get_running_loop()

    connections: list[SMTP] = []

    def connection() -> SMTP:
        with warnings.catch_warnings():
            # Its warning that passwords could come in clear: a test shows that none does.
            warnings.simplefilter("ignore", UserWarning)
            made = SMTP(
                _Handler(taken, refusal),
                hostname="mail.example",
                tls_context=tls if is_starttls and offers_tls else None,
                auth_required=True,
                auth_require_tls=False,
                authenticator=_authenticate,
                enable_SMTPUTF8=True,
                loop=loop,
            )
        connections.append(made)
        return made

    server = await loop.create_server(connection, "127.0.0.1", 0, ssl=None if is_starttls else tls)
    async with server:
        yield MailServer(server.sockets[0].getsockname()[1], is_starttls, taken)
        server.close()
        for one in connections:
            for transport in (one.transport, one._original_transport):
                if isinstance(transport, asyncio.Transport):
                    transport.abort()

"""A mail server: a real one on this machine, over TLS from the first byte or by STARTTLS."""

import asyncio
import socket
import warnings
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult

from stoplist.setting_values import SmtpServer
from tests.notices.receiver import serving_tls
from tests.services.threaded_server import ThreadedServer

USER, PASSWORD, SENDER = "stoplist", "a password for mail", "no-reply@stoplist.example"


class MailServer(ThreadedServer):
    """A mail server with a certificate of this folder, and what it took: recipients and messages.

    `refusal` is its answer to every message.
    """

    def __init__(self, folder: Path, *, is_starttls: bool, offers_tls: bool = True, refusal: str | None = None) -> None:
        self.taken: list[tuple[list[str], EmailMessage]] = []
        self._is_starttls, self._offers_tls, self._refusal = is_starttls, offers_tls, refusal
        self._sessions: list[SMTP] = []
        super().__init__(serving_tls(folder, "localhost"))

    def settings(self, **changes: Any) -> SmtpServer:
        """Return the setting that leads to it."""
        server = SmtpServer("localhost", self.port, self._is_starttls, USER, PASSWORD, SENDER)
        return server._replace(**changes)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - its name
        if self._refusal is not None:
            return self._refusal
        message = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(message, EmailMessage)
        self.taken.append((list(envelope.rcpt_tos), message))
        return "250 OK"

    async def _start(self, listening: socket.socket) -> asyncio.Server:
        tls = None if self._is_starttls else self._tls
        return await self._loop.create_server(self._new_session, sock=listening, ssl=tls)

    def _new_session(self) -> SMTP:
        with warnings.catch_warnings():
            # Its warning that passwords could come in clear: a test shows that none does.
            warnings.simplefilter("ignore", UserWarning)
            session = SMTP(
                self,
                hostname="mail.example",
                tls_context=self._tls if self._is_starttls and self._offers_tls else None,
                auth_required=True,
                auth_require_tls=False,
                authenticator=_authenticate,
                enable_SMTPUTF8=True,
                loop=self._loop,
            )
        self._sessions.append(session)
        return session

    async def _cut(self) -> None:
        for session in self._sessions:
            for transport in (session.transport, session._original_transport):
                if isinstance(transport, asyncio.Transport):
                    transport.abort()
        await super()._cut()


def _authenticate(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
    return AuthResult(success=(data.login, data.password) == (USER.encode(), PASSWORD.encode()), handled=False)

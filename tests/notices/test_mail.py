"""E-mails go to a real mail server over verified TLS (docs/interface.md section D16)."""

import asyncio
import functools
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ParamSpec

import psutil
import pytest

from stoplist.notices.mail import Mailer
from stoplist.notices.mail_texts import MailText, notice_text
from stoplist.notices.model import KINDS, body_text
from stoplist.notices.outcome import DELIVERED, DeliveryOutcome
from stoplist.setting_values import SmtpServer
from tests.notices.mail_server import SENDER, MailServer
from tests.notices.receiver import serving_tls
from tests.server.serving import trusting

pytestmark = pytest.mark.interpreter

P = ParamSpec("P")
NOW_MS = 2_431_152_000_000
TEXT = MailText("Grüße", "Ein Link:\n\nhttps://stoplist.example/link?token=" + "x" * 80 + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the certificate of the mail server."""
    folder = tmp_path_factory.mktemp("mail")
    serving_tls(folder, "localhost")
    return folder


async def send(server: SmtpServer, tls: ssl.SSLContext, *, recipient: str = "ann@example.org") -> DeliveryOutcome:
    mailer = Mailer(server, tls=tls, timeout_s=10)
    return await mailer.send(recipient, TEXT, message_id="ntc_1", now_ms=NOW_MS)


def in_own_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorate a test that is a coroutine: it runs in an event loop of its own."""

    @functools.wraps(test)
    def body(*values: P.args, **named: P.kwargs) -> None:
        asyncio.run(test(*values, **named))

    return body


@pytest.mark.parametrize("is_starttls", [False, True])
@in_own_loop
async def test_an_e_mail_arrives(folder: Path, is_starttls: bool) -> None:
    """It is sent by TLS from the first byte, and by STARTTLS. The connection ends at once."""
    with MailServer(folder, is_starttls=is_starttls) as server:
        assert await send(server.settings(), trusting(folder)) == DELIVERED
        await asyncio.sleep(0)
        connections = psutil.Process().net_connections("tcp")
        assert [one for one in connections if one.raddr and one.raddr.port == server.port] == []
    ((recipients, message),) = server.taken
    assert recipients == ["ann@example.org"]
    assert (message["From"], message["To"], message["Subject"]) == (SENDER, "ann@example.org", "Grüße")
    assert message["Date"].datetime.isoformat() == "2047-01-15T08:00:00+00:00"
    assert message["Message-ID"] == "<ntc_1@stoplist.example>"
    assert message["Auto-Submitted"] == "auto-generated"
    assert message.get_content().replace("\r\n", "\n") == TEXT.body


@pytest.mark.parametrize("is_starttls", [False, True])
@in_own_loop
async def test_a_mail_server_with_a_wrong_certificate_gets_nothing(
    folder: Path, tmp_path: Path, is_starttls: bool
) -> None:
    """It does not get the password either."""
    serving_tls(tmp_path, "localhost")
    with MailServer(folder, is_starttls=is_starttls) as server:
        outcome = await send(server.settings(), trusting(tmp_path))
    assert outcome == DeliveryOutcome("certificate not valid")
    assert server.taken == []


@pytest.mark.parametrize("local", ["=?utf-8?q?bob?=", "=?utf-8?q?=0d=0aBcc=3a?=", "=??b?-?="])
@in_own_loop
async def test_nobody_else_gets_the_e_mail_of_an_encoded_word(folder: Path, local: str) -> None:
    """A header of such an address would be read as `bob@example.org`, as another header, or not at all."""
    with MailServer(folder, is_starttls=False) as server:
        outcome = await send(server.settings(), trusting(folder), recipient=f"{local}@example.org")
    assert outcome == DeliveryOutcome("the address cannot be written in a header")
    assert server.taken == []


@in_own_loop
async def test_nothing_is_sent_in_clear(folder: Path) -> None:
    """A server that offers no STARTTLS, or somebody in between who hides it, gets neither password nor message."""
    with MailServer(folder, is_starttls=True, offers_tls=False) as server:
        outcome = await send(server.settings(), trusting(folder))
    assert outcome.error == "SMTPException"
    assert server.taken == []


@in_own_loop
async def test_a_refusal_is_told_by_its_code_alone(folder: Path) -> None:
    with MailServer(folder, is_starttls=False, refusal="550 no such person ann@example.org") as server:
        assert await send(server.settings(), trusting(folder)) == DeliveryOutcome("SMTP 550")
        assert await send(server.settings(password="wrong"), trusting(folder)) == DeliveryOutcome("SMTP 535")


@in_own_loop
async def test_a_server_that_is_away_is_a_failure(folder: Path) -> None:
    with MailServer(folder, is_starttls=False) as server:
        pass
    assert not (await send(server.settings(), trusting(folder))).is_delivered


@in_own_loop
async def test_a_line_break_adds_no_header(folder: Path) -> None:
    with MailServer(folder, is_starttls=False) as server:
        outcome = await send(server.settings(), trusting(folder), recipient="ann@example.org\r\nBcc: eve@example.org")
    assert outcome == DeliveryOutcome("ValueError")
    assert server.taken == []


@in_own_loop
async def test_a_recipient_may_have_letters_of_any_alphabet(folder: Path) -> None:
    with MailServer(folder, is_starttls=False) as server:
        assert await send(server.settings(), trusting(folder), recipient="jürgen@xn--r8jz45g.example") == DELIVERED
    ((recipients, _),) = server.taken
    assert recipients == ["jürgen@xn--r8jz45g.example"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_text(kind: str) -> None:
    body = body_text(kind, NOW_MS, {"client_id": "svc_ci_1", "counts": {"restored": 2}, "channels": ["email", "sms"]})
    text = notice_text(kind, body, base_url="https://stoplist.example")
    assert text.subject.startswith("Stoplist: ")
    assert (
        "time: 2047-01-15T08:00:00.000Z\nclient_id: svc_ci_1\ncounts: restored 2\nchannels: email, sms\n" in text.body
    )
    assert "of the kind" not in text.body

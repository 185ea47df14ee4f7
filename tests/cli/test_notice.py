"""`stoplist notice test` sends at once, without a database (docs/interface.md section D16)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_line import Prompt
from tests.notices.mail_server import PASSWORD, SENDER, USER, MailServer
from tests.notices.receiver import HOST, SECRET_TEXT, Receiver, serving_tls


@pytest.fixture
def receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Yield a receiver whose authority this machine trusts for the test."""
    folder = tmp_path / "outside"
    folder.mkdir()
    serving_tls(folder, HOST, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "ca.pem"))
    with Receiver(folder) as receiver:
        yield receiver


@pytest.fixture
def mail(receiver: Receiver) -> Iterator[MailServer]:
    """Yield a mail server with a certificate of the same authority."""
    with MailServer(receiver.folder, is_starttls=True) as server:
        yield server


def test_a_test_notice_arrives(empty: Prompt, receiver: Receiver, mail: MailServer) -> None:
    """It arrives by both ways. No database is made."""
    empty.set(
        NOTICE_URL=f"https://localhost:{receiver.port}/in",
        NOTICE_SECRET=SECRET_TEXT,
        NOTICE_ALLOW_PRIVATE="yes",
        SMTP_URL=f"smtp+starttls://{USER}:{PASSWORD.replace(' ', '%20')}@localhost:{mail.port}?from={SENDER}",
    )
    assert empty.json("notice", "test", "--mail", "ann@example.org") == [
        {"via": "webhook", "delivered": True, "error": None},
        {"via": "mail", "delivered": True, "error": None},
    ]
    assert b'"notice.test"' in receiver.received[0].body
    assert mail.taken[0][0] == ["ann@example.org"]
    assert not empty.data_dir.exists()


def test_a_failure_is_an_exit_status(empty: Prompt, receiver: Receiver) -> None:
    empty.set(NOTICE_URL=f"https://localhost:{receiver.port}/in", NOTICE_SECRET=SECRET_TEXT)
    result = empty.run("notice", "test")
    assert result.status == 1
    assert "the address is not public: see STOPLIST_NOTICE_ALLOW_PRIVATE" in result.out
    assert receiver.received == []


def test_a_way_that_is_not_set_is_refused(empty: Prompt) -> None:
    assert "STOPLIST_NOTICE_URL is not set" in empty.refused("notice", "test")
    empty.set(NOTICE_URL="https://127.0.0.1:1/in")
    assert "STOPLIST_NOTICE_SECRET is not set" in empty.refused("notice", "test")
    assert "STOPLIST_SMTP_URL is not set" in empty.refused("notice", "test", "--mail", "ann@example.org")

"""One POST to a real receiver over TLS (docs/interface.md section D16)."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from stoplist.notices.outcome import DELIVERED, DeliveryOutcome
from stoplist.notices.signing import signature_headers
from stoplist.notices.webhook import MAX_ANSWER_BYTES
from tests.constants import PATIENCE_S
from tests.notices.receiver import BROKEN, HANGS, OK, SECRET, Receiver, serving_tls
from tests.server.serving import trusting

pytestmark = pytest.mark.interpreter

NOW_MS = 2_431_152_000_000
BODY = '{"type":"notice.test"}'


def on_receiver(folder: Path, test: Callable[[Receiver], Coroutine[Any, Any, None]]) -> None:
    with Receiver(folder) as receiver:
        asyncio.run(test(receiver))


def test_a_notice_arrives_signed(certificate_folder: Path) -> None:
    async def test(receiver: Receiver) -> None:
        assert await receiver.webhook().post("ntc_1", BODY, now_ms=NOW_MS) == DELIVERED
        (request,) = receiver.received
        assert (request.method, request.target) == ("POST", "/notices?of=stoplist")
        assert request.body.decode() == BODY
        headers = request.headers
        signed = signature_headers("ntc_1", request.body, secrets=(SECRET,), now_s=NOW_MS // 1000)
        assert {name: headers[name] for name, _ in signed} == dict(signed)
        assert headers["host"] == f"hooks.example:{receiver.port}"
        assert headers["content-type"] == "application/json"

    on_receiver(certificate_folder, test)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", DELIVERED),
        ("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 202 Accepted\r\n\r\n", DELIVERED),
        (BROKEN, DeliveryOutcome("HTTP 500")),
        ("HTTP/1.1 410 Gone\r\n\r\n", DeliveryOutcome("HTTP 410")),
        ("HTTP/1.1 503 Busy\r\nRetry-After: 120\r\n\r\n", DeliveryOutcome("HTTP 503", 120)),
        ("HTTP/1.1 429 Slow\r\nRetry-After: Tue, 15 Jan 2047 08:01:00 GMT\r\n\r\n", DeliveryOutcome("HTTP 429", 60)),
        ("HTTP/1.1 503 Busy\r\nRetry-After: soon@x\r\n\r\n", DeliveryOutcome("HTTP 503")),
        ("SSH-2.0-OpenSSH_9\r\n", DeliveryOutcome("RemoteProtocolError")),
        ("HTTP/1.1 103 Early Hints\r\n\r\n" * 1_000 + OK, DeliveryOutcome("RemoteProtocolError")),
        ("HTTP/1.1 200 OK\r\nx: " + "x" * 2 * MAX_ANSWER_BYTES, DeliveryOutcome("RemoteProtocolError")),
    ],
)
def test_an_answer_says_whether_it_was_taken(certificate_folder: Path, answer: str, outcome: DeliveryOutcome) -> None:
    """Any 2xx; nothing of the answer but its status is repeated."""

    async def test(receiver: Receiver) -> None:
        receiver.answers = [answer]
        assert await receiver.webhook().post("ntc_1", BODY, now_ms=NOW_MS) == outcome

    on_receiver(certificate_folder, test)


def test_no_redirect_is_followed(certificate_folder: Path) -> None:
    """One to the receiver itself is not followed either: it would choose an address that nobody judged."""

    async def test(receiver: Receiver) -> None:
        receiver.answers = [f"HTTP/1.1 307 Elsewhere\r\nLocation: {receiver.url}\r\n\r\n", OK]
        assert await receiver.webhook().post("ntc_1", BODY, now_ms=NOW_MS) == DeliveryOutcome("HTTP 307")
        assert len(receiver.received) == 1

    on_receiver(certificate_folder, test)


def test_the_name_is_looked_up_once_and_judged(certificate_folder: Path) -> None:
    """A name that is private is not connected to. One that turns private on a second look has no second look."""

    async def test(receiver: Receiver) -> None:
        guarded = receiver.webhook(is_private_allowed=False)
        outcome = await guarded.post("ntc_1", BODY, now_ms=NOW_MS)
        assert outcome == DeliveryOutcome("the address is not public: see STOPLIST_NOTICE_ALLOW_PRIVATE")
        assert receiver.received == []
        opened: list[str] = []
        receiver.looked_up, receiver.addresses = [], [["8.8.8.8"], ["127.0.0.1"]]

        async def refuse(address: str, *_: Any, **__: Any) -> Any:
            opened.append(address)
            raise ConnectionRefusedError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "open_connection", refuse)
            assert await guarded.post("ntc_1", BODY, now_ms=NOW_MS) == DeliveryOutcome("ConnectionRefusedError")
        assert (receiver.looked_up, opened) == (["hooks.example"], ["8.8.8.8"])

    on_receiver(certificate_folder, test)


def test_the_next_address_is_tried_if_one_does_not_answer(certificate_folder: Path) -> None:
    async def test(receiver: Receiver) -> None:
        receiver.addresses = [["127.0.0.2", "127.0.0.1"]]
        assert await receiver.webhook().post("ntc_1", BODY, now_ms=NOW_MS) == DELIVERED

    on_receiver(certificate_folder, test)


def test_a_receiver_that_hangs_is_left(certificate_folder: Path) -> None:
    async def test(receiver: Receiver) -> None:
        receiver.answers = [HANGS]
        async with asyncio.timeout(PATIENCE_S):
            outcome = await receiver.webhook(timeout_s=0.2).post("ntc_1", BODY, now_ms=NOW_MS)
        assert outcome == DeliveryOutcome("no answer in time")

    on_receiver(certificate_folder, test)


def test_a_certificate_must_be_valid_for_the_name(certificate_folder: Path, tmp_path: Path) -> None:
    """A certificate of an unknown authority or for another host is refused."""
    serving_tls(tmp_path, "other.example")

    async def test(receiver: Receiver) -> None:
        for webhook in (
            receiver.webhook(tls=trusting(tmp_path)),
            receiver.webhook(url=receiver.url.replace("hooks", "other")),
        ):
            outcome = await webhook.post("ntc_1", BODY, now_ms=NOW_MS)
            assert outcome == DeliveryOutcome("certificate not valid")
        assert receiver.received == []

    on_receiver(certificate_folder, test)

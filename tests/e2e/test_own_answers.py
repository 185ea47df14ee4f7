"""Answers made below the application, by the real process: their envelope, and their line in the log."""

import re
import socket
from typing import Any

import httpx
import pytest

from tests.constants import PATIENCE_S
from tests.e2e.conftest import RunningDeployment
from tests.e2e.server_process import RunningServer

MALFORMED_CHUNK = b"Host: localhost\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n"


@pytest.fixture
def server(on_sqlite: RunningDeployment) -> RunningServer:
    return on_sqlite.servers[0]


def answer_to(server: RunningServer, request: bytes) -> httpx.Response:
    """Return the server's answer before it ends the connection."""
    with (
        socket.create_connection(("localhost", server.port), PATIENCE_S) as raw,
        server.tls.wrap_socket(raw, server_hostname="localhost") as tls,
    ):
        tls.sendall(request)
        received = b""
        while part := tls.recv(65536):
            received += part
    head, _, body = received.partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    headers = [(name, value) for name, _, value in (field.partition(": ") for field in fields)]
    return httpx.Response(int(first.split(" ")[1]), headers=headers, content=body)


@pytest.mark.parametrize(
    ("path", "error", "names"),
    [
        ("/oauth/token", "invalid_request", {"error", "error_description"}),
        ("/api/v1/x", "bad_request", {"error", "message", "error_description"}),
    ],
)
def test_the_envelope_is_that_of_the_endpoint(server: RunningServer, path: str, error: str, names: set[str]) -> None:
    """Source: docs/interface.md section 7.1. At the token endpoint it has exactly two fields."""
    answer = answer_to(server, f"POST {path} HTTP/1.1\r\n".encode() + MALFORMED_CHUNK)
    fields: dict[str, Any] = answer.json()
    assert (answer.status_code, fields["error"]) == (400, error)
    assert set(fields) == names


@pytest.mark.parametrize("request_", [b"svc_cs_no_http\r\n\r\n", b"POST /oauth/token HTTP/1.1\r\n" + MALFORMED_CHUNK])
def test_the_log_has_a_line_of_the_request(server: RunningServer, request_: bytes) -> None:
    """The request id that the client was given finds it; nothing that the client sent is in it."""
    request_id = answer_to(server, request_).headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{24}", request_id)
    assert server.log.wait_for_line(lambda line: line.get("request_id") == request_id)
    [line] = [line for line in server.log.lines if line.get("request_id") == request_id]
    assert line["status"] == 400
    assert "svc_cs_no_http" not in server.log.text

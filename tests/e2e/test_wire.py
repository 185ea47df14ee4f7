"""A server as strangers on the network see it, and what it logs of them."""

import re
import socket
import ssl
import warnings

import httpx
import pytest

from tests.constants import PATIENCE_S
from tests.e2e.conftest import RunningDeployment
from tests.e2e.server_process import Installation, RunningServer, reserved_address
from tests.keys import CLIENT_CREDENTIALS
from tests.web.test_metrics import samples

pytestmark = pytest.mark.interpreter


@pytest.fixture
def server(on_sqlite: RunningDeployment) -> RunningServer:
    return on_sqlite.servers[0]


def handshake(server: RunningServer, version: ssl.TLSVersion) -> str | None:
    """Return the protocol for a client that speaks only this version."""
    context = ssl.create_default_context(cafile=server.ca)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    with (
        socket.create_connection(("localhost", server.port), PATIENCE_S) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as tls,
    ):
        return tls.version()


def test_tls_is_1_2_or_newer(server: RunningServer) -> None:
    """The server refuses older versions, not this client."""
    assert handshake(server, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    assert handshake(server, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
    for version in (ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1):
        with pytest.raises(ssl.SSLError, match=r"(?i)EOF occurred|alert protocol version"):
            handshake(server, version)


def test_plain_http_gets_no_data(server: RunningServer) -> None:
    """The client gets neither a byte nor a redirect."""
    with socket.create_connection(("localhost", server.port), PATIENCE_S) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert plain.recv(1000) == b""


def test_a_client_without_the_authority_is_not_served(server: RunningServer) -> None:
    """Only the authority in the data folder signs the certificate."""
    with server.client(verify=True) as client, pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        client.get("/healthz")


def test_the_certificate_names_this_machine(server: RunningServer) -> None:
    """It has the name and both of the addresses."""
    with server.client() as client:
        for host in ("localhost", "127.0.0.1"):
            assert client.get(f"https://{host}:{server.port}/healthz").status_code == 200


def test_all_answers_over_one_connection_keep_their_promises(
    on_sqlite: RunningDeployment, server: RunningServer
) -> None:
    """An id each, no software name, no token in a cache; the connection stays open."""
    key = on_sqlite.installation.new_key()
    with server.client() as client:
        token = client.post("/oauth/token", data=CLIENT_CREDENTIALS, auth=key)
        answers = [
            token,
            client.post("/oauth/token", data=CLIENT_CREDENTIALS, auth=(key.client_id, "x")),
            client.get("/oauth/token"),
            client.get("/api/v1/x"),
            client.get("/api/v1/x", headers={"authorization": f"bearer {token.json()['access_token']}"}),
            client.head("/api/v1/x"),
            client.get("/healthz"),
            client.get("/nowhere"),
            client.get("/oauth/token%0A"),
            client.get("/api/v1/a%0Ab"),
        ]
    assert [answer.status_code for answer in answers] == [200, 401, 405, 401, 404, 401, 200, 404, 404, 401]
    assert len({answer.headers["x-request-id"] for answer in answers}) == len(answers)
    assert all("server" not in answer.headers and "date" in answer.headers for answer in answers)
    assert not any("connection" in answer.headers for answer in answers)
    assert answers[0].headers["cache-control"] == "no-store"


def test_proxies_that_terminate_tls_use_plain_http(installation: Installation) -> None:
    """STOPLIST_TRUSTED_PROXIES replaces the certificate; what reached the proxy without HTTPS is refused."""
    with installation.serving(TRUSTED_PROXIES="127.0.0.0/8") as server:
        key = installation.new_key()
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as proxy:
            for headers, status in (
                ({}, 400),
                ({"x-forwarded-proto": "http"}, 400),
                ({"x-forwarded-proto": "https"}, 200),
            ):
                answer = proxy.post("/oauth/token", data=CLIENT_CREDENTIALS, auth=key, headers=headers)
                assert (answer.status_code, "location" in answer.headers) == (status, False)
            assert proxy.get("/api/v1/x").json()["error"] == "bad_request"
            assert proxy.get("/readyz").status_code == 200
        assert server.terminate() == 0
    assert not (installation.data_dir / "ca.pem").exists()


def test_the_log_holds_no_secrets_or_opt_outs(installation: Installation) -> None:
    """One line per request, with the id given to the client; no token, secret, address of a person or query."""
    with installation.serving() as server:
        key = installation.new_key()
        with server.client() as client:
            pair = client.post("/oauth/token", data=CLIENT_CREDENTIALS, auth=key).json()
            client.get(f"/api/v1/unsubscribe/email?address=ann%40example.org&access_token={pair['access_token']}")
            client.get(
                "/api/v1/unsubscribe/ann@example.org", headers={"authorization": f"Bearer {pair['access_token']}"}
            )
            client.post("/oauth/token", data={"grant_type": "refresh_token", "refresh_token": pair["refresh_token"]})
            last = client.post("/oauth/token", content=b"\xff" + key.client_secret.encode())
        assert server.terminate() == 0
    requests = [line for line in server.log.lines if "method" in line]
    assert [(line["path"], line["status"]) for line in requests] == [
        ("/oauth/token", 200),
        ("/api/v1/unsubscribe/email", 401),
        ("/api/v1/unsubscribe/*", 404),
        ("/oauth/token", 200),
        ("/oauth/token", 400),
    ]
    assert requests[-1]["request_id"] == last.headers["x-request-id"]
    entrusted = [
        key.client_secret,
        pair["access_token"],
        pair["refresh_token"],
        "ann@",
        "ann%40",
        "example.org",
        "address=",
    ]
    assert [text for text in entrusted if text in server.log.text] == []
    assert {line["source_ip"] for line in requests} == {"127.0.0.1"}


def test_the_metrics_address_reveals_no_client_data(installation: Installation) -> None:
    """Plain HTTP on its own port, which serves nothing else; the main port serves no metrics."""
    with reserved_address() as listen, installation.serving(METRICS_LISTEN=listen) as server:
        key = installation.new_key()
        with server.client() as client:
            pair = client.post("/oauth/token", data=CLIENT_CREDENTIALS, auth=key).json()
            client.get("/api/v1/x", headers={"authorization": f"Bearer {pair['access_token']}"})
            assert client.get("/metrics").status_code == 404
        answer = httpx.get(f"http://{listen}/metrics", timeout=PATIENCE_S, trust_env=False)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain")
        assert samples(answer.text)["tokens_issued_total"] == 1
        assert samples(answer.text)["requests_total /api/v1/* 404"] == 1
        assert not re.search(r"svc_|127\.0\.0\.1", answer.text)
        assert server.terminate() == 0

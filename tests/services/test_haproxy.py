"""Both balancers run with the configuration they are given."""

import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.services import haproxy as services

# The interpreter does not matter to the balancers: once is enough.
pytestmark = pytest.mark.slow

# An operator's configuration says `daemon`.
HAPROXY = """
global
    daemon
defaults
    mode http
    timeout connect 60s
    timeout client 60s
    timeout server 60s
frontend here
    bind 127.0.0.1:{port}
    default_backend there
backend there
    server one 127.0.0.1:{target}
"""
NGINX = """
pid nginx.pid;
events {{}}
http {{
    access_log access.log;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://127.0.0.1:{target}; }}
    }}
}}
"""
TEXTS: dict[services.Name, str] = {"haproxy": HAPROXY, "nginx": NGINX}


class Handler(BaseHTTPRequestHandler):
    """Answers with the requested path."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.path)))
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def target() -> Iterator[int]:
    """Return the port of a server behind the balancer."""
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def answer(port: int) -> bytes:
    """Return a client's answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/asked")
        return connection.getresponse().read()
    finally:
        connection.close()


def test_a_balancer_forwards_and_ends(balancer_name: services.Name, target: int) -> None:
    """It serves on its port, also after a kill and restart, and leaves nothing behind."""
    text = TEXTS[balancer_name]
    with services.Balancer(balancer_name, lambda port: text.format(port=port, target=target)) as own:
        assert answer(own.port) == b"/asked"
        own.kill()
        with pytest.raises(ConnectionRefusedError):
            answer(own.port)
        own.start()
        assert answer(own.port) == b"/asked"
        own.stop()
        with pytest.raises(ConnectionRefusedError):
            answer(own.port)
    assert not own.folder.exists()


def test_a_wrong_configuration_is_reported(balancer_name: services.Name) -> None:
    """The report has the program's own message, and comes without waiting."""
    with (
        pytest.raises(services.Unavailable, match=r"does not start: .*nonsense"),
        services.Balancer(balancer_name, lambda _: "nonsense;\n"),
    ):
        pass

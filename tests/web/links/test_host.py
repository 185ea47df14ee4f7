"""STOPLIST_LINKS_BASE_URL: on a host of its own everything but `/u/` is 404."""

import msgspec

from stoplist.web.app import build_app
from tests.web.application import Application
from tests.web.links.clicks import Sender


def statuses(sender: Sender, links_base_url: str, host: str) -> dict[str, int]:
    app = Application(sender.app.run, sender.app.database, sender.app.clock)
    parts = msgspec.structs.replace(app.parts, links_base_url=links_base_url)
    app._app = build_app(parts, trusted_proxies=()).asgi
    paths = {"link": sender.link(), "/u/x": "/u/x", "api": "/api/v1/unsubscribe/email"}
    paths |= {path: path for path in ("/settings/sign-in", "/healthz", "/docs", "/u")}
    return {name: app.request("GET", path, headers=[("host", host)]).status for name, path in paths.items()}


def test_a_host_of_links_has_nothing_else(sender: Sender) -> None:
    """Old links go on working on the base address."""
    only_links = {
        "link": 200,
        "/u/x": 404,
        "api": 404,
        "/settings/sign-in": 404,
        "/healthz": 404,
        "/docs": 404,
        "/u": 404,
    }
    for host in ("stop.example", "STOP.example:443", "stop.example.", "stop.example.:443", "stop.example:8443"):
        assert statuses(sender, "https://stop.example", host) == only_links
    for host in ("stop.example", "stop.example:18943"):  # a proxy may leave out the port
        assert statuses(sender, "https://stop.example:18943", host) == only_links
    assert statuses(sender, "https://[2001:db8::7]:8443", "[2001:DB8::7]") == only_links
    everything = only_links | {"api": 401, "/settings/sign-in": 200, "/healthz": 200, "/docs": 200}
    assert statuses(sender, "https://stop.example", "localhost:8443") == everything


def test_one_host_for_both_has_everything(sender: Sender) -> None:
    found = statuses(sender, sender.app.parts.base_url, "localhost:8443")
    assert (found["link"], found["/healthz"], found["api"]) == (200, 200, 401)


def test_one_host_name_with_two_ports_is_told_apart_by_port(sender: Sender) -> None:
    """Only the port says which of the two is meant."""
    host = sender.app.parts.base_url.removeprefix("https://")
    assert statuses(sender, f"https://{host}:8444", f"{host}:8444")["/healthz"] == 404
    assert statuses(sender, f"https://{host}:8444", host)["/healthz"] == 200

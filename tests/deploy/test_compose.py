"""deploy/compose.yaml: what it mounts, publishes and sets. No image but ours can be had here, so it is read, not run.

How it was tried by hand, with images made for that: docs/decisions/0038-image.md. Source: docs/operate.md, Containers.
"""

import re
from typing import Any

import pytest
from ruamel.yaml import YAML

import stoplist
from stoplist.serve_requirements import server_settings
from stoplist.settings import Settings
from tests.constants import ROOT

DEPLOY = ROOT / "deploy"
GUIDE = (ROOT / "docs" / "operate.md").read_text()
TEXT = (DEPLOY / "compose.yaml").read_text()
COMPOSE: dict[str, Any] = YAML(typ="safe").load(TEXT)
SERVICES: dict[str, Any] = COMPOSE["services"]
SERVERS = ("stoplist-1", "stoplist-2")

each = pytest.mark.parametrize("name", SERVICES)


def addresses(name: str) -> list[str]:
    return [options["ipv4_address"] for options in SERVICES[name]["networks"].values() if options]


def settings(name: str) -> Settings:
    """Return the settings of a server, with a value for each variable of the file .env."""
    environ = re.findall(r"(STOPLIST_\w+)=(\S+)", (ROOT / "Containerfile").read_text())
    own = {name: re.sub(r"\$\{\w+:\?}", "0" * 64, text) for name, text in SERVICES[name]["environment"].items()}
    own["STOPLIST_BASE_URL"] = "https://optout.example.com"
    return server_settings(dict(environ) | own, env_file=ROOT / "no.env")


@each
def test_an_image_has_a_version(name: str) -> None:
    """The same file starts the same programs next year; ours are of this release, and never fetched."""
    image = SERVICES[name]["image"]
    assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+(\.\d+)?(-bookworm)?", image)
    if image.startswith("stoplist:"):
        assert (image, SERVICES[name]["pull_policy"]) == (f"stoplist:{stoplist.__version__}", "never")


@each
def test_what_is_mounted_exists(name: str) -> None:
    """Files beside compose.yaml are mounted read-only; volumes are declared."""
    for mount in SERVICES[name].get("volumes", ()):
        source, target, *options = mount.replace("${CERTIFICATE:?}", "./haproxy.cfg").split(":")
        assert target.startswith("/")
        if source.startswith("./"):
            assert (DEPLOY / source).exists()
            assert options == ["ro"]
        else:
            assert source in COMPOSE["volumes"]


def test_prometheus_and_grafana_find_their_files() -> None:
    """At the places that the files themselves name."""
    prometheus = dict(mount.split(":")[:2] for mount in SERVICES["prometheus"]["volumes"])
    assert prometheus["./prometheus"] == "/etc/prometheus"
    assert prometheus["./prometheus-targets.yml"] == "/etc/prometheus/targets.yml"
    grafana = dict(mount.split(":")[:2] for mount in SERVICES["grafana"]["volumes"])
    assert grafana["./grafana/provisioning"] == "/etc/grafana/provisioning"
    assert grafana["./grafana/dashboards"] == "/var/lib/grafana/dashboards"
    assert SERVICES["grafana"]["environment"]["PROMETHEUS_URL"] == "http://prometheus:9090"


def test_only_the_balancer_can_be_reached_from_elsewhere() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published.pop("haproxy") == ["443:443"]
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
    assert published.keys() == {"prometheus", "grafana"}


def test_haproxy_may_open_its_port_without_root() -> None:
    """Its image runs it as an account without privileges, which podman allows only ports from this number on."""
    (port,) = re.findall(r"^ +bind :(\d+) ", (DEPLOY / "haproxy.cfg").read_text(), re.MULTILINE)
    assert SERVICES["haproxy"]["ports"] == [f"{port}:{port}"]
    assert SERVICES["haproxy"]["sysctls"] == {"net.ipv4.ip_unprivileged_port_start": int(port)}


def test_the_guide_names_an_account_of_the_database() -> None:
    """Commands in the container run as root, which is no role of PostgreSQL. A terminal would change a dump's bytes."""
    commands = re.findall(r"docker compose exec (.*?) ?postgresql (.*)", GUIDE)
    assert {command.split()[0] for _, command in commands} >= {"pg_dump", "pg_restore"}
    for options, command in commands:
        assert options == "-T", command
        assert re.search("--username=(stoplist|postgres) ", command), command


def test_what_holds_data_has_no_way_out() -> None:
    """A database that an intruder reached could send nothing elsewhere."""
    internal = {name for name, network in COMPOSE["networks"].items() if network and network.get("internal")}
    for name in ("postgresql", "valkey"):
        assert internal >= set(SERVICES[name]["networks"])


def test_no_password_has_a_default() -> None:
    """Each is a variable that must be set, and the guide sets all of them."""
    used = re.findall(r"(?<!\$)\$\{(.+?)}", TEXT)
    assert all(variable.endswith(":?") for variable in used)
    (block,) = re.findall(r"```\n(cd deploy\n.*?)```", GUIDE, re.DOTALL)
    named = set(re.findall(r"\b[A-Z]+_[A-Z]+\b|\bCERTIFICATE\b", block))
    assert named == {variable.removesuffix(":?") for variable in used}
    for service in SERVICES.values():
        for variable, text in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|_URL$", variable) and variable != "PROMETHEUS_URL":
                assert "${" in text, variable


@each
def test_a_service_has_a_health_check_and_a_restart(name: str) -> None:
    """Ours has its check in the image; migrate ends by itself."""
    service = SERVICES[name]
    assert "healthcheck" in service or name in SERVERS
    assert service["restart"] == ("no" if name == "migrate" else "unless-stopped")


@pytest.mark.parametrize("name", [*SERVERS, "migrate"])
def test_a_server_has_all_settings_of_production(name: str) -> None:
    """It would start with them, on every address, behind HAProxy alone; both servers have the same."""
    found = settings(name)
    assert found.environment == "production"
    assert found.host == "0.0.0.0"  # noqa: S104 - in a network of its own
    assert [str(network) for network in found.trusted_proxies] == [f"{addresses('haproxy')[0]}/32"]
    assert found == settings(SERVERS[0])


def test_haproxy_knows_the_servers() -> None:
    """By the variables that its configuration reads."""
    environment = SERVICES["haproxy"]["environment"]
    port = settings(SERVERS[0]).port
    assert list(environment.values()) == [f"{address}:{port}" for name in SERVERS for address in addresses(name)]
    configuration = (DEPLOY / "haproxy.cfg").read_text()
    assert re.findall(r'^ +server stoplist\d "\$\{(\w+)}"$', configuration, re.MULTILINE) == list(environment)


def test_prometheus_knows_the_servers() -> None:
    (group,) = YAML(typ="safe").load((DEPLOY / "prometheus-targets.yml").read_text())
    listen = settings(SERVERS[0]).metrics_listen
    assert listen is not None
    assert group["targets"] == [f"{name}:{listen[1]}" for name in SERVERS]


def test_a_stop_has_the_time_that_it_needs() -> None:
    for name in SERVERS:
        assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) >= settings(name).drain_s + 15

"""The image, built by podman, and its containers as orchestrators run them: read-only, not as root, ended by signals.

Source: docs/operate.md, The image.
"""

import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from packaging.markers import Marker

from tests.conftest import needed
from tests.constants import PATIENCE_S, ROOT
from tests.deploy.main_job import make_key, store_and_follow
from tests.services.managed_program import reserve_port, wait_until
from tests.services.podman import Podman, podman

# What is in the image does not depend on the interpreter of the tests.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

IMAGE = "stoplist"
MAX_BYTES = 200_000_000
DATA = "--volume=data:/var/lib/stoplist"
UNPRIVILEGED = ("--cap-drop=all", "--security-opt=no-new-privileges")
# The Python of the image's Debian, as the markers of requirements see it.
PYTHON = {"python_version": "3.11", "python_full_version": "3.11.2"}
REQUIREMENT = re.compile(r"^(\S+==\S+)(?: ; (.+?))?( \\\n(?: {4}--hash=\S+(?: \\)?\n)+)", re.MULTILINE)


@pytest.fixture(scope="module")
def containers(pytestconfig: pytest.Config) -> Iterator[Podman]:
    """Yield podman. A kernel that refuses is no fault of a change, so this is optional in CI too."""
    with needed(pytestconfig, "of the image", is_optional=True), podman() as own:
        yield own


@pytest.fixture(scope="module")
def image(
    containers: Podman, release: Path, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> str:
    """Return the name of the image of this release."""
    context = tmp_path_factory.mktemp("context")
    shutil.copytree(release, context / "dist")
    download_wheels(context)
    (context / "deploy").mkdir()
    for name in ("Containerfile", ".dockerignore", "deploy/healthcheck.py"):
        shutil.copy(ROOT / name, context / name)
    with needed(pytestconfig, "of the image", is_optional=True):
        containers.build(context, IMAGE, PIP_NO_INDEX="1")
    return IMAGE


def download_wheels(context: Path) -> None:
    """Fetch the locked packages as this machine fetches packages: a container may not know how."""
    lock = (ROOT / "requirements" / "runtime.txt").read_text()
    needed = [
        f"{pin}{hashes}"
        for pin, marker, hashes in REQUIREMENT.findall(lock)
        if not marker or Marker(marker).evaluate(PYTHON)
    ]
    (context / "needed.txt").write_text("".join(needed))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--only-binary", ":all:", "--python-version", PYTHON["python_version"]]
    command += ["--requirement", str(context / "needed.txt"), "--dest", str(context / "dist")]
    subprocess.run(command, check=True)


def test_it_is_small(image: str, containers: Podman) -> None:
    assert containers.inspect(image)["Size"] <= MAX_BYTES


def test_it_has_no_build_tools(image: str, containers: Podman) -> None:
    """Nothing that compiles or installs Python packages, which an intruder could use."""
    tools = "cc gcc g++ c++ as ld make pip pip3"
    script = f"for tool in {tools}; do command -v $tool; done; python -c 'import pip' || python3 -c 'import ensurepip'"
    done = containers.once(image, "--network=none", "--entrypoint=sh", command=("-c", script))
    assert (done.returncode, done.stdout) == (1, ""), done.stdout
    assert "No module named 'pip'" in done.stderr


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_server_without_settings_is_healthy_until_a_signal_ends_it(name: str, image: str, containers: Podman) -> None:
    """The server itself is the first process, by an account without privileges, and on a read-only root."""
    with containers.container(image, "--network=none", *UNPRIVILEGED) as server:
        wait_until(server.is_healthy, "the container to become healthy", every_s=0.25)
        assert server.state()["Health"]["Status"] == "healthy"
        assert server.ok("id", "--user") == "10001"
        assert server.ok("cat", "/proc/1/cmdline").rstrip("\0").split("\0")[1:] == [
            "/opt/stoplist/bin/stoplist",
            "serve",
        ]
        server.signal(name)
        assert server.wait_for_exit() == 0, server.logs()
        assert '"message":"Stopped"' in server.logs().replace(": ", ":")


def test_a_command_as_first_process_can_be_ended(image: str, containers: Podman) -> None:
    """The kernel drops a SIGTERM that the first process has no handler for; podman would kill it after ten seconds."""
    with containers.container(
        image, "--network=none", "--interactive", command=("addresses", "check", "email", "-")
    ) as command:

        def has_ended() -> bool:
            command.signal("SIGTERM")
            return bool(command.state()["Status"] == "exited")

        wait_until(has_ended, "the command to end", every_s=0.25)
        assert command.wait_for_exit() == 128 + 15, command.logs()


def test_a_container_does_its_job(image: str, containers: Podman) -> None:
    """From migrate to a followed feed over TLS; the data is in the volume, and outlives the container."""
    with reserve_port() as reserved:
        port = reserved.getsockname()[1]
        options = ("--network=host", DATA, "--env=STOPLIST_HOST=127.0.0.1", f"--env=STOPLIST_PORT={port}")
        assert containers.once(image, *options, command=("migrate",)).returncode == 0
        with containers.container(image, *options, *UNPRIVILEGED) as server:
            wait_until(server.is_healthy, "the container to become healthy", every_s=0.25)
            key = make_key(lambda *arguments: server.ok("stoplist", *arguments))
            tls = ssl.create_default_context(cadata=server.ok("cat", "/var/lib/stoplist/ca.pem"))
            base_url = f"https://localhost:{port}"
            with httpx.Client(base_url=base_url, verify=tls, timeout=PATIENCE_S, trust_env=False) as client:
                store_and_follow(client, key)
            server.signal("SIGTERM")
            assert server.wait_for_exit() == 0, server.logs()
        assert "acme-shoes" in containers.once(image, *options, command=("org", "list")).stdout

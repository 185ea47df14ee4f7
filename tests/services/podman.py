"""Images and containers of a run of the tests, made by podman without a daemon, apart from those of this machine.

No image comes from elsewhere: the base is made of Debian's packages, as Debian makes its image.
"""

import contextlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.constants import ROOT
from tests.services.managed_program import Unavailable as Unavailable
from tests.services.managed_program import find_program

_SUITE = "bookworm"
# Kept for a week, with which Debian's mends are new enough for tests.
_ARCHIVE, _ARCHIVE_LIFE_S = ROOT / "build" / f"debian-{_SUITE}.tar", 7 * 86_400
BASE = f"debian:{_SUITE}-slim"
# Containers end by themselves if the run of the tests was killed.
_LIFE_S = 900
# Fewer than a container gets by default, which an account in a container may not raise.
_ULIMITS = ("--ulimit=nofile=10000:10000", "--ulimit=nproc=4096:4096")
_SOURCES = [Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")]
_UNUSED = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "info", "locale")]
_HOOKS = Path("/usr/share/mmdebstrap/hooks/merged-usr")
_FETCH_ERRORS = ("Failed to fetch", "Temporary failure resolving", "Could not resolve", "Unable to connect")


class Podman:
    """The program with a storage of its own."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._command: list[str | Path] = [
            program,
            "--root",
            folder / "root",
            "--runroot",
            folder / "run",
            "--runtime=runc",
        ]
        self._command += ["--cgroup-manager=cgroupfs", "--events-backend=none", "--tmpdir", folder / "tmp"]
        # There is no systemd to call the health check: the tests do.
        self._environ = os.environ | {"DISABLE_HC_SYSTEMD": "true", "TMPDIR": str(folder)}

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._command, *arguments], env=self._environ, capture_output=True, text=True, check=False
        )

    def ok(self, *arguments: str | Path) -> str:
        """Run a command that must succeed, and return its output."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def build(self, context: Path, tag: str, **variables: str) -> None:
        """Build an image by the Containerfile of this folder. Raise Unavailable if a package cannot be fetched."""
        arguments = [f"--build-arg={name}={value}" for name, value in variables.items()]
        options = ["--isolation=chroot", "--network=host", "--layers=false", "--format=docker", *_ULIMITS]
        done = self.run("build", *options, *arguments, "--tag", tag, context)
        output = done.stdout + done.stderr
        if any(error in output for error in _FETCH_ERRORS):
            raise Unavailable(f"Debian's packages cannot be fetched in a container: {_last_line(output)}")
        assert done.returncode == 0, output

    def inspect(self, image: str) -> Any:
        """Return what podman knows of an image."""
        (found,) = json.loads(self.ok("image", "inspect", image))
        return found

    @contextlib.contextmanager
    def container(self, image: str, *options: str | Path, command: tuple[str, ...] = ()) -> Iterator["Container"]:
        """Start a container with a read-only root, and remove it in the end."""
        identity = self.ok(
            "run", "--detach", "--read-only", f"--timeout={_LIFE_S}", *_ULIMITS, *options, image, *command
        )
        try:
            yield Container(self, identity)
        finally:
            self.ok("rm", "--force", "--time=0", "--volumes", identity)

    def once(self, image: str, *options: str | Path, command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        """Run a command in a container of its own, with a read-only root, and return how it ended."""
        return self.run("run", "--rm", "--read-only", f"--timeout={_LIFE_S}", *_ULIMITS, *options, image, *command)

    def remove_all(self) -> None:
        self.run("rm", "--all", "--force", "--time=0", "--volumes")
        self.run("rmi", "--all", "--force")
        self.run("volume", "rm", "--all", "--force")


class Container:
    """A container that was started."""

    def __init__(self, podman: Podman, identity: str) -> None:
        self._podman, self.identity = podman, identity

    def ok(self, *command: str) -> str:
        """Run a command in the container that must succeed, and return its output."""
        return self._podman.ok("exec", self.identity, *command)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return self._podman.run("exec", self.identity, *command)

    def is_healthy(self) -> bool:
        """Run the image's own health check once."""
        return self._podman.run("healthcheck", "run", self.identity).returncode == 0

    def state(self) -> Any:
        (found,) = json.loads(self._podman.ok("container", "inspect", self.identity))
        return found["State"]

    def signal(self, name: str) -> None:
        """Send a signal to its first process, if it still runs."""
        self._podman.run("kill", f"--signal={name}", self.identity)

    def wait_for_exit(self) -> int:
        return int(self._podman.ok("wait", self.identity))

    def logs(self) -> str:
        done = self._podman.run("logs", self.identity)
        return done.stdout + done.stderr


@contextlib.contextmanager
def podman() -> Iterator[Podman]:
    """Yield podman with a Debian as the only image, `BASE`. Raise Unavailable where it cannot work."""
    if os.geteuid() != 0:
        raise Unavailable("only root can make the image of Debian.")
    program, make_base = find_program("podman"), find_program("mmdebstrap")
    find_program("runc")
    with tempfile.TemporaryDirectory(prefix="stoplist-podman-", dir="/var/tmp") as folder:
        own = Podman(program, Path(folder))
        try:
            _import_base(own, make_base, Path(folder))
            yield own
        finally:
            own.remove_all()


def _import_base(own: Podman, make_base: Path, folder: Path) -> None:
    """Make the image of Debian, and run it once to see whether the kernel lets us."""
    if not _ARCHIVE.exists() or time.time() - _ARCHIVE.stat().st_mtime > _ARCHIVE_LIFE_S:
        _make_archive(make_base, folder)
    for command in (("import", "--quiet", _ARCHIVE, BASE), ("run", "--rm", "--network=none", *_ULIMITS, BASE, "true")):
        done = own.run(*command)
        if done.returncode:
            raise Unavailable(f"podman cannot work on this machine: {_last_line(done.stderr)}")


def _make_archive(make_base: Path, folder: Path) -> None:
    """Make the archive of Debian's packages, whole or not at all."""
    sources = [source for source in _SOURCES if source.exists() and _SUITE in source.read_text()]
    if not sources:
        raise Unavailable(f"this machine has no packages of Debian {_SUITE}, of which the image consists.")
    options = ["--quiet", "--variant=apt", f"--hook-dir={_HOOKS}", '--aptopt=APT::Install-Recommends "false"']
    options += ['--aptopt=Acquire::Retries "3"', "--dpkgopt=force-unsafe-io", *_UNUSED]
    unfinished = _ARCHIVE.with_suffix(".unfinished")
    unfinished.parent.mkdir(exist_ok=True)
    environ = os.environ | {"TMPDIR": str(folder)}
    made = subprocess.run(
        [make_base, *options, "--format=tar", _SUITE, unfinished, *sources],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise Unavailable(f"Debian's packages make no image here: {_last_line(made.stderr)}")
    unfinished.replace(_ARCHIVE)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason given"])[-1]

"""Programs for the tests, each with its own folder, which end with the test run.

Tests may stop, freeze, kill and restart them. When the test process ends, in whatever way, the program is killed and
its folder removed.
"""

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import psutil

from tests.constants import PATIENCE_S

_SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin")

# The cleanup process reads the id of the current process group, or an empty line for none. Its input ends when the test
# process does, also after SIGKILL; then it cleans up. In a session of its own, Ctrl-C does not reach it.
# One of the program's processes may write a moment longer than the first one lives.
_CLEANUP_SCRIPT = """
while read -r group; do held=$group; done
if [ -n "$held" ]; then
    {end}
fi
for _ in 1 2 3 4 5; do rm -rf "$1" 2>/dev/null && break; sleep 0.2; done
"""


class Unavailable(Exception):
    """The program is missing on this machine, or does not start; the text says which."""


class ManagedProgram:
    """A program on a reserved port of 127.0.0.1, which nothing else can take, also while the program is stopped.

    It runs within its context: `with Valkey() as store`. Entering raises Unavailable if it does not start.
    """

    _stop_signal = signal.SIGTERM
    # How the cleanup process ends the program, whose process group is `$held`.
    _final_end = 'kill -s KILL -- "-$held" 2>/dev/null'

    def __init__(
        self,
        name: str,
        *,
        user: pwd.struct_passwd | None = None,
        second_port: int = 0,
        parent: Path = Path("/tmp"),
    ) -> None:
        """`second_port`: the program needs one more port, at this offset from its own."""
        self._name, self._user = name, user
        self._process: subprocess.Popen[bytes] | None = None
        self._reserved = reserve_ports(second_port) if second_port else [reserve_port()]
        self.port = int(self._reserved[0].getsockname()[1])
        self.folder = Path(tempfile.mkdtemp(prefix=f"stoplist-{name}-", dir=parent))
        self._hand_over(self.folder)
        self._cleanup_process = subprocess.Popen(
            ["/bin/sh", "-c", _CLEANUP_SCRIPT.format(end=self._final_end), "cleanup", self.folder],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        try:
            self._prepare()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Return the program's process id. Raise RuntimeError while it is not running."""
        if self._process is None:
            raise RuntimeError(f"{self._name} does not run")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def cleanup_pid(self) -> int:
        """Return the id of the process that cleans up when the test process ends."""
        return self._cleanup_process.pid

    def start(self) -> None:
        """Run the program, always on the same port, and wait until it serves. Raise Unavailable if it does not."""
        with (self.folder / "output.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._identity(),
            )
        self._set_cleanup_group(str(self._process.pid))
        try:
            wait_until(lambda: not self.is_running or self._serves(), f"{self._name} to serve")
        except TimeoutError as error:
            raise Unavailable(f"{self._name} does not serve: {self._log_tail()}") from error
        if not self.is_running:
            raise Unavailable(f"{self._name} does not start: {self._log_tail()}")

    def stop(self) -> None:
        """End the program by its signal, also a frozen one. It may be started again; the call may be repeated."""
        self._end(self._stop_signal)

    def kill(self) -> None:
        """Kill the program, as in a crash, and wait for the end of all its processes. It may be started again."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Suspend all processes: connections stay open, new ones are accepted, and nothing is answered."""
        processes = self._processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        wait_until(lambda: processes[0].status() == psutil.STATUS_STOPPED, f"{self._name} to freeze")

    def thaw(self) -> None:
        """Resume a frozen program."""
        _resume(self._processes())

    def close(self) -> None:
        """End the program for good and remove its folder. May be repeated."""
        self.kill()
        for reserved in self._reserved:
            reserved.close()
        if self._cleanup_process.returncode is None:
            self._cleanup_process.communicate()

    def _prepare(self) -> None:
        """Write the files that the program needs."""

    def _command(self) -> Sequence[str | Path]:
        raise NotImplementedError

    def _serves(self) -> bool:
        return self._listens()

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _end(self, signal_number: signal.Signals) -> None:
        if self._process is None:
            return
        processes: list[psutil.Process] = []
        if self._process.poll() is None:
            os.kill(self.pid, signal.SIGSTOP)  # so that it starts no more processes
            processes = self._processes()
            os.killpg(self.pid, signal_number)
            _resume(processes)
        try:
            self._process.wait(PATIENCE_S)
        finally:
            self._process = None
            self._set_cleanup_group("")
        # One of its processes may live, listen and hold memory a moment longer.
        wait_until(lambda: all(map(has_ended, processes)) and not self._listens(), f"the end of {self._name}")

    def _processes(self) -> list[psutil.Process]:
        """Return the program's first process and its descendants."""
        first = psutil.Process(self.pid)
        return [first, *first.children(recursive=True)]

    def _set_cleanup_group(self, group: str) -> None:
        assert self._cleanup_process.stdin is not None
        self._cleanup_process.stdin.write(f"{group}\n".encode())
        self._cleanup_process.stdin.flush()

    def _identity(self) -> dict[str, Any]:
        """Return the user, folder and environment of the program, as arguments of Popen."""
        identity: dict[str, Any] = {"cwd": self.folder, "env": {"PATH": os.defpath, "LC_ALL": "C"}}
        if self._user is not None:
            identity |= {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        return identity

    def _write(self, name: str, text: str | bytes) -> Path:
        """Write a file to the folder that only the program may read."""
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        self._hand_over(path)
        return path

    def _hand_over(self, path: Path) -> None:
        if self._user is not None:
            os.chown(path, self._user.pw_uid, self._user.pw_gid)

    def _log_tail(self) -> str:
        logs = sorted(self.folder.glob("*.log"))
        return " ".join(line for log in logs for line in log.read_text(errors="replace").splitlines()[-5:])


def _resume(processes: Sequence[psutil.Process]) -> None:
    for process in reversed(processes):
        with suppress(psutil.NoSuchProcess):
            process.resume()


def has_ended(process: psutil.Process) -> bool:
    """Return whether the process has ended, even as a zombie."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def wait_until(is_true: Callable[[], bool], what: str, *, every_s: float = 0.005) -> None:
    """Poll until `is_true`. Raise TimeoutError, with `what` in its text, if that takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE_S:g} s for {what}")
        time.sleep(every_s)


def reserve_port(port: int = 0) -> socket.socket:
    """Reserve `port` of 127.0.0.1, or any free port, for a server that binds exactly that one.

    While the socket is open, Linux gives the port to nobody else, neither to a listener on any free port nor to an
    outgoing connection, but to a server that sets SO_REUSEADDR, as all do. Raise OSError if the port is not free.
    """
    reserved = socket.socket()
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", port))
    except BaseException:
        reserved.close()
        raise
    return reserved


def reserve_ports(offset: int) -> list[socket.socket]:
    """Reserve two ports, the second at this offset from the first."""
    while True:
        first = reserve_port()
        try:
            return [first, reserve_port(first.getsockname()[1] + offset)]
        except (OSError, OverflowError):
            first.close()


def at_port(url: str, port: int) -> str:
    """Return the same URL at this port of 127.0.0.1."""
    parts = urlsplit(url)
    account, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{account}{at}127.0.0.1:{port}"))


def find_program(name: str, *, package: str | None = None) -> Path:
    """Return the program of that name. Raise Unavailable, which names the package of Debian, if there is none."""
    for program in find_programs(name):
        return program
    raise Unavailable(f"no {name} was found (on Debian: apt install {package or name}).")


def find_in_wheel(package: str, *path: str) -> Path | None:
    """Return a path in the wheel of this package, if it is installed. Its Python code is never run."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0], *path)


def find_programs(name: str) -> list[Path]:
    """Return the programs of that name on the path and in Debian's folders for system programs."""
    folders = [*os.environ.get("PATH", os.defpath).split(os.pathsep), *_SYSTEM_FOLDERS]
    found = (shutil.which(name, path=folder) for folder in folders)
    return list(dict.fromkeys(Path(program) for program in found if program))


def unprivileged_user(program: str) -> pwd.struct_passwd | None:
    """Return the user for a program that refuses to run as root; None unless we are root. Raise Unavailable."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise Unavailable(f"{program} does not run as root, and there is no user postgres or nobody to run it as")

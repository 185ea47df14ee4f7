"""Programs for the tests, each with its own folder, which end with the test run.

Tests may stop, freeze, kill and restart them. When the test process ends, in whatever way, the program is killed and
its folder removed.
"""

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.constants import PATIENCE_S

_SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin")

# The cleanup process reads the id of the current process group, or an empty line for none. Its input ends when the test
# process does, also after SIGKILL; then it cleans up. In a session of its own, Ctrl-C does not reach it.
_CLEANUP_SCRIPT = """
while read -r group; do held=$group; done
[ -z "$held" ] || kill -s KILL -- "-$held" 2>/dev/null
rm -rf "$1"
"""


class Unavailable(Exception):
    """The program is missing on this machine, or does not start; the text says which."""


class ManagedProgram:
    """A program on a reserved port of 127.0.0.1, which nothing else can take, also while the program is stopped."""

    def __init__(self, name: str, *, user: pwd.struct_passwd | None = None, second_port: int = 0) -> None:
        """`second_port`: the program needs one more port, at this offset from its own."""
        self._name, self._user = name, user
        self._process: subprocess.Popen[bytes] | None = None
        self._reserved = reserve_ports(second_port) if second_port else [reserve_port()]
        self.port = int(self._reserved[0].getsockname()[1])
        self.folder = Path(tempfile.mkdtemp(prefix=f"stoplist-{name}-", dir="/tmp"))
        self._hand_over(self.folder)
        self._cleanup_process = subprocess.Popen(
            ["/bin/sh", "-c", _CLEANUP_SCRIPT, "cleanup", self.folder], stdin=subprocess.PIPE, start_new_session=True
        )

    @property
    def pid(self) -> int:
        """Return the program's process id. Raise RuntimeError while it is not running."""
        if self._process is None:
            raise RuntimeError(f"{self._name} does not run")
        return self._process.pid

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
            wait_until(lambda: self._has_ended() or self._serves(), f"{self._name} to serve")
        except TimeoutError as error:
            raise Unavailable(f"{self._name} does not serve: {self._log_tail()}") from error
        if self._has_ended():
            raise Unavailable(f"{self._name} does not start: {self._log_tail()}")

    def stop(self) -> None:
        """End the program by SIGTERM, after thawing a frozen one. It may be started again; the call may be repeated."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the program, as in a crash. It may be started again."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Suspend the program: connections stay open, new ones are accepted, and nothing is answered."""
        os.killpg(self.pid, signal.SIGSTOP)
        process = psutil.Process(self.pid)
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED, f"{self._name} to freeze")

    def thaw(self) -> None:
        """Resume a frozen program."""
        os.killpg(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the program for good and remove its folder. May be repeated."""
        self.kill()
        for reserved in self._reserved:
            reserved.close()
        if self._cleanup_process.returncode is None:
            self._cleanup_process.communicate()

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
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            os.killpg(process.pid, signal_number)
            os.killpg(process.pid, signal.SIGCONT)
        try:
            process.wait(PATIENCE_S)
        finally:
            self._set_cleanup_group("")
        # One of its worker processes may live and listen a moment longer.
        wait_until(lambda: not self._listens(), f"{self._name} to leave its port")

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

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


async def end_other_tasks() -> None:
    """Cancel all other tasks of this loop, and close their sockets."""
    await asyncio.sleep(0)  # Start handlers of connections accepted just now, so that their sockets are closed too.
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)  # The loop closes the sockets in its next iteration.


def wait_until(is_true: Callable[[], bool], what: str, *, seconds: float = PATIENCE_S) -> None:
    """Poll every 5 ms until `is_true`. Raise TimeoutError, with `what` in its text, if that takes too long."""
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.005)


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

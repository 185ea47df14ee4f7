"""Programs that run beside the tests, each in a folder of its own, and none of which outlives the run.

Ended, frozen, killed and started again as a test wishes. When our own process ends, however it ends, the
program is killed and its folder removed.
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

_PATIENCE_S = 60
_SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin")

# The keeper reads which process group runs now, an empty line for none. Its input ends when ours does, also by
# SIGKILL, and then it clears up. In a session of its own Ctrl-C does not reach it.
_KEEPER = """
while read -r group; do held=$group; done
[ -z "$held" ] || kill -s KILL -- "-$held" 2>/dev/null
rm -rf "$1"
"""


class Unavailable(Exception):
    """The program is not to be had here, or does not do what was asked of it; the text says which."""


class Kept:
    """A program on a port of 127.0.0.1 that stays its own as long as this lives, also while the program is away."""

    def __init__(self, name: str, *, user: pwd.struct_passwd | None = None, second_port: int = 0) -> None:
        """`second_port`: the program needs one more port, which lies so far above its own."""
        self._name, self._user = name, user
        self._process: subprocess.Popen[bytes] | None = None
        self._reserved = reserve_ports(second_port) if second_port else [reserve_port()]
        self.port = int(self._reserved[0].getsockname()[1])
        self.folder = Path(tempfile.mkdtemp(prefix=f"stoplist-{name}-", dir="/tmp"))
        self._hand_over(self.folder)
        self._keeper = subprocess.Popen(
            ["/bin/sh", "-c", _KEEPER, "keeper", self.folder], stdin=subprocess.PIPE, start_new_session=True
        )

    @property
    def pid(self) -> int:
        """The program's process. Raises RuntimeError while it does not run."""
        if self._process is None:
            raise RuntimeError(f"{self._name} does not run")
        return self._process.pid

    @property
    def keeper_pid(self) -> int:
        """The process that clears up when ours ends."""
        return self._keeper.pid

    def start(self) -> None:
        """Run the program, on the same port every time, and wait until it serves. Raises Unavailable."""
        with (self.folder / "output.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._identity(),
            )
        self._tell_keeper(str(self._process.pid))
        try:
            wait_until(lambda: self._has_ended() or self._serves(), f"{self._name} to serve")
        except TimeoutError as error:
            raise Unavailable(f"{self._name} does not serve: {self._log_tail()}") from error
        if self._has_ended():
            raise Unavailable(f"{self._name} does not start: {self._log_tail()}")

    def stop(self) -> None:
        """End the program in its own way; a frozen one is thawed. It may be started again, and this be repeated."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the program as a crash would. It may be started again."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Let the program hang: it keeps its connections, accepts new ones, and answers nobody."""
        os.killpg(self.pid, signal.SIGSTOP)
        process = psutil.Process(self.pid)
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED, f"{self._name} to stand still")

    def thaw(self) -> None:
        """Let a frozen program go on."""
        os.killpg(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the program for good and remove its folder. May be repeated."""
        self.kill()
        for reserved in self._reserved:
            reserved.close()
        if self._keeper.returncode is None:
            self._keeper.communicate()

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

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            os.killpg(process.pid, how)
            os.killpg(process.pid, signal.SIGCONT)
        try:
            process.wait(_PATIENCE_S)
        finally:
            self._tell_keeper("")
        # A worker of it may be alive for a moment longer, and listen.
        wait_until(lambda: not self._listens(), f"{self._name} to leave its port")

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _tell_keeper(self, group: str) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(f"{group}\n".encode())
        self._keeper.stdin.flush()

    def _identity(self) -> dict[str, Any]:
        """With which arguments the program runs: as whom, where, and in which environment."""
        identity: dict[str, Any] = {"cwd": self.folder, "env": {"PATH": os.defpath, "LC_ALL": "C"}}
        if self._user is not None:
            identity |= {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        return identity

    def _write(self, name: str, text: str | bytes) -> Path:
        """A file in the folder that the program alone may read."""
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
    """Nothing but the caller runs on this loop any more, and the sockets of what ran are closed."""
    await asyncio.sleep(0)  # Who was accepted just now is begun with, so that his socket is closed, too.
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)  # The loop closes the sockets in its next round.


def wait_until(is_true: Callable[[], bool], what: str, *, seconds: float = _PATIENCE_S) -> None:
    """Ask every 5 ms until it is so. Raises TimeoutError, which names `what` was waited for."""
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.005)


def reserve_port(port: int = 0) -> socket.socket:
    """A socket that holds `port` of 127.0.0.1, or any free one, for whoever asks for exactly that one.

    Linux gives it to nobody else meanwhile, neither to a listener on any free port nor to an outgoing connection,
    and lets a server have it that sets SO_REUSEADDR, as they all do. Raises OSError where it is not free.
    """
    holder = socket.socket()
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", port))
    except BaseException:
        holder.close()
        raise
    return holder


def reserve_ports(offset: int) -> list[socket.socket]:
    """Two of them, the second so far above the first."""
    while True:
        first = reserve_port()
        try:
            return [first, reserve_port(first.getsockname()[1] + offset)]
        except (OSError, OverflowError):
            first.close()


def find_programs(name: str) -> list[Path]:
    """Where a program of that name lies: on the path, and where Debian puts what is not for everybody's path."""
    folders = [*os.environ.get("PATH", os.defpath).split(os.pathsep), *_SYSTEM_FOLDERS]
    found = (shutil.which(name, path=folder) for folder in folders)
    return list(dict.fromkeys(Path(program) for program in found if program))


def unprivileged_user(program: str) -> pwd.struct_passwd | None:
    """Whom a program runs as that refuses to serve root; None where we are not root. Raises Unavailable."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise Unavailable(f"{program} does not run as root, and there is no user postgres or nobody to run it as")

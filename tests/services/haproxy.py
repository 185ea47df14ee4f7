"""A temporary load balancer, HAProxy or nginx, with the configuration of a test."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from tests.services.managed_program import ManagedProgram, find_programs
from tests.services.managed_program import Unavailable as Unavailable

Name = Literal["haproxy", "nginx"]


class Balancer(ManagedProgram):
    """A balancer in the foreground. File names in its configuration are relative to its folder."""

    def __init__(
        self, name: Name, program: Path, configuration: Callable[[int], str], files: Mapping[str, bytes]
    ) -> None:
        self._program, self._kind = program, name
        super().__init__(name)
        try:
            for file, content in files.items():
                self._write(file, content)
            self._write("balancer.conf", configuration(self.port))
            self.start()
        except BaseException:
            self.close()
            raise

    def _command(self) -> list[str | Path]:
        file = self.folder / "balancer.conf"
        if self._kind == "haproxy":
            return [self._program, "-db", "-f", file]
        return [self._program, "-p", self.folder, "-c", file, "-e", "stderr", "-g", "daemon off;"]


@contextlib.contextmanager
def balancer(
    name: Name, configuration: Callable[[int], str], *, files: Mapping[str, bytes] | None = None
) -> Iterator[Balancer]:
    """Start a balancer on its `port` of 127.0.0.1. Raise Unavailable if it is missing or does not start.

    `configuration` returns the text for that port; `files`, such as a certificate, are put in its folder. The program's
    output is in `output.log` there. It runs as the user of the tests: if that is root, nginx runs its workers as
    another user, who may not enter the folder, unless the text says `user root;`.
    """
    own = Balancer(name, find_program(name), configuration, files or {})
    try:
        yield own
    finally:
        own.close()


def find_program(name: Name) -> Path:
    """Return the balancer program of this machine. Raise Unavailable if there is none."""
    for program in find_programs(name):
        return program
    raise Unavailable(f"no {name} was found. Install one (on Debian: apt install {name}).")

"""A throw-away balancer, HAProxy or nginx, with the configuration that a test gives it."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from tests.services.keeping import Kept, find_programs
from tests.services.keeping import Unavailable as Unavailable

Name = Literal["haproxy", "nginx"]


class Balancer(Kept):
    """A balancer in the foreground. Names of files in its configuration are read from its folder."""

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
    """A balancer that listens on its `port` of 127.0.0.1 until the block ends. Raises Unavailable.

    `configuration` makes its text of that port; `files`, such as a certificate, lie in its folder beside it. What
    the program writes is in `output.log` there. It runs as whoever runs the tests: where that is root, nginx gives
    its workers to another account, who may not enter the folder, unless the text says `user root;`.
    """
    own = Balancer(name, find_program(name), configuration, files or {})
    try:
        yield own
    finally:
        own.close()


def find_program(name: Name) -> Path:
    """The balancer of this machine. Raises Unavailable."""
    for program in find_programs(name):
        return program
    raise Unavailable(f"no {name} was found. Install one (on Debian: apt install {name}).")

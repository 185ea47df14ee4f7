"""A temporary load balancer, HAProxy or nginx, with the configuration of a test."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from tests.services.managed_program import ManagedProgram, find_program
from tests.services.managed_program import Unavailable as Unavailable

Name = Literal["haproxy", "nginx"]


class Balancer(ManagedProgram):
    """A balancer in the foreground, on its `port` of 127.0.0.1.

    `configuration` returns the text for that port. `files`, such as a certificate, are put in its folder, to which the
    names in the text are relative, beside the program's output, `output.log`. It runs as the user of the tests: if that
    is root, nginx runs its workers as another user, who may not enter the folder, unless the text says `user root;`.
    """

    def __init__(
        self, name: Name, configuration: Callable[[int], str], *, files: Mapping[str, bytes] | None = None
    ) -> None:
        self._program, self._kind = find_program(name), name
        self._configuration, self._files = configuration, files or {}
        super().__init__(name)

    def _prepare(self) -> None:
        for file, content in self._files.items():
            self._write(file, content)
        self._write("balancer.conf", self._configuration(self.port))

    def _command(self) -> list[str | Path]:
        file = self.folder / "balancer.conf"
        if self._kind == "haproxy":
            return [self._program, "-db", "-f", file]
        return [self._program, "-p", self.folder, "-c", file, "-e", "stderr", "-g", "daemon off;"]

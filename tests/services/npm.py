"""Node.js of this machine, and the packages from npm that make clients in TypeScript.

`tools/get-generators` installs the packages by their lock file, which holds their hashes and no address. `python -m
tests.services.npm` prints where they are.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.constants import PATIENCE_S, ROOT
from tests.services.managed_program import Unavailable

LOCK = ROOT / "tests" / "e2e" / "generated_clients" / "package-lock.json"
FOLDER = ROOT / ".npm-packages"
_OLDEST = (20, 19)


class Npm(NamedTuple):
    """The program `node`, and the folder of the packages."""

    node: Path
    packages: Path

    def script(self, name: str) -> list[str]:
        """Return the command line of a package's program."""
        return [str(self.node), str((self.packages / ".bin" / name).resolve())]


def find() -> Npm:
    """Return Node.js and the packages. Raise Unavailable if either is missing, too old, or not as locked."""
    node = find_node()
    copy = FOLDER / LOCK.name
    packages = FOLDER / "node_modules"
    if not copy.is_file() or copy.read_bytes() != LOCK.read_bytes() or not (packages / ".package-lock.json").is_file():
        raise Unavailable("the generators of clients are not installed: run tools/get-generators, as make test does.")
    return Npm(node, packages)


def find_node() -> Path:
    """Return the program `node`. Raise Unavailable if it is missing or too old."""
    oldest = ".".join(map(str, _OLDEST))
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        raise Unavailable(f"Node.js {oldest} or newer, with npm, was not found (on Debian: apt install nodejs npm).")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=PATIENCE_S).stdout
    numbers = re.match(r"v(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < _OLDEST:
        raise Unavailable(f"Node.js {oldest} or newer is needed; {node} is {version.strip() or 'broken'}.")
    return Path(node)


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{find_node() if '--node' in sys.argv else find().packages}\n")
    except Unavailable as error:
        sys.exit(str(error))

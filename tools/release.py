"""Builds the files of a release, the same bytes each time: wheels, source archives, requirements, SBOMs, checksums.

usage: python -m tools.release FOLDER     builds the last commit into FOLDER, as `make dist` does
"""

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from tools.sbom import Wheel, make_sbom

# The folder of each project, and the lock file of those that somebody installs for their own sake.
_PROJECTS = {"addresses": None, "client": "client.txt", ".": "runtime.txt"}
_ADDRESSES = "stoplist-addresses"
_HASH = re.compile(r"(?: \\\n {3})? --hash=sha256:[0-9a-f]+")
_CHECKSUMS = "SHA256SUMS"


def build_release(source: Path, target: Path, *, built_s: int) -> None:
    """Build the tree `source` into the empty folder `target`. Changes file modes in `source`, and leaves files there.

    `built_s`, in seconds since 1970, becomes the time of everything inside the files: they depend on no clock, account
    or umask of this machine.
    """
    _settle_modes(source)
    metadata = {project: _metadata(source / project) for project in _PROJECTS}
    for project, named in metadata.items():
        _build(source / project, target, built_s)
        _settle_archive(target / f"{_stem(named)}.tar.gz", built_s)
    wheels = {named["name"]: _wheel(named, target) for named in metadata.values()}
    for project, lock in _PROJECTS.items():
        if lock is not None:
            own = [wheels[_ADDRESSES], wheels[metadata[project]["name"]]]
            _describe(metadata[project], (source / "requirements" / lock).read_text(), own, target, built_s=built_s)
    sums = [f"{_sha256(path)}  {path.name}\n" for path in sorted(target.iterdir())]
    (target / _CHECKSUMS).write_text("".join(sums))


def main(target: Path) -> None:
    """Build the last commit into `target`, whose files are removed first, and print the checksums."""
    uncommitted = _git("status", "--porcelain")
    if uncommitted:
        sys.stderr.write(f"Not in this release, because they are not committed:\n{uncommitted}\n")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        source, archive = Path(folder) / "source", Path(folder) / "commit.tar"
        _git("archive", "--output", str(archive), "HEAD")
        with tarfile.open(archive) as commit:
            commit.extractall(source, filter="data")
        build_release(source, target, built_s=int(_git("log", "-1", "--format=%ct")))
    sys.stdout.write((target / _CHECKSUMS).read_text())


def _build(project: Path, target: Path, built_s: int) -> None:
    """Build the source archive, and from that archive the wheel."""
    environ = os.environ | {"SOURCE_DATE_EPOCH": str(built_s), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(project)]
    done = subprocess.run(command, env=environ, umask=0o022, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def _settle_modes(folder: Path) -> None:
    """Give files the modes that git knows, because a checkout's depend on the umask."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def _settle_archive(archive: Path, built_s: int) -> None:
    """Write a source archive anew in one order, and without the times and the owner that setuptools takes from here."""
    settled = archive.with_suffix(".settled")
    with (
        tarfile.open(archive) as before,
        settled.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=built_s) as packed,
        tarfile.open(fileobj=packed, mode="w") as after,
    ):
        for member in sorted(before.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = built_s, 0, 0, "", ""
            member.pax_headers = {}
            after.addfile(member, before.extractfile(member) if member.isfile() else None)
    settled.replace(archive)


def _describe(metadata: dict[str, Any], lock: str, own: list[Wheel], target: Path, *, built_s: int) -> None:
    """Write the requirements of a project, our own wheels included, all with hashes; the versions alone; and its SBOM.

    pipx hands the constraints that it is given to its own installation of pip too, which has no hash here.
    """
    stem = _stem(metadata)
    pins = "".join(f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in own)
    head = f"# All that {metadata['name']} {metadata['version']} consists of. Our own wheels lie beside this file.\n"
    requirements = f"{head}--find-links .\n{pins}{lock}"
    (target / f"{stem}-requirements.txt").write_text(requirements)
    (target / f"{stem}-constraints.txt").write_text(_HASH.sub("", requirements))
    sbom = make_sbom(lock, own, metadata["name"], built_s=built_s)
    (target / f"{stem}.cdx.json").write_text(json.dumps(sbom, indent=2) + "\n")


def _metadata(project: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    return found


def _stem(metadata: dict[str, Any]) -> str:
    return f"{metadata['name'].replace('-', '_')}-{metadata['version']}"


def _wheel(metadata: dict[str, Any], folder: Path) -> Wheel:
    return Wheel(
        metadata["name"],
        metadata["version"],
        sha256=_sha256(folder / f"{_stem(metadata)}-py3-none-any.whl"),
        needs=frozenset({_ADDRESSES} - {metadata["name"]}),
    )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())

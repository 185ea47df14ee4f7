"""The machine, without which no figure means anything, and the processor time that its processes used."""

import asyncio
import os
import platform
import re
import ssl
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median

import asyncpg
import msgspec
import psutil

_SYNCS = 200
_LIBRARIES = ("uvicorn", "starlette", "uvloop", "httptools", "msgspec")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that was measured. `sync_us` is the median time of a 4 KiB write and its fdatasync."""

    processor: str
    cores: int
    memory_gib: float
    system: str
    python: str
    tls: str
    libraries: dict[str, str]
    sync_us: float


def describe(folder: Path) -> Machine:
    """Return a description of this machine, with the time of a small durable write below `folder`."""
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        tls=ssl.OPENSSL_VERSION,
        libraries={name: version(name) for name in _LIBRARIES},
        sync_us=round(_sync_us(folder / "sync"), 1),
    )


def busy_s() -> float:
    """Return the processor time used on this machine so far, by all programs on all cores."""
    times = psutil.cpu_times()
    interrupts = getattr(times, "irq", 0.0) + getattr(times, "softirq", 0.0)
    return float(times.user + times.nice + times.system + interrupts)


class PostgresqlTime:
    """Reads the processor time of all PostgreSQL processes together, including those that ended."""

    def __init__(self, database_url: str) -> None:
        self._postmaster = psutil.Process(asyncio.run(_postmaster(database_url)))

    def cpu_s(self) -> float:
        """Return the processor seconds used so far."""
        # Running children are counted here; the postmaster counts those that ended.
        return sum(self._postmaster.cpu_times()[:4]) + sum(process_s(child) for child in self._postmaster.children())


def process_s(process: psutil.Process) -> float:
    """Return the processor time that a process has used, or 0 if it has just ended, and its parent counts it."""
    try:
        return sum(process.cpu_times()[:2])
    except psutil.NoSuchProcess:
        return 0.0


def _processor() -> str:
    """Return the name of the processor, as far as the system knows it."""
    known = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.+)$", known.read_text(), re.MULTILINE) if known.exists() else []
    return str(names[0]) if names else platform.processor() or platform.machine()


def _sync_us(file: Path) -> float:
    block, took_us = os.urandom(4096), []
    # Overwrite the same block, as a write-ahead log of full size does.
    with file.open("wb", buffering=0) as handle:
        for _ in range(_SYNCS + 1):
            begun_ns = time.perf_counter_ns()
            os.pwrite(handle.fileno(), block, 0)
            os.fdatasync(handle.fileno())
            took_us.append((time.perf_counter_ns() - begun_ns) / 1000)
    return median(took_us[1:])


async def _postmaster(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        folder = str(await connection.fetchval("SHOW data_directory"))
    finally:
        await connection.close()
    return int((Path(folder) / "postmaster.pid").read_text().splitlines()[0])

"""The machine, without which no figure means anything, and the time that work takes on it."""

import os
import platform
import re
import ssl
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import ParamSpec, TypeVar

import msgspec
import psutil

_SYNCS = 200
_LIBRARIES = ("uvicorn", "starlette", "uvloop", "httptools", "msgspec")

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


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


def timed(
    work: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs
) -> tuple[float, Result]:
    """Return the seconds that a call takes, and its result."""
    begun_s = time.perf_counter()
    result = work(*arguments, **options)
    return time.perf_counter() - begun_s, result


def busy_s() -> float:
    """Return the processor time used on this machine so far, by all programs on all cores."""
    times = psutil.cpu_times()
    interrupts = getattr(times, "irq", 0.0) + getattr(times, "softirq", 0.0)
    return float(times.user + times.nice + times.system + interrupts)


def process_s(process: psutil.Process) -> float:
    """Return the processor time that a process has used, or 0 if it has just ended, and its parent counts it."""
    try:
        return sum(process.cpu_times()[:2])
    except psutil.NoSuchProcess:
        return 0.0


def _processor() -> str:
    """Return the name of the processor, as far as the system knows it."""
    known = Path("/proc/cpuinfo")
    name = re.search(r"^model name\s*: (.+)$", known.read_text(), re.MULTILINE) if known.exists() else None
    return name[1] if name else platform.processor() or platform.machine()


def _sync_us(file: Path) -> float:
    block = os.urandom(4096)
    # Overwrite the same block, as a write-ahead log of full size does.
    with file.open("wb", buffering=0) as handle:

        def write() -> None:
            os.pwrite(handle.fileno(), block, 0)
            os.fdatasync(handle.fileno())

        return median([timed(write)[0] for _ in range(_SYNCS + 1)][1:]) * 1e6

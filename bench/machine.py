"""Describes the machine, without which no figure means anything."""

import os
import platform
import ssl
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median

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


def _processor() -> str:
    """Return the name of the processor, as far as the system knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _sync_us(file: Path) -> float:
    block = os.urandom(4096)
    took_us = []
    # Overwrite the same block, as a write-ahead log of full size does.
    handle = os.open(file, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        os.pwrite(handle, block, 0)
        os.fsync(handle)
        for _ in range(_SYNCS):
            begun_ns = time.perf_counter_ns()
            os.pwrite(handle, block, 0)
            os.fdatasync(handle)
            took_us.append((time.perf_counter_ns() - begun_ns) / 1000)
    finally:
        os.close(handle)
        file.unlink()
    return median(took_us)

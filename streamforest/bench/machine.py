"""What a measurement depends on besides the model: core, memory in use, versions."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path

from streamforest.errors import ConfigError

_STATUS = Path("/proc/self/status")

PACKAGES = ("streamforest", "numpy", "numba", "river", "scikit-learn", "capymoa", "onelearn")


def choose_core() -> int | None:
    """The core that measurements are pinned to; None if processes cannot be pinned."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    return max(os.sched_getaffinity(0))


def pin(core: int | None) -> None:
    """Keep this process, and every thread it starts from now on, on one core.

    Called before a model is imported, so that a Java machine's own threads (compiler, garbage
    collector) inherit the core: none of its work goes unmeasured on another one.
    """
    if core is not None and sys.platform == "linux":
        os.sched_setaffinity(0, {core})


@contextlib.contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Keep this process on one core for a while."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    pin(core)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def anonymous_bytes() -> int | None:
    """Bytes of this process's anonymous memory; None if the system does not report it.

    Anonymous resident memory leaves out mapped files, so that library code touched for the first
    time does not count. Free memory is given back to the system first where the C library can.
    """
    gc.collect()
    if not _STATUS.exists():
        return None
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    found = re.search(r"^RssAnon:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    return None if found is None else int(found.group(1)) * 1024


def java_heap_bytes() -> int | None:
    """Bytes of live objects on the Java heap. Starts the Java machine.

    Objects that Python held are let go by a thread of the bridge, after Python's own collection
    and one or two of Java's: the smallest of a few readings is the one without garbage.
    """
    import_module("capymoa")  # starts the machine
    runtime = import_module("jpype").JClass("java.lang.Runtime").getRuntime()
    readings = []
    for _ in range(4):
        gc.collect()
        runtime.gc()
        readings.append(int(runtime.totalMemory()) - int(runtime.freeMemory()))
    return min(readings)


def java_version() -> str | None:
    """Version of the `java` on the path; None if there is none."""
    try:
        answer = subprocess.run(
            ["java", "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    return None if found is None else found.group(1)


def versions() -> dict[str, str]:
    """Versions of everything that influences the figures; "–" for what is not installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "–"
    if found["streamforest"] == "–":  # run from a checkout that is not installed
        from streamforest._version import __version__

        found["streamforest"] = __version__
    found["java"] = java_version() or "–"
    return found


def require_scikit_learn() -> None:
    """ConfigError if scikit-learn, which has the models that learn offline, is not installed."""
    try:
        import_module("sklearn")
    except ImportError as error:
        raise ConfigError(
            "this table compares with scikit-learn, which is not installed: "
            "pip install scikit-learn"
        ) from error


def description() -> str:
    """One line about the machine."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"

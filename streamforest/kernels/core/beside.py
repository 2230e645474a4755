"""A second process that compiles one family's kernels while this one compiles another's.

numba compiles in one thread. The auto forest has two families, so on a machine's first start a second process
fills the cache with one of them, and this process loads what it finds there. It begins with what the first
events need, and goes on with the rest while they are processed. Whatever becomes of the second process, the
result is the same: what is not in the cache is compiled here.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field

from streamforest.kernels.core import cache
from streamforest.kernels.core.notice import counting

_LONGEST = 600.0  # seconds that the second process is waited for
_lock = threading.Lock()


@dataclass
class _Second:
    """The second process of this one."""

    child: subprocess.Popen[bytes] | None = None
    name: str = ""
    begun: threading.Event = field(default_factory=threading.Event)
    """It has compiled what the first events need, or has ended."""


_second = _Second()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _can_start() -> bool:
    """Not on one core, nor inside a program that is no Python interpreter."""
    return _cores() > 1 and os.path.basename(sys.executable or "").startswith("python")


def start(module: str, name: str, script: str) -> None:
    """Run a script that compiles the kernels of a module, unless the cache has them.

    The script prints a line when it has compiled what the first events need.
    """
    with _lock:
        if _second.child is not None or cache.is_compiled(module) or not _can_start():
            return
        if not cache.is_writable(module):
            return
        paths = os.pathsep.join(path for path in sys.path if path)
        env = {**os.environ, "PYTHONPATH": paths, "STREAMFOREST_QUIET": "1"}
        with contextlib.suppress(OSError):  # then this process compiles everything
            _second.name = name
            _second.child = subprocess.Popen(
                [sys.executable, "-c", script],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            atexit.register(_second.child.kill)
            threading.Thread(target=_listen, args=(_second,), daemon=True).start()


def _listen(second: _Second) -> None:
    assert second.child is not None
    assert second.child.stdout is not None
    with second.child.stdout as said:
        said.readline()
        second.begun.set()
        said.read()


def wait_for_first() -> None:
    """Wait until the second process, if there is one, has compiled what the first events need."""
    if _second.child is not None and not _second.begun.is_set():
        with counting(_second.name):
            _second.begun.wait(_LONGEST)


def wait() -> None:
    """Wait for the end of the second process, if there is one."""
    child = _second.child
    if child is None or child.returncode is not None:
        return
    with counting(_second.name):
        try:
            child.wait(_LONGEST)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    atexit.unregister(child.kill)

"""Named points at which tests of recovery can kill the process.

`STREAMFOREST_FAILPOINT=after-produce:3` kills the process with SIGKILL when it reaches that point for the
third time. Without the variable a point costs one comparison.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "STREAMFOREST_FAILPOINT"
NAMES = (
    "after-poll",
    "inside-advance",
    "after-produce",
    "before-commit",
    "after-commit",
    "before-snapshot-write",
    "after-snapshot-write",
    "before-snapshot-fsync",
    "after-snapshot-fsync",
    "before-snapshot-rename",
    "after-snapshot-rename",
)
"""In the order in which an event reaches them; a snapshot's own thread reaches those of a snapshot."""


def _armed() -> tuple[str, int]:
    name, _, passes = os.environ.get(VARIABLE, "").partition(":")
    if name and name not in NAMES:
        raise ValueError(f"{VARIABLE}={name}: no such point; the points are {', '.join(NAMES)}")
    return name, int(passes or 1)


_name, _left = _armed()


def arm(name: str, passes: int = 1) -> None:
    """Set the point in a process that was forked after this module was loaded."""
    global _name, _left
    _name, _left = name, passes


def _due(name: str) -> bool:
    global _left
    if name != _name:
        return False
    _left -= 1
    return _left == 0


def failpoint(name: str) -> None:
    """Kill the process here if this is the requested point and pass."""
    if _name and _due(name):
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def during(name: str) -> Iterator[None]:
    """Kill the process inside the block: a thread does it while the block runs."""
    if not (_name and _due(name)):
        yield
        return
    threading.Timer(0.001, os.kill, (os.getpid(), signal.SIGKILL)).start()
    yield
    time.sleep(60)  # the block was faster than the timer

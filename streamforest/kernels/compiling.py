"""How kernels are compiled: cached on disk, free of the interpreter's lock, one notice to the user.

No `fastmath` anywhere: the order of every floating-point sum is the one written down, so that the
same events give the same bits whatever the batch size or the number of threads.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

# Inlined by force: a call that stays a call counts references to every array of the forest up and
# down again, which costs more than most of these functions do.
kernel = njit(cache=True, nogil=True, error_model="numpy", forceinline=True)

# For large functions that run seldom (a sort, a split test): a call of a microsecond more is nothing
# to them, and inlined at every place they are called from they would make compiling slow.
routine = njit(cache=True, nogil=True, error_model="numpy")

_NOTICE_AFTER = 2.5  # seconds; loading from the cache is quicker than this, compiling is not
_T = TypeVar("_T")


def _say(text: str) -> None:
    if not os.environ.get("STREAMFOREST_QUIET"):
        print(f"streamforest: {text}", file=sys.stderr, flush=True)


class Announced:
    """A kernel whose first call in this process tells the user why it takes seconds.

    Compiling happens once per machine; later starts load the cache, and nothing is said. Whether a
    call compiles or loads is numba's own affair, so the notice goes by the clock. After the first
    call `run` is the bare kernel: nothing is left in the way.
    """

    def __init__(self, function: Callable[..., _T], name: str) -> None:
        self.function = function
        self.name = name
        self.run: Callable[..., Any] = self._first

    def _first(self, *args: Any) -> Any:
        timer = threading.Timer(
            _NOTICE_AFTER,
            _say,
            [f"compiling the {self.name} kernels for this machine (first start only) …"],
        )
        timer.daemon = True
        timer.start()
        try:
            return self.function(*args)
        finally:
            timer.cancel()
            self.run = self.function

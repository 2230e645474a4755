"""What the user sees while kernels are compiled: one line that counts."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from streamforest.kernels.core import cache, linking

_NOTICE_AFTER = 2.5  # seconds; loading from the cache is quicker than this, compiling is not
_TERMINAL, _FILE = 1.0, 10.0  # seconds between two counts
_KERNEL = re.compile(rb"^@(?:kernel|routine)$", re.MULTILINE)
_lines = threading.Lock()  # one notice at a time, whatever compiles inside what


def _say(text: str, end: str = "\n") -> None:
    if not os.environ.get("STREAMFOREST_QUIET"):
        print(f"streamforest: {text}", file=sys.stderr, flush=True, end=end)


def functions_of(function: Callable[..., Any]) -> int:
    """Kernels in the module of a function and in those it imports: it calls no others, and nearly all."""
    sources = cache.sources(cache.name_of(function))
    return sum(len(_KERNEL.findall(source)) for source in sources.values())


def _count(name: str, most: int | None, done: threading.Event) -> None:
    before, begun = linking.functions_compiled(), time.monotonic()
    if done.wait(_NOTICE_AFTER):
        return
    live = sys.stderr.isatty()
    text = f"compiling the {name} kernels for this machine (first start only)"
    if not live:
        _say(f"{text} …")
    while not done.wait(_TERMINAL if live else _FILE):
        counted = f"{time.monotonic() - begun:.0f} s"
        if most is not None:
            n = linking.functions_compiled() - before
            counted = f"{n} of {max(n, most)} functions, {counted}"
        _say(f"\r{text}: {counted} …" if live else counted, end="" if live else "\n")
    if live:
        _say("\r", end="\n")


@contextmanager
def counting(name: str, most: int | None = None) -> Iterator[None]:
    """Tell the user, if this takes seconds, that kernels are compiled, and how far it is.

    `most` are the functions that there are to compile, at most; None: another process compiles them.
    """
    if not _lines.acquire(blocking=False):
        yield
        return
    done = threading.Event()
    counter = threading.Thread(target=_count, args=(name, most, done), daemon=True)
    counter.start()
    try:
        yield
    finally:
        done.set()
        counter.join()
        _lines.release()


class Announced:
    """A kernel whose first call in this process tells the user why it takes seconds.

    Compiling happens once per machine; later starts load the cache, and nothing is said. Whether a
    call compiles or loads is numba's own affair, so the notice goes by the clock. After the first
    call `run` is the bare kernel: nothing is left in the way.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, first: Callable[[], None] | None = None
    ) -> None:
        self.function = function
        self.name = name
        self.first = first  # what is done before the first call
        self.run: Callable[..., Any] = self._first

    def _first(self, *args: Any) -> Any:
        if self.first is not None:
            self.first()
        try:
            with counting(self.name, functions_of(self.function)):
                return self.function(*args)
        finally:
            self.run = self.function

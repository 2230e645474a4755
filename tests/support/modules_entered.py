"""Which Python modules of the package are entered while something runs: the length of a way to read."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import streamforest

ROOT = Path(streamforest.__file__).parent


@contextmanager
def modules_entered() -> Iterator[set[str]]:
    """While entered, the set gets each module of the package in which a function is called, by any
    thread. What only compiles or imports is no part of the way.
    """
    found: set[str] = set()
    seen: set[str] = set()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name not in seen and frame.f_code.co_name != "<module>":
            seen.add(name)
            path = Path(name)
            if path.is_relative_to(ROOT):
                found.add(str(path.relative_to(ROOT)))

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)

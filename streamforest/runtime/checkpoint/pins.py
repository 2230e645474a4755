"""Pinned snapshots: kept for ever, whatever is written after them.

    s-000000050000.safetensors.pin      since when it is pinned

A run deletes snapshots while an operator pins them, in two processes. Both hold a lock for the moment it
takes, so that what was said to be pinned is there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamforest.errors import SnapshotError
from streamforest.private_files import FILE_MODE, replace, try_lock, update

SUFFIX = ".safetensors.pin"
_PATIENCE = 5.0  # seconds; the lock is held for a moment, unless its holder was stopped


class Pins:
    """The pins in a folder of snapshots."""

    def __init__(self, folder: Path, mode: int = FILE_MODE) -> None:
        self._folder = folder
        self._mode = mode

    def names(self) -> set[str]:
        """Names of the pinned snapshots."""
        return {path.name.removesuffix(SUFFIX) for path in self._folder.glob(f"s-*{SUFFIX}")}

    def add(self, name: str) -> None:
        """Pin a snapshot; hold the lock, and see that it is there."""
        details = {"pinned": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        data = json.dumps(details).encode() + b"\n"
        replace(self._folder / f"{name}{SUFFIX}", data, self._mode)

    def remove(self, name: str) -> bool:
        """Let go of a pin; False if there was none."""
        path = self._folder / f"{name}{SUFFIX}"
        there = os.path.lexists(path)
        path.unlink(missing_ok=True)
        return there

    @contextmanager
    def held(self) -> Iterator[None]:
        """While entered, nobody else deletes or pins; SnapshotError if another holds it for long."""
        path = self._folder / "pins.lock"
        with update(path, self._mode) as file:
            until = time.monotonic() + _PATIENCE
            while sys.platform != "win32" and not try_lock(file):
                if time.monotonic() > until:
                    raise SnapshotError(
                        f"{path} is held by another process: see which one hangs, and try again"
                    )
                time.sleep(0.02)
            yield

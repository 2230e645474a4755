"""Pinned snapshots: kept for ever, whatever is written after them.

    s-000000050000.safetensors.pin      since when it is pinned

A run deletes snapshots while an operator pins them, in two processes. What was said to be pinned is there:
`storage.py` says how.
"""

from __future__ import annotations

import json
import time
from contextlib import AbstractContextManager

from streamforest.runtime.checkpoint.storage import PIN, Storage


class Pins:
    """The pins among the files of snapshots."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def names(self) -> set[str]:
        """Names of the pinned snapshots."""
        return {name.removesuffix(PIN) for name in self._storage.names() if name.endswith(PIN)}

    def add(self, name: str) -> None:
        """Pin a snapshot; hold the lock, and see that it is there."""
        details = {"pinned": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        self._storage.pin(name, json.dumps(details).encode() + b"\n")

    def remove(self, name: str) -> bool:
        """Let go of a pin; False if there was none."""
        there = name in self.names()
        self._storage.delete(f"{name}{PIN}")
        return there

    def held(self) -> AbstractContextManager[None]:
        """While entered, nobody else deletes or pins; SnapshotError if another holds it for long."""
        return self._storage.held()

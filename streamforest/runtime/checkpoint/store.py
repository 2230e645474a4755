"""The snapshots of a run: written off the hot path, named by commits, the last few kept.

    s-000000050000.safetensors      models and the run's own state after 50,000 events
    s-000000050000.safetensors.json when, where and with what it was written, and passing measures
    s-000000050000.safetensors.pin  there while it is pinned, see `pins.py`

A snapshot is of a committed state, so its name says all: after so many events of the journal. It
decides nothing until a commit names it, and goes only after a newer one was named by a commit that
was read back.

Before a file gets its name, its very bytes are loaded as a start would load them, checks and all. What could
not be started from is never there to be named: the snapshot before it stays the last one, and the journal
covers the rest. Memory, beside the models that learn: first a copy of them and the bytes made of it, then,
the copy being gone, the bytes, their arrays and the models made of those. That is three times the models at
most, as it was without the check.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from streamforest.errors import (
    RecoveryError,
    SnapshotError,
    StorageError,
    StreamForestError,
)
from streamforest.forests.persistence import snapshot
from streamforest.io.failpoints import failpoint
from streamforest.object_files import ObjectFolder
from streamforest.private_files import FILE_MODE
from streamforest.runtime.checkpoint.pins import Pins
from streamforest.runtime.checkpoint.storage import SUFFIX, FileStorage, ObjectStorage, Storage
from streamforest.runtime.processing.adapters import Model

log = logging.getLogger(__name__)

_NAME = re.compile(r"s-(\d{12,})")
_MAX_MEASURES = 16 << 20  # bytes

Check = Callable[[str, dict[str, Any], dict[str, Any]], object]
"""What a start does with a snapshot's name, models and state; SnapshotError where it would refuse them."""


@dataclass(frozen=True)
class Snapshot:
    """A durable snapshot: its name, its file's hash, and the journal record it was taken after."""

    name: str
    hash: str
    since: int
    events: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Failure:
    """Why there is no snapshot: it could not be written, or its own check has refused it."""

    reason: Literal["write", "check"]
    message: str


class RefusedError(SnapshotError):
    """A snapshot that was not named, since a start would refuse it."""


class SnapshotFolder:
    """Snapshots of one run. One at a time is being written, by a thread of its own."""

    def __init__(
        self,
        path: Path | ObjectFolder,
        keep: int = 3,
        mode: int = FILE_MODE,
        home: Path | None = None,
    ) -> None:
        """`home` is the run's own folder on this machine, by default the one that `path` is in."""
        self.path = path
        self.keep = keep
        self.mode = mode
        self.storage: Storage
        if isinstance(path, ObjectFolder):
            assert home is not None, "object storage is no place for a run's other files"
            self.storage, self.home = ObjectStorage(path), home
        else:
            self.storage, self.home = FileStorage(path, mode), home or path.parent
        self.pins = Pins(self.storage)
        self._failure: Failure | None = None
        self._writer: threading.Thread | None = None
        self.written: Snapshot | None = None
        """The newest one written by this process, once it is durable."""

    @property
    def busy(self) -> bool:
        """Whether one is being written."""
        return self._writer is not None and self._writer.is_alive()

    def begin(
        self,
        models: Mapping[str, Model],
        state: Mapping[str, Any],
        events: int,
        since: int,
        passing: Mapping[str, Any],
        check: Check = lambda name, models, state: None,
    ) -> None:
        """Copy everything now and write it in the background; `written` tells when it is durable.

        The copy is all that the stream waits for. `check` is what a start does beyond decoding.
        """
        copies = {name: copy.deepcopy(model.estimator) for name, model in models.items()}
        frozen = copy.deepcopy(dict(state))
        self._writer = threading.Thread(
            target=self._write,
            args=(copies, frozen, events, since, json.dumps(passing), check),
            name="snapshot",
        )
        self._writer.start()

    def wait(self) -> None:
        """Until the one being written is durable, or has failed."""
        if self._writer is not None:
            self._writer.join()

    def disown(self) -> None:
        """Let no commit name what this process has written so far: the log went on without it, and it may
        have taken a state for committed that never was (trap C of `workarounds`).
        """
        self.wait()
        self.written = None

    def take_failure(self) -> Failure | None:
        """Why the last one is not there; said once."""
        failure, self._failure = self._failure, None
        return failure

    def _write(
        self,
        models: dict[str, Any],
        state: dict[str, Any],
        events: int,
        since: int,
        passing: str,
        check: Check,
    ) -> None:
        begun = time.perf_counter()
        name = f"s-{events:012d}"
        file = self._name(name)
        try:
            data = snapshot.encode(models, state)
            models.clear()  # the copy of them makes room for what is made of the bytes
            state.clear()
            try:
                check(name, *snapshot.decode(data))
            except Exception as error:  # also what a start would end with a traceback
                self._failure = Failure("check", _message(error))
                return
            self.storage.write_snapshot(file, data, failpoint)
        except Exception as error:  # whatever it is: a thread that dies tells nobody
            self._failure = Failure("write", _message(error))
            return
        try:
            self.storage.replace(f"{file}.measures", passing.encode())
        except OSError as error:  # they may be lost; the snapshot is there
            log.warning("the windows of %s are not kept: %s", name, error)
        seconds = time.perf_counter() - begun
        self.written = Snapshot(name, _hash(data), since, events, len(data), seconds)

    def load(self, name: str, expected: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Models and state of a named snapshot, after comparing its file with the hash."""
        path = self.file(name)
        try:
            data = self.storage.read(self._name(name))
        except OSError as error:
            raise SnapshotError(f"cannot read the snapshot {path}: {error.strerror}") from error
        if expected and _hash(data) != expected:
            raise SnapshotError(f"{path}: not the file that was committed: its hash differs")
        try:
            return snapshot.decode(data)
        except (ValueError, RecursionError) as error:  # a SnapshotError is a ValueError
            raise SnapshotError(f"{path}: {error}") from error

    def older(self, name: str) -> Iterator[str]:
        """Names of the snapshots before this one, newest first."""
        yield from (n for n in reversed(self.names()) if _events(n) < _events(name))

    def names(self) -> list[str]:
        """All there are, oldest first."""
        found = [n[: -len(SUFFIX)] for n in self.storage.names() if n.endswith(SUFFIX)]
        return sorted((n for n in found if _NAME.fullmatch(n)), key=_events)

    def prune(self, named: str) -> None:
        """Delete all but the last `keep` up to the one named by a commit that was read back.

        Newer ones than that are left by a process that died before it could name them. Pinned ones
        are never deleted. What cannot be deleted now is tried again after the next snapshot: a run
        goes on with too many of them.
        """
        try:
            self._prune(named)
        except (OSError, SnapshotError, StorageError) as error:
            log.warning("older snapshots are not deleted for now: %s", error)

    def _prune(self, named: str) -> None:
        names = self.names()
        before = [n for n in names if _events(n) <= _events(named)]
        if before[: -self.keep]:
            self.storage.delete_unpinned(before[: -self.keep])

    def refuse_pinned(self) -> None:
        """SnapshotError if one is pinned: who starts over would lose it."""
        pinned = sorted(self.pins.names())
        if pinned:
            raise SnapshotError(
                f"{self.path}: {', '.join(pinned[:5])} pinned; to start over unpin first "
                "(streamforest snapshots unpin), or move the folder away"
            )

    def clear(self) -> None:
        """Delete every snapshot: the run starts over."""
        for name in self.storage.names():
            if SUFFIX in name:
                self.storage.delete(name)

    def passing(self, name: str) -> dict[str, Any]:
        """Windows, latencies and pace as of a snapshot; empty where they are lost."""
        return self._object(f"{self._name(name)}.measures")

    def sidecar(self, name: str) -> dict[str, Any]:
        """When, where and with what a snapshot was written; empty where that is lost."""
        return self._object(f"{self._name(name)}.json")

    def stat(self, name: str) -> tuple[int, float]:
        """Size in bytes, and when it was written; FileNotFoundError if it is gone."""
        return self.storage.stat(self._name(name))

    def _object(self, name: str) -> dict[str, Any]:
        try:
            fields = self.storage.read_json(name, _MAX_MEASURES)
        except (OSError, ValueError, StorageError):
            return {}
        return fields if isinstance(fields, dict) else {}

    def _name(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise RecoveryError(f"the last commit names a snapshot {name!r}, which is no name")
        return f"{name}{SUFFIX}"

    def file(self, name: str) -> str:
        """Where a snapshot is, for people."""
        return f"{self.path}/{self._name(name)}"


def _message(error: Exception) -> str:
    known = isinstance(error, OSError | StreamForestError)
    return str(error) if known else f"{type(error).__name__}: {error}"


def _events(name: str) -> int:
    return int(name[2:])


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()

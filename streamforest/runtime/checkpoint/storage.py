"""Where the files of snapshots are: a folder, or a prefix in object storage. Both promise the same.

A snapshot is under its name whole or not at all, and durable once `write_snapshot` has returned. Failures are
OSErrors, and SnapshotErrors that name the file.

A store that does not answer is no reason to take a snapshot for lost: that is a StorageError, and whoever
reads tries again later.

A run deletes old snapshots while an operator pins them, in two processes. In a folder both hold a lock for
the moment it takes. Object storage has no locks that end with their holder. There whoever deletes first says
so in an object of its own (`.gone-…`) and then looks for a pin; whoever pins does that first and then looks
for `.gone-…`. At least one of the two sees the other, and gives way.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from streamforest.errors import SnapshotError, StorageError
from streamforest.forests.persistence import snapshot
from streamforest.object_files import ObjectFolder
from streamforest.private_files import (
    FILE_MODE,
    make_folder,
    read_json,
    reading,
    replace,
    try_lock,
    update,
)

SUFFIX = ".safetensors"
PIN = f"{SUFFIX}.pin"
_GONE = f"{SUFFIX}.gone"
_PATIENCE = 5.0  # seconds; the lock is held for a moment, unless its holder was stopped

_OLD = 3600.0  # seconds after which nobody is still deleting; more than two clocks may differ

Passing = Callable[[str], None]


class Storage(Protocol):
    """Files by name."""

    def write_snapshot(self, name: str, data: bytes, passing: Passing) -> None:
        """Put the bytes of a snapshot in place, durable and whole, its sidecar beside them. `passing` is told
        before and after each step that a crash could fall between.
        """

    def replace(self, name: str, data: bytes) -> None:
        """Write a small file in place of whatever has its name."""

    def read(self, name: str) -> bytes:
        """The content of a file."""

    def read_json(self, name: str, limit: int) -> Any:
        """The content of a small file; ValueError if it is not JSON or too large."""

    def names(self) -> list[str]:
        """All files whose names begin with `s-`."""

    def stat(self, name: str) -> tuple[int, float]:
        """Size, and when it was written; FileNotFoundError if there is none."""

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""

    def delete_unpinned(self, snapshots: list[str]) -> None:
        """Delete snapshots and all that belongs to them, except those that are pinned."""

    def pin(self, snapshot: str, data: bytes) -> None:
        """Pin a snapshot; SnapshotError if it is being deleted."""

    def held(self) -> contextlib.AbstractContextManager[None]:
        """While entered, nobody else deletes or pins, as far as the storage has locks."""

    def is_there(self) -> bool:
        """Whether anything was ever written here."""


class FileStorage:
    """A folder."""

    def __init__(self, path: Path, mode: int = FILE_MODE) -> None:
        self._path, self._mode = path, mode

    def write_snapshot(self, name: str, data: bytes, passing: Passing) -> None:
        """Write it to another name, fsync it and rename it."""
        make_folder(self._path.parent, self._mode)
        make_folder(self._path, self._mode)
        snapshot.sweep(self._path, f"s-*{SUFFIX}")
        snapshot.write_bytes(self._path / name, data, passing, self._mode)

    def replace(self, name: str, data: bytes) -> None:
        """Write a small file atomically."""
        replace(self._path / name, data, self._mode)

    def read(self, name: str) -> bytes:
        """The content of a file."""
        with reading(self._path / name) as file:
            return file.read()

    def read_json(self, name: str, limit: int) -> Any:
        """The content of a small file."""
        return read_json(self._path / name, limit)

    def names(self) -> list[str]:
        """All files whose names begin with `s-`."""
        return [path.name for path in self._path.glob("s-*")]

    def stat(self, name: str) -> tuple[int, float]:
        """Size, and when it was written."""
        found = (self._path / name).stat()
        return found.st_size, found.st_mtime

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        (self._path / name).unlink(missing_ok=True)

    def delete_unpinned(self, snapshots: list[str]) -> None:
        """Delete them under the lock."""
        with self.held():
            for one in snapshots:
                if not os.path.lexists(self._path / f"{one}{PIN}"):
                    for path in self._path.glob(f"{one}{SUFFIX}*"):
                        path.unlink(missing_ok=True)

    def pin(self, snapshot: str, data: bytes) -> None:
        """Pin a snapshot; whoever does so holds the lock."""
        self.replace(f"{snapshot}{PIN}", data)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock; SnapshotError if another holds it for long."""
        path = self._path / "pins.lock"
        with update(path, self._mode) as file:
            until = time.monotonic() + _PATIENCE
            while sys.platform != "win32" and not try_lock(file):
                if time.monotonic() > until:
                    raise SnapshotError(
                        f"{path} is held by another process: see which one hangs, and try again"
                    )
                time.sleep(0.02)
            yield

    def is_there(self) -> bool:
        """Whether there is the folder."""
        return self._path.is_dir()


@contextmanager
def _answering() -> Iterator[None]:
    """StorageError for whatever is not an answer."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageError(f"{error.filename}: {error.strerror}; try again") from error


class ObjectStorage:
    """A prefix in object storage."""

    def __init__(self, folder: ObjectFolder) -> None:
        self._folder = folder

    def write_snapshot(self, name: str, data: bytes, passing: Passing) -> None:
        """Upload it, and read it back: then it is durable, and what it should be."""
        try:
            passing("before-snapshot-write")
            self._folder.write(name, data)
            for step in ("after-snapshot-write", "before-snapshot-fsync"):
                passing(step)
            self._folder.check(name, data)
            steps = ("after-snapshot-fsync", "before-snapshot-rename", "after-snapshot-rename")
            for step in steps:
                passing(step)
        except OSError as error:
            raise SnapshotError(
                f"cannot write the snapshot {self._folder}/{name}: {error.strerror}"
            ) from error
        with contextlib.suppress(OSError):  # the sidecar may be lost
            told = json.dumps(snapshot.provenance(), indent=1) + "\n"
            self._folder.write(f"{name}.json", told.encode())

    def replace(self, name: str, data: bytes) -> None:
        """Write a small object."""
        self._folder.write(name, data)

    def read(self, name: str) -> bytes:
        """The content of an object."""
        with _answering():
            return self._folder.read(name)

    def read_json(self, name: str, limit: int) -> Any:
        """The content of a small object."""
        try:
            return json.loads(self._folder.read(name, limit))
        except RecursionError:
            raise ValueError("it is nested too deep") from None

    def names(self) -> list[str]:
        """All objects whose names begin with `s-`."""
        with _answering():
            return [name for name in self._folder.names() if name.startswith("s-")]

    def stat(self, name: str) -> tuple[int, float]:
        """Size, and when it was written."""
        with _answering():
            return self._folder.stat(name)

    def delete(self, name: str) -> None:
        """Delete an object, if it is there."""
        self._folder.delete(name)

    def delete_unpinned(self, snapshots: list[str]) -> None:
        """Say of each that it goes, then look for a pin: see above. One that was left half deleted is
        gone on with.
        """
        if not snapshots:
            return
        there = self.names()
        for one in snapshots:
            if f"{one}{PIN}" in there:
                continue
            mark = f"{one}{_GONE}-{secrets.token_hex(8)}"  # its own: others may delete at the same time
            self._folder.write(mark, b"")
            if not self._folder.exists(f"{one}{PIN}"):
                for name in there:
                    if name.startswith(f"{one}{SUFFIX}") and _GONE not in name:
                        self._folder.delete(name)
            self._folder.delete(mark)
        for name in there:
            if _GONE in name and self._is_old(name):  # of a process that was killed meanwhile
                self._folder.delete(name)

    def _is_old(self, name: str) -> bool:
        try:
            return time.time() - self.stat(name)[1] > _OLD
        except FileNotFoundError:
            return True

    def pin(self, snapshot: str, data: bytes) -> None:
        """Pin it, then look whether somebody deletes it."""
        self._folder.write(f"{snapshot}{PIN}", data)
        marks = [name for name in self.names() if name.startswith(f"{snapshot}{_GONE}")]
        going = any(not self._is_old(name) for name in marks)
        if going or not self._folder.exists(f"{snapshot}{SUFFIX}"):
            self._folder.delete(f"{snapshot}{PIN}")
            raise SnapshotError(
                f"{snapshot}: the run is deleting it at this moment; list the snapshots and pin another"
            )

    @contextmanager
    def held(self) -> Iterator[None]:
        """There is no lock, and none is needed."""
        yield

    def is_there(self) -> bool:
        """Whether there is any snapshot."""
        return bool(self.names())

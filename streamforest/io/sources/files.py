"""Recorded files as sources: JSON lines, CSV, Parquet.

A line of JSON is a message, as in a topic; so is a row of a table, with a field for each column. What the
fields mean is for `[features]` to say (`io/features/`), for files and topics alike.
"""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from streamforest.errors import ConfigError
from streamforest.io.codec.events import BOUNDS, Bounds
from streamforest.io.sources.dataset import RecordedRow

_BLOCK = 1 << 20
_BOM = b"\xef\xbb\xbf"


class FileSource(abc.ABC):
    """The common part of all formats."""

    def __init__(self, path: Path, events: int | None = None) -> None:
        if not path.is_file():
            raise ConfigError(
                f"file = '{path}': no such file in {path.absolute().parent}; correct the path"
            )
        self.path = path
        self.topic = path.name
        self._checksum = _checksum(path)
        count = self._count()
        self.total = count if events is None else min(events, count)

    @abc.abstractmethod
    def _count(self) -> int:
        """How many events the file holds."""

    @abc.abstractmethod
    def _read(self, start: int) -> Iterator[RecordedRow]:
        """The events from number `start` to the end of the file."""

    def describe(self) -> dict[str, Any]:
        """Name, length and checksum as JSON values."""
        return {"file": self.path.name, "events": self.total, "checksum": self._checksum}

    def rows(self, start: int) -> Iterator[RecordedRow]:
        """The events from number `start` on."""
        return islice(self._read(start), max(0, self.total - start))


class LinesSource(FileSource):
    """JSON lines; the codec reads each line as it reads a message."""

    def __init__(self, path: Path, events: int | None = None, bounds: Bounds = BOUNDS) -> None:
        self._max_line = bounds.max_bytes + 2
        super().__init__(path, events)

    def _count(self) -> int:
        with self.path.open("rb") as file:
            lines, last = 0, b"\n"
            while block := file.read(_BLOCK):
                lines += block.count(b"\n")
                last = block[-1:]
        if not lines and last == b"\n":
            raise ConfigError(
                f"file = '{self.path}': is empty: no lines; write one event to a line"
            )
        return lines + (last != b"\n")

    def _read(self, start: int) -> Iterator[RecordedRow]:
        with self.path.open("rb") as file:
            number = 0
            while line := file.readline(self._max_line):
                while not line.endswith(b"\n") and len(line) >= self._max_line:
                    # skip the rest of a line that is too long for an event
                    rest = file.readline(_BLOCK)
                    if not rest or rest.endswith(b"\n"):
                        break
                if number >= start:
                    text = line.removeprefix(_BOM) if number == 0 else line
                    yield RecordedRow(number, None, text.rstrip(b"\r\n"))
                number += 1


def _checksum(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()

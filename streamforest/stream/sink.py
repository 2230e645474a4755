"""Predictions out to a file: one JSON object a line.

The file is only as long as the last snapshot says: a run that is taken up again cuts off what was
written after it and writes those lines once more, so that each event has exactly one line.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from streamforest.errors import SnapshotError


class Prediction(msgspec.Struct, frozen=True):
    """What the model said of one event before it learned from it.

    `label` is None while the model knew no class, `truth` where the event had no label.

    >>> msgspec.json.encode(Prediction(event=7, label="cat", probability=0.75, truth="dog"))
    b'{"event":7,"label":"cat","probability":0.75,"truth":"dog"}'
    """

    event: int
    label: Any
    probability: float
    truth: Any


class PredictionFile:
    """An append-only JSONL file opened at a known length.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "predictions.jsonl"
    >>> with PredictionFile(path) as sink:
    ...     sink.append([Prediction(0, "a", 1.0, "a"), Prediction(1, "a", 0.5, "b")])
    ...     sink.sync()
    108
    >>> with PredictionFile(path, size=54):  # the second line was after the last snapshot
    ...     pass
    >>> path.read_text()
    '{"event":0,"label":"a","probability":1.0,"truth":"a"}\\n'
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        self.path = path
        self._encoder = msgspec.json.Encoder()
        new = not path.exists()
        self._file = path.open("w+b" if new else "r+b")
        there = self._file.seek(0, os.SEEK_END)
        if there < size:
            self._file.close()
            raise SnapshotError(
                f"{path}: {there} bytes, but the snapshot beside it was written after {size}; "
                "put the file back, or start over with --fresh"
            )
        self._file.truncate(size)
        self._file.seek(size)
        self.size = size

    def append(self, predictions: Iterable[Prediction]) -> None:
        """Write one line each; on disk for certain only after `sync`."""
        lines = self._encoder.encode_lines(predictions)
        self._file.write(lines)
        self.size += len(lines)

    def sync(self) -> int:
        """Force everything to disk and return the file's length."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self.size

    def close(self) -> None:
        """Close the file; lines since the last `sync` are handed to the system, not forced."""
        self._file.close()

    def __enter__(self) -> PredictionFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

"""The run folder: what a run leaves on disk, and how it is found again.

    snapshot.safetensors   models and position; the only file that decides anything
                           (.json beside it: when, where and with what it was written)
    predictions.jsonl      one line an event, as long as the snapshot says
    measures.json          windows, latencies, pace: nice to have, may be lost
    lock                   held while a run is under way

A snapshot names the length of the predictions file, and is renamed into place only after those
bytes are on disk: whatever moment a run is killed at, the two agree once the file is cut back.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from streamforest.errors import SnapshotError, StreamForestError
from streamforest.forests import snapshot

if sys.platform != "win32":
    import fcntl

_FORMAT = 1


@dataclass(frozen=True)
class Position:
    """The part of a snapshot that is the run's own: plain data, a function of the events alone."""

    source: Mapping[str, Any]
    """What the events come from; another source cannot take up this run."""
    events: int
    """Events advanced so far, and so the number of the next one."""
    predictions: int
    """Bytes of the predictions file that belong to these events."""
    totals: Mapping[str, Any]
    """Model name -> sums of its prequential measures."""

    def to_plain(self) -> dict[str, Any]:
        """For the snapshot."""
        return {
            "format": _FORMAT,
            "source": dict(self.source),
            "events": self.events,
            "predictions": self.predictions,
            "totals": dict(self.totals),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Position:
        """From a snapshot; ValueError, TypeError or KeyError where it holds no run."""
        if plain["format"] != _FORMAT:
            raise ValueError(f"run format {plain['format']!r}, this version reads {_FORMAT}")
        position = cls(
            source=dict(plain["source"]),
            events=int(plain["events"]),
            predictions=int(plain["predictions"]),
            totals=dict(plain["totals"]),
        )
        if position.events < 0 or position.predictions < 0:
            raise ValueError("a negative position")
        return position


class RunFolder:
    """The files of one run, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.snapshot = path / "snapshot.safetensors"
        self.predictions = path / "predictions.jsonl"
        self.sidecar = path / "measures.json"
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> RunFolder:
        self.path.mkdir(parents=True, exist_ok=True)
        lock = (self.path / "lock").open("ab")
        if sys.platform != "win32":
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                raise StreamForestError(
                    f"{self.path}: another run is under way in this folder; wait for it, "
                    "or give this one its own with --set run.folder=…"
                ) from None
        self._lock = lock
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def load(self) -> tuple[dict[str, Any], Position] | None:
        """Models and position of the last snapshot; None in a folder without one."""
        if not self.snapshot.exists():
            return None
        models, runtime = snapshot.read(self.snapshot)
        try:
            return models, Position.from_plain(runtime)
        except (KeyError, TypeError, ValueError) as error:
            raise SnapshotError(
                f"{self.snapshot}: holds no run that can be taken up ({error}); "
                "move it away, or start over with --fresh"
            ) from error

    def store(self, models: dict[str, Any], position: Position, passing: Mapping[str, Any]) -> None:
        """Put a snapshot in place of the last one, then the sidecar that goes with it."""
        snapshot.write(self.snapshot, models, runtime=position.to_plain())
        fresh = self.sidecar.with_suffix(".json.tmp")
        fresh.write_text(json.dumps({"events": position.events, **passing}), encoding="utf-8")
        os.replace(fresh, self.sidecar)

    def load_passing(self, events: int) -> dict[str, Any] | None:
        """The sidecar written with the snapshot at `events`; None if it is lost or of another."""
        try:
            passing = json.loads(self.sidecar.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(passing, dict) or passing.get("events") != events:
            return None
        return passing

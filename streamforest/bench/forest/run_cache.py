"""Runs kept on disk, so that a benchmark of hours can be interrupted and resumed.

A run is one model on one stream with its rows, trees, seed and number of events. Its file holds the
measurement (NumPy arrays, no pickle) and what it was measured with. A run with another version of the
model is not found, and is measured again. Runs of rivals stay valid while our own code changes; ours
depend on the sources of our forests and kernels.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from streamforest.bench import machine
from streamforest.bench.forest.contestant import ModelSpec
from streamforest.bench.forest.measurement import Measurement
from streamforest.bench.forest.model_process import ModelProcess, Request
from streamforest.datasets import Stream

_FORMAT = 2


@dataclass(frozen=True)
class RunCache:
    """The kept runs of all models and streams, in one folder; without a folder nothing is kept."""

    folder: Path | None = None

    def find(
        self, spec: ModelSpec, stream: Stream, request: Request, repeat: int
    ) -> Measurement | None:
        """The measurement of exactly this run; None if it is missing or unreadable."""
        if self.folder is None:
            return None
        try:
            with np.load(self._path(spec, stream, request, repeat), allow_pickle=False) as kept:
                about = json.loads(str(kept["about"]))
                if about["truncated"] and about["budget"] != request.budget:
                    return None  # another budget would have ended it elsewhere
                return Measurement(
                    correct=np.unpackbits(kept["correct"])[: about["events"]].astype(np.bool_),
                    marks=(kept["done"], kept["cpu_ns"]),
                    predict_us=_latency(about["predict_us"]),
                    learn_us=_latency(about["learn_us"]),
                    memory_bytes=about["memory_bytes"],
                    truncated=about["truncated"],
                    chance=about["chance"],
                )
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            return None

    def keep(
        self, spec: ModelSpec, stream: Stream, request: Request, repeat: int, run: Measurement
    ) -> None:
        """Write one measurement, whole or not at all."""
        if self.folder is None:
            return
        about = {
            "events": run.events,
            "predict_us": run.predict_us,
            "learn_us": run.learn_us,
            "memory_bytes": run.memory_bytes,
            "truncated": run.truncated,
            "chance": run.chance,
            "budget": request.budget,
            "cell": describe(spec, stream, request, repeat),
            "versions": machine.versions(),
            "machine": machine.description(),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(spec, stream, request, repeat)
        part = path.with_suffix(f".{os.getpid()}.part")
        with part.open("wb") as file:
            np.savez_compressed(
                file,
                about=np.array(json.dumps(about)),
                correct=np.packbits(run.correct),
                done=run.marks[0],
                cpu_ns=run.marks[1],
            )
        part.replace(path)

    def _path(self, spec: ModelSpec, stream: Stream, request: Request, repeat: int) -> Path:
        assert self.folder is not None
        text = json.dumps(describe(spec, stream, request, repeat), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return self.folder / f"{stream.name}.{spec.name}.{request.seed}.{digest}.npz"


class CachedRunner:
    """Runs of one model on one stream: from the cache, else measured in a process that is started when
    first needed. Use it in a `with` block."""

    def __init__(self, spec: ModelSpec, stream: Stream, trees: int, cells: RunCache) -> None:
        self.spec = spec
        self._stream = stream
        self._trees = trees
        self._cells = cells
        self._worker: ModelProcess | None = None
        self.kept = 0
        """Runs that were taken from disk."""

    def __enter__(self) -> CachedRunner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._worker is not None:
            self._worker.close()

    def run(
        self, request: Request, on_progress: Callable[[int], None], repeat: int = 0
    ) -> Measurement:
        """One run. `repeat` distinguishes runs with the same request."""
        kept = self._cells.find(self.spec, self._stream, request, repeat)
        if kept is not None:
            self.kept += 1
            return kept
        if self._worker is None:
            worker = ModelProcess(self.spec, self._stream, self._trees, machine.choose_core())
            self._worker = worker.__enter__()
        found = self._worker.run(request, on_progress)
        self._cells.keep(self.spec, self._stream, request, repeat, found)
        return found


def describe(spec: ModelSpec, stream: Stream, request: Request, repeat: int) -> dict[str, Any]:
    """What identifies a run. The budget is not part of it, since most runs never reach theirs."""
    return {
        "format": _FORMAT,
        "stream": _rows_digest(stream),
        "model": spec.name,
        "made_of": _made_of(spec),
        "trees": request.trees if spec.has_trees else None,
        "seed": request.seed,
        "events": request.events,
        "repeat": repeat,
    }


def _latency(pair: list[float] | None) -> tuple[float, float, float] | None:
    return None if pair is None else (pair[0], pair[1], pair[2])


def _rows_digest(stream: Stream) -> str:
    digest = hashlib.sha256(stream.X.tobytes())
    digest.update(repr((stream.y.tolist(), stream.features)).encode())
    return digest.hexdigest()[:16]


def _made_of(spec: ModelSpec) -> dict[str, str]:
    """The versions a model's predictions depend on."""
    if spec.ours:
        return {"sources": _our_sources()}
    found = machine.versions()
    return {name: found[name] for name in ("python", *spec.packages)}


@cache
def _our_sources() -> str:
    """A digest of the code that our forests' figures depend on."""
    package = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for folder in ("forests", "kernels"):
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]

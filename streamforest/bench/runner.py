"""The runs of one model on one stream: taken from disk where they are kept, else measured."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from streamforest.bench.cells import Cells
from streamforest.bench.machine import choose_core
from streamforest.bench.models import ModelSpec
from streamforest.bench.prequential import Measurement
from streamforest.bench.worker import Request, Worker
from streamforest.datasets import Stream


class Runner:
    """A model's process, started when a run is first needed that is not kept; for a `with` block."""

    def __init__(self, spec: ModelSpec, stream: Stream, trees: int, cells: Cells) -> None:
        self.spec = spec
        self._stream = stream
        self._trees = trees
        self._cells = cells
        self._worker: Worker | None = None
        self.kept = 0
        """Runs that were taken from disk."""

    def __enter__(self) -> Runner:
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
        """One run. `repeat` tells runs apart that ask for the same."""
        kept = self._cells.find(self.spec, self._stream, request, repeat)
        if kept is not None:
            self.kept += 1
            return kept
        if self._worker is None:
            worker = Worker(self.spec, self._stream, self._trees, choose_core())
            self._worker = worker.__enter__()
        found = self._worker.run(request, on_progress)
        self._cells.keep(self.spec, self._stream, request, repeat, found)
        return found

"""The loop: an event's way from the source to its line in the predictions file, top to bottom.

    poll -> advance every model -> predictions of the first -> measure -> (every so often) commit

A commit makes everything so far durable in two steps: predictions forced to disk, then a snapshot
that names their length renamed into place. The models are deterministic, so after a kill at any
moment the events since the last commit are simply advanced again, to the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import ConfigError, InputError, SnapshotError, StreamForestError
from streamforest.observe.measures import ModelMeasures
from streamforest.observe.prequential import Totals
from streamforest.runtime.folder import Position, RunFolder
from streamforest.runtime.models import Model, parameters_of, take_run_time
from streamforest.stream.recorded import RecordedSource
from streamforest.stream.sink import Prediction, PredictionFile

Ending = Literal["finished", "limit", "stopped"]


@dataclass
class Pace:
    """Events and wall-clock seconds of the loop, snapshots and all."""

    events: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.seconds if self.seconds > 0 else 0.0


def answers(posteriors: NDArray[np.float64], classes: list[Any]) -> tuple[list[Any], list[float]]:
    """Most probable class of each row and its probability; None where no class was known.

    >>> answers(np.array([[0.0, 0.0], [0.25, 0.75]]), ["cat", "dog"])
    ([None, 'dog'], [0.0, 0.75])
    """
    if not classes:
        return [None] * len(posteriors), [0.0] * len(posteriors)
    top = posteriors.argmax(axis=1)  # ties: the class seen first
    best = np.take_along_axis(posteriors, top[:, None], axis=1)[:, 0].tolist()
    labels = [classes[k] if p > 0 else None for k, p in zip(top.tolist(), best)]
    return labels, best


class Run:
    """One run of a pipeline in its folder: open it, `consume`, look at `measures`."""

    def __init__(
        self,
        source: RecordedSource,
        models: dict[str, Model],
        folder: RunFolder,
        *,
        batch: int = 100,
        snapshot_every: int = 1_000,
        fresh: bool = False,
    ) -> None:
        """Take up the run that `folder` holds, or begin one there; `fresh` begins in any case.

        `models` are new ones; the first publishes its predictions, all are measured. A beginning
        is a snapshot too, at event 0: it shows that the folder can be written before any work is
        done, and puts an old run out of the way in one rename.
        """
        self.source = source
        self.models = models
        self.folder = folder
        self.batch = batch
        self.snapshot_every = snapshot_every
        self.measures = {name: ModelMeasures() for name in models}
        self.main = next(iter(models))
        self.pace = Pace()
        kept = None if fresh else folder.load()
        if kept is None:
            self._store(predictions=0)
            self.sink = PredictionFile(folder.predictions)
        else:
            self._take_up(*kept)
            self.sink = PredictionFile(folder.predictions, kept[1].predictions)
        self._committed = self.events

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.sink.close()

    @property
    def events(self) -> int:
        """Events advanced so far, those of earlier processes included."""
        return self.source.position

    @property
    def finished(self) -> bool:
        """Whether the source has no event left."""
        return self.source.position >= self.source.total

    def warm_up(self) -> None:
        """Let the kernels compile before the first event, so that no event waits for it."""
        for model in self.models.values():
            model.warm_up()

    def consume(
        self,
        *,
        max_events: int | None = None,
        stop: Callable[[], bool] = lambda: False,
        watch: Callable[[Run], None] = lambda run: None,
    ) -> Ending:
        """Advance until the source ends, `max_events` more are done or `stop()` says so.

        `stop` is asked and `watch` told once a batch. However it ends, the last commit is at
        exactly the position reached; an error leaves the folder at the commit before it.
        """
        limit = self.source.total if max_events is None else self.events + max_events
        while not (self.finished or self.events >= limit or stop()):
            begun = time.perf_counter()
            until_snapshot = self.snapshot_every - self.events % self.snapshot_every
            self._step(min(self.batch, until_snapshot, limit - self.events))
            if self.events % self.snapshot_every == 0:
                self._commit()
            self.pace.seconds += time.perf_counter() - begun
            watch(self)
        if self.events != self._committed:
            self._commit()
        if self.finished:
            return "finished"
        return "limit" if self.events >= limit else "stopped"

    def _step(self, rows: int) -> None:
        """One batch: poll, advance, predict, write, measure."""
        batch = self.source.poll(rows)
        for name, model in self.models.items():
            begun = time.perf_counter()
            try:
                posteriors = model.advance(batch.x, batch.y)
            except InputError as error:
                last = batch.first + len(batch.y) - 1
                raise StreamForestError(
                    f"events {batch.first} to {last}: model {name} refused them: {error}"
                ) from error
            seconds = time.perf_counter() - begun
            labels, best = answers(posteriors, list(model.classes_))
            if name == self.main:
                numbers = range(batch.first, batch.first + len(batch.y))
                self.sink.append(map(Prediction, numbers, labels, best, batch.y))
            self.measures[name].update(batch.y, labels, seconds)
        self.pace.events += len(batch.y)

    def _commit(self) -> None:
        """Make everything so far durable: (1) predictions, (2) the snapshot that names them."""
        self._store(self.sink.sync())
        self._committed = self.events

    def _store(self, predictions: int) -> None:
        position = Position(
            source=self.source.describe(),
            events=self.events,
            predictions=predictions,
            totals={name: measures.totals.state() for name, measures in self.measures.items()},
        )
        passing = {
            "models": {name: measures.passing_state() for name, measures in self.measures.items()},
            "pace": [self.pace.events, self.pace.seconds],
        }
        self.folder.store(self.models, position, passing)

    def _take_up(self, models: dict[str, Any], position: Position) -> None:
        """Go to where a snapshot stands, after checking that it is of this very pipeline."""
        self._compare("source", self.source.describe(), position.source)
        for name, configured in self.models.items():
            if name not in models or name not in position.totals:
                raise SnapshotError(
                    f"{self.folder.snapshot}: holds no model {name!r}; start over with --fresh"
                )
            self._compare("model", parameters_of(configured), parameters_of(models[name]))
            take_run_time(models[name], configured)
        try:
            totals = {name: Totals.from_state(position.totals[name]) for name in self.models}
        except (KeyError, TypeError, ValueError) as error:
            raise SnapshotError(
                f"{self.folder.snapshot}: its measures cannot be read ({error!r}); "
                "start over with --fresh"
            ) from error
        self.source.seek(position.events)
        self.models = {name: models[name] for name in self.models}
        self.measures = {name: ModelMeasures(totals[name]) for name in self.models}
        self._restore_passing(self.folder.load_passing(position.events))

    def _compare(self, table: str, now: Mapping[str, Any], then: Mapping[str, Any]) -> None:
        """Refuse to go on with other settings than the run began with, naming all of them."""
        changed = [
            f"{table}.{key} is {now.get(key)!r} and was {then.get(key)!r}"
            for key in {**now, **then}
            if now.get(key) != then.get(key)
        ]
        if changed:
            raise ConfigError(
                f"{self.folder.path} holds a run with other settings: {'; '.join(changed)}. "
                "Put them back, choose another run.folder, or start over with --fresh"
            )

    def _restore_passing(self, passing: dict[str, Any] | None) -> None:
        """Take up windows, latencies and pace where the sidecar has them; without it they begin
        anew, since nothing depends on them.
        """
        if passing is None:
            return
        try:
            for name, measures in self.measures.items():
                measures.restore_passing(passing["models"][name])
            events, seconds = passing["pace"]
            self.pace = Pace(int(events), float(seconds))
        except (KeyError, TypeError, ValueError):
            return

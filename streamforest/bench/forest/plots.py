"""Accuracy over events, as pictures: what `bench forest` found, a line for each model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamforest.bench.forest.measurement import windowed
from streamforest.bench.forest.results import ForestResult, Runs, StreamResult
from streamforest.bench.output import Line, Panel, plot

_BEFORE, _AFTER, _CLOSE = 500, 2_500, 200
"""Around a change: events shown before and after it, and events averaged over."""


def plot_each(folder: Path, result: ForestResult) -> None:
    """One file per stream."""
    folder.mkdir(parents=True, exist_ok=True)
    for stream_result in result.streams:
        plot(folder / f"{stream_result.stream.name}.png", stream_panels(stream_result))


def panels(result: ForestResult) -> list[Panel]:
    """The panels of all streams."""
    return [panel for one in result.streams for panel in stream_panels(one)]


def stream_panels(result: StreamResult) -> list[Panel]:
    """The whole stream and, where it is known to change, the time around its first change.

    Batch-wise contestants are left out: their predictions are those of the same model by dicts.
    """
    stream, window = result.stream, result.window
    whole = Panel(
        f"{stream.name}, mean of the last {window:,} events",
        _lines(result, window, 0, len(stream)),
        marks=stream.drifts,
    )
    if not stream.drifts:
        return [whole]
    change = stream.drifts[0]
    close = _lines(result, _CLOSE, change - _BEFORE, min(change + _AFTER, len(stream)))
    title = f"{stream.name}, around the change: last {_CLOSE} events"
    return [whole, Panel(title, close, marks=(change,))]


def _lines(result: StreamResult, window: int, start: int, stop: int) -> list[Line]:
    lines = []
    for row in result.measured():
        if row.runs is None or row.spec.batches_of in result.rows:
            continue
        x, y = _curve(mean_correct(row.runs), window, start, stop)
        if len(x):
            lines.append(Line(row.spec.about.removesuffix(", dicts"), x, y, strong=row.spec.ours))
    if (mask := result.stream.bayes) is not None:
        x, y = _curve(mask.astype(np.float64), window, start, stop)
        lines.append(Line("Bayes rule", x, y, dashed=True))
    return lines


def mean_correct(runs: Runs) -> NDArray[np.float64]:
    """For each event, the share of seeds that got it right."""
    of_seeds = [repeats[0].correct[: runs.events] for repeats in runs.by_seed.values()]
    share: NDArray[np.float64] = np.mean(of_seeds, axis=0)
    return share


def _curve(
    correct: NDArray[np.float64], window: int, start: int, stop: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The running mean between two events, without the first few, which average over too little."""
    ends, accuracy = windowed(correct[:stop], window, points=max(200, 200 * stop // (stop - start)))
    shown = (ends >= start) & (ends >= window // 4)
    return ends[shown], accuracy[shown]

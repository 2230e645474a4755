"""One forest in threads and in actors of Ray: events a second over the number of trees, in one run.

Forests of one size stand side by side and learn the same rows in turn, a few epochs at a time. The fastest of
the rounds counts, which leaves out most of what else the machine does. All must give the same bits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np

from streamforest import StreamForestClassifier
from streamforest.bench.output import versions_line
from streamforest.datasets.generated import rbf
from streamforest.errors import StreamForestError
from streamforest.forests.core.engine import EPOCH

_FIRST = 512  # events learned before anything is measured
_MACHINES = (2, 4, 8)


@dataclass(frozen=True)
class Measured:
    """What was measured of one forest."""

    trees: int
    actors: int
    """0: none, all trees in threads of one process."""
    threads: int
    """In each process that has trees."""
    seconds: float
    """Of an epoch of 64 events, predicted and learned."""

    @property
    def rate(self) -> float:
        """Events a second."""
        return EPOCH / self.seconds

    @property
    def where(self) -> str:
        """Its trees are in so many threads or actors."""
        count, what = (self.actors, "actor") if self.actors else (self.threads, "thread")
        return f"{count} {what}{'s' if count > 1 else ''}"


@dataclass(frozen=True)
class Costs:
    """A straight line through what was measured: an epoch takes `fixed + trees · per_tree / cores`."""

    actors_fixed: float
    """Seconds of an epoch in actors beside the work of the trees: sending, waiting, adding up."""
    threads_fixed: float
    """The same with one thread in one process."""
    per_tree: float
    """Seconds of a tree in an epoch, on one core."""

    def pays_from(self, machines: int, cores: int) -> int | None:
        """Trees from which on so many machines are faster than the threads of one; None: never."""
        saved = self.per_tree / cores * (1.0 - 1.0 / machines)
        extra = self.actors_fixed - self.threads_fixed
        return None if saved <= 0 else max(1, int(np.ceil(extra / saved)))


def measure(
    trees: Sequence[int],
    actors: Sequence[int],
    epochs: int,
    rounds: int,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Measured]:
    """Forests of each size in one thread, in a thread for each core, and in actors of one thread."""
    cores = os.cpu_count() or 1
    settings = [(0, 1), *([(0, cores)] if cores > 1 else []), *((n, 1) for n in actors)]
    size = EPOCH * epochs
    stream = rbf(_FIRST + rounds * size)
    X, y = stream.X, stream.y.tolist()
    found = []
    for n in trees:
        models = [_forest(n, *setting) for setting in settings]
        progress(f"{n:,} trees: starting {sum(a for a, _ in settings)} actors, growing the trees")
        _same(models, X[:_FIRST], y[:_FIRST])
        took: list[list[float]] = [[] for _ in settings]
        for number in range(rounds):
            rows = slice(_FIRST + number * size, _FIRST + (number + 1) * size)
            for seconds, one in zip(took, _same(models, X[rows], y[rows])):
                seconds.append(one / epochs)
        for (n_actors, threads), seconds in zip(settings, took):
            found.append(Measured(n, n_actors, threads, min(seconds)))
            progress(f"{n:,} trees, {found[-1].where}: {found[-1].rate:,.0f} events/s")
    return found


def _forest(n_trees: int, n_actors: int, threads: int) -> StreamForestClassifier:
    executor = "ray" if n_actors else "threads"
    return StreamForestClassifier(
        n_trees=n_trees, n_jobs=threads, executor=executor, n_actors=max(1, n_actors), seed=1
    )


def _same(models: Sequence[Any], X: Any, y: list[Any]) -> list[float]:
    """Seconds that each model takes for the same rows."""
    took, said = [], []
    for model in models:
        begun = time.perf_counter()
        said.append(model.advance(X, y))
        took.append(time.perf_counter() - begun)
    if any(other.tobytes() != said[0].tobytes() for other in said[1:]):
        raise StreamForestError("the forests do not give the same bits")
    return took


def costs(found: Sequence[Measured]) -> Costs | None:
    """What an epoch costs, by the fewest actors; None with fewer than two sizes."""
    alone = [one for one in found if one.actors == 0 and one.threads == 1]
    fewest = min((one.actors for one in found if one.actors), default=0)
    divided = [one for one in found if one.actors == fewest]
    if len(alone) < 2 or not fewest:
        return None
    per_tree, threads_fixed = _line(alone)
    return Costs(_line(divided)[1], threads_fixed, per_tree)


def _line(found: Sequence[Measured]) -> tuple[float, float]:
    """Slope, and height at 0 trees, of the seconds of an epoch; errors count by their share."""
    x = np.array([one.trees for one in found], float)
    seconds = np.array([one.seconds for one in found])
    slope, height = np.polyfit(x, seconds, 1, w=1.0 / seconds)
    return float(slope), float(height)


def report(found: Sequence[Measured]) -> str:
    """A line for each number of trees, then what follows for several machines."""
    places = list(dict.fromkeys(one.where for one in found))
    lines = ["events/s".ljust(11) + "".join(f"{place:>14}" for place in places)]
    for n in dict.fromkeys(one.trees for one in found):
        rates = {one.where: one.rate for one in found if one.trees == n}
        lines.append(f"{n:>5,} trees" + "".join(f"{rates[place]:>14,.0f}" for place in places))
    cost = costs(found)
    if cost is not None:
        lines += ["", *_break_even(cost, os.cpu_count() or 1)]
    lines += ["", f"{versions_line()}; ray {metadata.version('ray')}"]
    return "\n".join(lines)


def _break_even(cost: Costs, cores: int) -> list[str]:
    fixed, alone, tree = (
        f"{1000 * seconds:.2f} ms"
        for seconds in (cost.actors_fixed, cost.threads_fixed, cost.per_tree)
    )
    pays = []
    for machines in _MACHINES:
        trees = cost.pays_from(machines, cores)
        pays.append(f"{machines} machines from {'no number' if trees is None else f'{trees:,}'}")
    return [
        f"An epoch of {EPOCH} events takes {tree} a tree and core, and beside that {fixed} with actors, "
        f"{alone} with threads.",
        f"By these figures, for machines of {cores} cores and a network as fast as this machine's own: "
        f"{', '.join(pays)} trees on.",
        "Actors on one machine share its cores: there they only add to what threads take.",
    ]

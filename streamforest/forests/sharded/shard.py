"""A shard: some of a forest's trees, in a process of its own.

It is built from the bytes of a snapshot and then follows numbered calls. A call that changes trees moves the
number on; a call with any other number than the next is refused, so that none is repeated or left out.

Between calls a shard keeps trees, and the ring of rows that they hang on. All else that kernels read (scales,
vote weights, ranges, what columns hold) belongs to the forest, is small, and comes with each call.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import SequenceError
from streamforest.forests.core.batch import Batch
from streamforest.forests.persistence import snapshot
from streamforest.kernels.core.operations import LEARN

if TYPE_CHECKING:
    from streamforest.forests.core.base import Forest

OF_TREES = ("tree.", "nodes.")
"""Arrays of a snapshot in which trees stand one after the other: those of shards are joined end to end."""

Call = tuple[str, Any]
"""A method of a shard that changes its trees, and its argument."""


class Step(NamedTuple):
    """Rows for the trees of a shard, and what all trees share as of these rows."""

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    op: NDArray[np.uint8]
    known: NDArray[np.int64]
    learned: int
    """Rows learned before."""
    classes: int
    flags: NDArray[np.uint8]
    """Of each column: whether it holds categories."""
    absent: NDArray[np.float64]
    """Of each column: what an event that lacks it has there."""
    shared: dict[str, Any]

    @property
    def nbytes(self) -> int:
        """What its arrays take."""
        parts = (*self, *self.shared.values())
        return sum(part.nbytes for part in parts if isinstance(part, np.ndarray))

    def owned(self) -> Step:
        """The same in arrays of its own, which may be written to: kernels are compiled for such."""
        shared = {name: _owned(part) for name, part in self.shared.items()}
        return Step._make([*map(_owned, self[:-1]), shared])

    def to_learn(self) -> Step:
        """What it takes to learn it again: a copy of the rows that are learned, nothing to be answered."""
        rows = np.flatnonzero(self.op & LEARN)
        op = np.full(len(rows), LEARN, np.uint8)
        return self._replace(X=self.X[rows], y=self.y[rows], op=op, known=self.known[rows]).owned()


def _owned(part: Any) -> Any:
    return part.copy() if isinstance(part, np.ndarray) else part


def step_of(forest: Forest, batch: Batch) -> Step:
    """A batch as shards get it."""
    columns = forest._features
    return Step(
        batch.X,
        batch.y,
        batch.op,
        batch.known,
        forest._n_learned,
        len(forest._labels),
        columns.categorical,
        columns.absent_values(0, len(columns)),
        forest._shared(),
    )


class _Columns:
    """What kernels and rings ask of a table of features."""

    def __init__(self, flags: NDArray[np.uint8], absent: NDArray[np.float64]) -> None:
        self.categorical = self.category_flags = flags
        self._absent = absent

    def __len__(self) -> int:
        return len(self.categorical)

    def absent_values(self, begin: int, end: int) -> NDArray[np.float64]:
        out = np.full(end - begin, np.nan)
        have = self._absent[begin:end]
        out[: len(have)] = have
        return out


class Shard:
    """Trees `first` to `last` of a forest.

    Parameters
    ----------
    data
        The bytes of a snapshot of the whole forest.
    first, last
        The trees that it keeps.
    number
        The number of the first call after that snapshot.
    n_jobs
        Threads.
    """

    def __init__(self, data: bytes, first: int, last: int, number: int, n_jobs: int) -> None:
        forest: Any = snapshot.decode(data)[0]["main"]
        forest._levels.forest = None  # that for categories has shards of its own
        forest._keep_trees(first, last)
        forest.n_trees, forest.n_jobs = last - first, n_jobs
        forest._scratch()
        self._forest, self._first, self._last = forest, first, last
        self._number = number

    def about(self) -> dict[str, str]:
        """What the bits of its results depend on."""
        return about()

    def call(self, number: int, changes: bool, method: str, argument: Any) -> Any:
        """Call a method; `number` is how many calls have changed the trees before."""
        if number != self._number:
            raise SequenceError(
                f"call {number} to the shard of trees {self._first} to {self._last - 1}, which expects "
                f"call {self._number}: it would be repeated, or one left out"
            )
        result = getattr(self, method)(argument)
        self._number += changes
        return result

    def replay(self, calls: Sequence[Call]) -> None:
        """Follow calls again, after a snapshot that was made before them."""
        for method, argument in calls:
            self.call(self._number, True, method, argument)

    # ---- what can be called

    def process(self, step: Step) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Take the trees through rows: their votes, and what the forest has to know of each tree."""
        step = step.owned()
        forest = self._take(step)
        batch = Batch(step.X, step.y, step.op, step.known)
        if forest._cuts_epochs:
            forest._observe(batch)
        votes = forest._new_votes(len(step.X))
        forest._process_trees(batch, votes)
        forest._tidy()
        return np.ascontiguousarray(forest._tree_votes(votes)), forest._figures()

    def arrays(self, step: Step) -> dict[str, NDArray[Any]]:
        """The trees as arrays of a snapshot."""
        dumped = self._take(step.owned())._dump()
        return {name: array for name, array in dumped.items() if name.startswith(OF_TREES)}

    def add_gains(self, total: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add what the splits of these trees gain, by feature, in the order of trees."""
        total = total.copy()
        self._forest._add_gains(total)
        return total

    def restart_tree(self, tree: int) -> None:
        """Let a tree start again, if it is one of these."""
        if self._first <= tree < self._last:
            self._forest._restart_tree(tree - self._first)

    def _take(self, step: Step) -> Any:
        """The forest of these trees, with what a step says of all else."""
        forest = self._forest
        forest._n_learned = step.learned
        forest._labels = range(step.classes)  # they are asked for their number only
        forest._features = _Columns(step.flags, step.absent)
        forest._take_shared(step.shared, step.X)
        return forest


def about() -> dict[str, str]:
    """Versions and architecture: the same bits are promised for one set of them."""
    versions: dict[str, str] = snapshot.provenance()["versions"]
    return {**versions, "machine": platform.machine()}

"""What every forest has in common: the public contract around a kernel.

A subclass owns arrays and a kernel that moves its trees through rows (`_call`), and says how the arrays
grow and what of them a snapshot holds. Input, the clock, epochs, threads, votes and River's methods are
here. Everything a user can call ends in `_call`: rows in order, each predicted before it is learned.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from river import base

from streamforest.errors import FeatureError, InputError
from streamforest.forests.batch import (
    LEARN,
    PREDICT,
    length,
    operations,
    other_than_numbers,
    posteriors,
    records,
)
from streamforest.forests.features import FeatureTable
from streamforest.forests.labels import Label, LabelTable, as_list, index_labels
from streamforest.forests.parameters import check_choice, check_int

EPOCH = 64
_CHUNK = 8192  # rows a kernel call takes at most: bounds the votes held at a time
_WORTH_THREADS = 64  # tree-rows below which handing work to threads costs more than it saves


def next_boundary(n: int) -> int:
    """The first epoch boundary after `n` learned rows: 1, 2, 4, … 64, then every multiple of 64.

    >>> [next_boundary(n) for n in (0, 1, 2, 3, 5, 63, 64, 100)]
    [1, 2, 4, 4, 8, 64, 128, 128]
    """
    if n < EPOCH:
        return 1 << n.bit_length()
    return (n // EPOCH + 1) * EPOCH


class Forest(base.MiniBatchClassifier, abc.ABC):
    """Base of all forests of this package.

    Predictions and learned state are the same bits for any batch size and any number of threads.
    """

    _cuts_epochs: ClassVar[bool] = False  # whether `_end_epoch` does anything

    # Constructor arguments every forest has; subclasses store them under these names.
    n_trees: int
    max_classes: int
    max_features: int
    max_categories: int
    nonfinite: str
    n_jobs: int
    seed: int | None

    def _start(self) -> None:
        """Check the common parameters and plant the trees. Called at the end of `__init__`."""
        check_int("n_trees", self.n_trees, 1)
        check_int("max_classes", self.max_classes, 1)
        check_int("max_features", self.max_features, 1)
        check_int("max_categories", self.max_categories, 1)
        check_int("n_jobs", self.n_jobs, 1)
        if self.seed is not None:
            check_int("seed", self.seed, 0)
        check_choice("nonfinite", self.nonfinite, ("error", "missing"))
        self._labels = LabelTable(self.max_classes)
        self._features = FeatureTable(self.max_features, self.max_categories, self.nonfinite)
        self._n_learned = 0
        seeds = np.random.SeedSequence(self.seed).generate_state(self.n_trees, np.uint64)
        self._plant(seeds.astype(np.uint64))
        self._scratch()

    def _scratch(self) -> None:
        """What is neither parameter nor state: buffers of one row, the last routing, threads."""
        self._progress = np.zeros(self.n_trees, np.int64)
        self._routes = np.zeros(self.n_trees, np.int64)
        self._want = np.zeros(_WANTS, np.int64)
        self._one_y = np.zeros(1, np.int64)
        self._one_known = np.zeros(1, np.int64)
        self._one_votes = self._new_votes(1)
        self._routed: bytearray | None = None  # the row that `_routes` belongs to
        self._one_rows: tuple[bytearray, bytearray] = (bytearray(8), bytearray(8))
        self._one_views = tuple(np.frombuffer(b, np.float64).reshape(1, -1) for b in self._one_rows)
        self._pool: ThreadPoolExecutor | None = None

    # ---- what a subclass provides

    @abc.abstractmethod
    def _plant(self, seeds: NDArray[np.uint64]) -> None:
        """Make the arrays of trees that have seen nothing, one per seed; check own parameters."""

    @abc.abstractmethod
    def _call(
        self,
        first: int,
        last: int,
        want: NDArray[np.int64],
        X: NDArray[np.float64],
        y: NDArray[np.int64],
        op: NDArray[np.uint8],
        known: NDArray[np.int64],
        reuse: bool,
        votes: NDArray[np.int64],
    ) -> bool:
        """Move trees `first` to `last` through the rows, adding to `votes`.

        False if an array is too small for what comes next: `want` then says what is needed, and
        after `_enlarge(want)` the same call goes on where it stopped (`_progress`).
        """

    @abc.abstractmethod
    def _enlarge(self, want: NDArray[np.int64]) -> None:
        """Make room for at least `want`."""

    @abc.abstractmethod
    def _dump(self) -> dict[str, NDArray[Any]]:
        """The state as one-dimensional arrays without slack, for a snapshot."""

    @abc.abstractmethod
    def _restore(self, take: Callable[..., NDArray[Any]]) -> None:
        """Take the state back: `take(name, dtype, size)` gives an array or refuses it."""

    @abc.abstractmethod
    def summary(self) -> dict[str, Any]:
        """Size and shape of the forest."""

    def _new_votes(self, n: int) -> NDArray[np.int64]:
        """Room for the votes on `n` rows. Forests with several opinions a tree have a further axis."""
        return np.zeros((n, len(self._labels)), np.int64)

    def _mix(self, votes: NDArray[np.int64]) -> NDArray[Any]:
        """Votes as one score per row and class, with the weights of this epoch."""
        return votes

    def _observe(
        self, X: NDArray[np.float64], y: NDArray[np.int64], learns: NDArray[np.bool_]
    ) -> None:
        """Stage rows for the shared stores; they take effect in `_end_epoch`."""

    def _end_epoch(self) -> None:
        """What changes between epochs: shared stores, what trees know of each other."""

    # ---- River's contract

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def classes_(self) -> list[Label]:
        """The classes in the order first seen."""
        return list(self._labels.labels)

    @property
    def n_learned(self) -> int:
        """The clock: events learned so far."""
        return self._n_learned

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"n_trees": 5, "seed": 42}

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        """Learn one event. If `predict_one` was just asked about the same row, its routing is used."""
        k = self._labels.find(y)
        if k < 0:
            self._labels.require_room(y)  # before the event's features are let in
        row = self._one_row(x, learn=True)
        if k < 0:
            k = self._labels.learn(y)
        reuse = self._routed is not None and self._routed == self._one_rows[row]
        self._routed = None
        self._one_y[0] = k
        self._one_known[0] = len(self._features)
        X = self._one_views[row]
        if self._cuts_epochs:
            self._observe(X, self._one_y, _ONE_TRUE)
        while not self._call_one(X, _OP_LEARN, reuse):
            self._enlarge(self._want)
        self._n_learned += 1
        if self._cuts_epochs and next_boundary(self._n_learned - 1) == self._n_learned:
            self._end_epoch()

    def predict_one(self, x: dict[Any, Any], **kwargs: Any) -> Any:
        """The most probable class; None before anything was learned. Ties go to the class seen first."""
        if not self._labels.labels:
            self._one_row(x, learn=False)
            return None
        return self._labels.labels[int(self._scores_one(x).argmax())]

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """The probability of every class ever seen."""
        if not self._labels.labels:
            self._one_row(x, learn=False)
            return {}
        scores = self._scores_one(x)
        total = scores.sum()
        if total == 0:
            return dict.fromkeys(self._labels.labels, 1.0 / len(scores))
        return dict(zip(self._labels.labels, (scores / total).tolist()))

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:
        """Learn the rows of a frame in order: the same as `learn_one` in a loop."""
        self.advance(X, y, op=np.full(len(X), LEARN, np.uint8))

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """The probabilities of every class for the rows of a frame."""
        P = self.advance(X, [None] * len(X))
        return pd.DataFrame(P, index=getattr(X, "index", None), columns=self.classes_)

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """The most probable class for each row of a frame."""
        P = self.advance(X, [None] * len(X))
        index = getattr(X, "index", None)
        if not self._labels.labels:
            return pd.Series(index=index, dtype="object")
        labels = self._labels.labels
        return pd.Series([labels[k] for k in P.argmax(axis=1)], index=index)

    # ---- the contract

    def advance(
        self,
        X: ArrayLike | pd.DataFrame | Sequence[Mapping[Any, Any]],
        y: Sequence[Any] | NDArray[Any] | pd.Series | None = None,
        op: ArrayLike | None = None,
    ) -> NDArray[np.float64]:
        """Take a batch of events in order: predict each, then learn it.

        Parameters
        ----------
        X
            A 2-D array (its columns are the features 0, 1, …), a frame, or a sequence of dicts.
        y
            One label per row; `None` where there is none (the row is then predicted only).
        op
            What to do with each row: `PREDICT`, `LEARN` or `BOTH`. Default: both, or predict where
            the label is None.

        Returns
        -------
        Posteriors taken before the row was learned, one row per event, one column per class of
        `classes_` as it stands after the call. A class not seen before a row is 0 there; a row
        before any class is all zeros; a row that was only learned is NaN. A bad row refuses the
        whole call, names the row and nothing is learned.
        """
        self._features.begin()
        n_classes = len(self._labels)
        try:
            n = length(X)
            labels = [None] * n if y is None else as_list(y, n)
            ops = operations(op, labels)
            learns = (ops & LEARN) != 0
            rows, known_features = self._encode(X, learns)
            index, known_classes = index_labels(self._labels, labels, learns)
        except InputError:
            self._features.rollback()
            self._labels.truncate(n_classes)
            raise
        self._routed = None
        scores = self._advance(rows, index, ops, known_features)
        return posteriors(scores, ops, known_classes)

    def predict_trees(self, X: ArrayLike | pd.DataFrame) -> NDArray[np.int64]:
        """The answer of each tree by itself: class indices [trees, rows], -1 where it has none yet."""
        n = length(X)
        rows, known = self._encode(X, np.zeros(n, np.bool_))
        out = np.empty((self.n_trees, n), np.int64)
        ops = np.full(n, PREDICT, np.uint8)
        y = np.full(n, -1, np.int64)
        for t in range(self.n_trees):
            votes = self._new_votes(n)
            self._call(t, t + 1, self._want, rows, y, ops, known, False, votes)
            if votes.size:
                scores = self._mix(votes)
                out[t] = np.where(scores.any(axis=1), scores.argmax(axis=1), -1)
            else:
                out[t] = -1
        return out

    def warm_up(self) -> None:
        """Compile, or load, all that this forest will ever call, so that no event has to wait."""
        other = self.clone()
        other.advance(np.zeros((2, 1)), ["a", "b"])
        other._enlarge(np.full(_WANTS, 1_000, np.int64))
        other._dump()

    def save(self, path: Any) -> None:
        """Write a snapshot; `streamforest.load` reads it."""
        from streamforest.forests.snapshot import save

        save(self, path)

    # ---- rows

    def _encode(
        self, X: Any, learns: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Any input as rows, with the number of features known as of each."""
        table = self._features
        if isinstance(X, pd.DataFrame):
            names = list(X.columns)
            if len(set(names)) != len(names):
                raise FeatureError(f"X has columns of the same name: {names!r}")
            if other_than_numbers(X) or table.holds_categories(names):
                return table.rows(records(X), learns.tolist())
            return table.matrix(X.to_numpy(np.float64), names, learns)
        if isinstance(X, Sequence) and (len(X) == 0 or isinstance(X[0], Mapping)):
            return table.rows(X, learns.tolist())
        array = np.asarray(X)
        if array.ndim != 2 or array.dtype.kind not in "biuf":
            raise FeatureError(
                f"X is an array of {array.dtype} with {array.ndim} dimensions: "
                "pass a 2-D array of numbers, a DataFrame or a list of dicts"
            )
        if not table.positional:
            raise FeatureError(
                f"X is an array, but this model's features have names, such as {table.names[0]!r}: "
                "pass a DataFrame or dicts"
            )
        return table.matrix(array, range(array.shape[1]), learns)

    def _one_row(self, x: Any, learn: bool) -> int:
        """Write an event to one of the two row buffers and return which: 0 to predict, 1 to learn."""
        which = 1 if learn else 0
        size = 8 * max(1, len(self._features))
        if len(self._one_rows[which]) != size:
            self._one_buffers(size)
        if self._features.pack(x, self._one_rows[which], 0):
            return which
        self._features.begin()
        try:
            row = self._features.row(x, learn)
        except InputError:
            self._features.rollback()
            raise
        if 8 * len(row) > size:
            self._one_buffers(8 * len(row))
        self._one_views[which][0, : len(row)] = row
        return which

    def _one_buffers(self, size: int) -> None:
        # bytearrays, because comparing two of them is one memcmp
        self._one_rows = bytearray(size), bytearray(size)
        self._one_views = tuple(np.frombuffer(b, np.float64).reshape(1, -1) for b in self._one_rows)
        self._one_views[0][:] = np.nan
        self._one_views[1][:] = np.nan
        self._routed = None

    def _scores_one(self, x: Any) -> NDArray[Any]:
        row = self._one_row(x, learn=False)
        if self._one_votes.shape[-1] != len(self._labels):
            self._one_votes = self._new_votes(1)
        self._one_votes.fill(0)
        self._call_one(self._one_views[row], _OP_PREDICT, False)
        self._routed = self._one_rows[row]
        scores: NDArray[Any] = self._mix(self._one_votes)[0]
        return scores

    def _call_one(self, X: NDArray[np.float64], op: NDArray[np.uint8], reuse: bool) -> bool:
        return self._call(
            0,
            self.n_trees,
            self._want,
            X,
            self._one_y,
            op,
            self._one_known,
            reuse,
            self._one_votes,
        )

    # ---- moving the trees

    def _advance(
        self,
        X: NDArray[np.float64],
        y: NDArray[np.int64],
        op: NDArray[np.uint8],
        known: NDArray[np.int64],
    ) -> NDArray[Any]:
        """Move all trees through the rows, cut at epoch boundaries where the forest has epochs."""
        votes = self._new_votes(len(X))
        scores = []
        learns = (op & LEARN) != 0
        clock = self._n_learned + np.cumsum(learns)  # after each row
        start = 0
        while start < len(X):
            stop = min(len(X), start + _CHUNK)
            boundary = 0
            if self._cuts_epochs:
                boundary = next_boundary(self._n_learned)
                stop = min(stop, int(np.searchsorted(clock, boundary)) + 1)
                self._observe(X[start:stop], y[start:stop], learns[start:stop])
            cut = slice(start, stop)
            self._move(X[cut], y[cut], op[cut], known[cut], votes[cut])
            scores.append(self._mix(votes[cut]))
            self._n_learned = int(clock[stop - 1])
            if self._n_learned == boundary:
                self._end_epoch()
            start = stop
        if len(scores) == 1:
            return scores[0]
        return np.concatenate(scores) if scores else self._mix(votes)

    def _move(
        self,
        X: NDArray[np.float64],
        y: NDArray[np.int64],
        op: NDArray[np.uint8],
        known: NDArray[np.int64],
        votes: NDArray[np.int64],
    ) -> None:
        """All trees through these rows, on as many threads as are worth it."""
        jobs = min(self.n_jobs, self.n_trees)
        if jobs == 1 or len(X) * self.n_trees < _WORTH_THREADS * jobs:
            while not self._call(0, self.n_trees, self._want, X, y, op, known, False, votes):
                self._enlarge(self._want)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="streamforest")
        cuts = [self.n_trees * j // jobs for j in range(jobs + 1)]
        shares = [votes] + [np.zeros_like(votes) for _ in range(jobs - 1)]
        wants = [np.zeros(_WANTS, np.int64) for _ in range(jobs)]
        todo = list(range(jobs))
        while todo:
            done = self._pool.map(
                lambda j: self._call(
                    cuts[j], cuts[j + 1], wants[j], X, y, op, known, False, shares[j]
                ),
                todo,
            )
            todo = [j for j, finished in zip(list(todo), done) if not finished]
            for j in todo:
                self._enlarge(wants[j])
        for share in shares[1:]:
            votes += share

    # ---- copies

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in list(state):
            if name.startswith("_one_") or name in _NOT_STATE:
                del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._scratch()


_WANTS = 8  # kinds of arrays a kernel may ask to enlarge, at most
_NOT_STATE = ("_progress", "_routes", "_want", "_routed", "_pool")
_ONE_TRUE = np.ones(1, np.bool_)
_OP_LEARN = np.full(1, LEARN, np.uint8)
_OP_PREDICT = np.full(1, PREDICT, np.uint8)

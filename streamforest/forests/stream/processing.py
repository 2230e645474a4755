"""How a stream forest moves through rows: its ring, its epochs, and four experts mixed to one answer."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.batch import Batch
from streamforest.forests.core.class_balance import ClassBalance
from streamforest.forests.core.engine import EPOCH
from streamforest.forests.core.experts import ExpertForest
from streamforest.forests.sharded.slices import trees_of
from streamforest.forests.stream import arrays as stream_arrays
from streamforest.forests.stream.baselines import BaselineModels
from streamforest.kernels.core.array_table import Addresses, widened
from streamforest.kernels.core.entropy import STEPS, XLOGX
from streamforest.kernels.core.notice import Announced
from streamforest.kernels.core.operations import LEARN
from streamforest.kernels.stream import entry, mixing, shared
from streamforest.kernels.stream.entry import (
    ARRAYS,
    BASELINES,
    DONE,
    JUDGE,
    MIX,
    SHORT_TREES,
    STAGE,
    TREES,
    ForestArrays,
)
from streamforest.kernels.stream.layout import VOTER, TreeArrays
from streamforest.kernels.stream.mixing import EXPERTS, MIXTURES
from streamforest.kernels.stream.votes import NEAR

LARGEST = float(np.finfo(np.float32).max)
_GAIN_EVERY = 512  # events between two looks at which features the trees use
_NO_FEATURES = np.zeros(0)


class StreamProcessing(ExpertForest):
    """The forest as the engine sees it."""

    _kernel = Announced(entry.process_batch, "stream forest")
    _experts: ClassVar[int] = EXPERTS
    _can_shard: ClassVar[bool] = True
    _of_trees = ("_trees", "_routes", "_metric", "_stats", "_spread", "_gain", "_columns")
    _trees: TreeArrays
    max_plain_bytes: int
    balanced: bool

    @abc.abstractmethod
    def _pack_params(self) -> NDArray[np.void]:
        """The parameters as the kernels read them, checked."""

    # ---- arrays

    def _ring_features(self, features: int) -> int:
        """The features that the ring has room for when there are so many."""
        return stream_arrays.stepped(features) if self.absent == "zero" else features

    def _readable_rows(self, features: int) -> int:
        """The rows of the ring that may be read when there are so many features."""
        return stream_arrays.readable_rows(
            self._parameters["ring_rows"],
            self._parameters["max_ring_bytes"],
            self._ring_features(features),
            self.n_trees,
        )

    def _set_ring(self, rows: int) -> None:
        self._params["ring_rows"] = rows
        self._params["slots"] = rows + EPOCH

    def _plant(self, seeds: NDArray[np.uint64]) -> None:
        self._params = self._pack_params()
        self._set_ring(self._readable_rows(0))
        self._trees = stream_arrays.plant(seeds)
        # what all trees share; changed at the end of an epoch only
        self._metric = stream_arrays.new_metric(self._trees.rows.shape[1])
        self._vote_power = 0.0
        self._spread = np.zeros((3, self._trees.rows.shape[1]))  # mean, variance, 1/deviation
        # what that is made of
        self._stats = np.zeros((5, self._trees.rows.shape[1]))
        self._gain = np.zeros(self._trees.rows.shape[1])
        # what belongs to no tree
        self._baselines = BaselineModels(self.max_plain_bytes, self.absent == "zero")
        self._loss = np.zeros(len(MIXTURES))
        self._balance = ClassBalance()
        self._columns = 0  # of the ring
        self._n_known = 0  # features known as of the last row

    def _scratch(self) -> None:
        super()._scratch()
        self._progress = np.zeros(self.n_trees + 1, np.int64)
        self._routes = np.zeros((self.n_trees, 3), np.int64)

    def _new_addresses(self) -> Addresses:
        return Addresses(
            ARRAYS,
            lambda trees, baselines, *own: (
                trees,
                baselines,
                ForestArrays._make((*own, STEPS, XLOGX)),
            ),
        )

    def _kernel_arrays(self) -> tuple[Any, ...]:
        return (
            self._trees,
            self._baselines.arrays,
            self._params,
            self._metric,
            self._stats,
            self._spread,
            self._features.category_flags,
            self._routes,
            self._progress,
            self._loss,
            self._baselines.want,
        )

    def _kernel_values(self, batch: Batch) -> tuple[Any, ...]:
        return batch.known, self._vote_power, self._baselines.max_bytes

    def _call(
        self,
        first: int,
        last: int,
        want: NDArray[np.int64],
        batch: Batch,
        votes: NDArray[np.int64],
    ) -> bool:
        self._widen(batch.X)
        return bool(self._run(TREES, first, last, want, batch, votes) == DONE)

    def _enlarge(self, want: NDArray[np.int64]) -> None:
        self._trees = stream_arrays.enlarge(self._trees, want)

    def _widen(self, X: NDArray[np.float64]) -> None:
        """Room for the columns of a batch, in the ring and in what is made of it."""
        columns = min(X.shape[1], len(self._features))  # a row is never less than one wide
        if columns <= self._columns:
            return
        self._trees = stream_arrays.enlarge_ring(
            self._trees,
            0,
            int(self._params["slots"][0]),
            self._columns,
            self._features.absent_values(self._columns, columns),
            self._ring_features(columns),
        )
        self._columns = columns
        width = self._trees.rows.shape[1]
        if width > self._metric.shape[2]:
            metric = stream_arrays.new_metric(width)
            metric[:, :, : self._metric.shape[2]] = self._metric
            self._metric = metric
            self._stats = widened(self._stats, (5, width))
            self._spread = widened(self._spread, (3, width))
            self._gain = widened(self._gain, (width,))

    # ---- input: the ring is float32

    largest = LARGEST

    # ---- epochs

    def _make_room(self, X: NDArray[np.float64]) -> None:
        """Room in the ring for as many rows more, with all their columns."""
        self._widen(X)
        slots = int(self._params["slots"][0])
        rows = min(slots, self._n_learned + len(X))
        if rows > len(self._trees.rows):
            self._trees = stream_arrays.enlarge_ring(
                self._trees, rows, slots, self._columns, _NO_FEATURES
            )

    def _observe(self, batch: Batch) -> None:
        self._n_known = int(batch.known[-1]) if len(batch.known) else 0
        self._make_room(batch.X)
        slots = int(self._params["slots"][0])
        shared.stage(
            self._trees.rows,
            self._trees.labels,
            self._stats,
            batch.X,
            batch.y,
            batch.op,
            self._n_learned,
            slots,
        )
        if self.absent == "zero":  # a row knows nothing of features that came after it in the batch
            columns = batch.X.shape[1]
            new = self._features.absent_values(0, columns)
            learned = batch.known[(batch.op & LEARN) != 0].tolist()
            for number, known in enumerate(learned, self._n_learned):
                if known < columns:
                    self._trees.rows[number % slots, known:columns] = new[known:]

    def _observe_one(self, X: NDArray[np.float64]) -> None:
        self._make_room(X)  # the rest is done in the same call as the learning

    def _end_epoch(self, batch: Batch) -> None:
        n = self._n_learned
        if n % _GAIN_EVERY == 0 or EPOCH <= n < _GAIN_EVERY:
            self._sum_gains()
        features = self._n_known
        shared.settle_metric(
            self._stats,
            self._gain,
            features,
            self._parameters["relevance"],
            self._features.categorical,
            self._metric,
        )
        self._vote_power = shared.vote_power(self._voters())
        self._baselines.end_epoch(
            n, self._stats[shared.MEAN], self._stats[shared.VARIANCE], self._spread
        )
        rows = self._readable_rows(features)
        if rows < self._params["ring_rows"][0]:
            self._shrink_ring(rows)

    def _shrink_ring(self, rows: int) -> None:
        self._trees = stream_arrays.shrink_ring(
            self._trees,
            self._n_learned,
            int(self._params["slots"][0]),
            rows,
            self._parameters["p_structure"],
            self._features.categorical,
        )
        self._set_ring(rows)

    # ---- trees that may be in actors

    def _sum_gains(self) -> None:
        """What splits gain, by feature; trees are added up in order, wherever they are."""
        if self._shards is None:
            shared.sum_gains(self._trees, self._gain)
        else:
            self._gain[:] = self._shards.chain("add_gains", np.zeros_like(self._gain))

    def _add_gains(self, total: NDArray[np.float64]) -> None:
        """The same for the trees here, on top of those before them."""
        trees = self._trees
        for s in (2 * np.arange(len(trees.voter)) + trees.voter["active"]).tolist():
            node = trees.node["feature"][s, : trees.tree_slot["n_nodes"][s]]
            inner = np.flatnonzero(node >= 0)
            np.add.at(total, node[inner], trees.stat["gain"][s, inner].astype(np.float64))

    def _voters(self) -> NDArray[np.void]:
        """All trees as they vote; those in actors have told their accuracies."""
        if self._shards is None:
            return self._trees.voter
        voters = np.zeros(self.n_trees, VOTER)
        voters["accuracy"] = self._shards.figures
        return voters

    def _figures(self) -> NDArray[np.float64]:
        return self._trees.voter["accuracy"].copy()

    def _tree_votes(self, votes: NDArray[np.int64]) -> NDArray[np.int64]:
        return votes[:, : NEAR + 1]

    def _keep_trees(self, first: int, last: int) -> None:
        self._trees = trees_of(self._trees, first, last)
        self._routes = np.zeros((last - first, 3), np.int64)

    def _shared(self) -> dict[str, Any]:
        return {
            "metric": self._metric[:, :, : self._columns],
            "vote_power": self._vote_power,
            "ring_rows": int(self._params["ring_rows"][0]),
        }

    def _take_shared(self, shared: dict[str, Any], X: NDArray[np.float64]) -> None:
        if shared["ring_rows"] < self._params["ring_rows"][0]:
            self._shrink_ring(shared["ring_rows"])
        self._widen(X)
        self._metric[:, :, : shared["metric"].shape[2]] = shared["metric"]
        self._vote_power = shared["vote_power"]

    # ---- votes

    def _mix(self, votes: NDArray[np.int64]) -> NDArray[Any]:
        out = np.empty((len(votes), votes.shape[2]), np.int64)
        mixing.mix(votes, self._loss, out)
        return self._balance.balanced(out) if self.balanced else out

    def _mix_and_judge(
        self, votes: NDArray[np.int64], y: NDArray[np.int64], op: NDArray[np.uint8]
    ) -> NDArray[Any]:
        out = np.empty((len(votes), votes.shape[2]), np.int64)
        mixing.mix_and_judge(votes, y, op, self._loss, out)
        return self._balance.balanced_in_order(out, y, op) if self.balanced else out

    def _mix_one(self) -> NDArray[Any]:
        scores = super()._mix_one()
        return self._balance.balanced(scores) if self.balanced else scores

    def _process_rest(self, batch: Batch, votes: NDArray[np.int64]) -> None:
        """Take naive Bayes and the linear rule through these rows."""
        while self._run(BASELINES, 0, 0, self._want, batch, votes) != DONE:
            self._baselines.enlarge()

    def _call_one(self, X: NDArray[np.float64], op: NDArray[np.uint8], reuse: bool) -> bool:
        learns = bool(op[0] & LEARN)
        parts = STAGE | TREES | BASELINES | JUDGE if learns else TREES | BASELINES | MIX
        if not learns and X.shape[1] > self._columns:
            self._widen(X)
        self._one_room(reuse, learns)
        self._n_known = self._one_known[0] = len(self._features)
        batch = self._one_event(X, op, reuse)
        while True:
            ended = self._run(
                parts, 0, self.n_trees, self._want, batch, self._one_votes, self._one_scores
            )
            if ended == DONE:
                if learns and self.balanced:
                    self._balance.count(int(batch.y[0]))
                return True
            parts &= ~STAGE
            if ended == SHORT_TREES:
                self._enlarge(self._want)
            else:
                parts &= ~TREES
                self._baselines.enlarge()

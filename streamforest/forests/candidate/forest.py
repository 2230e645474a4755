"""Forests whose leaves hold candidate splits: arrays, kernel calls and snapshots they share."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.candidate import inspection
from streamforest.forests.candidate import state as candidate_state
from streamforest.forests.candidate.arrays import enlarge, is_slack, nbytes, pack, plant
from streamforest.forests.core.axis_aligned import trees_as_expert
from streamforest.forests.core.base import Forest
from streamforest.forests.core.batch import Batch
from streamforest.forests.core.class_balance import ClassBalance
from streamforest.forests.core.explanation import Expert, TreePath
from streamforest.forests.sharded.slices import trees_of
from streamforest.kernels.candidate.grow import WANT_CLASSES
from streamforest.kernels.candidate.layout import Trees, fill_totals
from streamforest.kernels.core.array_table import Addresses, ArrayTable, widened
from streamforest.kernels.core.entropy import STEPS
from streamforest.kernels.core.notice import Announced
from streamforest.kernels.core.operations import LEARN


class CandidateForest(Forest):
    """Base of the consistent and the online forest."""

    _kernel: ClassVar[Announced]
    _arrays: ClassVar[ArrayTable]
    _streams: ClassVar[int]
    _can_shard: ClassVar[bool] = True
    _of_trees = ("_trees", "_totals")
    _trees: Trees
    balanced: bool

    @abc.abstractmethod
    def _pack_params(self) -> NDArray[np.void]:
        """Check the parameters and pack those the kernel needs into one record."""

    @property
    @abc.abstractmethod
    def _points_per_dim(self) -> int:
        """Candidate points in each dimension of an active leaf."""

    def _kernel_arrays(self) -> tuple[Any, ...]:
        """What the table of addresses is made of; whoever uses the table keeps it alive meanwhile."""
        return (
            self._trees,
            self._params,
            self._progress,
            self._routes,
            self._features.categorical,
            self._totals,
        )

    def _kernel_flags(self) -> tuple[bool, ...]:
        """Further arguments of the kernel, which change between epochs."""
        return ()

    def _scratch(self) -> None:
        super()._scratch()
        self._addresses = Addresses(
            self._arrays,
            lambda trees, params, progress, routes, categorical, totals, *ranges: (
                trees,
                (STEPS, progress, routes, categorical, totals),
                (params, *ranges),
            ),
        )

    def _plant(self, seeds: NDArray[np.uint64]) -> None:
        self._params = self._pack_params()
        self._trees = plant(seeds)
        self._totals = np.zeros((len(seeds), 0), np.int64)
        self._balance = ClassBalance(self._passes_by())

    def _call(
        self,
        first: int,
        last: int,
        want: NDArray[np.int64],
        batch: Batch,
        votes: NDArray[np.int64],
    ) -> bool:
        arrays = self._kernel_arrays()
        return self._kernel.run(  # type: ignore[no-any-return]
            self._addresses.of(arrays),
            first,
            last,
            want,
            batch.X,
            batch.y,
            batch.op,
            batch.known,
            batch.reuse,
            votes,
            *self._kernel_flags(),
        )

    def _call_one(self, X: NDArray[np.float64], op: NDArray[np.uint8], reuse: bool) -> bool:
        done = super()._call_one(X, op, reuse)
        if done and self.balanced and op[0] & LEARN:
            self._balance.count(int(self._one_y[0]))
        return done

    # ---- balanced votes: a tree that never counted an event of a class does not vote against it

    @abc.abstractmethod
    def _passes_by(self) -> float:
        """The probability that a tree does not count an event in its answers."""

    def _mix(self, votes: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._balance.balanced(votes) if self.balanced else votes

    def _mix_and_judge(
        self, votes: NDArray[np.int64], y: NDArray[np.int64], op: NDArray[np.uint8]
    ) -> NDArray[np.int64]:
        return self._balance.balanced_in_order(votes, y, op) if self.balanced else votes

    def _alone(self, votes: NDArray[np.int64]) -> NDArray[np.int64]:
        return votes

    # ---- arrays and snapshots

    def _enlarge(self, want: NDArray[np.int64]) -> None:
        self._trees = enlarge(self._trees, want, self._points_per_dim, self._streams)
        classes = self._totals.shape[1]
        if want[WANT_CLASSES] > classes:
            room = max(2 * classes, int(want[WANT_CLASSES]))
            self._totals = widened(self._totals, (self.n_trees, room))

    def _keep_trees(self, first: int, last: int) -> None:
        self._trees = trees_of(self._trees, first, last)
        self._totals = self._totals[first:last].copy()

    def _tidy(self) -> None:
        if len(self._trees.tree) and is_slack(self._trees):
            none = np.zeros(3, np.int64)
            self._trees = pack(self._trees, none, self._points_per_dim, self._streams)

    def _dump(self) -> dict[str, NDArray[Any]]:
        arrays = candidate_state.dump(self._trees, self._points_per_dim, self._streams)
        return arrays | (self._balance.dump(len(self._labels)) if self.balanced else {})

    def _restore(self, take: Callable[..., NDArray[Any]]) -> None:
        self._trees = candidate_state.restore(
            take,
            self.n_trees,
            self._points_per_dim,
            self._streams,
            len(self._labels),
            np.array(self._features.kinds, np.int64),
            self._features.categorical,
        )
        if self._params["balanced"][0]:  # what the leaves hold, summed: no snapshot has to have it
            self._totals = np.zeros((self.n_trees, len(self._labels)), np.int64)
            fill_totals(self._trees, self._totals)
            self._balance.restore(take, len(self._labels), self._n_learned)

    def summary(self) -> dict[str, Any]:
        """Size and shape of the forest, summed over its trees (`depth`: the largest).

        `fringe_bytes` counts the live entries of candidate splits, which `max_fringe_bytes` bounds
        per tree; `fringe_occupancy` is the share of that bound that the fullest tree takes, and
        `fringe_overshoot` how many bytes new classes have carried it beyond;
        `total_bytes` is what all arrays take as allocated.
        """
        trees = self._whole()._trees
        tree, node = trees.tree, trees.node
        used = np.arange(node.shape[1]) < tree["n_nodes"][:, None]
        nodes = int(tree["n_nodes"].sum())
        active = int(tree["n_active"].sum())
        leaves = (nodes + self.n_trees) // 2
        fullest, most = int(tree["fringe_bytes"].max()), int(self._params["max_fringe_bytes"][0])
        return {
            "trees": self.n_trees,
            "events": self._n_learned,
            "classes": len(self._labels),
            "features": len(self._features),
            "nodes": nodes,
            "leaves": leaves,
            "active": active,
            "inactive": leaves - active,
            "depth": int(node["depth"][used].max()),
            "fringe_bytes": int(tree["fringe_bytes"].sum()),
            "fringe_occupancy": fullest / most,
            "fringe_overshoot": max(0, fullest - most),
            "total_bytes": nbytes(trees),
            "capacity": self._features.totals(),
            **self._levels.summary(),
        }

    def _experts_on(self, row: NDArray[np.float64]) -> list[Expert]:
        return [trees_as_expert(self, row)]

    def _tree_on(self, row: NDArray[np.float64], tree: int | None, best: int) -> TreePath:
        return inspection.tree_on(self, row, tree, best)

    def _importances(self) -> dict[str, tuple[float, NDArray[np.float64]]]:
        return {"trees": (1.0, inspection.gains(self))}

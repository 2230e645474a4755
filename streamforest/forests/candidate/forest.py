"""Forests whose leaves hold candidate splits: arrays, kernel calls and snapshots they share."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.candidate import state as candidate_state
from streamforest.forests.candidate.arrays import enlarge, is_slack, nbytes, pack, plant
from streamforest.forests.core.base import Forest
from streamforest.forests.core.batch import Batch
from streamforest.kernels.candidate.layout import Trees
from streamforest.kernels.core.array_table import Addresses, ArrayTable
from streamforest.kernels.core.compiling import Announced
from streamforest.kernels.core.entropy import STEPS


class CandidateForest(Forest):
    """Base of the consistent and the online forest."""

    _kernel: ClassVar[Announced]
    _arrays: ClassVar[ArrayTable]
    _streams: ClassVar[int]
    _trees: Trees

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
        )

    def _kernel_flags(self) -> tuple[bool, ...]:
        """Further arguments of the kernel, which change between epochs."""
        return ()

    def _scratch(self) -> None:
        super()._scratch()
        self._addresses = Addresses(
            self._arrays,
            lambda trees, params, progress, routes, categorical, *ranges: (
                trees,
                (STEPS, progress, routes, categorical),
                (params, *ranges),
            ),
        )

    def _plant(self, seeds: NDArray[np.uint64]) -> None:
        self._params = self._pack_params()
        self._trees = plant(seeds)

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

    def _enlarge(self, want: NDArray[np.int64]) -> None:
        self._trees = enlarge(self._trees, want, self._points_per_dim, self._streams)

    def _tidy(self) -> None:
        if is_slack(self._trees):
            none = np.zeros(3, np.int64)
            self._trees = pack(self._trees, none, self._points_per_dim, self._streams)

    def _dump(self) -> dict[str, NDArray[Any]]:
        return candidate_state.dump(self._trees, self._points_per_dim, self._streams)

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

    def summary(self) -> dict[str, Any]:
        """Size and shape of the forest, summed over its trees (`depth`: the largest).

        `fringe_bytes` counts the live entries of candidate splits, which `max_fringe_bytes` bounds
        per tree; `fringe_occupancy` is the share of that bound that the fullest tree takes, and
        `fringe_overshoot` how many bytes new classes have carried it beyond;
        `total_bytes` is what all arrays take as allocated.
        """
        tree, node = self._trees.tree, self._trees.node
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
            "total_bytes": nbytes(self._trees),
            "capacity": self._features.totals(),
        }

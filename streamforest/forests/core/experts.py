"""Forests with several experts: one kernel call stages rows, runs the trees and mixes the experts' votes."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.base import Forest
from streamforest.forests.core.batch import Batch
from streamforest.kernels.core.array_table import Addresses
from streamforest.kernels.core.notice import Announced

_NO_SCORES = np.zeros((0, 0), np.int64)


class ExpertForest(Forest):
    """Base of the stream forest and the NCM forest.

    A kernel gets a table of addresses, the parts of the work it is to do, the trees, the batch, and what
    else the forest names in `_kernel_values`.
    """

    _kernel: ClassVar[Announced]
    _experts: ClassVar[int]
    _cuts_epochs: ClassVar[bool] = True

    @abc.abstractmethod
    def _new_addresses(self) -> Addresses:
        """The table of addresses that the kernel works on."""

    @abc.abstractmethod
    def _kernel_arrays(self) -> tuple[Any, ...]:
        """What that table is made of; whoever uses the table keeps it alive meanwhile."""

    @abc.abstractmethod
    def _kernel_values(self, batch: Batch) -> tuple[Any, ...]:
        """The last arguments of the kernel."""

    def _scratch(self) -> None:
        super()._scratch()
        self._one_scores = _NO_SCORES
        self._addresses = self._new_addresses()

    def _run(
        self,
        parts: int,
        first: int,
        last: int,
        want: NDArray[np.int64],
        batch: Batch,
        votes: NDArray[np.int64],
        scores: NDArray[np.int64] = _NO_SCORES,
    ) -> Any:
        """Call the kernel for trees `first` to `last`, in the parts that are asked for."""
        arrays = self._kernel_arrays()
        return self._kernel.run(
            self._addresses.of(arrays),
            parts,
            first,
            last,
            want,
            batch.X,
            batch.y,
            batch.op,
            batch.reuse,
            self._n_learned,
            votes,
            scores,
            *self._kernel_values(batch),
        )

    # ---- votes

    def _new_votes(self, n: int) -> NDArray[np.int64]:
        return np.zeros((n, self._experts, len(self._labels)), np.int64)

    def _one_room(self, reuse: bool, learns: bool) -> None:
        """Room for the votes and scores of one event."""
        if learns and not reuse:  # else the votes of `predict_one` are still there
            self._one_votes = self._new_votes(1)
        classes = self._one_votes.shape[2]
        if self._one_scores.shape[1] != classes:
            self._one_scores = np.zeros((1, classes), np.int64)

    def _mix_one(self) -> NDArray[Any]:
        scores: NDArray[Any] = self._one_scores[0]
        return scores

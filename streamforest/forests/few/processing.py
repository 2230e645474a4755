"""How a few-shot forest moves through rows: its memory, its trees, its epochs."""

from __future__ import annotations

import abc
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.base import Forest
from streamforest.forests.core.batch import Batch
from streamforest.forests.core.engine import EPOCH
from streamforest.forests.few.memory import RowMemory
from streamforest.forests.few.support import Support
from streamforest.kernels.core.array_table import Addresses, grown, zeros
from streamforest.kernels.core.notice import Announced
from streamforest.kernels.core.operations import LEARN
from streamforest.kernels.few import entry, grow, prior
from streamforest.kernels.few.entry import ARRAYS, WANT_CLASSES, WANT_NODES
from streamforest.kernels.few.layout import Trees, new_leaf


class FewShotProcessing(Forest):
    """The forest as the engine sees it."""

    _kernel = Announced(entry.advance, "few-shot forest")
    _cuts_epochs: ClassVar[bool] = True

    few_rows: int
    n_support: int
    max_few: int
    regrow: float
    memory: int
    max_memory_bytes: int

    @abc.abstractmethod
    def _pack_params(self) -> NDArray[np.void]:
        """The parameters as the kernels read them, checked."""

    # ---- arrays

    def _plant(self, seeds: NDArray[np.uint64]) -> None:
        self._params = self._pack_params()
        self._memory = RowMemory(np.uint64(seeds[0]))
        self._support = Support(self.n_support, self.few_rows, self.max_few)
        self._trees = zeros(
            Trees, trees=len(seeds), nodes=8, slots=EPOCH, classes=4, helped=self.max_few
        )
        self._trees.tree["seed"] = seeds
        self._trees.tree["n_nodes"] = 1
        for t in range(len(seeds)):
            new_leaf(self._trees, t, 0, -1)

    def _scratch(self) -> None:
        super()._scratch()
        self._addresses = Addresses(
            ARRAYS, lambda trees, memory, helped, *shared: (trees, memory, helped, shared)
        )

    def _call(
        self,
        first: int,
        last: int,
        want: NDArray[np.int64],
        batch: Batch,
        votes: NDArray[np.int64],
    ) -> bool:
        arrays = (
            self._trees,
            self._memory.arrays,
            self._support.arrays,
            self._params,
            self._progress,
            self._routes,
            self._features.categorical,
        )
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
            batch.slots,
            votes,
        )

    def _enlarge(self, want: NDArray[np.int64]) -> None:
        nodes, classes = self._trees.node.shape[1], self._trees.totals.shape[1]
        if want[WANT_NODES] > nodes:
            nodes = max(2 * nodes, int(want[WANT_NODES]))
        if want[WANT_CLASSES] > classes:
            classes = max(2 * classes, int(want[WANT_CLASSES]))
        self._trees = grown(self._trees, nodes=nodes, classes=classes)

    def _make_room(self, nodes: int) -> None:
        """Room for so many nodes a tree, and for all classes."""
        self._want[WANT_NODES], self._want[WANT_CLASSES] = nodes, len(self._labels)
        self._enlarge(self._want)

    # ---- epochs

    def _capacity(self, columns: int) -> int:
        """Rows that may be kept when there are so many columns."""
        row_bytes = 8 * columns + 12 + 8 * self.n_trees
        return max(EPOCH, min(int(self.memory), int(self.max_memory_bytes) // row_bytes))

    def _observe(self, batch: Batch) -> None:
        learned = np.flatnonzero(batch.op & LEARN).tolist()
        columns = max(self._memory.columns, min(batch.X.shape[1], len(self._features)))
        absent = self._features.absent_values(0, columns)
        capacity = self._capacity(columns)
        self._memory.make_room(len(learned), absent, capacity)
        if self._trees.leaf.shape[1] != len(self._memory.arrays.label):
            self._trees = grown(self._trees, slots=len(self._memory.arrays.label))
        batch.slots = np.full(len(batch.X), -1, np.int32)
        for number, r in enumerate(learned, self._n_learned):
            known = min(int(batch.known[r]), batch.X.shape[1])
            label = int(batch.y[r])
            slot = self._memory.add(batch.X[r, :known], label, number, absent)
            self._support.add_member(label, slot)
            batch.slots[r] = slot

    def _end_epoch(self, batch: Batch) -> None:
        n_features = int(batch.known[-1])
        classes = len(self._labels)
        self._make_room(0)
        slots = self._memory.choose_evicted(self._capacity(n_features), classes)
        if len(slots):
            entry.evict(self._trees, self._memory.arrays, slots)
            self._memory.release(slots)
        self._regrow_some(n_features)
        if self.few_rows:
            columns = self._numeric(n_features)
            self._support.update(self._memory, classes, self._n_learned, columns)
            self._settle()

    def _numeric(self, n_features: int) -> NDArray[np.int32]:
        """Columns that are no categories."""
        return np.flatnonzero(self._features.categorical[:n_features] == 0).astype(np.int32)

    def _settle(self) -> None:
        prior.settle_all(self._trees, self._memory.arrays, self._support.arrays, self._params[0])

    def _regrow_some(self, n_features: int) -> None:
        """Grow the oldest tree anew if it is due; of the first 64 events on all of them, which is cheap."""
        if self.regrow == 0:
            return
        if self._n_learned <= EPOCH:
            trees = range(self.n_trees) if self._n_learned >= 16 else range(0)
        else:
            oldest = int(self._trees.tree["grown"].argmin())
            age = self._n_learned - int(self._trees.tree["grown"][oldest])
            due = age >= max(EPOCH, self.regrow * len(self._memory))
            trees = range(oldest, oldest + due)
        for t in trees:
            self._regrow(t, n_features)

    def _regrow(self, t: int, n_features: int) -> None:
        slots = self._memory.slots
        self._make_room(min(2 * len(slots) + 2, int(self._params["max_nodes"][0])))
        grow.regrow(
            self._trees,
            self._memory.arrays,
            t,
            slots,
            self._n_learned,
            n_features,
            self._params[0],
            self._features.categorical,
        )

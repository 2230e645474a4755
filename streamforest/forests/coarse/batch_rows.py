"""The rows of a batch as one of the two forests takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.batch import Batch, split_fresh
from streamforest.forests.core.features import UNSEEN
from streamforest.kernels.core.operations import BOTH, LEARN, PREDICT

if TYPE_CHECKING:
    from streamforest.forests.core.base import Forest


class BatchRows:
    """The rows of a batch for one forest.

    Parameters
    ----------
    batch
        The rows; an event that brings a category of its own has two, see `split_fresh`.
    asked, learned
        Which of them answers for each event, and which is learned.
    """

    def __init__(
        self,
        forest: Forest,
        X: Any,
        learns: NDArray[np.bool_],
        target: NDArray[np.int64],
        ops: NDArray[np.uint8],
    ) -> None:
        rows, known = forest._encode(X, learns)
        op = np.where(learns, ops | LEARN, PREDICT).astype(np.uint8)
        self.batch, self.asked = Batch(rows, target, op, known), np.arange(len(rows))
        if forest._features.fresh:
            self.batch, self.asked = split_fresh(self.batch, forest._features.fresh, UNSEEN)
        self.learned = np.append(self.asked[1:], len(self.batch.X)) - 1
        # a row that is learned is asked first: learning does the same whatever the caller wants
        self.batch.op = np.where(self.batch.op & LEARN, BOTH, PREDICT).astype(np.uint8)

    def set_upper(self, codes: NDArray[np.int64]) -> None:
        """Let the rows have the codes of their events' categories."""
        self.batch.upper = np.repeat(codes, self.learned - self.asked + 1).astype(np.int32)

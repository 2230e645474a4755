"""The class means of an NCM forest, and the shrunk covariances they are compared by."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.serialization import demand
from streamforest.forests.ncm import width as ncm_width
from streamforest.forests.ncm.column_scales import ColumnTable, Take
from streamforest.kernels.core.array_table import grown, zeros
from streamforest.kernels.ncm.class_means import fade, project_all, shrink
from streamforest.kernels.ncm.layout import TARGETS, MeanAnswers, Means
from streamforest.kernels.ncm.row_memory import padded

_SHRINK_EVERY = 4_096  # events, at least
_SHRINK_GROWTH = 1.1  # of the covariance's weight


class ClassMeans:
    """Means by class, with the covariance within the classes.

    Up to `width.FULL_WIDTH` columns the covariance is kept whole, beyond that its diagonal.
    """

    def __init__(self) -> None:
        self.arrays: Means = _empty(8, padded(0), padded(0), padded(0))
        self.n_classes = 0  # learned so far
        self.shrunk_weight = 0.0  # of the covariance when it was last shrunk and inverted
        self.scratch()

    def scratch(self) -> None:
        """What is no state: the answers to the last batch."""
        self.answers: MeanAnswers = _no_answers(1)

    @property
    def is_whole(self) -> bool:
        """Whether the whole covariance is kept."""
        return len(self.arrays.scatter) > 1

    @property
    def nbytes(self) -> int:
        """Of all arrays as allocated."""
        return sum(array.nbytes for array in self.arrays)

    # ---- room

    def make_room(self, rows: int) -> None:
        """Room for the answers to a batch of so many rows."""
        if rows > len(self.answers.best):
            self.answers = _no_answers(rows)

    def add_classes(self, classes: int) -> None:
        """Room for so many classes."""
        room = len(self.arrays.n)
        if classes <= room:
            return
        room = max(2 * room, classes)
        width = self.arrays.mean.shape[1]
        self.arrays = grown(self.arrays, classes=room)._replace(
            projected=np.zeros((TARGETS * room, width), np.float32),
            half=np.zeros(TARGETS * room, np.float32),
        )
        project_all(self.arrays)

    def widen(self, width: int) -> None:
        """Room for more columns. What takes the square of it is widened up to FULL_WIDTH only."""
        rows = width if self.is_whole else 1
        sizes = {"width": width, "scatter rows": rows}
        if rows > 1 or self.arrays.inverse.shape[1] == 1:
            sizes |= {"inverse rows": rows, "inverse columns": width}
        self.arrays = grown(self.arrays, **sizes)

    def keep_diagonal(self) -> None:
        """Before there are more than FULL_WIDTH columns: the covariance becomes its diagonal.

        Only the diagonal is used when this epoch ends, so it does not matter which row of the epoch
        this happens with. Inverses and trees stay as they are until then, without the new columns.
        """
        if self.is_whole:
            scatter = np.diag(self.arrays.scatter)[None, :].copy()
            self.arrays = self.arrays._replace(scatter=scatter)

    # ---- the end of an epoch

    def fade(self, events: int) -> None:
        """Forget a little of the covariance."""
        fade(self.arrays, events)

    def withdraw(self, rows: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        """Take rows out of the means of their classes, of which at least one other row is left.

        The covariance keeps them: it fades by itself.
        """
        for x, k in zip(rows, labels.tolist()):
            n = int(self.arrays.n[k])
            if n > 1:
                mean = self.arrays.mean[k, : len(x)]
                mean -= np.where(np.isnan(x), 0, (x - mean) / np.float32(n - 1))
                self.arrays.n[k] = n - 1
        project_all(self.arrays)

    def start_again(self, rows: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        """Let the means be those of these rows, which have no gaps. Classes without a row keep theirs.

        The covariance keeps its shape, and new rows soon outweigh what it was made of.
        """
        for k in np.unique(labels).tolist():
            own = rows[labels == k]
            total = own.sum(axis=0, dtype=np.float64)  # row by row
            self.arrays.mean[k, : rows.shape[1]] = total / len(own)
            self.arrays.n[k] = len(own)
        weight = float(self.arrays.weight[0])
        if weight > len(rows):
            self.arrays.scatter[:] *= len(rows) / weight
            self.arrays.weight[0] = len(rows)
            self.shrunk_weight = min(self.shrunk_weight, float(len(rows)))
        project_all(self.arrays)

    def add_columns(self, columns: ColumnTable) -> None:
        """New columns begin to count: beyond FULL_WIDTH the inverses become diagonals."""
        if columns.n > ncm_width.FULL_WIDTH and self.arrays.inverse.shape[1] > 1:
            inverse = np.zeros((TARGETS, 1, columns.width), np.float32)
            self.arrays = self.arrays._replace(inverse=inverse)

    def is_outdated(self, learned: int) -> bool:
        """Whether enough has come since the covariance was last shrunk and inverted."""
        weight = float(self.arrays.weight[0])
        return weight > _SHRINK_GROWTH * self.shrunk_weight or learned % _SHRINK_EVERY == 0

    def shrink(self, columns: int) -> None:
        """Shrink and invert the covariance as it is now."""
        shrink(self.arrays, columns)
        project_all(self.arrays)
        self.shrunk_weight = float(self.arrays.weight[0])

    def inverses(self, columns: ColumnTable) -> NDArray[np.float32]:
        """Inverses of the shrunk covariances as metrics of trees, as wide as the memory.

        In an epoch that brings the column after FULL_WIDTH the means still use whole matrices, but a
        tree that is grown now has to fit rows of any width.
        """
        inverse = self.arrays.inverse
        if inverse.shape[1] == 1 or columns.n <= ncm_width.FULL_WIDTH:
            return inverse.copy()
        out = np.zeros((TARGETS, 1, columns.width), np.float32)
        out[:, 0, : inverse.shape[1]] = np.diagonal(inverse, axis1=1, axis2=2)
        return out

    # ---- snapshots

    def dump(self, classes: int, columns: ColumnTable) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot."""
        means, n = self.arrays, columns.n
        side = n if means.inverse.shape[1] == 1 else columns.in_matrix
        return {
            "means.mean": means.mean[:classes, :n],
            "means.count": means.n[:classes].copy(),
            "means.spread": means.spread[:classes].copy(),
            "means.weight": means.weight.copy(),
            "means.gap": means.lead.copy(),
            "means.scatter": means.scatter[:n, :n],
            "means.shrunk_covariance": means.inverse[:, :side, :side],
        }

    def restore(self, take: Take, columns: ColumnTable, classes: int, learned: int) -> None:
        """The state that `dump` described, checked."""
        n, side, full = columns.n, columns.in_matrix, ncm_width.FULL_WIDTH
        count = take("means.count", np.int64, classes)
        demand((count >= 1) & (count <= learned), "means.count")
        demand(sum(count.tolist()) <= learned, "means.count")  # fewer: rows were withdrawn
        mean = take("means.mean", np.float32, classes * n).reshape(classes, n)
        demand(np.isfinite(mean), "means.mean")
        spread = take("means.spread", np.float64, classes)
        demand(np.isfinite(spread) & (spread >= 0), "means.spread")
        scatter = take("means.scatter", np.float64)
        inverse = take("means.shrunk_covariance", np.float32)
        if n > full >= side and len(scatter) == n * n:
            # written when whole matrices were still widened with the column after FULL_WIDTH
            scatter = scatter.reshape(n, n).diagonal()
            inverse = inverse.reshape(TARGETS, n, n)[:, :side, :side].ravel()
        rows = n if n <= full else 1
        demand(len(scatter) == rows * n and np.isfinite(scatter).all(), "means.scatter")
        shape = (side, side) if side <= full else (1, n)
        size = TARGETS * shape[0] * shape[1]
        demand(len(inverse) == size and np.isfinite(inverse).all(), "means.shrunk_covariance")
        weight = take("means.weight", np.float64, 1)
        demand((weight >= 0) & (weight <= learned), "means.weight")
        lead = take("means.gap", np.float64, TARGETS)
        demand(np.isfinite(lead) & (lead >= 0), "means.gap")
        scatter = scatter.reshape(rows, n)
        demand((np.diag(scatter) if n <= full else scatter) >= 0, "means.scatter")
        means = _empty(
            max(8, classes),
            padded(n),
            padded(n) if n <= full else 1,
            padded(side) if side <= full else 1,
            padded(side) if side <= full else padded(n),
        )._replace(weight=weight, lead=lead)
        means.mean[:classes, :n] = mean
        means.n[:classes] = count
        means.spread[:classes] = spread
        means.scatter[:rows, :n] = scatter
        means.inverse[:, : shape[0], : shape[1]] = inverse.reshape(TARGETS, *shape)
        project_all(means)
        self.arrays = means
        self.n_classes = classes


def _empty(
    classes: int,
    width: int,
    scatter_rows: int,
    inverse_rows: int,
    inverse_columns: int | None = None,
) -> Means:
    return zeros(
        Means,
        **{
            "classes": classes,
            "width": width,
            "scatter rows": scatter_rows,
            "inverse rows": inverse_rows,
            "inverse columns": width if inverse_columns is None else inverse_columns,
            "projected means": TARGETS * classes,
        },
    )


def _no_answers(rows: int) -> MeanAnswers:
    return MeanAnswers(
        best=np.full((rows, TARGETS), -1, np.int64), lead=np.zeros((rows, TARGETS), np.float64)
    )

"""When the NCM forest rests: it costs most where it has least to say.

On a stream that drifts, or of noise, its trees are grown anew all the time and are wrong all the same. What
it is worth are the hits by which the best blend with it is ahead of the stream forest alone, of some 1,000
events. When they have been below 2 for 16 epochs it rests: it takes part in every eighth epoch only, where it
answers, learns and is judged as ever, and wakes when it is worth 4 again, or when a class comes: it is quick
to know new ones, and cannot show that while it rests. Whatever is new to the stream (a class, a feature, a
category) it is told at once, so that it knows of all that there is. Which rows those are follows from
learned rows alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.batch import Batch
from streamforest.forests.core.capacity import UNKNOWN
from streamforest.forests.core.engine import EPOCH
from streamforest.forests.core.features import FeatureTable
from streamforest.forests.core.serialization import demand
from streamforest.kernels.core.operations import LEARN, PREDICT

_RESTS = 2.0
_WAKES = 4.0
_EPOCHS = 16
_SAMPLED = 8


class Resting:
    """Whether a family takes part in an epoch, and what it has been told of while it rests."""

    def __init__(self) -> None:
        self.resting = False
        self.quiet = 0  # epochs in a row in which it was worth nothing
        self.classes = self.features = 0
        self.counted = 0  # classes as of the last epoch
        self.complete = False  # whether every feature has had a value
        self.codes = np.zeros(0, np.int64)  # categories of each feature
        self.valued = np.zeros(0, np.bool_)  # features that have had a value

    def takes_part(self, learned: int) -> bool:
        """In the epoch after so many learned rows."""
        return not self.resting or learned // EPOCH % _SAMPLED == 0

    def end_epoch(self, learned: int, took_part: bool, worth: float) -> None:
        """Decide from what it is `worth`, in hits, whether it rests from now on."""
        if self.classes > self.counted:
            self.counted, self.quiet, self.resting = self.classes, 0, False
            return
        if not took_part or learned < EPOCH:
            return
        self.quiet = min(self.quiet + 1, _EPOCHS) if worth < _RESTS else 0
        self.resting = worth < _WAKES if self.resting else self.quiet == _EPOCHS

    def knows(self, y: int, known: int, width: int, table: FeatureTable) -> bool:
        """Whether one row surely brings nothing new: the short way through `new_rows`."""
        return self._has_all(width, table) and y < self.classes and known <= self.features

    def _has_all(self, width: int, table: FeatureTable) -> bool:
        """Whether rows of so many columns have nothing to tell but classes and features."""
        return self.complete and width <= len(self.valued) and not table.categorical.any()

    def new_rows(self, batch: Batch, table: FeatureTable) -> NDArray[np.bool_]:
        """Learned rows that bring a class, a feature, a feature's first value or a category."""
        X, y, known = batch.X, batch.y, batch.known
        new = np.zeros(len(X), np.bool_)
        width = X.shape[1]
        if (
            self._has_all(width, table)
            and (known <= self.features).all()  # a batch may be wider than its first rows are
            and (y < self.classes).all()
        ):
            return new
        self._widen(width)
        categorical = np.zeros(width, np.bool_)
        flags = table.categorical[:width]
        categorical[: len(flags)] = flags != 0
        there = ~np.isnan(X) & (np.arange(width) < known[:, None])  # as of each row
        maybe = (y >= self.classes) | (known > self.features)
        maybe |= (there & ~self.valued[:width]).any(axis=1)
        if categorical.any():
            maybe |= (categorical & there & (self.codes[:width] <= X)).any(axis=1)
        for r in np.flatnonzero(maybe & ((batch.op & LEARN) != 0)).tolist():
            fresh = categorical & there[r] & (self.codes[:width] <= X[r])
            new[r] = (
                y[r] >= self.classes
                or known[r] > self.features
                or bool((there[r] & ~self.valued[:width]).any())
                or bool(fresh.any())
            )
            self.codes[:width][fresh] = X[r][fresh].astype(np.int64) + 1
            self.valued[:width] |= there[r]
            self.classes = max(self.classes, int(y[r]) + 1)
            self.features = max(self.features, int(known[r]))
        self.complete = bool(self.valued[: self.features].all())
        return new

    def _widen(self, width: int) -> None:
        more = width - len(self.valued)
        if more > 0:
            self.codes = np.concatenate([self.codes, np.zeros(more, np.int64)])
            self.valued = np.concatenate([self.valued, np.zeros(more, np.bool_)])
            self.complete = False

    def rows_for(self, batch: Batch, table: FeatureTable) -> Batch | None:
        """What a resting family gets of a batch: new rows to be learned, and those whose novelty is asked."""
        op = self.new_rows(batch, table) * np.uint8(LEARN)
        if batch.novelty is not None:
            op |= batch.op & np.uint8(PREDICT)
        rows = np.flatnonzero(op)
        if not len(rows):
            return None
        novelty = None if batch.novelty is None else np.full(len(rows), np.nan)
        return Batch(
            np.ascontiguousarray(batch.X[rows]),
            batch.y[rows],
            op[rows],
            batch.known[rows],
            novelty=novelty,
        )

    # ---- snapshots

    def dump(self, learned: int, table: FeatureTable) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot; `learned` are the rows that the family has learned.

        What there is to tell is in the table, but for rows with a coarse label alone: names and categories
        that only they have had so far are listed as not yet told.
        """
        counters = [self.resting, self.quiet, learned, self.counted]
        self._widen(len(table))
        codes, valued = self.codes[: len(table)], self.valued[: len(table)]
        all_codes, all_valued = _known(table)
        same = (codes == all_codes).all() and (valued == all_valued).all()
        if same and self.features == len(table):
            return {"resting.counters": np.array(counters)}
        return {
            "resting.counters": np.array([*counters, self.features]),
            "resting.codes": codes.copy(),
            "resting.valued": valued.astype(np.uint8),
        }

    def restore(
        self,
        take: Callable[..., NDArray[Any]],
        learned: int,
        table: FeatureTable,
        classes: int,
        revision: int,
    ) -> int:
        """The same back, and the rows that the family has learned. Revision 1 did not count classes."""
        counters = take("resting.counters", np.int64).tolist()
        demand(len(counters) == 3 if revision == 1 else len(counters) in (4, 5), "resting.counters")
        resting, quiet, of_family, self.counted = (*counters, classes)[:4]
        demand(resting in (0, 1) and 0 <= quiet <= _EPOCHS, "resting.counters")
        demand(0 <= self.counted <= classes, "resting.counters")
        demand(classes <= of_family <= learned, "resting.counters")
        self.resting, self.quiet = bool(resting), quiet
        self.classes, self.features = classes, len(table)
        self.codes, self.valued = _known(table)
        if len(counters) == 5:
            codes = take("resting.codes", np.int64, len(table))
            demand((codes >= 0) & (codes <= self.codes), "resting.codes")
            valued = take("resting.valued", np.uint8, len(table))
            demand(valued <= self.valued, "resting.valued")
            demand(0 <= counters[4] <= len(table), "resting.counters")
            self.codes, self.valued = codes.copy(), valued.astype(np.bool_)
            self.features = counters[4]
        return int(of_family)


def _known(table: FeatureTable) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Categories of each feature, and whether it has had a value, in any learned row."""
    codes = np.array([table.n_codes(j) for j in range(len(table))], np.int64)
    return codes, np.array([kind != UNKNOWN for kind in table.kinds], np.bool_)

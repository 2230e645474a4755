"""Input as it comes, as rows of float64: arrays, frames, dicts, and the buffers of single events."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from streamforest.errors import FeatureError, InputError
from streamforest.forests.core.batch import (
    Batch,
    NamedRows,
    holds_events,
    length,
    operations,
    other_than_numbers,
    records,
)
from streamforest.forests.core.engine import Engine
from streamforest.forests.core.features import FeatureTable
from streamforest.forests.core.labels import LabelTable, as_list, index_labels
from streamforest.forests.core.serialization import LARGEST as LARGEST_COUNT
from streamforest.kernels.core.operations import LEARN, PREDICT

_log = logging.getLogger(__name__)


class RowEncoding(Engine):
    """The engine with tables of features and labels: any input becomes rows, or is refused as a whole."""

    max_means: ClassVar[int] = LARGEST_COUNT
    """Class means, one for each class and column, that a forest keeps; beyond it refuses to learn."""

    quiet: bool = False
    """Whether features there is no room for are not logged; a pipeline sets it, and tells them itself."""

    _features: FeatureTable
    _labels: LabelTable

    def _prepare(self, X: Any, y: Any, op: Any) -> tuple[Batch, NDArray[np.int64]]:
        """Any input as a batch, with the number of classes known as of each row.

        New features and classes enter their tables, unless anything in the input is refused.
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
            self._features.require_cells(len(self._labels), self.max_means)
        except InputError:
            self._features.rollback()
            self._labels.truncate(n_classes)
            raise
        self._routed = None
        self._tell()
        return Batch(rows, index, ops, known_features), known_classes

    def _encode(
        self, X: Any, learns: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Any input as rows, with the number of features known as of each."""
        table = self._features
        if isinstance(X, NamedRows):
            if table.holds_categories(X.columns):
                events = [dict(zip(X.columns, row)) for row in X.values.tolist()]
                return table.rows(events, learns.tolist())
            return table.matrix(X.values, X.columns, learns, frame=True)
        if isinstance(X, pd.DataFrame):
            names = list(X.columns)
            if len(set(names)) != len(names):
                raise FeatureError(f"X has columns of the same name: {names!r}")
            if other_than_numbers(X) or table.holds_categories(names):
                return table.rows(records(X), learns.tolist())
            with np.errstate(over="ignore", invalid="ignore"):  # as in `matrix`
                return table.matrix(X.to_numpy(np.float64), names, learns, frame=True)
        if holds_events(X):
            return table.rows(X, learns.tolist())
        if isinstance(X, np.ma.MaskedArray):
            raise FeatureError(
                "X is a masked array: pass a DataFrame, or dicts without those values"
            )
        try:
            array = np.asarray(X)
        except (ValueError, TypeError, NotImplementedError):  # rows of different lengths, and worse
            array = np.empty(0, object)
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

    def _one_row(self, x: Any, learn: bool, classes: int = 0) -> int:
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
            self._features.require_cells(classes, self.max_means)
        except InputError:
            self._features.rollback()
            raise
        self._tell()
        if 8 * len(row) > size:
            self._one_buffers(8 * len(row))
        self._one_views[which][0, : len(row)] = row
        return which

    def _tell(self) -> None:
        """Log what the table of features has to say, unless somebody else does."""
        notices = self._features.notices
        if notices and not self.quiet:
            for notice in notices:
                _log.warning("%s", notice)
        notices.clear()

    def _one_buffers(self, size: int) -> None:
        # bytearrays, because comparing two of them is one memcmp
        self._one_rows = bytearray(size), bytearray(size)
        self._one_views = tuple(np.frombuffer(b, np.float64).reshape(1, -1) for b in self._one_rows)
        self._one_views[0][:] = np.nan
        self._one_views[1][:] = np.nan
        self._routed = None

    # ---- trees by themselves

    def _predict_trees(self, X: Any) -> NDArray[np.int64]:
        self._refuse_if_broken()
        self._routed = None
        n = length(X)
        rows, known = self._encode(X, np.zeros(n, np.bool_))
        out = np.empty((self.n_trees, n), np.int64)
        ops = np.full(n, PREDICT, np.uint8)
        batch = Batch(rows, np.full(n, -1, np.int64), ops, known)
        for t in range(self.n_trees):
            votes = self._new_votes(n)
            self._call(t, t + 1, self._want, batch, votes)
            if votes.size:
                scores = self._alone(votes)
                out[t] = np.where(scores.any(axis=1), scores.argmax(axis=1), -1)
            else:
                out[t] = -1
        return out

    def _alone(self, votes: NDArray[np.int64]) -> NDArray[Any]:
        """What a tree says by itself, of the votes that it alone gave."""
        return self._mix(votes)

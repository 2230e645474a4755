"""The edges of a batch: what is asked of its rows, and what their votes amount to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from streamforest.errors import FeatureError, InputError, LabelError
from streamforest.kernels.core.operations import BOTH, LEARN, PREDICT

_NO_DISTANCES = np.zeros((0, 0), np.float32)
_NO_SLOTS = np.zeros(0, np.int32)
_OPERATIONS = bytes((PREDICT, LEARN, BOTH))

FULLY, INTO_LEAVES, INTO_MEMORY = range(3)
"""How rows are learned: with all that follows; without answers, splits and retraining; without trees."""


@dataclass(slots=True)
class Batch:
    """Rows on their way through the trees, in order.

    Parameters
    ----------
    X, y, op
        Values, class indices (-1 without a label), and what is done with each row.
    known
        Features known as of each row.
    reuse
        Whether the trees' routes are those of this very row: it was just predicted.
    novelty
        Gets how new each row is, in forests that can tell; None if nobody asks.
    distances
        What such a forest makes that of: the distance of each row from what each tree knows.
    slots
        Where a forest with a memory of rows keeps the rows that are learned.
    learning
        How rows are learned: FULLY, INTO_LEAVES or INTO_MEMORY.
    upper
        Code of each row's category as of that row, in a forest that grows trees by it.
    """

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    op: NDArray[np.uint8]
    known: NDArray[np.int64]
    reuse: bool = False
    novelty: NDArray[np.float64] | None = None
    distances: NDArray[np.float32] = field(default_factory=lambda: _NO_DISTANCES)
    slots: NDArray[np.int32] = field(default_factory=lambda: _NO_SLOTS)
    learning: int = FULLY
    upper: NDArray[np.int32] | None = None

    def cut(self, rows: slice) -> Batch:
        """Some of the rows."""
        novelty = None if self.novelty is None else self.novelty[rows]
        return Batch(
            self.X[rows],
            self.y[rows],
            self.op[rows],
            self.known[rows],
            self.reuse,
            novelty,
            learning=self.learning,
            upper=None if self.upper is None else self.upper[rows],
        )


@dataclass(frozen=True, slots=True)
class NamedRows:
    """Rows of finite numbers with the names of their columns: a frame without pandas, whose making takes as
    long as predicting a dozen rows.
    """

    values: NDArray[np.float64]
    columns: list[Any]

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> NamedRows:
        return NamedRows(self.values[rows], self.columns)


class Answers(NamedTuple):
    """What a model says of the rows of a batch, each before it was learned."""

    posteriors: NDArray[np.float64]
    """One column a class, in the order of `classes_` after the batch."""
    novelty: NDArray[np.float64] | None = None
    """How new each row was, NaN for rows that were only learned; None from a forest that cannot tell."""
    coarse: NDArray[np.float64] | None = None
    """One column a category, in the order of `categories_` after the batch; None without a taxonomy."""
    novel_in: NDArray[np.int64] | None = None
    """The category that each row most likely belongs to if its class is unknown, as an index into
    `categories_`; -1 where there is none. What is new by its `novelty` is an unknown class of it."""


def length(X: Any) -> int:
    """The number of rows."""
    try:
        return len(X)
    except TypeError:
        raise FeatureError(
            f"X is a {type(X).__name__}: pass a 2-D array, a DataFrame or a list of dicts"
        ) from None


def asks_one(X: Any, y: Any, op: Any) -> bool:
    """Whether a batch is one event as a dict, to be predicted and not learned."""
    if type(X) is not list or len(X) != 1 or not isinstance(X[0], Mapping):
        return False
    if y is not None and not (type(y) is list and len(y) == 1 and y[0] is None):
        return False
    if isinstance(op, np.ndarray):
        return op.shape == (1,) and op.dtype == np.uint8 and bool(op[0] == PREDICT)
    return op is None or (type(op) is list and [(type(one), one) for one in op] == [(int, PREDICT)])


def other_than_numbers(frame: pd.DataFrame) -> list[Any]:
    """The columns of a frame that hold strings, objects, categories, times or nullable numbers."""
    return [
        name
        for name, kind in frame.dtypes.items()
        if not isinstance(kind, np.dtype) or kind.kind not in "biuf"
    ]


def records(frame: pd.DataFrame) -> list[dict[Any, Any]]:
    """The rows of a frame as dicts.

    Among strings and objects pandas writes NaN (or NA, NaT) where a value is missing, so there it
    becomes None. So it does in a column of numbers: that is how a frame has a gap there.
    """
    columns = other_than_numbers(frame)
    columns += [name for name in frame.columns if name not in columns and frame[name].hasnans]
    plain = frame.astype(dict.fromkeys(columns, object))
    for name in columns:
        plain[name] = plain[name].where(_is_there(frame[name]), None)
    return plain.to_dict("records")


def _is_there(column: pd.Series) -> Any:
    try:
        return column.notna()
    except ArithmeticError:  # a decimal's signalling NaN, which must not even be compared
        return np.array(
            [
                not (isinstance(v, Decimal) and v.is_snan()) and pd.notna(v) is not False
                for v in column
            ]
        )


def operations(op: ArrayLike | None, labels: list[Any]) -> NDArray[np.uint8]:
    """What to do with each row, as asked for or by its label."""
    labelled = not any(label is None for label in labels)
    if op is None:
        if labelled:
            return np.full(len(labels), BOTH, np.uint8)
        return np.array([PREDICT if y is None else BOTH for y in labels], np.uint8)
    try:
        ops = np.asarray(op)
    except ValueError:
        ops = np.empty(0)
    if ops.shape != (len(labels),) or not _are_operations(ops):
        raise InputError(
            f"op must hold one of PREDICT ({PREDICT}), LEARN ({LEARN}), BOTH ({BOTH}) per row"
        )
    for r in () if labelled else np.flatnonzero(ops & LEARN):
        if labels[r] is None:
            raise LabelError(f"row {r}: op asks to learn it, but its label is None")
    return ops.astype(np.uint8)


def _are_operations(ops: NDArray[Any]) -> bool:
    if ops.dtype == np.uint8:  # nearly always; a look at the bytes is quicker than `isin`
        return not ops.tobytes().strip(_OPERATIONS)
    return ops.dtype.kind in "bui" and bool(np.isin(ops, (PREDICT, LEARN, BOTH)).all())


def split_fresh(
    batch: Batch, fresh: list[tuple[int, int]], unseen: float
) -> tuple[Batch, NDArray[np.int64]]:
    """The same batch with rows that bring a category of their own taken in two.

    To be predicted such a row has a value nobody knows; to be learned it has its new code. The last
    array says which row of the new batch answers for each of the old.
    """
    rows, op = batch.X, batch.op
    columns: dict[int, list[int]] = {}
    for r, j in fresh:
        if op[r] == BOTH:
            columns.setdefault(r, []).append(j)
    twice = np.ones(len(rows), np.int64)
    twice[list(columns)] = 2
    origin = np.repeat(np.arange(len(rows)), twice)
    answers = np.cumsum(twice) - twice
    rows, op = rows[origin], op[origin]
    for r, of_it in columns.items():
        first = answers[r]
        rows[first, of_it] = unseen
        op[first], op[first + 1] = PREDICT, LEARN
    return Batch(rows, batch.y[origin], op, batch.known[origin]), answers


def posteriors(
    scores: NDArray[Any], op: NDArray[np.uint8], known: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Scores as probabilities; where no tree has an answer, every class known as of that row alike."""
    total = scores.sum(axis=1)
    silent = total == 0
    P = scores / np.where(silent, 1, total)[:, None]
    if silent.any():
        for r in np.flatnonzero(silent & (known > 0)):
            P[r, : known[r]] = 1.0 / known[r]
    if not (op & PREDICT).all():
        P[(op & PREDICT) == 0] = np.nan
    return P


def holds_events(X: Any) -> bool:
    """Whether it is a sequence of dicts; a memoryview is a sequence too, and may not be indexed."""
    if isinstance(X, memoryview) or not isinstance(X, Sequence):
        return False
    return len(X) == 0 or isinstance(X[0], Mapping)


def joined(pieces: list[Answers]) -> Answers:
    """The answers to the parts of a batch, as if it had not been cut."""
    if len(pieces) == 1:
        return pieces[0]
    novelty = coarse = novel_in = None
    if any(piece.novelty is not None for piece in pieces):
        novelty = np.concatenate([p.novelty for p in pieces if p.novelty is not None])
    rows = [len(piece.posteriors) for piece in pieces]
    if any(piece.coarse is not None for piece in pieces):
        parts = [np.zeros((n, 0)) if p.coarse is None else p.coarse for n, p in zip(rows, pieces)]
        unasked = [np.isnan(p.posteriors).any(axis=1) for p in pieces]
        coarse = _below(parts)
        coarse[np.concatenate(unasked)] = np.nan
    if any(piece.novel_in is not None for piece in pieces):
        found = [np.full(n, -1) if p.novel_in is None else p.novel_in for n, p in zip(rows, pieces)]
        novel_in = np.concatenate(found)
    return Answers(_below([p.posteriors for p in pieces]), novelty, coarse, novel_in)


def _below(parts: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Rows below each other; a class that came later is 0, or NaN where nothing was asked."""
    out = np.zeros((sum(map(len, parts)), max(part.shape[1] for part in parts)))
    start = 0
    for part in parts:
        below = out[start : start + len(part)]
        below[:, : part.shape[1]] = part
        below[np.isnan(part).any(axis=1)] = np.nan
        start += len(part)
    return out

"""The edges of a batch: what is asked of its rows, and what their votes amount to."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from streamforest.errors import FeatureError, InputError, LabelError
from streamforest.kernels.core.operations import BOTH, LEARN, PREDICT


def length(X: Any) -> int:
    """The number of rows."""
    try:
        return len(X)
    except TypeError:
        raise FeatureError(
            f"X is a {type(X).__name__}: pass a 2-D array, a DataFrame or a list of dicts"
        ) from None


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
    becomes None; in a column of numbers NaN stays, to be refused or taken as missing as asked for.
    """
    columns = other_than_numbers(frame)
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
    if ops.shape != (len(labels),) or not np.isin(ops, (PREDICT, LEARN, BOTH)).all():
        raise InputError(
            f"op must hold one of PREDICT ({PREDICT}), LEARN ({LEARN}), BOTH ({BOTH}) per row"
        )
    for r in () if labelled else np.flatnonzero(ops & LEARN):
        if labels[r] is None:
            raise LabelError(f"row {r}: op asks to learn it, but its label is None")
    return ops.astype(np.uint8)


def split_fresh(
    fresh: list[tuple[int, int]],
    rows: NDArray[np.float64],
    index: NDArray[np.int64],
    op: NDArray[np.uint8],
    known: NDArray[np.int64],
    unseen: float,
) -> tuple[
    NDArray[np.float64],
    NDArray[np.int64],
    NDArray[np.uint8],
    NDArray[np.int64],
    NDArray[np.int64],
]:
    """The same batch with rows that bring a category of their own taken in two.

    To be predicted such a row has a value nobody knows; to be learned it has its new code. The last
    array says which row of the new batch answers for each of the old.
    """
    columns: dict[int, list[int]] = {}
    for r, j in fresh:
        if op[r] == BOTH:
            columns.setdefault(r, []).append(j)
    twice = np.ones(len(rows), np.int64)
    twice[list(columns)] = 2
    origin = np.repeat(np.arange(len(rows)), twice)
    answers = np.cumsum(twice) - twice
    rows, index, op, known = rows[origin], index[origin], op[origin], known[origin]
    for r, of_it in columns.items():
        at = answers[r]
        rows[at, of_it] = unseen
        op[at], op[at + 1] = PREDICT, LEARN
    return rows, index, op, known, answers


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

"""Labels as they come, as class indices in the order first seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from streamforest.errors import CapacityError, LabelError
from streamforest.forests.core.parameters import MAX_TEXT_BYTES
from streamforest.forests.core.values import MOST_BITS, TIMES
from streamforest.text import kept_bytes, shown

Label = str | int | bool | float


_NO_LABELS = (str, bytes, bytearray, Mapping, set, frozenset, pd.DataFrame)


class LabelTable:
    """The classes of a model.

    Labels that Python calls equal (1, True, 1.0) are one class and keep the type first seen; the same
    class under another type is refused, since one of the two is surely a mistake in the source. NumPy
    scalars count as the Python values they hold.

    >>> table = LabelTable(max_classes=3)
    >>> table.learn("cat"), table.learn(7), table.learn("cat"), table.learn("7")
    (0, 1, 0, 2)
    >>> table.labels
    ['cat', 7, '7']
    """

    def __init__(self, max_classes: int, max_bytes: int = MAX_TEXT_BYTES) -> None:
        self.max_classes = max_classes
        self.max_bytes = max_bytes
        self.bytes = 0
        self.labels: list[Label] = []
        self._index: dict[Label, int] = {}
        self._types: set[type] = set()

    def __len__(self) -> int:
        return len(self.labels)

    def find(self, y: Any) -> int:
        """The index of a class, or -1 if it has not been seen. Refuses what cannot be a label."""
        try:
            k = self._index.get(y)
        except TypeError:
            raise LabelError(_refusal(y)) from None
        if k is not None and type(self.labels[k]) is type(y):
            return k
        y = plain_label(y)
        k = self._index.get(y)
        if k is None:
            return -1
        if type(self.labels[k]) is not type(y):
            known = self.labels[k]
            raise LabelError(
                f"label {y!r} ({type(y).__name__}) equals the known class {known!r} "
                f"({type(known).__name__}): send one class with one type"
            )
        return k

    def require_room(self, y: Any) -> None:
        """Refuse a new class that would be one too many, or that there are no bytes for."""
        if len(self.labels) >= self.max_classes:
            raise CapacityError(
                f"label {shown(plain_label(y))} would be class number {len(self.labels) + 1}, over "
                f"max_classes={self.max_classes}: raise max_classes or filter such labels"
            )
        size = self.bytes + kept_bytes(plain_label(y))
        if size > self.max_bytes:
            raise CapacityError(
                f"label {shown(plain_label(y))} would make {size:,} bytes of classes, over "
                f"max_text_bytes={self.max_bytes:,}: raise max_text_bytes or filter such labels"
            )

    def learn(self, y: Any) -> int:
        """The index of a class, made if it is new."""
        k = self.find(y)
        if k >= 0:
            return k
        self.require_room(y)
        return self._add(plain_label(y))

    def _add(self, y: Label) -> int:
        self._index[y] = len(self.labels)
        self.labels.append(y)
        self._types.add(type(y))
        self.bytes += kept_bytes(y)
        return len(self.labels) - 1

    def find_all(self, labels: list[Any]) -> list[int] | None:
        """The indices of a batch at once, if all are known classes and types leave no doubt."""
        if len(self._types) != 1 or set(map(type, labels)) != self._types:
            return None
        found = list(map(self._index.get, labels))
        return None if None in found else found  # type: ignore[return-value]

    def truncate(self, n: int) -> None:
        """Forget all classes but the first `n`: an input was refused as a whole."""
        for y in self.labels[n:]:
            del self._index[y]
            self.bytes -= kept_bytes(y)
        del self.labels[n:]
        self._types = set(map(type, self.labels))

    def restore(self, labels: Sequence[Any]) -> None:
        """Fill an empty table with the labels of a snapshot.

        They may take more bytes than a bound that came, or was lowered, later: then no class is new.
        """
        for y in labels:
            if self.find(y) >= 0:
                raise LabelError(f"label {shown(y)} is listed twice")
            self._add(plain_label(y))
        if len(self.labels) > self.max_classes:
            raise CapacityError(f"{len(self.labels)} classes, over max_classes")


def plain_label(y: Any) -> Label:
    """The Python value of a label, or a `LabelError` that says what is wrong with it."""
    if isinstance(y, np.generic) and not isinstance(y, TIMES):  # whose item() is an int, or a date
        y = y.item()
    if type(y) in (str, bool):
        return y  # type: ignore[no-any-return]
    if isinstance(y, str):
        return str.__str__(y)
    if isinstance(y, int) and y.bit_length() <= MOST_BITS:
        return int(y)
    if isinstance(y, float) and math.isfinite(y):
        return float(y)
    raise LabelError(_refusal(y))


def _refusal(y: Any) -> str:
    if y is None:
        return "label None cannot be learned: leave such events out, or pass None to advance() only"
    return (
        f"label {shown(y)} ({type(y).__name__}) cannot name a class: use a str, int (of at most "
        f"{MOST_BITS:,} bits), bool or finite float"
    )


def as_list(y: Any, n: int, name: str = "y") -> list[Any]:
    """Labels of a batch as Python values; arrays and Series included.

    What has no order, or whose items are not meant one by one, is refused: a str would be a label for
    each of its characters.
    """
    values: Any = None
    if not isinstance(y, _NO_LABELS):
        try:
            values = list(y) if _is_times(y) or not hasattr(y, "tolist") else y.tolist()
        except (TypeError, NotImplementedError):  # nothing to iterate over, or no one knows how
            values = None
    size = len(values) if isinstance(values, list) else -1
    if size != n:
        what = f"has {size} labels" if size >= 0 else f"is a {type(y).__name__}"
        raise LabelError(
            f"{name} {what}, X has {n} rows: pass a list of one label (or None) per row"
        )
    return values  # type: ignore[no-any-return]


def _is_times(y: Any) -> bool:
    """Whether `tolist` would make bare numbers of moments or spans of time."""
    return getattr(getattr(y, "dtype", None), "kind", "") in "mM"


def index_labels(
    table: LabelTable, y: list[Any], learns: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Class index of each row that learns (else -1), and the classes known before each row.

    New classes enter the table; the caller takes them back if anything in the batch is refused.
    """
    found = table.find_all(y) if learns.all() else None
    if found is not None:
        return np.array(found, np.int64), np.full(len(y), len(table.labels), np.int64)
    index = np.full(len(y), -1, np.int64)
    known = np.empty(len(y), np.int64)
    find = table.find
    for r, (label, learn) in enumerate(zip(y, learns.tolist())):
        known[r] = len(table.labels)
        if learn:
            try:
                k = find(label)
                index[r] = k if k >= 0 else table.learn(label)
            except LabelError as error:
                raise LabelError(f"row {r}: {error}") from None
            except CapacityError as error:
                raise CapacityError(f"row {r}: {error}") from None
    return index, known

"""A finite labelled stream: rows in the order in which they are to be seen."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import DatasetError

Label = Hashable
"""A class label as Python holds it: str, int or bool."""


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows, their labels and what is known about them.

    Parameters
    ----------
    name
        What tables and messages call the stream.
    X
        float64 [n, d], C-contiguous, so that a slice of rows can go to a kernel as it is.
    y
        The n labels, in a NumPy array of their own type (int, bool or str). `y.tolist()` and
        `dicts()` give plain Python labels.
    features
        The d column names.
    about
        One line for tables and help texts.
    test
        True for the rows of the official test set, where a set has one.
    bayes
        True where the best possible rule, which knows the distribution, gets the row right.
    seed
        Seed of the order or of the generator, where there is one.
    categorical
        Names of columns whose numbers are codes without order. Their values stay numbers.
    drifts
        Events at which the stream is known to change.
    texts
        Of a stream of texts: the n texts. An event then has the further feature `text`.

    Examples
    --------
    >>> s = Stream("toy", np.array([[1.0, 2.0], [3.0, 4.0]]), np.array(["a", "b"]), ("u", "v"))
    >>> list(s.dicts())
    [({'u': 1.0, 'v': 2.0}, 'a'), ({'u': 3.0, 'v': 4.0}, 'b')]
    >>> s.head(1).y.tolist()
    ['a']
    """

    name: str
    X: NDArray[np.float64]
    y: NDArray[Any]
    features: tuple[str, ...]
    about: str = ""
    test: NDArray[np.bool_] | None = None
    bayes: NDArray[np.bool_] | None = None
    seed: int | None = None
    categorical: tuple[str, ...] = ()
    drifts: tuple[int, ...] = ()
    texts: NDArray[np.str_] | None = None

    def __post_init__(self) -> None:
        def refuse(what: str) -> None:
            raise DatasetError(f"stream {self.name!r}: {what}")

        if self.X.ndim != 2 or self.X.dtype != np.float64 or not self.X.flags.c_contiguous:
            refuse(
                f"X is {self.X.dtype} with {self.X.ndim} dimensions; "
                "give a C-contiguous float64 array [rows, features]"
            )
        if self.y.shape != (len(self.X),) or self.y.dtype == object:
            refuse(
                f"y has shape {self.y.shape} and type {self.y.dtype} for {len(self.X)} rows; "
                "give one label a row, all of one type"
            )
        if len(self.features) != self.X.shape[1] or len(set(self.features)) != len(self.features):
            refuse(
                f"{len(self.features)} feature names for {self.X.shape[1]} columns; "
                "give every column a name of its own"
            )
        for field, mask in (("test", self.test), ("bayes", self.bayes)):
            if mask is not None and (mask.shape != self.y.shape or mask.dtype != np.bool_):
                refuse(f"{field} has shape {mask.shape} and type {mask.dtype}; give one bool a row")
        if self.texts is not None and self.texts.shape != self.y.shape:
            refuse(f"texts has shape {self.texts.shape}; give one text a row")
        if unknown := set(self.categorical) - set(self.features):
            refuse(f"categorical names {sorted(unknown)} that are no features")

    def __len__(self) -> int:
        return len(self.y)

    @property
    def classes(self) -> list[Label]:
        """The labels in the order in which they first appear."""
        _, first = np.unique(self.y, return_index=True)
        labels: list[Label] = self.y[np.sort(first)].tolist()
        return labels

    @property
    def bayes_rate(self) -> float | None:
        """Accuracy of the best possible rule on exactly these rows, where it is known."""
        return None if self.bayes is None else float(self.bayes.mean())

    def dicts(self) -> Iterator[tuple[dict[str, Any], Label]]:
        """The stream as River sees it: (features by name, label), plain Python values."""
        for number, label in enumerate(self.y.tolist()):
            yield self.event(number), label

    def event(self, number: int) -> dict[str, Any]:
        """The features of one event by name."""
        x: dict[str, Any] = dict(zip(self.features, self.X[number].tolist()))
        if self.texts is not None:
            x["text"] = str(self.texts[number])
        return x

    def take(self, rows: NDArray[np.int64] | slice) -> Stream:
        """The given rows in the given order."""
        return replace(
            self,
            X=np.ascontiguousarray(self.X[rows]),
            y=self.y[rows],
            test=None if self.test is None else self.test[rows],
            bayes=None if self.bayes is None else self.bayes[rows],
            texts=None if self.texts is None else self.texts[rows],
            drifts=(),
        )

    def head(self, n: int) -> Stream:
        """The first `n` rows, or all of them where there are fewer."""
        if n < 1:
            raise DatasetError(f"stream {self.name!r}: head of {n} rows; ask for at least 1")
        drifts = tuple(event for event in self.drifts if event < n)
        return replace(self.take(slice(0, n)), drifts=drifts)

    def split(self) -> tuple[Stream, Stream]:
        """(training rows, official test rows), both in their recorded order."""
        if self.test is None:
            raise DatasetError(
                f"stream {self.name!r} has no official test rows; choose rows with take()"
            )
        return self.take(np.flatnonzero(~self.test)), self.take(np.flatnonzero(self.test))

"""Recorded sets from the data folder.

Each set is one NumPy `.npz` file: `x` [n, d], to be multiplied by `scale`; `y` [n], indices into
`classes`; and where the set has them `test` [n], which marks the official test rows, and
`features`, the column names. Files are read without pickle, so that opening one cannot run code.
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.datasets.stream import Stream
from streamforest.errors import DatasetError

DATA_VARIABLE = "STREAMFOREST_DATA"
"""Environment variable that names the data folder."""

_CATEGORICAL = {"covtype": frozenset({"wilderness", "soil"})}
"""Columns that hold codes without order; the files do not say so themselves."""


def data_folder() -> Path | None:
    """The folder of recorded sets, which `STREAMFOREST_DATA` names; None if it is not set."""
    chosen = os.environ.get(DATA_VARIABLE)
    return Path(chosen) if chosen else None


def read_categories(name: str) -> NDArray[np.int64]:
    """The category of each row of a recorded set that has them, as numbers."""
    with np.load(_file(name), allow_pickle=False) as archive:
        if "coarse" not in archive.files:
            raise DatasetError(f"recorded set {name!r} has no categories; choose another one")
        categories: NDArray[np.int64] = archive["coarse"].astype(np.int64)
        return categories


def missing_file(name: str) -> str | None:
    """Why the set cannot be read, with the remedy; None if its file exists."""
    try:
        _file(name)
    except DatasetError as error:
        return str(error)
    return None


def _file(name: str) -> Path:
    """The file of a recorded set; DatasetError if it does not exist."""
    folder = data_folder()
    if folder is None:
        raise DatasetError(
            f"recorded set {name!r}: set {DATA_VARIABLE} to the folder that holds {name}.npz"
        )
    path = folder / f"{name}.npz"
    if not path.is_file():
        raise DatasetError(
            f"recorded set {name!r}: {path} does not exist; "
            f"put the file there or set {DATA_VARIABLE} to the folder that holds {path.name}"
        )
    return path


def recorded(name: str) -> Stream:
    """A whole recorded set in its original order, official test rows marked in `test`.

    `recorded("usps").split()` gives training and test rows apart.
    """
    return RecordedSet.read(name).stream(slice(None))


@dataclass(frozen=True, eq=False)
class RecordedSet:
    """A file's arrays as stored. Rows are selected before they are converted to float64: the stored
    types are small, and a stream may need 10,000 rows of half a million.
    """

    name: str
    x: NDArray[Any]
    y: NDArray[np.int64]
    labels: NDArray[Any]
    features: tuple[str, ...]
    scale: float
    test: NDArray[np.bool_] | None

    @classmethod
    def read(cls, name: str) -> RecordedSet:
        """Read and check one file."""
        path = _file(name)
        try:
            with np.load(path, allow_pickle=False) as archive:
                fields = {key: archive[key] for key in archive.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise DatasetError(
                f"recorded set {name!r}: {path} cannot be read as .npz without pickle ({error}); "
                "fetch the file again"
            ) from error
        return cls._checked(name, path, fields)

    @classmethod
    def _checked(cls, name: str, path: Path, fields: dict[str, NDArray[Any]]) -> RecordedSet:
        def refuse(field: str, what: str) -> DatasetError:
            return DatasetError(f"recorded set {name!r}: {field} in {path} {what}")

        for field in ("x", "y", "classes"):
            if field not in fields:
                raise refuse(field, "is missing; the file needs x, y and classes")
        x, y, classes = fields["x"], fields["y"], fields["classes"]
        if x.ndim != 2 or x.dtype.kind not in "iufb":
            raise refuse("x", f"is {x.dtype} {x.shape}; numbers [rows, features] are needed")
        if y.shape != (len(x),) or y.dtype.kind not in "iu":
            raise refuse("y", f"is {y.dtype} {y.shape}; {len(x)} class indices are needed")
        if len(y) and not 0 <= int(y.min()) <= int(y.max()) < len(classes):
            raise refuse("y", f"has indices outside 0…{len(classes) - 1}, the range of classes")
        test = fields.get("test")
        if test is not None and test.shape != y.shape:
            raise refuse("test", f"has shape {test.shape}; {len(y)} marks are needed")
        if "features" in fields:
            features = tuple(str(feature) for feature in fields["features"])
        else:
            features = tuple(f"x{i}" for i in range(x.shape[1]))
        return cls(
            name=name,
            x=x,
            y=y.astype(np.int64),
            labels=_as_labels(classes),
            features=features,
            scale=float(fields.get("scale", np.float64(1.0))),
            test=None if test is None else test.astype(np.bool_),
        )

    def training_rows(self) -> NDArray[np.int64]:
        """All rows but the official test rows, in recorded order."""
        if self.test is None:
            return np.arange(len(self.y))
        return np.flatnonzero(~self.test)

    def stream(self, rows: NDArray[np.int64] | slice) -> Stream:
        """The given rows as a stream."""
        codes = _CATEGORICAL.get(self.name, frozenset())
        return Stream(
            name=self.name,
            X=np.ascontiguousarray(self.x[rows].astype(np.float64) * self.scale),
            y=self.labels[self.y[rows]],
            features=self.features,
            test=None if self.test is None else self.test[rows],
            categorical=tuple(feature for feature in self.features if feature in codes),
        )


def _as_labels(classes: NDArray[Any]) -> NDArray[Any]:
    """Class names as labels: integers where every name is one ("0" … "9"), strings otherwise.

    >>> _as_labels(np.array(["3", "10"])).tolist(), _as_labels(np.array(["A", "1"])).tolist()
    ([3, 10], ['A', '1'])
    """
    try:
        numbers = np.array([int(name) for name in classes.tolist()], dtype=np.int64)
    except ValueError:
        return classes
    return numbers if np.array_equal(numbers.astype(str), classes.astype(str)) else classes

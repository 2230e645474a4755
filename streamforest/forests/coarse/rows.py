"""Rows with only a category, for as long as the class that is told later can be learned.

Those that were learned under an estimated class stay until they leave the memory of the forest, which has to
take the estimate back. Those that were withheld from the forest are kept here, the newest ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.capacity import CATEGORY
from streamforest.forests.core.features import FeatureTable
from streamforest.forests.core.serialization import demand

_MAX_WITHHELD = 4_096
_MAX_VALUES = 1 << 20  # 8 MB


@dataclass(slots=True)
class EstimatedRow:
    """A row with a coarse label."""

    number: int  # in the fine forest; negative: it has not learned it
    category: int
    values: NDArray[np.float64]


class EstimatedRows:
    """Such rows by their number among all learned rows, in a forest that keeps a memory of rows.

    A row stays until it leaves that memory. Withdrawn rows leave the forest when its epoch ends.
    """

    def __init__(self) -> None:
        self._rows: dict[int, EstimatedRow] = {}
        self._kept = 0  # when rows were last looked through
        self.withdrawn: list[int] = []  # numbers in the fine forest

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        """Of the values that are kept."""
        return sum(row.values.nbytes for row in self._rows.values())

    def add(self, number: int, row: EstimatedRow, in_memory: Callable[[], Any]) -> None:
        """Keep a row; those that left the memory are dropped now and then."""
        self._rows[number] = row
        if len(self._rows) > 2 * self._kept + 64:
            self.drop_absent(in_memory())

    def drop_absent(self, in_memory: Any) -> None:
        """Keep only rows whose numbers are among these; a row just added may not be there yet."""
        there = set(in_memory.tolist())
        latest = max((row.number for row in self._rows.values()), default=0)
        self._rows = {
            number: row
            for number, row in self._rows.items()
            if row.number in there or row.number == latest
        }
        self._kept = len(self._rows)

    def take(self, number: int, in_memory: Any) -> EstimatedRow | None:
        """The row of this number, to be withdrawn; None if it is not in memory any more."""
        row = self._rows.get(number)
        if row is None or row.number not in set(in_memory.tolist()):
            return None
        del self._rows[number]
        self.withdrawn.append(row.number)
        return row

    def look_up(self, number: int) -> EstimatedRow | None:
        """The row of this number as it is, whether or not it has left the memory."""
        return self._rows.get(number)

    # ---- snapshots

    def dump(self, in_memory: Any) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot."""
        there = set(in_memory.tolist())
        kept = [(n, row) for n, row in self._rows.items() if row.number in there]
        rows = [row for _, row in kept]
        return {
            "rows.number": np.array([n for n, _ in kept], np.int64),
            "rows.own_number": np.array([row.number for row in rows], np.int64),
            "rows.category": np.array([row.category for row in rows], np.int64),
            "rows.width": np.array([len(row.values) for row in rows], np.int64),
            "rows.values": np.concatenate([*(row.values for row in rows), np.zeros(0)]),
            "rows.withdrawn": np.array(self.withdrawn, np.int64),
        }

    def restore(
        self,
        take: Callable[..., NDArray[Any]],
        in_memory: Any,
        categories: int,
        table: FeatureTable,
        learned: int,
    ) -> None:
        """The same back, checked."""
        number = take("rows.number", np.int64)
        n = len(number)
        own = take("rows.own_number", np.int64, n)
        _check_numbers(number, learned, "rows.number")
        demand(np.isin(own, in_memory) & (np.unique(own).size == n), "rows.own_number")
        category = take("rows.category", np.int64, n)
        demand((category >= 0) & (category < categories), "rows.category")
        width = take("rows.width", np.int64, n)
        demand((width >= 0) & (width <= max(1, len(table))), "rows.width")
        values = take("rows.values", np.float64, int(width.sum()))
        _check_values(values, width, table, "rows.values")
        withdrawn = take("rows.withdrawn", np.int64)
        demand(np.isin(withdrawn, in_memory) & ~np.isin(withdrawn, own), "rows.withdrawn")
        parts = np.split(values, np.cumsum(width)[:-1]) if n else []
        for at, mine, of, part in zip(number.tolist(), own.tolist(), category.tolist(), parts):
            self._rows[at] = EstimatedRow(mine, of, part)
        self._kept = n
        self.withdrawn = withdrawn.tolist()


class WithheldRows:
    """Rows that the fine forest has not learned, by their number among all learned rows: the last 4,096.

    >>> rows = WithheldRows()
    >>> rows.add(7, EstimatedRow(-1, 0, np.zeros(3)))
    >>> rows.take(7) is None, rows.take(7) is None
    (False, True)
    """

    def __init__(self) -> None:
        self._rows: dict[int, EstimatedRow] = {}
        self._values = 0

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, number: int, row: EstimatedRow) -> None:
        """Keep a row; the oldest go where there is no room."""
        self._rows[number] = row
        self._values += len(row.values)
        while len(self._rows) > _MAX_WITHHELD or self._values > _MAX_VALUES:
            self.take(next(iter(self._rows)))

    def look_up(self, number: int) -> EstimatedRow | None:
        """The row of this number; None if it is not kept."""
        return self._rows.get(number)

    def take(self, number: int) -> EstimatedRow | None:
        """The same, which is kept no longer."""
        row = self._rows.pop(number, None)
        self._values -= 0 if row is None else len(row.values)
        return row

    def dump(self) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot."""
        rows = self._rows.values()
        return {
            "withheld.number": np.array(list(self._rows), np.int64),
            "withheld.category": np.array([row.category for row in rows], np.int64),
            "withheld.width": np.array([len(row.values) for row in rows], np.int64),
            "withheld.values": np.concatenate([*(row.values for row in rows), np.zeros(0)]),
        }

    def restore(
        self,
        take: Callable[..., NDArray[Any]],
        categories: int,
        table: FeatureTable,
        learned: int,
    ) -> None:
        """The same back, checked."""
        number = take("withheld.number", np.int64)
        demand(len(number) <= _MAX_WITHHELD, "withheld.number")
        _check_numbers(number, learned, "withheld.number")
        category = take("withheld.category", np.int64, len(number))
        demand((category >= 0) & (category < categories), "withheld.category")
        width = take("withheld.width", np.int64, len(number))
        demand((width >= 0) & (width <= max(1, len(table))), "withheld.width")
        demand(int(width.sum()) <= _MAX_VALUES, "withheld.width")
        values = take("withheld.values", np.float64, int(width.sum()))
        _check_values(values, width, table, "withheld.values")
        parts = np.split(values, np.cumsum(width)[:-1]) if len(number) else []
        for at, of, part in zip(number.tolist(), category.tolist(), parts):
            self._rows[at] = EstimatedRow(-1, of, part)
        self._values = len(values)


def _check_numbers(number: NDArray[np.int64], learned: int, name: str) -> None:
    """Rows in the order in which they came; later rows have other numbers."""
    demand((number >= 0) & (number < learned), name)
    demand(np.diff(number) > 0, name)


def _check_values(
    values: NDArray[np.float64], width: NDArray[np.int64], table: FeatureTable, name: str
) -> None:
    """Values are numbers that the forest takes, or missing; categories are codes that exist."""
    demand(~np.isinf(values) & ~(np.abs(values) > table.largest), name)
    codes = np.full(max(1, len(table)), -1)  # of each feature; -1: it has none
    for j, kind in enumerate(table.kinds):
        codes[j] = table.n_codes(j) if kind == CATEGORY else -1
    most = codes[np.arange(len(values)) - np.repeat(np.cumsum(width) - width, width)]
    code = values[(most >= 0) & ~np.isnan(values)]
    most = most[(most >= 0) & ~np.isnan(values)]
    demand((code >= 0) & (code < most) & (code == np.floor(code)), name)

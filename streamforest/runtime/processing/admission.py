"""Admission: each event is judged before it joins a batch, by the rules of the forests.

`advance` refuses a batch as a whole, which is right for a caller who can mend it, and wrong for a
stream in which strangers' events stand side by side. An `Admission` holds the same tables of features
and labels as a forest that has learned everything it let through: what it admits, no forest with at
least its limits refuses. It decides event by event, so that where batches are cut changes nothing.

It also writes plain events (every known feature there, all finite numbers) straight into rows, which
spares the forests looking at each value again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import FeatureError, InputError, SnapshotError
from streamforest.forests.coarse.taxonomy import Categories
from streamforest.forests.core.batch import NamedRows
from streamforest.forests.core.features import FeatureTable
from streamforest.forests.core.labels import LabelTable, plain_label
from streamforest.jsonable import count, rows, scalar
from streamforest.kernels.core.operations import LEARN, PREDICT
from streamforest.runtime.processing.limits import Limits
from streamforest.text import shown

log = logging.getLogger(__name__)

Features = Mapping[Any, Any] | Sequence[float]
Prepare = Callable[[Any], Features]


@dataclass(frozen=True)
class Rows:
    """Admitted events, ready for `advance`."""

    dicts: list[Mapping[Any, Any]]
    table: Any
    """`NamedRows` or an array where all are plain numbers, else the dicts."""
    y: list[Any]
    op: NDArray[np.uint8]
    new: list[bool]
    """Whether the label was one that had never been learned."""
    coarse: Sequence[Any] | None = None
    """Coarse labels, where events carry them; None if no event does."""
    categories: Sequence[Any] | None = None
    """Coarse labels as they are known: those of events with only a fine one are the taxonomy's."""

    def part(self, rows: slice) -> Rows:
        """Some of the rows."""
        return Rows(
            self.dicts[rows],
            self.table[rows],
            self.y[rows],
            self.op[rows],
            self.new[rows],
            None if self.coarse is None else self.coarse[rows],
            None if self.categories is None else self.categories[rows],
        )

    def head(self, count: int) -> Rows:
        """The first rows, to be predicted only."""
        op = np.full(min(count, len(self)), PREDICT, np.uint8)
        some = self.dicts[:count], self.table[:count], [None] * len(op), op, self.new[:count]
        return Rows(*some)

    def learned_before(self, learned: int) -> list[int]:
        """How many events a model has learned before each row, if it has learned so many before all."""
        learns = (self.op & LEARN) != 0
        before: list[int] = (np.cumsum(learns) - learns + learned).tolist()
        return before

    def __len__(self) -> int:
        return len(self.y)


class Admission:
    """Judges events one by one and collects those it admits.

    >>> gate = Admission(Limits(max_classes=2))
    >>> gate.admit({"a": 1.0}, "x"), gate.admit({"a": 2.0}, "y"), gate.admit({"a": 3.0}, None)
    (True, True, True)
    >>> gate.admit({"a": 4.0}, "z")
    Traceback (most recent call last):
    ...
    streamforest.errors.CapacityError: label 'z' would be class number 3, over max_classes=2: ...
    >>> rows = gate.take()
    >>> rows.y, rows.op.tolist(), rows.new
    (['x', 'y', None], [3, 3, 1], [True, True, False])
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.features = FeatureTable(
            limits.max_features,
            limits.max_categories,
            limits.nonfinite,
            limits.max_text_bytes,
            limits.on_capacity,
        )
        self.labels = LabelTable(limits.max_classes, limits.max_text_bytes)
        self.categories = Categories(limits.max_classes, limits.max_text_bytes, limits.taxonomy)
        self.waiting: dict[Any, int] = {}
        self._was_plain = False
        self._begin()

    def _begin(self) -> None:
        self._x: list[Features] = []
        self._y: list[Any] = []
        self._op = bytearray()
        # by row, for the few that have any
        self._new: list[int] = []
        self._coarse: dict[int, Any] = {}
        self._categories: dict[int, Any] = {}
        self._width = len(self.features)
        self._plain = self._width > 0
        self._packed = bytearray()
        self._row = bytearray(8 * self._width)
        names = self.features.names
        # vectors of this length go straight into a row
        self._vector = self._width if names == list(range(self._width)) else -1
        self._pack = Struct(f"{self._width}d").pack if self.features.plain else None
        room = len(self.labels) * self._width <= self.limits.max_means
        self._direct = self._pack is not None and room and not self.categories

    def known_columns(self) -> list[Any]:
        """The columns in their order, if events of numbers may come as `admit_numbers` takes them, as all
        of the last batch did; else none.
        """
        return self.features.names if self._direct and self._was_plain else []

    def admit_numbers(self, values: Sequence[float], y: Any) -> bool:
        """Take an event of which nothing is to be decided: all columns in their order, each a number, and
        no label or that of a known class. False if it is another one; then `admit` decides about it.
        """
        if not self._direct or (y is not None and self.labels.find(y) < 0):
            return False
        width = self._vector if type(values) is list else self._width
        if len(values) != width or not self._packs_numbers(values):
            return False
        self._x.append(values)
        self._y.append(y)
        self._op.append(PREDICT if y is None else PREDICT | LEARN)
        return True

    def admit(
        self,
        x: Features,
        y: Any,
        predict: bool = True,
        prepare: Prepare | None = None,
        coarse: Any = None,
    ) -> bool:
        """Take an event; False if it is only predicted because its label is not admitted yet.

        `prepare` is for features that are not numbers of known columns already.

        Without `predict` it is a late label: the event is only learned, and where the label is not
        admitted yet there is no row. InputError if it cannot be taken: then it has left no trace.

        An event with only a coarse label is learned too. One whose fine label is not admitted yet is not
        learned at either level.
        """
        known = -1 if y is None else self.labels.find(y)
        learn = y is not None or coarse is not None
        counted = True
        if coarse is not None:
            self.categories.check(y, coarse)
        if y is not None and known < 0:
            self.labels.require_room(y)
            seen = self.waiting.get(y, 0) + 1
            learn = counted = seen >= self.limits.min_class_events
        if predict or learn:
            classes = len(self.labels) + (y is not None and known < 0) if learn else 0
            x = self._take_features(x, learn, prepare, classes)
        if known < 0 and y is not None:
            if counted:
                self.waiting.pop(y, None)
                self.labels.learn(y)
            else:
                self._wait(y)
        if coarse is not None and learn:
            self._add_category(y, coarse)
        if predict or learn:
            row = len(self._y)
            if coarse is not None:
                self._coarse[row] = self._categories[row] = coarse
            elif (category := self.categories.of(y)) is not None:
                self._categories[row] = category
            if known < 0 and y is not None:
                self._new.append(row)
            self._x.append(x)
            self._y.append(y)
            self._op.append((PREDICT if predict else 0) | (LEARN if learn else 0))
        return counted

    def admit_refinement(self, y: Any, coarse: Any) -> bool:
        """Take the class of an event that was learned as one of category `coarse`; False if it is not
        admitted yet. InputError if it cannot be taken.
        """
        self.categories.check(y, coarse)
        if self.labels.find(y) < 0:
            self.labels.require_room(y)
            if self.waiting.get(y, 0) + 1 < self.limits.min_class_events:
                self._wait(y)
                return False
            self.features.require_cells(len(self.labels) + 1, self.limits.max_means)
            self.waiting.pop(y, None)
            self.labels.learn(y)
        self._add_category(y, coarse)
        return True

    def _add_category(self, y: Any, coarse: Any) -> None:
        """From now on rows may have a category."""
        self.categories.add(y, coarse)
        self._direct = False

    def check_labels(self, y: Any, coarse: Any) -> None:
        """Refuse labels that could never be learned."""
        if y is not None and self.labels.find(y) < 0:
            self.labels.require_room(y)
        if coarse is not None:
            self.categories.check(y, coarse)

    def _wait(self, y: Any) -> None:
        """Count a label that is not admitted yet; for a new one the oldest is forgotten."""
        if y not in self.waiting and len(self.waiting) >= self.limits.max_waiting:
            del self.waiting[next(iter(self.waiting))]
        self.waiting[y] = self.waiting.get(y, 0) + 1

    def _take_features(
        self, x: Features, learn: bool, prepare: Prepare | None, classes: int
    ) -> Features:
        self.features.require_cells(classes, self.limits.max_means)
        if self._plain and self._packs(x):
            return x
        self._plain = self._direct = False
        if prepare is not None:
            x = prepare(x)
        if learn and self.limits.as_they_come:
            self.features.require_room(len(x))
        named = _by_name(x)
        if self.limits.largest < math.inf:
            _check_values(named, self.limits)
        if self.limits.steps is not None:
            self.limits.steps(named, learn)
        if not self.limits.as_they_come:
            return x
        self.features.begin()
        try:
            self.features.row(named, learn)
            self.features.require_cells(classes, self.limits.max_means)
        except InputError:
            self.features.rollback()
            raise
        for notice in self.features.notices:
            log.warning("%s", notice)
        self.features.notices.clear()
        return x

    def _packs(self, x: Features) -> bool:
        """Whether the event is plain; if so its row has been written."""
        if self._pack is None:
            return False
        if type(x) is list:
            return len(x) == self._vector and self._packs_numbers(x)
        if not self.features.pack(x, self._row, 0):  # type: ignore[arg-type]
            return False
        if self.limits.largest < math.inf:
            numbers = np.frombuffer(self._row, np.float64)
            if not np.abs(numbers).max() <= self.limits.largest:
                return False
        self._packed += self._row
        return True

    def _packs_numbers(self, values: Sequence[float]) -> bool:
        """Whether all values are numbers that can be held; if so they have been written as a row.

        One look at all of them together: what is beyond it is looked at one by one.
        """
        try:
            if self.limits.largest < math.inf:
                fits = math.hypot(*values) <= self.limits.largest
            else:
                fits = math.isfinite(sum(values))
            if fits:
                self._packed += self._pack(*values)  # type: ignore[misc]
            return fits
        except (TypeError, ValueError, StructError, ArithmeticError, RuntimeWarning):
            return False

    def named(self, x: Any) -> Features:
        """Features as they come: those of `known_columns` without names get them back."""
        return dict(zip(self.features.names, x)) if type(x) is tuple else x

    def __len__(self) -> int:
        return len(self._y)

    def take(self) -> Rows:
        """The events admitted since the last call, in order."""
        as_table = self._plain and len(self._y) > 1  # a single event is quicker as it came
        dicts: list[Any] = (
            []
            if as_table and self.limits.steps is None
            else [_by_name(self.named(x)) for x in self._x]
        )
        table: Any = dicts
        if as_table:
            matrix = np.frombuffer(self._packed, np.float64).reshape(len(self._y), self._width)
            table = matrix
            if self._vector < 0:
                table = NamedRows(matrix, list(self.features.names))
        op = np.frombuffer(self._op, np.uint8)
        new = [False] * len(self._y)
        for row in self._new:
            new[row] = True
        levels = (
            [by_row.get(row) for row in range(len(new))] if by_row else None
            for by_row in (self._coarse, self._categories)
        )
        rows = Rows(dicts, table, self._y, op, new, *levels)
        self._was_plain = self._plain
        self._begin()
        return rows

    def capacity(self) -> dict[str, Any]:
        """What there was no room for: by feature, learned events that count as `other` or as missing
        (`dropped`), and how many values were `left_out`.
        """
        return self.features.capacity()

    # ---- snapshots

    def state(self) -> dict[str, Any]:
        """Plain data, a function of the events alone."""
        return {
            "labels": list(self.labels.labels),
            "waiting": [[label, count] for label, count in self.waiting.items()],
            **self.categories.state(),
            **self.features.state(),
        }

    @classmethod
    def from_state(cls, limits: Limits, state: Any) -> Admission:
        """What `state()` described; SnapshotError if it describes nothing."""
        gate = cls(limits)
        try:
            gate.labels.restore(rows(state["labels"], "labels"))
            for values in rows(state["categories"], "categories"):
                for value in rows(values, "categories"):
                    scalar(value, "a category")
            for part in ("names", "kinds"):
                rows(state[part], part)
            gate.features.restore(state)
            gate.categories.take_back(state)
            for label, seen in rows(state["waiting"], "waiting", 2):
                label = plain_label(label)
                if label in gate.waiting or gate.labels.find(label) >= 0:
                    raise ValueError(f"label {label!r:.60} waits twice, or is admitted")
                gate.waiting[label] = count(seen, "waiting")
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise SnapshotError(
                f"what the pipeline had admitted cannot be read, or is over its limits: {error}"
            ) from error
        gate._begin()
        return gate


def _by_name(x: Features) -> Mapping[Any, Any]:
    """Features by name; those of an array have their places."""
    return x if isinstance(x, Mapping) else dict(enumerate(x))


def _check_values(x: Mapping[Any, Any], limits: Limits) -> None:
    """Refuse numbers beyond what can be held."""
    for name, value in x.items():
        if isinstance(value, int | float) and limits.largest < abs(value) < math.inf:
            raise FeatureError(f"feature {name!r} is {shown(value)}, beyond ±{limits.largest:g}")

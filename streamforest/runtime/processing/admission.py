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
import pandas as pd
from numpy.typing import NDArray

from streamforest.errors import FeatureError, InputError, SnapshotError
from streamforest.forests.coarse.taxonomy import Categories
from streamforest.forests.core.features import FeatureTable
from streamforest.forests.core.labels import LabelTable, plain_label
from streamforest.forests.core.parameters import MAX_TEXT_BYTES
from streamforest.jsonable import count, rows, scalar
from streamforest.kernels.core.operations import LEARN, PREDICT
from streamforest.text import shown

log = logging.getLogger(__name__)

Features = Mapping[Any, Any] | Sequence[float]
Prepare = Callable[[Any], Features]


@dataclass(frozen=True)
class Limits:
    """The bounds of a pipeline.

    A label is learned from its `min_class_events`-th event on; earlier ones are predicted only, and
    counted in a tally of at most `max_waiting` labels, the oldest of which is forgotten for a new one.
    """

    max_classes: int = 10_000
    max_features: int = 10_000
    max_categories: int = 1_000
    max_text_bytes: int = MAX_TEXT_BYTES
    nonfinite: str = "error"
    min_class_events: int = 1
    max_waiting: int = 10_000
    max_means: int = 1 << 53
    """Classes times columns, see `Forest.max_means`."""
    on_capacity: str = "degrade"
    """What becomes of features and categories beyond these bounds, see `forests/core/capacity.py`."""
    largest: float = math.inf
    """Beyond ± this a number is refused, be it learned or only predicted."""
    as_they_come: bool = True
    """Whether a forest gets the features themselves. Else each model has steps that make others of them,
    and these tables do not look at what no forest gets."""
    steps: Callable[[Mapping[Any, Any], bool], None] | None = None
    """Refuses an event that the steps of a model cannot take; told whether it is to be learned."""
    taxonomy: tuple[tuple[Any, Any], ...] = ()
    """Classes and their categories, as the pipeline gives them."""
    codec: str = ""
    """By what messages became events, in a few words; whoever decodes them holds to that."""

    def rules(self) -> str:
        """What decides about an event beside the models' own parameters, in a few words."""
        told = (
            f"min_class_events={self.min_class_events} max_waiting={self.max_waiting} "
            f"max_text_bytes={self.max_text_bytes} {self.codec}"
        ).rstrip()
        if self.on_capacity != "error":  # as it was before there was a choice
            told += f" on_capacity={self.on_capacity}"
        if self.taxonomy:
            told += f" taxonomy={list(map(list, self.taxonomy))}"
        return told if self.steps is None else f"{told} steps=own"


@dataclass(frozen=True)
class Rows:
    """Admitted events, ready for `advance`."""

    dicts: list[Mapping[Any, Any]]
    table: Any
    """A frame or an array where all are plain numbers, else the dicts."""
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
        self._begin()

    def _begin(self) -> None:
        self._x: list[Features] = []
        self._y: list[Any] = []
        self._op: list[int] = []
        self._new: list[bool] = []
        self._coarse: list[Any] = []
        self._categories: list[Any] = []
        self._width = len(self.features)
        self._plain = self._width > 0
        self._packed = bytearray()
        self._row = bytearray(8 * self._width)
        names = self.features.names
        # vectors of this length go straight into a row
        self._vector = self._width if names == list(range(self._width)) else -1
        plain = self.features.plain
        self._pack = Struct(f"{self._width}d").pack_into if plain else None

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
            self.categories.add(y, coarse)
        if predict or learn:
            self._coarse.append(coarse)
            self._categories.append(self.categories.of(y) if coarse is None else coarse)
            self._x.append(x)
            self._y.append(y)
            self._op.append((PREDICT if predict else 0) | (LEARN if learn else 0))
            self._new.append(known < 0 and y is not None)
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
        self.categories.add(y, coarse)
        return True

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
            self._packed += self._row
            return x
        self._plain = False
        if prepare is not None:
            x = prepare(x)
        if learn and self.limits.as_they_come:
            self.features.require_room(len(x))
        named = x if isinstance(x, Mapping) else dict(enumerate(x))
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
            if len(x) != self._vector:
                return False
            try:
                total = sum(x)
                if not math.isfinite(total):
                    return False
                self._pack(self._row, 0, *x)
            except (TypeError, ValueError, StructError, ArithmeticError, RuntimeWarning):
                return False
        elif not self.features.pack(x, self._row, 0):  # type: ignore[arg-type]
            return False
        if self.limits.largest < math.inf:
            return bool(np.abs(np.frombuffer(self._row, np.float64)).max() <= self.limits.largest)
        return True

    def __len__(self) -> int:
        return len(self._y)

    def take(self) -> Rows:
        """The events admitted since the last call, in order."""
        dicts: list[Any] = (
            [x if isinstance(x, Mapping) else dict(enumerate(x)) for x in self._x]
            if (not self._plain or self.limits.steps is not None)
            else []
        )
        table: Any = dicts
        if self._plain:
            matrix = np.frombuffer(self._packed, np.float64).reshape(len(self._y), self._width)
            table = matrix
            if self._vector < 0:
                names = pd.Index(self.features.names, tupleize_cols=False)
                table = pd.DataFrame(matrix, columns=names, copy=False)
        op = np.array(self._op, np.uint8)
        levels = (
            None if all(one is None for one in several) else several
            for several in (self._coarse, self._categories)
        )
        rows = Rows(dicts, table, self._y, op, self._new, *levels)
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


def _check_values(x: Mapping[Any, Any], limits: Limits) -> None:
    """Refuse numbers beyond what can be held."""
    for name, value in x.items():
        if isinstance(value, int | float) and limits.largest < abs(value) < math.inf:
            raise FeatureError(f"feature {name!r} is {shown(value)}, beyond ±{limits.largest:g}")

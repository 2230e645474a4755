"""Models as the loop sees them: a forest, or a River pipeline that ends in one, and what they answer.

River predicts with what its scaler knew before an event and learns with what it knows after. For the
forest that is two rows: the event as scaled before is predicted, the event as scaled after is learned.
Whole batches go through the forest this way, and the bits are those of `predict_proba_one` and
`learn_one` in turn.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
from river import compose

from streamforest import LEARN, PREDICT
from streamforest.errors import CapacityError, InputError
from streamforest.forests.core.base import Forest
from streamforest.forests.core.batch import Answers, joined
from streamforest.forests.core.serialization import RUNTIME_SETTINGS
from streamforest.forests.persistence import transformers
from streamforest.runtime.processing.admission import Rows
from streamforest.runtime.processing.river_steps import StepFailure, process
from streamforest.text import shown

_NUMBERS = (int, float, np.number)

log = logging.getLogger(__name__)

RUN_TIME = RUNTIME_SETTINGS
"""Parameters that change how fast a model runs, never what it says: free to change any time."""

_NOTICE_AFTER = 5.0  # seconds; loading compiled kernels is quicker than this
_MAX_NAMES = 8  # features that a message lists


class Model(Protocol):
    """What the loop needs of a model."""

    forest: Any
    """The forest itself, also where it is the last step of a pipeline."""
    estimator: Any
    """What a snapshot holds of the model."""

    @property
    def classes_(self) -> list[Any]:
        """Classes in the order first seen."""

    @property
    def categories_(self) -> list[Any]:
        """Categories in the order first seen."""

    @property
    def n_learned(self) -> int:
        """Events learned so far."""

    def refine(self, row: int, y: Any) -> bool:
        """Learn the class of a row that was learned with a coarse label; whether that was possible."""

    def numbers(self, rows: Rows, before: int) -> list[int]:
        """The number of each row of the last batch, before which the model had learned `before`."""

    def advance(self, rows: Rows) -> Answers:
        """Predict, then learn, row by row; the answers are those before learning."""

    def clone(self) -> Model:
        """A new model with the same parameters that has learned nothing."""

    def warm_up(self) -> None:
        """Compile what the model will call, before the first event."""

    def features_of(self, x: dict[Any, Any]) -> dict[Any, Any]:
        """An event as the forest sees it; nothing is learned."""

    def summary(self) -> dict[str, Any]:
        """Size and shape."""

    def parameters(self) -> dict[str, Any]:
        """The class of the model and all its parameters but the run-time ones, by name."""

    def take_run_time(self, configured: Model) -> None:
        """Have the run-time parameters of a configured model, after a snapshot was read."""


class ForestModel:
    """A forest of this package as a model of the loop."""

    def __init__(self, forest: Any) -> None:
        self.forest = forest
        forest.quiet = True  # admission has the same tables, and tells what they have no room for
        self.estimator = forest

    @property
    def classes_(self) -> list[Any]:
        """Classes in the order first seen."""
        return self.forest.classes_  # type: ignore[no-any-return]

    @property
    def categories_(self) -> list[Any]:
        """Categories in the order first seen."""
        return self.forest.categories_  # type: ignore[no-any-return]

    def refine(self, row: int, y: Any) -> bool:
        """Learn the class of a row that was learned with a coarse label; whether that was possible."""
        return self.forest.refine_one(row, y)  # type: ignore[no-any-return]

    def numbers(self, rows: Rows, before: int) -> list[int]:
        """The number of each row of the last batch, before which the model had learned `before`."""
        return rows.learned_before(before)

    @property
    def n_learned(self) -> int:
        """Events learned so far."""
        return self.forest.n_learned  # type: ignore[no-any-return]

    def advance(self, rows: Rows) -> Answers:
        """Predict, then learn, row by row."""
        told = self.forest.answers(rows.table, rows.y, rows.op, coarse=rows.coarse)
        return told  # type: ignore[no-any-return]

    def clone(self) -> ForestModel:
        """A new one that has learned nothing."""
        return type(self)(self.estimator.clone())

    def warm_up(self) -> None:
        """Compile what the forest will call, before the first event."""
        self.forest.warm_up()

    def features_of(self, x: dict[Any, Any]) -> dict[Any, Any]:
        """An event as the forest sees it; nothing is learned."""
        return x

    def summary(self) -> dict[str, Any]:
        """Size and shape of the forest."""
        return self.forest.summary()  # type: ignore[no-any-return]

    def parameters(self) -> dict[str, Any]:
        """The class of the forest and all its parameters but the run-time ones, by name."""
        given = {k: v for k, v in self.forest._get_params().items() if k not in RUN_TIME}
        return {"kind": type(self.forest).__name__, **given}

    def take_run_time(self, configured: Model) -> None:
        """Have the run-time parameters of a configured model, after a snapshot was read."""
        for name in RUN_TIME:
            if name in configured.forest._get_params():  # not every forest works in the background
                setattr(self.forest, name, getattr(configured.forest, name))


class RiverModel(ForestModel):
    """`transformer | … | forest`, advanced a batch at a time."""

    def __init__(self, pipeline: compose.Pipeline) -> None:
        *steps, (_, forest) = pipeline.steps.items()
        if not issubclass(type(forest), Forest):  # isinstance() would let a pipeline pass
            raise TypeError("the pipeline must end in one of this package's forests")
        super().__init__(forest)
        forest.quiet = False  # admission does not see what the steps make of an event
        self.estimator = pipeline
        self.steps = [step for _, step in steps]
        self._unlearned: list[int] = []  # rows of the last batch that there was no room for
        self.without_features = 0
        """Rows that a step, or the forest after it, could not take, since the process started."""

    def advance(self, rows: Rows) -> Answers:
        """Predict, then learn, row by row.

        An event on which a step fails (all zeros to a `Normalizer`), or whose features the forest refuses
        after the steps, is one without features: counted, and logged once.
        """
        features, labels, kinds, wanted = self._rows(rows.dicts, rows.y, rows.op)
        coarse = None
        if rows.coarse is not None:
            coarse = [None] * len(features)
            ends = [*wanted[1:], len(features)]
            for name, kind, end in zip(rows.coarse, rows.op.tolist(), ends):
                if kind & LEARN:
                    coarse[end - 1] = name
        self._unlearned = []
        try:
            said = self.forest.answers(features, labels, kinds, coarse=coarse)
        except InputError:  # of one row: each by itself, which gives the same bits
            said = self._one_by_one(features, labels, kinds, coarse or [None] * len(features))
            self._unlearned = [
                int(np.searchsorted(wanted, r, "right")) - 1 for r in self._unlearned
            ]
        parts: list[Any] = [None if part is None else part[wanted] for part in said]
        return Answers(*parts)

    def numbers(self, rows: Rows, before: int) -> list[int]:
        """As in a forest, but for rows that could not be learned at all, which have none (-1)."""
        numbers = super().numbers(rows, before)
        for row in self._unlearned:
            numbers[row + 1 :] = [number - 1 for number in numbers[row + 1 :]]
        return [-1 if row in self._unlearned else n for row, n in enumerate(numbers)]

    def features_of(self, x: dict[Any, Any]) -> dict[Any, Any]:
        """An event as the steps before the forest make it; nothing is learned."""
        return self._through(x, learn=False)

    def summary(self) -> dict[str, Any]:
        """Size and shape of the forest, and how many rows had to do without features."""
        return {**super().summary(), "rows_without_features": self.without_features}

    def parameters(self) -> dict[str, Any]:
        """Those of the forest, and those of each step by its name."""
        *steps, _ = self.estimator.steps.items()
        return super().parameters() | {name: transformers.described(step) for name, step in steps}

    def _one_by_one(
        self,
        features: list[dict[Any, Any]],
        labels: list[Any],
        kinds: list[int],
        coarse: list[Any],
    ) -> Answers:
        told = []
        for r, (x, label, kind, name) in enumerate(zip(features, labels, kinds, coarse)):
            upper = None if name is None else [name]
            try:
                told.append(self.forest.answers([x], [label], [kind], coarse=upper))
            except InputError as error:
                self._give_up(str(error).removeprefix("row 0: "))
                try:
                    told.append(self.forest.answers([{}], [label], [kind], coarse=upper))
                except CapacityError:  # a class that there is no room for is not learned either
                    told.append(self.forest.answers([{}], [None], [PREDICT]))
                    self._unlearned.append(r)
        return joined(told) if told else Answers(np.zeros((0, len(self.classes_))))

    def _give_up(self, why: str) -> None:
        if self.without_features == 0:
            log.warning("an event is predicted and learned without its features: %s", why)
        self.without_features += 1

    def _rows(
        self, X: Any, y: Any, op: Any
    ) -> tuple[list[dict[Any, Any]], list[Any], list[int], list[int]]:
        """Rows for the forest, their labels, what is done with each, and which of them answer."""
        rows: list[dict[Any, Any]] = []
        labels: list[Any] = []
        kinds: list[int] = []
        wanted: list[int] = []
        for event, label, kind in zip(X, y, op.tolist()):
            x = dict(event)
            wanted.append(len(rows))
            if kind & PREDICT:
                rows.append(self._through(x, learn=False))
                labels.append(None)
                kinds.append(PREDICT)
            if kind & LEARN:
                rows.append(self._through(x, learn=True))
                labels.append(label)
                kinds.append(LEARN)
        return rows, labels, kinds, wanted

    def _through(self, x: dict[Any, Any], learn: bool) -> dict[Any, Any]:
        try:
            for step in self.steps:
                x = process(step, x, learn)
        except StepFailure as failure:
            self._give_up(str(failure))
            return {}
        # what a scaler has not met it gives as NaN, which may be predicted, not learned; and what it
        # blows up beyond what the forest holds is missing
        most = self.forest.largest
        return {
            name: value
            for name, value in x.items()
            if not isinstance(value, _NUMBERS)
            or abs(value) <= most
            or (value != value and not learn)
        }


def unknown_features(model: Model, events: Iterable[Any]) -> tuple[str, str] | None:
    """The names that the first of some events has, and names that the forest knows, if no event has any of
    those: an answer would mean nothing. None for a model that knows none yet, and behind other steps.
    """
    table = model.forest._features
    if isinstance(model, RiverModel) or not table.names:
        return None
    first: list[Any] | None = None
    for x in events:
        names = x if isinstance(x, Mapping) else range(len(x))
        if table.knows_any(names):
            return None
        first = first if first is not None else list(names)
    if first is None:
        return None
    have, want = (", ".join(map(shown, some[:_MAX_NAMES])) for some in (first, table.names))
    return have or "none", want


def warm_up(models: Iterable[Model]) -> None:
    """Load the kernels of all models; where they have to be compiled first, the log says so."""
    notice = threading.Timer(
        _NOTICE_AFTER, log.info, ["compiling the kernels for this machine (first start only)"]
    )
    notice.daemon = True
    notice.start()
    try:
        for model in models:
            model.warm_up()
    finally:
        notice.cancel()


def wrap_model(model: Any) -> Model:
    """A forest or a River pipeline as a model of the loop."""
    if issubclass(type(model), compose.Pipeline):
        return RiverModel(model)
    if issubclass(type(model), Forest):
        return ForestModel(model)
    raise TypeError(
        f"a {type(model).__name__} is no model: give a forest of this package, or a River pipeline "
        "that ends in one"
    )

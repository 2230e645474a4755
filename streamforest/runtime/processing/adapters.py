"""Models as the loop sees them: a forest, or a River pipeline that ends in one, and what they answer.

River predicts with what its scaler knew before an event and learns with what it knows after. For the
forest that is two rows: the event as scaled before is predicted, the event as scaled after is learned.
Whole batches go through the forest this way, and the bits are those of `predict_proba_one` and
`learn_one` in turn.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from river import compose

from streamforest import LEARN, PREDICT
from streamforest.errors import CapacityError, InputError
from streamforest.forests.core.base import Forest
from streamforest.forests.core.batch import Answers, joined
from streamforest.io.codec.dead_letters import passed_on
from streamforest.io.codec.events import MAX_PREDICTION, Prediction, encode_prediction
from streamforest.io.log import OutputRecord, Partition
from streamforest.runtime.processing.admission import Rows
from streamforest.runtime.processing.river_steps import StepFailure, process

log = logging.getLogger(__name__)
_NUMBERS = (int, float, np.number)

log = logging.getLogger(__name__)

_NOTICE_AFTER = 5.0  # seconds; loading compiled kernels is quicker than this
_SAMPLED = 128  # rows predicted on their own, once a second, to know what predicting takes


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
        return joined(told)

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


# ---- from posteriors to what a prediction says

Likely = list[tuple[Any, float]]
"""Classes with their probabilities, the likeliest first."""


def answers(posteriors: NDArray[np.float64], classes: list[Any]) -> list[Any]:
    """Most probable class of each row; None where no class was known.

    >>> answers(np.array([[0.0, 0.0], [0.25, 0.75]]), ["cat", "dog"])
    [None, 'dog']
    """
    if not classes:
        return [None] * len(posteriors)
    top = posteriors.argmax(axis=1)  # ties: the class seen first
    labels = [classes[k] for k in top.tolist()]
    unknown = posteriors[np.arange(len(top)), top] <= 0
    for i in np.flatnonzero(unknown).tolist():
        labels[i] = None
    return labels


def top_classes(posteriors: NDArray[np.float64], classes: list[Any], most: int) -> list[Likely]:
    """The `most` likeliest classes of each row with their probabilities, those of 0 left out.

    >>> top_classes(np.array([[0.2, 0.8, 0.0]]), ["a", "b", "c"], 3)
    [[('b', 0.8), ('a', 0.2)]]
    """
    if not classes:
        return [[] for _ in posteriors]
    order = np.argsort(-posteriors, axis=1, kind="stable")[:, :most]
    values = np.take_along_axis(posteriors, order, axis=1)
    named = classes.__getitem__
    ranked = [
        list(zip(map(named, row), probabilities))
        for row, probabilities in zip(order.tolist(), values.tolist())
    ]
    there = (values > 0).sum(axis=1)
    for i in np.flatnonzero(there < order.shape[1]).tolist():
        del ranked[i][there[i] :]
    return ranked


def plain_novelty(values: NDArray[np.float64] | None, rows: int) -> list[float | None]:
    """Novelty as predictions carry it: no number where there is none, and six digits.

    >>> plain_novelty(np.array([1.23456789, np.inf]), 2), plain_novelty(None, 1)
    ([1.23457, None], [None])
    """
    if values is None:
        return [None] * rows
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in values.tolist()]


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


def predictions(
    taken: list[tuple[Partition, Any, Any, int]], columns: list[list[Any]], commit: int | None
) -> list[OutputRecord]:
    """The answers to a batch as messages, which wait for the commit that makes them true.

    `taken` has the partition, record, id and number of each event; `columns` their labels, likely classes,
    true labels, whether those are new, events learned before, novelty, and what was said of categories.
    """
    messages: list[OutputRecord] = []
    rows = zip(taken, *columns, strict=True)
    for (at, record, identity, number), label, likely, truth, new, before, far, level in rows:
        topic, partition = at
        prediction = Prediction(
            number,
            label,
            likely[0][1] if likely else 0.0,
            truth,
            likely,
            topic,
            partition,
            record.offset,
            before,
            new,
            identity,
            commit,
            far,
        )
        if level is not None:
            name, share, prediction.coarse_truth, prediction.novel_in = level
            prediction.coarse, prediction.coarse_probability = name, share
        value = encode_prediction(prediction)
        if len(value) > MAX_PREDICTION:
            prediction.top = likely[:1]
            value = encode_prediction(prediction)
        headers = passed_on(record.headers) if record.headers else []
        messages.append(OutputRecord(value, record.key, headers, partition))
    return messages


def predict_seconds(model: Model, rows: Rows) -> float:
    """What it takes to predict one of these rows and learn nothing; the model stays as it is."""
    few = rows.head(_SAMPLED)
    begun = time.perf_counter()
    model.advance(few)
    return (time.perf_counter() - begun) / len(few)

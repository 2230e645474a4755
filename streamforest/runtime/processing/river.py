"""A River pipeline that ends in one of our forests, as a model of the loop.

River predicts with what its scaler knew before an event and learns with what it knows after. For the
forest that is two rows: the event as scaled before is predicted, the event as scaled after is learned.
Whole batches go through the forest this way, and the bits are those of `predict_proba_one` and
`learn_one` in turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from river import compose

from streamforest import BOTH, LEARN, PREDICT
from streamforest.forests.core.base import Forest


class RiverModel:
    """`transformer | … | forest`, advanced a batch at a time."""

    def __init__(self, pipeline: compose.Pipeline) -> None:
        *steps, (_, forest) = pipeline.steps.items()
        if not issubclass(type(forest), Forest):  # isinstance() would let a pipeline pass
            raise TypeError("the pipeline must end in one of this package's forests")
        self.pipeline = pipeline
        self.forest: Any = forest
        self._steps = [step for _, step in steps]

    @property
    def classes_(self) -> list[Any]:
        """Classes in the order first seen."""
        return self.forest.classes_  # type: ignore[no-any-return]

    @property
    def n_learned(self) -> int:
        """Events learned so far."""
        return self.forest.n_learned  # type: ignore[no-any-return]

    def clone(self) -> RiverModel:
        """A new one that has learned nothing."""
        return RiverModel(self.pipeline.clone())

    def warm_up(self) -> None:
        """Compile what the forest will call, before the first event."""
        self.forest.warm_up()

    def summary(self) -> dict[str, Any]:
        """Size and shape of the forest at the end."""
        return self.forest.summary()  # type: ignore[no-any-return]

    def advance(self, X: Any, y: Any, op: Any = None) -> NDArray[np.float64]:
        """Predict, then learn, row by row. `X` is a list of dicts.

        An event on which a step fails (all zeros to a `Normalizer`) is one without features.
        """
        rows, labels, kinds, wanted = self._rows(X, y, op)
        answers: NDArray[np.float64] = self.forest.advance(rows, labels, kinds)
        return answers[wanted]

    def advance_with_novelty(
        self, X: Any, y: Any, op: Any = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """The same, and how new each event was to a forest that can tell."""
        if not hasattr(self.forest, "advance_with_novelty"):
            return self.advance(X, y, op), None
        rows, labels, kinds, wanted = self._rows(X, y, op)
        answers, novelty = self.forest.advance_with_novelty(rows, labels, kinds)
        return answers[wanted], novelty[wanted]

    def _rows(
        self, X: Any, y: Any, op: Any
    ) -> tuple[list[dict[Any, Any]], list[Any], list[int], list[int]]:
        """Rows for the forest, their labels, what is done with each, and which of them answer."""
        ops = [BOTH if label is not None else PREDICT for label in y] if op is None else list(op)
        rows: list[dict[Any, Any]] = []
        labels: list[Any] = []
        kinds: list[int] = []
        wanted: list[int] = []
        for event, label, kind in zip(X, y, ops):
            x = {name: value for name, value in event.items() if value is not None}
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
            for step in self._steps:
                if learn:
                    step.learn_one(x)
                x = step.transform_one(x)
        except (ArithmeticError, ValueError, TypeError):
            return {}
        # what a scaler has not met it gives as NaN, which may be predicted, not learned; and what it
        # blows up beyond what the forest holds is missing
        most = self.forest.largest
        return {
            name: value
            for name, value in x.items()
            if abs(value) <= most or (value != value and not learn)
        }

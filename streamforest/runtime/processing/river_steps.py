"""The steps of a River pipeline before its forest: what they take, and what they make of an event.

River raises where a step cannot take a value: a string in a scaler, an event without the text that a bag of
words is made of. In a stream that is one event's affair: it is refused before it enters a batch. Whether a
step takes an event is asked of a new copy that has learned nothing: the answer depends on the event alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from river import compose

from streamforest.errors import FeatureError
from streamforest.forests.core.values import as_float, is_missing
from streamforest.text import shown

_FAILURES = (ArithmeticError, ValueError, TypeError, LookupError, AttributeError)
_NUMBERS_ARE_FINE = {
    "StandardScaler",
    "MinMaxScaler",
    "MaxAbsScaler",
    "Normalizer",
    "Discard",
    "SelectType",
    "OneHotEncoder",
    "FeatureHasher",
}


class StepFailure(Exception):
    """A step raised; the message says which and why."""

    def __init__(self, step: Any, x: Any, error: Exception) -> None:
        super().__init__(f"{type(step).__name__} cannot take this event: {_why(x, error)}")
        self.of_types = isinstance(error, (TypeError, LookupError, AttributeError))
        """Whether the event's names and types are to blame, and not its numbers."""


def _why(x: Any, error: Exception) -> str:
    if isinstance(error, LookupError):
        return f"it lacks the feature {shown(error.args[0] if error.args else '')}"
    for name, value in x.items() if isinstance(x, Mapping) else ():
        if isinstance(value, str):
            return (
                f"feature {shown(name)} is the string {shown(value)}; leave it out before this step with "
                "compose.Discard or compose.Select, or encode it"
            )
    return f"{type(error).__name__}: {error}"[:200]


def has_value(value: Any) -> bool:
    """Whether a feature has a value that a step may see: neither missing, nor NaN or infinite."""
    return not (is_missing(value) or (isinstance(value, float) and not math.isfinite(value)))


def process(step: Any, x: dict[Any, Any], learn: bool) -> dict[Any, Any]:
    """What a step makes of an event, which it learns first if it is to; StepFailure if it cannot take it.

    As River does it, but that a missing value (None) passes through what only selects and is left out
    before all else: a scaler takes an event with gaps.
    """
    if isinstance(step, compose.Pipeline):
        for inner in step.steps.values():
            x = process(inner, x, learn)
        return x
    if isinstance(step, compose.TransformerUnion):
        out: dict[Any, Any] = {}
        for inner in reversed(step.transformers.values()):
            out.update(process(inner, x, learn))
        return out
    if not isinstance(step, (compose.Select, compose.Discard)):
        x = {name: value for name, value in x.items() if has_value(value)}
    try:
        if learn:
            step.learn_one(x)
        return step.transform_one(x)  # type: ignore[no-any-return]
    except _FAILURES as error:
        raise StepFailure(step, x, error) from error


class StepCheck:
    """Refuses events that the steps of River pipelines cannot take.

    >>> from river import preprocessing
    >>> check = StepCheck([[preprocessing.StandardScaler()]], "error")
    >>> check({"a": 1.0, "b": None}, True)
    >>> check({"a": "red"}, True)
    Traceback (most recent call last):
    ...
    streamforest.errors.FeatureError: StandardScaler cannot take this event: feature 'a' is the string ...
    """

    def __init__(self, pipelines: Sequence[Sequence[Any]], nonfinite: str) -> None:
        self._pipelines = [list(steps) for steps in pipelines]
        self._nonfinite = nonfinite
        self._numbers_are_fine = all(
            type(step).__name__ in _NUMBERS_ARE_FINE for steps in pipelines for step in steps
        )

    def __call__(self, x: Mapping[Any, Any], learn: bool) -> None:
        """FeatureError if a step cannot take the event, or gives what no forest can."""
        numbers = True
        for name, value in x.items():
            if isinstance(value, float):
                if learn and self._nonfinite == "error" and not math.isfinite(value):
                    raise FeatureError(
                        f"feature {name!r} is {value}: send None or leave it out if it is missing, or set "
                        'nonfinite="missing" in the forest'
                    )
            elif not isinstance(value, int) and value is not None:
                numbers = False
        if numbers and self._numbers_are_fine:
            return
        for steps in self._pipelines:
            _ask(steps, dict(x))


def _ask(steps: Sequence[Any], x: dict[Any, Any]) -> None:
    try:
        for step in steps:
            x = process(step.clone(), x, learn=True)
    except StepFailure as failure:
        if failure.of_types:
            raise FeatureError(str(failure)) from None
        return  # numbers that it cannot take (all zeros to a Normalizer): an event without features
    for name, value in x.items():
        if not (isinstance(value, str) or is_missing(value)):
            try:
                as_float(value)
            except (TypeError, ValueError, ArithmeticError):
                raise FeatureError(
                    f"feature {shown(name)} is {shown(value)} ({type(value).__name__}) after the pipeline's "
                    "steps: a forest takes numbers and strings"
                ) from None

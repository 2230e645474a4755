"""Models by name and parameters, as a pipeline file gives them.

The estimator itself is the judge of its parameters: it is built, and what it refuses is reported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

KINDS = {
    "consistent": "ConsistentForestClassifier",
    "online": "OnlineForestClassifier",
    "stream": "StreamForestClassifier",
}
"""Name in `[model] kind` -> name of the class in `streamforest`."""

RUN_TIME = ("n_jobs",)
"""Parameters that change how fast a model runs, never what it says: free to change any time."""


class Model(Protocol):
    """What the loop needs of a model."""

    @property
    def classes_(self) -> list[Any]:
        """Classes in the order first seen."""

    def advance(self, X: Any, y: Any, op: Any = None) -> NDArray[np.float64]:
        """Predict, then learn, row by row; returns the posteriors taken before learning."""

    def warm_up(self) -> None:
        """Compile what the model will call, before the first event."""


@dataclass(frozen=True)
class Problem:
    """A parameter that was refused, and why; `valid` lists the names where it is no parameter."""

    parameter: str
    message: str
    valid: list[str] = field(default_factory=list)


def build(kind: str, parameters: Mapping[str, Any]) -> tuple[Model | None, list[Problem]]:
    """A new model, or all that is wrong with its parameters.

    A forest without a seed would begin differently each time; a pipeline's seed is 0 unless given,
    so that the same file gives the same run.
    """
    maker = getattr(import_module("streamforest"), KINDS[kind])
    valid = list(inspect.signature(maker).parameters)
    problems = [Problem(name, "unknown", valid) for name in parameters if name not in valid]
    known = {name: value for name, value in parameters.items() if name in valid}
    model, refused = _refusals(maker, {"seed": 0, **known})
    return (None if problems else model), problems + refused


def _refusals(
    maker: Callable[..., Model], parameters: dict[str, Any]
) -> tuple[Model | None, list[Problem]]:
    """Build with the parameters; leave out whatever is refused, one by one, until it works.

    An estimator stops at the first wrong parameter, a person wants to hear of all of them. The one
    to leave out is the one without which the message changes.

    >>> def forest(trees=1, depth=1):
    ...     for name, value in (("trees", trees), ("depth", depth)):
    ...         if value < 1:
    ...             raise ValueError(f"{name}={value}: at least 1")
    >>> [p.parameter for p in _refusals(forest, {"trees": 0, "depth": -1})[1]]
    ['trees', 'depth']
    """
    problems: list[Problem] = []
    model, message = _attempt(maker, parameters)
    while message is not None:
        for name in parameters:
            rest = {k: v for k, v in parameters.items() if k != name}
            _, next_message = _attempt(maker, rest)
            if next_message != message:
                reason = message.removeprefix(f"{name}={parameters[name]!r}: ")
                problems.append(Problem(name, reason))
                parameters, message = rest, next_message
                break
        else:
            return None, [*problems, Problem("", message)]
    return (None if problems else model), problems


def _attempt(
    maker: Callable[..., Model], parameters: Mapping[str, Any]
) -> tuple[Model | None, str | None]:
    try:
        return maker(**parameters), None
    except (TypeError, ValueError) as error:  # InputError is a ValueError
        return None, str(error)


def parameters_of(model: Any) -> dict[str, Any]:
    """The class of a model and all its parameters but the run-time ones, by name."""
    parameters = {k: v for k, v in model._get_params().items() if k not in RUN_TIME}
    return {"kind": type(model).__name__, **parameters}


def take_run_time(model: Any, configured: Any) -> None:
    """Give a model read from a snapshot the run-time parameters of a configured one."""
    for name in RUN_TIME:
        setattr(model, name, getattr(configured, name))

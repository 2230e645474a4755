"""Models by name and parameters, as a pipeline file gives them.

The estimator itself is the judge of its parameters: it is built, and what it refuses is reported.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamforest.errors import ConfigError, SnapshotError
from streamforest.forests.coarse.taxonomy import read_pairs
from streamforest.forests.core import registry
from streamforest.forests.core.base import Forest
from streamforest.forests.persistence import snapshot
from streamforest.runtime.config.imports import failure, find_function
from streamforest.runtime.processing.adapters import Model, RiverModel, wrap_model
from streamforest.runtime.processing.limits import Limits
from streamforest.runtime.processing.river_steps import StepCheck
from streamforest.text import shown

SCALED_LARGEST = 1e100
"""Largest number let through to a River pipeline: a scaler squares and sums what it gets."""


@dataclass(frozen=True)
class Problem:
    """A parameter that was refused, and why; `valid` lists the names where it is no parameter."""

    parameter: str
    message: str
    valid: list[str] = field(default_factory=list)


def kinds_with(parameter: str) -> list[str]:
    """The kinds that have a parameter of this name.

    >>> kinds_with("lam"), kinds_with("nonsense")
    (['consistent'], [])
    """
    return [
        forest.kind
        for forest in registry.entries()
        if parameter in inspect.signature(forest.load()).parameters
    ]


def kind_meant(name: str) -> str:
    """A kind as someone may write it who knows the class.

    >>> kind_meant("StreamForestClassifier"), kind_meant("NCM")
    ('stream', 'ncm')
    """
    return name.lower().removesuffix("classifier").removesuffix("forest").rstrip("_- ")


def build(kind: str, parameters: Mapping[str, Any]) -> tuple[Model | None, list[Problem]]:
    """A new model, or all that is wrong with its parameters.

    A forest without a seed would begin differently each time; a pipeline's seed is 0 unless given,
    so that the same file gives the same run.
    """
    maker = registry.get(kind).load()
    valid = list(inspect.signature(maker).parameters)
    problems = [Problem(name, "unknown", valid) for name in parameters if name not in valid]
    known = {name: value for name, value in parameters.items() if name in valid}
    forest, refused = _refusals(maker, {"seed": 0, **known})
    model = None if problems or forest is None else wrap_model(forest)
    return model, problems + refused


def _refusals(maker: Callable[..., Any], parameters: dict[str, Any]) -> tuple[Any, list[Problem]]:
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


def _attempt(maker: Callable[..., Any], parameters: Mapping[str, Any]) -> tuple[Any, str | None]:
    try:
        return maker(**parameters), None
    except (TypeError, ValueError, OverflowError) as error:  # InputError is a ValueError
        return None, str(error).replace("True or False", "true or false")  # as TOML has it
    except MemoryError:
        return None, "a forest of this size does not fit into memory; use a smaller one"


def from_factory(spec: str, beside: Path) -> Model:
    """The model that `module:function` makes; ConfigError says what is wrong with it.

    It must give a forest of this package, or a River pipeline that ends in one and whose steps have a
    snapshot: what cannot be saved is refused before anything runs.
    """
    factory = find_function("factory", spec, beside)
    try:
        made = factory()
    except (Exception, SystemExit) as error:  # whatever a stranger's function raises
        raise ConfigError(f"factory = {spec!r}: {failure(error)}") from error
    try:
        model = wrap_model(made)
        snapshot.encode({"main": made})
    except (TypeError, SnapshotError) as error:
        raise ConfigError(f"factory = {spec!r}: {error}") from error
    return model


def _all_pairs(forests: Sequence[Forest]) -> tuple[tuple[Any, Any], ...]:
    """The taxonomies of all models together; ConfigError if two of them contradict each other."""
    together: dict[Any, Any] = {}
    for forest in forests:
        for y, coarse in read_pairs(forest.taxonomy):
            if together.setdefault(y, coarse) != coarse:
                raise ConfigError(
                    f"taxonomy: class {shown(y)} is of category {shown(together[y])} in one model and of "
                    f"{shown(coarse)} in another; give all models the same, in [taxonomy]"
                )
    return tuple(together.items())


def limits_of(
    models: Sequence[Model],
    min_class_events: int,
    max_waiting: int,
    codec: str,
    max_text_bytes: int | None = None,
    on_capacity: str = "degrade",
) -> Limits:
    """Bounds within which no model refuses an event: the tightest of all of them.

    Of a River pipeline only what its own steps require counts for features: what they make of them is its
    forest's affair.
    """
    forests = [model.forest for model in models]
    texts = [forest.max_text_bytes for forest in forests]
    stepped = [model for model in models if isinstance(model, RiverModel)]
    alone = [model.forest for model in models if not isinstance(model, RiverModel)]
    strict = on_capacity == "error" or any(f.on_capacity == "error" for f in forests)
    nonfinite = "error" if any(f.nonfinite == "error" for f in forests) else "missing"
    return Limits(
        max_classes=min(forest.max_classes for forest in forests),
        max_features=min(forest.max_features for forest in forests),
        max_categories=min(forest.max_categories for forest in forests),
        max_text_bytes=min(texts if max_text_bytes is None else [*texts, max_text_bytes]),
        nonfinite=nonfinite,
        max_means=min(forest.max_means for forest in forests),
        min_class_events=min_class_events,
        max_waiting=max_waiting,
        codec=codec,
        on_capacity="error" if strict else "degrade",
        largest=min([SCALED_LARGEST if stepped else math.inf, *(f.largest for f in alone)]),
        as_they_come=bool(alone),
        taxonomy=_all_pairs(forests),
        steps=StepCheck([model.steps for model in stepped], nonfinite) if stepped else None,
    )

"""The limits of a pipeline: what decides about an event beside the models' own parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamforest.forests.core.parameters import MAX_TEXT_BYTES


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

    rules: str = field(init=False)
    """All that decides about an event beside the models' own parameters, as text for the journal."""

    def __post_init__(self) -> None:
        told = (
            f"min_class_events={self.min_class_events} max_waiting={self.max_waiting} "
            f"max_text_bytes={self.max_text_bytes} {self.codec}"
        ).rstrip()
        if self.on_capacity != "error":  # as it was before there was a choice
            told += f" on_capacity={self.on_capacity}"
        if self.taxonomy:
            told += f" taxonomy={list(map(list, self.taxonomy))}"
        if self.steps is not None:
            told += " steps=own"
        object.__setattr__(self, "rules", told)

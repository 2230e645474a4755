"""A recorded file whose classes appear one after the other, as in a scheduled data set."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from streamforest.datasets import Label
from streamforest.datasets.schedule import schedule_rows
from streamforest.errors import ConfigError, EventError
from streamforest.io.codec.events import BOUNDS, Bounds, fields_decoder
from streamforest.io.features.layout import label_of
from streamforest.io.features.rules import FeatureRules
from streamforest.io.sources.dataset import ClassSchedule, RecordedRow, Source
from streamforest.io.sources.tables import DEFAULT_RULES
from streamforest.text import shown


class ScheduledFile:
    """The events of a file in the order of a class schedule. All of them are held in memory.

    Events without a label, and invalid ones, keep their position in the file.
    """

    def __init__(
        self,
        source: Source,
        classes: ClassSchedule,
        rules: FeatureRules = DEFAULT_RULES,
        bounds: Bounds = BOUNDS,
    ) -> None:
        self._source, self._classes = source, classes
        self.topic, self.total = source.topic, source.total
        rows = list(source.rows(0))
        labels = _labels(rows, rules, bounds)
        known = list(dict.fromkeys(label for label in labels if label is not None))
        codes = {label: code for code, label in enumerate(known)}
        labelled = [i for i, label in enumerate(labels) if label is not None]
        order = schedule_rows(
            np.array([codes[labels[i]] for i in labelled], np.int64),
            _coded(classes, codes),
            classes.first,
            classes.every,
            classes.seed,
        )
        moved = iter(rows[labelled[i]] for i in order.tolist())
        self._rows = [
            row if label is None else next(moved) for row, label in zip(rows, labels, strict=True)
        ]

    def describe(self) -> dict[str, Any]:
        """The file's own description and the schedule."""
        return {**self._source.describe(), **self._classes.described()}

    def rows(self, start: int) -> Iterator[RecordedRow]:
        """The events from number `start` on."""
        for number in range(start, self.total):
            yield self._rows[number].at(number)


def _labels(rows: list[RecordedRow], rules: FeatureRules, bounds: Bounds) -> list[Label | None]:
    decode = fields_decoder(bounds=bounds)
    labels: list[Label | None] = []
    for row in rows:
        try:
            if row.event is not None:
                labels.append(row.event.y)
            elif row.problem is not None:
                labels.append(None)
            else:
                fields = row.record if row.record is not None else decode(row.value)
                labels.append(label_of(fields, rules, bounds).y)
        except EventError:
            labels.append(None)
    return labels


def _coded(classes: ClassSchedule, codes: dict[Label, int]) -> str | list[int]:
    """The order of a schedule, with the code of each label in place of the label."""
    if isinstance(classes.order, str):
        return classes.order
    unknown = [label for label in classes.order if label not in codes]
    if unknown:
        known = shown(list(islice(codes, 200)), 1_000)
        raise ConfigError(f"order lists {shown(unknown)}, labels the file does not have: {known}")
    return [codes[label] for label in classes.order]

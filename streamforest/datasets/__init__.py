"""Recorded and generated streams, and schedules by which classes appear over time.

>>> from streamforest import datasets
>>> stream = datasets.load("digits")
>>> stream.X.shape, stream.y[:5].tolist()
((5391, 64), [6, 6, 6, 2, 5])
"""

from __future__ import annotations

from streamforest.datasets.generated import digits, gaussians, gaussians_bayes_rate
from streamforest.datasets.recorded import DATA_VARIABLE, data_folder, recorded
from streamforest.datasets.registry import (
    StreamSpec,
    get_spec,
    load,
    names,
    register,
    unavailable,
)
from streamforest.datasets.schedule import class_order, schedule, schedule_rows
from streamforest.datasets.stream import Label, Stream

__all__ = [
    "DATA_VARIABLE",
    "Label",
    "Stream",
    "StreamSpec",
    "class_order",
    "data_folder",
    "digits",
    "gaussians",
    "gaussians_bayes_rate",
    "get_spec",
    "load",
    "names",
    "recorded",
    "register",
    "schedule",
    "schedule_rows",
    "unavailable",
]

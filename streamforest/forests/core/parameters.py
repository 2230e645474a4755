"""Checks of constructor arguments: each refusal names the parameter, its value and what it may be."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamforest.errors import ParameterError

LARGEST = 1 << 53
MAX_TEXT_BYTES = 16 << 20
"""Names and categories of a table, and classes. A run holds them once for its gate and once for each model,
and a snapshot being written several times: a quarter of a gigabyte for a model with a shadow."""
EXECUTORS = ("threads", "ray")
"""Where the trees of a forest work: in threads of this process, or in actors of Ray."""
MOST_TREES = 10_000
"""Each tree has arrays of its own from the start."""


def check_int(name: str, value: Any, least: int, most: int = LARGEST) -> None:
    """Refuse a parameter that is not a whole number in [`least`, `most`]."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not (whole and least <= value <= most):
        over = whole and value > most
        high = f" and at most {most}" if over or most != LARGEST else ""
        raise ParameterError(f"{name}={value!r}: use a whole number of at least {least}{high}")


def check_number(
    name: str, value: Any, least: float, most: float = float(LARGEST), *, inside: bool = False
) -> None:
    """Refuse a parameter that is not a number in [`least`, `most`], or strictly `inside` it."""
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not (number and (least < value < most if inside else least <= value <= most)):
        low, high = ("above", "below") if inside else ("of at least", "at most")
        end = "" if most == float(LARGEST) else f" and {high} {most:g}"
        raise ParameterError(f"{name}={value!r}: use a number {low} {least:g}{end}")


def check_bool(name: str, value: Any) -> None:
    """Refuse a parameter that is neither True nor False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ParameterError(f"{name}={value!r}: use True or False")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse a parameter that is none of the words it can be."""
    if value not in choices:
        raise ParameterError(f"{name}={value!r}: use one of {', '.join(map(repr, choices))}")

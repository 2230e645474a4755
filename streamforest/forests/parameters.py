"""Checks of constructor arguments: each refusal names the parameter, its value and what it may be."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamforest.errors import ParameterError


def check_int(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Refuse a parameter that is not a whole number in [`least`, `most`]."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        end = "" if most is None else f" and at most {most}"
        raise ParameterError(f"{name}={value!r}: use a whole number of at least {least}{end}")


def check_number(
    name: str, value: Any, least: float, most: float = np.inf, *, above: bool = False
) -> None:
    """Refuse a parameter that is not a number in [`least`, `most`] (with `above`: over `least`)."""
    fits = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not (fits and value <= most and (value > least if above else value >= least)):
        low = f"above {least:g}" if above else f"of at least {least:g}"
        high = "" if most == np.inf else f" and at most {most:g}"
        raise ParameterError(f"{name}={value!r}: use a number {low}{high}")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse a parameter that is none of the words it can be."""
    if value not in choices:
        raise ParameterError(f"{name}={value!r}: use one of {', '.join(map(repr, choices))}")

"""How much of the benchmark is run: minutes, an evening, or days.

A profile is a set of defaults; whatever is given beside it counts instead.
"""

from __future__ import annotations

from typing import Any

from streamforest import datasets

PROFILES = ("quick", "table", "full")

CHANGING = ("moving-squares", "rotating-board", "interchanging-blobs")
"""Streams that change all the time, or at once."""

CELL_SECONDS = 600.0
"""CPU time after which a run of one model on one stream is cut, and marked."""


def defaults(profile: str) -> dict[str, Any]:
    """Arguments of `Settings` that a profile stands for.

    >>> defaults("quick")["events"]
    2000
    """
    if profile == "quick":
        return {
            "streams": ("digits", "electricity", "letter-classes", "moving-squares"),
            "events": 2_000,
            "repeats": 1,
            "equal_cpu": "off",
            "budget": 20.0,
        }
    table = (*datasets.names(), *datasets.names(scheduled=True), *CHANGING)
    if profile == "table":
        return {"streams": table, "budget": CELL_SECONDS}
    others = [name for name in datasets.names(held_out=True) if name not in CHANGING]
    return {
        "streams": (*table, *others, *datasets.names(long=True)),
        "seeds": 3,
        "short_seeds": 10,
        "repeats": 1,
        "budget": CELL_SECONDS,
    }

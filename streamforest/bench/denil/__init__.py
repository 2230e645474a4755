"""The figures of Denil, Matheson and de Freitas 2013, measured on this machine.

| key | what it shows | module |
|---|---|---|
| 2 | a forest against its own trees and the Bayes rule | `mixture` |
| 3 | USPS against the amount of data, online and offline | `usps` |
| 5 | body parts from depth images at equal bytes, with Fig. 4's picture | `bodyparts` |
| fringe | what bounding the fringe costs and saves | `fringe` |
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from importlib import import_module

from streamforest.bench.denil.common import Figure, Options, Watcher

FIGURES: dict[str, str] = {"2": "mixture", "3": "usps", "5": "bodyparts", "fringe": "fringe"}
"""Figure by key, and the module whose `run` measures it."""


def measure(keys: Sequence[str], options: Options, watcher: Watcher) -> Iterator[Figure]:
    """Measure figures one after the other."""
    for key in keys:
        module = import_module(f"{__name__}.{FIGURES[key]}")
        start = time.perf_counter()
        figure: Figure = module.run(options, watcher)
        figure.seconds = time.perf_counter() - start
        yield figure

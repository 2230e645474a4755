"""The experiments of Rodner and Denzler 2011, measured on this machine, and our default forests beside them.

| key | what it shows | module |
|---|---|---|
| 1 | the letter e from a, b, c, d (Fig. 5) | `letters` |
| all | each Latin letter from its five nearest | `letters` |
| 2 | one class against background, with the support of another (Fig. 7) | `binary` |
| 3 | similar and dissimilar support classes (Fig. 8) | `letters` |
| forests | what our forests do with few rows as they come | `forests` |
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module

from streamforest.bench.denil.common import Figure, Watcher

EXPERIMENTS: dict[str, tuple[str, str]] = {
    "1": ("letters", "one_letter"),
    "all": ("letters", "all_letters"),
    "2": ("binary", "binary"),
    "3": ("letters", "similarity"),
    "forests": ("forests", "forests"),
}
"""Experiment by key: the module and the function that measures it."""


@dataclass(frozen=True)
class Options:
    """How much of each experiment to run.

    Parameters
    ----------
    runs
        Repetitions with other rows and seeds; None takes the experiment's own number.
    trees
        Trees of every forest that is grown to purity; the paper has 10 for letters.
    quick
        A few seconds an experiment, to see that it works; its numbers mean little.
    seed
        Seed of the first run; the others count up from it.
    """

    runs: int | None = None
    trees: int = 10
    quick: bool = False
    seed: int = 0


def measure(keys: Sequence[str], options: Options, watcher: Watcher) -> Iterator[Figure]:
    """Measure experiments one after the other."""
    for key in keys:
        module, function = EXPERIMENTS[key]
        start = time.perf_counter()
        figure: Figure = getattr(import_module(f"{__name__}.{module}"), function)(options, watcher)
        figure.seconds = time.perf_counter() - start
        yield figure

"""Categories in a snapshot: the taxonomy and counters as JSON, the coarse forest and shares as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core import serialization
from streamforest.forests.core.serialization import LARGEST, LEVELS, Arrays, demand, taking

if TYPE_CHECKING:
    from streamforest.forests.coarse.levels import Levels
    from streamforest.forests.core.base import Forest

_FOREST = "forest."


def dump(levels: Levels, fine: Forest) -> tuple[dict[str, Any] | None, Arrays]:
    """Metadata and arrays; None and nothing as long as no coarse label has come."""
    if not levels.active:
        return None, {}
    answers = levels.answers
    meta, of_forest = (None, {}) if levels.forest is None else serialization.dump(levels.forest)
    arrays: dict[str, NDArray[Any]] = {
        **answers.mix.dump(),
        **levels.trust.dump(),
        **levels.withheld.dump(),
        "rows_of_class": answers.rows_of_class,
        "unseen": answers.unseen,
        **levels.estimates.dump(),
        **{_FOREST + name: array for name, array in of_forest.items()},
    }
    if fine._keeps_rows:
        arrays |= levels.rows.dump(fine._rows_in_memory())
    described = {
        "categories": levels.taxonomy.categories.labels,
        "pairs": levels.taxonomy.pairs(),
        "learned": answers.n_learned,
        "elsewhere": levels.n_elsewhere,
        "counts": dict(levels.counts),
        "forest": meta,
    }
    return described, {LEVELS + name: array for name, array in arrays.items()}


def restore(levels: Levels, fine: Forest, meta: Any, arrays: Arrays) -> None:
    """The state that `dump` described, checked; the fine forest is there already."""
    demand(isinstance(meta, dict), "levels")
    arrays = {name.removeprefix(LEVELS): array for name, array in arrays.items()}
    of_forest = {
        name.removeprefix(_FOREST): arrays.pop(name)
        for name in list(arrays)
        if name.startswith(_FOREST)
    }
    take = taking(arrays)
    levels.taxonomy.truncate(0, 0)
    levels.taxonomy.restore(meta["categories"], meta["pairs"])
    categories, classes = len(levels.taxonomy.categories), len(fine._labels)
    if meta["forest"] is not None:
        demand("levels" not in meta["forest"], "levels")
        second = serialization.restore(type(fine), meta["forest"], of_forest)
        second.quiet = True
        found = [levels.taxonomy.categories.find(name) for name in second._labels.labels]
        demand(np.array(found, np.int64) >= 0, "levels: a category that the taxonomy lacks")
        levels.forest, levels.of_second = second, np.array(found, np.int64)
    counts = [meta["learned"], meta["elsewhere"], *meta["counts"].values()]
    demand(all(type(n) is int and -LARGEST < n < LARGEST for n in counts), "levels: counts")
    demand(set(meta["counts"]) == set(levels.counts), "levels: counts")
    levels.n_elsewhere, levels.counts = (
        meta["elsewhere"],
        {k: meta["counts"][k] for k in levels.counts},
    )
    answers = levels.answers
    answers.n_learned = meta["learned"]
    answers.of_class = levels.taxonomy.of_classes(fine._labels.labels)
    answers.rows_of_class = take("rows_of_class", np.int64, classes).copy()
    demand(answers.rows_of_class >= 0, "rows_of_class")
    answers.unseen = take("unseen", np.float64, categories).copy()
    demand((answers.unseen >= 0) & (answers.unseen < 1), "unseen")
    answers.mix.restore(take)
    levels.trust.restore(take)
    levels.withheld.restore(take, categories, fine._features, fine.n_learned)
    levels.estimates.restore(take, classes, len(fine._features))
    if fine._keeps_rows:
        levels.rows.restore(
            take, fine._rows_in_memory(), categories, fine._features, fine.n_learned
        )
    demand(not arrays, f"unknown arrays {sorted(arrays)}")

"""The labels of a batch at both levels, as indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import CapacityError, LabelError
from streamforest.forests.coarse.taxonomy import NONE, Taxonomy, hidden_class, refuse_hidden
from streamforest.forests.core.batch import operations
from streamforest.forests.core.labels import LabelTable, as_list

SEEN_BEFORE = 2
"""Rows of a class that was there before the first coarse label: more than one."""


@dataclass(slots=True)
class Labels:
    """What the rows of a batch are labelled with.

    Parameters
    ----------
    y, category
        Class and category that a row is learned with; -1 for none.
    classes
        How many classes were known before each row.
    coarse_only
        Rows that are learned with a category and no class of their own.
    estimate
        Rows whose class can be estimated: they have a category of which a class is known.
    of_class
        The category of each class after the batch.
    changes
        Rows that tell the category of a class that was known before.
    first
        The first row that the coarse forest sees.
    """

    y: NDArray[np.int64]
    category: NDArray[np.int64]
    classes: NDArray[np.int64]
    coarse_only: NDArray[np.bool_]
    estimate: NDArray[np.bool_]
    of_class: NDArray[np.int64]
    changes: list[int]
    first: int


def read_labels(
    y: Any, coarse: Any, op: Any, n: int
) -> tuple[list[Any], list[Any], NDArray[np.uint8]]:
    """Fine and coarse labels of `n` rows, and what is done with each row."""
    labels = [None] * n if y is None else as_list(y, n)
    names = [None] * n if coarse is None else as_list(coarse, n, "coarse")
    ops = operations(op, [b if a is None else a for a, b in zip(labels, names)])
    return labels, names, ops


def index_rows(
    taxonomy: Taxonomy,
    table: LabelTable,
    of_class: NDArray[np.int64],
    labels: list[Any],
    names: list[Any],
    learns: NDArray[np.bool_],
    inactive: bool,
    hidden: bool = False,
) -> Labels:
    """The labels as indices. What is new enters its table; the caller takes it back if a row is refused.

    Parameters
    ----------
    taxonomy, table
        Categories of classes, and the classes of the fine forest.
    of_class
        The category of each of these classes.
    labels, names
        Fine and coarse label of each row, None where there is none.
    learns
        Rows that are learned; the labels of others are ignored.
    inactive
        Whether there is no coarse forest yet, so that it starts with the first coarse label.
    hidden
        Whether a row without a class is learned under a hidden class of its category.
    """
    n = len(labels)
    y, category, classes = (np.full(n, -1, np.int64) for _ in range(3))
    estimate, coarse_only = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    categories, changes, first = of_class.tolist(), [], n if inactive else 0
    with_classes = set(categories)
    for r, (label, name, learn) in enumerate(zip(labels, names, learns.tolist())):
        classes[r] = len(table)
        if not learn:
            continue
        try:
            if name is not None:
                first = min(first, r)
            pairs = len(taxonomy)
            if label is None:
                coarse_only[r] = True
                category[r] = taxonomy.categories.learn(name)
                if not hidden:
                    estimate[r] = category[r] in with_classes
                    continue
                label = hidden_class(int(category[r]))
            else:
                if hidden:
                    refuse_hidden(label)
                category[r] = taxonomy.find(label) if name is None else taxonomy.learn(label, name)
            y[r] = k = table.learn(label)
        except (LabelError, CapacityError) as error:
            raise type(error)(f"row {r}: {error}") from None
        if k == len(categories):
            categories.append(int(category[r]))
        elif len(taxonomy) > pairs and categories[k] == NONE:
            categories[k] = int(category[r])
            changes.append(r)
        with_classes.add(categories[k])
    found = np.array(categories, np.int64)
    return Labels(y, category, classes, coarse_only, estimate, found, changes, first)

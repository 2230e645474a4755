"""Which category each class belongs to: given, or learned from events that carry both labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import InputError, LabelError, ParameterError, TaxonomyError
from streamforest.forests.core.labels import Label, LabelTable, plain_label
from streamforest.forests.core.parameters import MAX_TEXT_BYTES
from streamforest.jsonable import rows
from streamforest.text import shown

NONE = -1
"""The category of a class whose category nobody has said."""


class Taxonomy:
    """Classes and their categories. It only grows: a pair never changes.

    A class and a category may have the same name: they are different things.

    >>> taxonomy = Taxonomy(max_classes=10)
    >>> taxonomy.learn("lion", "feline")
    0
    >>> taxonomy.learn("wolf", "canine"), taxonomy.find("lion"), taxonomy.find("okapi")
    (1, 0, -1)
    >>> taxonomy.learn("lion", "canine")
    Traceback (most recent call last):
    ...
    streamforest.errors.TaxonomyError: class 'lion' is of category 'feline', but comes with 'canine': ...
    """

    def __init__(self, max_classes: int, max_bytes: int = MAX_TEXT_BYTES) -> None:
        self.categories = LabelTable(max_classes, max_bytes)
        self._classes = LabelTable(max_classes, max_bytes)
        self._category: list[int] = []  # of each class
        self.hides = False  # whether classes that stand for rows without one are used

    def __len__(self) -> int:
        return len(self._category)

    def find(self, y: Any) -> int:
        """The category of a class, as its index; `NONE` if it is not known."""
        if self.hides and is_hidden(y):
            return int(y[len(_HIDDEN) :])
        k = self._classes.find(y)
        return NONE if k < 0 else self._category[k]

    def learn(self, y: Any, coarse: Any) -> int:
        """Learn that the class `y` is of the category `coarse`, and return the category's index."""
        k = self._classes.find(y)
        if k < 0:
            category = self.categories.learn(coarse)
            self._classes.learn(y)
            self._category.append(category)
            return category
        known = self._category[k]
        if self.categories.find(coarse) != known:
            raise TaxonomyError(
                f"class {shown(plain_label(y))} is of category "
                f"{shown(self.categories.labels[known])}, but comes with "
                f"{shown(plain_label(coarse))}: correct the event, or start with another taxonomy"
            )
        return known

    def truncate(self, classes: int, categories: int) -> None:
        """Forget all but the first ones: an input was refused as a whole."""
        self._classes.truncate(classes)
        del self._category[classes:]
        self.categories.truncate(categories)

    def of_classes(self, labels: list[Label], start: int = 0) -> NDArray[np.int64]:
        """The category of each of these classes from the one at `start` on."""
        return np.array([self.find(y) for y in labels[start:]], np.int64)

    def pairs(self) -> list[list[Label]]:
        """All pairs of class and category, in the order learned."""
        names = self.categories.labels
        return [[y, names[c]] for y, c in zip(self._classes.labels, self._category)]

    def as_dict(self) -> dict[Label, Label]:
        """The category of each class."""
        return {y: self.categories.labels[c] for y, c in zip(self._classes.labels, self._category)}

    def restore(self, categories: Any, pairs: Any) -> None:
        """Fill an empty taxonomy with what a snapshot holds."""
        self.categories.restore(categories)
        for y, coarse in pairs:
            if self.categories.find(coarse) < 0 or self._classes.find(y) >= 0:
                raise LabelError(f"the pair {shown(y)}, {shown(coarse)} does not fit the taxonomy")
            self.learn(y, coarse)


_HIDDEN = "\ue000"  # a private character, which no text has


def hidden_class(category: int) -> str:
    """The label of rows of a category whose class nobody has told."""
    return f"{_HIDDEN}{category}"


def is_hidden(label: Any) -> bool:
    """Whether a label stands for rows without a class."""
    return isinstance(label, str) and label.startswith(_HIDDEN)


def refuse_hidden(label: Any) -> None:
    """Refuse a class that would be taken for a hidden one."""
    if is_hidden(label):
        raise LabelError(f"label {shown(label)} begins with a reserved character: use another name")


def read_pairs(taxonomy: Any) -> list[tuple[Any, Any]]:
    """What the parameter `taxonomy` holds: a mapping of classes to categories, or pairs of them."""
    if taxonomy is None:
        return []
    try:
        pairs = taxonomy.items() if isinstance(taxonomy, Mapping) else taxonomy
        read = [(y, coarse) for y, coarse in pairs]
        for y, coarse in read:
            plain_label(y), plain_label(coarse)
    except (TypeError, ValueError) as error:
        reason = f" ({error})" if isinstance(error, InputError) else ""
        raise ParameterError(
            f"taxonomy is {shown(taxonomy)}: use a dict of classes and their categories, such as "
            f"{{'lion': 'feline'}}{reason}"
        ) from None
    return read


def plain_pairs(taxonomy: Any) -> list[list[Label]] | None:
    """The parameter `taxonomy` as a snapshot holds it: JSON has no keys but strings."""
    if taxonomy is None:
        return None
    return [[plain_label(y), plain_label(coarse)] for y, coarse in read_pairs(taxonomy)]


class Categories(Taxonomy):
    """The taxonomy of a pipeline, as a forest has it that learned all that was admitted.

    Pairs of class and category, given and learned; a pair is checked before anything is learned.

    >>> categories = Categories(10, given=[("lion", "feline")])
    >>> categories.check("wolf", "canine"), categories.add("wolf", "canine"), categories.of("wolf")
    (None, None, 'canine')
    >>> categories.check("lion", "canine")
    Traceback (most recent call last):
    ...
    streamforest.errors.TaxonomyError: class 'lion' is of category 'feline', but comes with 'canine': ...
    """

    def __init__(
        self,
        max_classes: int,
        max_bytes: int = MAX_TEXT_BYTES,
        given: Iterable[tuple[Any, Any]] = (),
    ) -> None:
        super().__init__(max_classes, max_bytes)
        for y, coarse in given:
            self.learn(y, coarse)

    def of(self, y: Any) -> Any:
        """The category of a class; None if it is not known."""
        if y is None or not self:
            return None
        found = self.find(y)
        return None if found < 0 else self.categories.labels[found]

    def check(self, y: Any, coarse: Any) -> None:
        """Refuse a category that cannot be one, or that is not the one of the class (None: no class)."""
        if self.categories.find(coarse) < 0:
            self.categories.require_room(coarse)
        if y is None:
            return
        known = self.of(y)
        if known is None:
            self._classes.require_room(y)
        elif known != coarse:
            raise TaxonomyError(
                f"class {shown(y)} is of category {shown(known)}, but comes with {shown(coarse)}: "
                "correct the event, or start a new run with another taxonomy"
            )

    def add(self, y: Any, coarse: Any) -> None:
        """Learn a pair, or a category alone, that was checked."""
        if y is None:
            self.categories.learn(coarse)
        else:
            self.learn(y, coarse)

    def state(self) -> dict[str, Any]:
        """Plain data, under one key; nothing if there are no categories."""
        names = list(self.categories.labels)
        return {"taxonomy": [names, self.pairs()]} if names else {}

    def take_back(self, state: Any) -> None:
        """What `state()` described, instead of what was given."""
        if "taxonomy" in state:
            names, pairs = rows(state["taxonomy"], "taxonomy")
            self.truncate(0, 0)
            self.restore(rows(names, "categories"), rows(pairs, "pairs", 2))

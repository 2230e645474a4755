"""Why a forest answers as it does, in words: one form for all forests, as text and as JSON.

Each family says what only it knows (`_experts_on`, `_tree_on`, `_importances`); the form, the order and
the wording around it are the same everywhere.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from threading import RLock
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import ParameterError
from streamforest.forests.coarse.levels import Levels
from streamforest.forests.core.features import FeatureTable
from streamforest.forests.core.labels import Label, LabelTable
from streamforest.text import shown

NOTHING_LEARNED = "nothing learned yet"
_CLASSES = 3
_FEATURES = 3

Answer = list[tuple[Label, float]]
"""Classes with their shares of the votes, the largest first."""


@dataclass(frozen=True)
class Expert:
    """What one expert said, with its share in the answer of the forest."""

    name: str
    share: float
    answer: Answer
    because: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class TreePath:
    """An event's way through one tree: each step, the leaf, and the rows or counts that decided there."""

    number: int
    about: str
    path: list[str]
    leaf: list[str]


@dataclass(frozen=True)
class Explanation:
    """One event as a forest sees it. `parts` are the forests that a forest of forests asks."""

    forest: str
    answer: Answer
    experts: list[Expert] = field(default_factory=list)
    tree: TreePath | None = None
    parts: list[Explanation] = field(default_factory=list)

    def text(self) -> str:
        """In words, one fact on a line."""
        if not self.answer:
            return NOTHING_LEARNED
        lines = [f"{self.forest}: {told(self.answer)}"]
        for expert in self.experts:
            lines.append(f"  {expert.name:12} {expert.share:4.0%}: {told(expert.answer)}")
            lines += [f"    {reason}" for reason in expert.because]
        if self.tree is not None:
            about = f" ({self.tree.about})" if self.tree.about else ""
            lines.append(f"tree {self.tree.number}{about}:")
            lines += [f"  {step}" for step in (*self.tree.path, *self.tree.leaf)]
        return "\n".join([*lines, *(part.text() for part in self.parts)])

    def jsonable(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)


def told(answer: Answer) -> str:
    """Classes with their shares, in one line."""
    return ", ".join(f"{shown(label)} {share:.3f}" for label, share in answer) or "no answer"


def ranked(scores: NDArray[Any], labels: Sequence[Label], most: int = _CLASSES) -> Answer:
    """The classes with the largest scores, as shares; none where all scores are 0."""
    total = float(scores.sum())
    if not total > 0:
        return []
    order = np.argsort(-scores, kind="stable")[:most].tolist()
    return [(labels[k], float(scores[k]) / total) for k in order if scores[k] > 0]


def counted(alone: NDArray[Any], labels: Sequence[Label]) -> str:
    """How many trees are for which class, given what each says alone: [tree, class]."""
    known = alone[alone.any(axis=1)]
    sides = np.bincount(known.argmax(axis=1), minlength=len(labels))
    order = np.argsort(-sides, kind="stable")[:_CLASSES].tolist()
    parts = [f"{sides[k]} for {shown(labels[k])}" for k in order if sides[k]]
    silent = len(alone) - len(known)
    return ", ".join(parts + ([f"{silent} know no event like it"] if silent else []))


def most_certain(alone: NDArray[Any], best: int) -> int:
    """The tree that gives a class the largest share of its votes."""
    return int(np.argmax(alone[:, best] / np.maximum(1, alone.sum(axis=1))))


def rather(
    lead: NDArray[np.float64], names: Sequence[Any], first: Label, second: Label
) -> list[str]:
    """The features that speak most for a class rather than another, or against it."""
    most = [
        f
        for f in np.argsort(-np.abs(lead), kind="stable")[:_FEATURES].tolist()
        if np.isfinite(lead[f]) and lead[f] != 0.0
    ]
    if not most:
        return []
    pulls = ", ".join(f"{shown(names[f])} {lead[f]:+.2f}" for f in most)
    return [f"{shown(first)} rather than {shown(second)}: {pulls}"]


class Explained:
    """The part of a forest that explains: `explain_one`, `debug_one`, `feature_importances`."""

    n_trees: int
    _labels: LabelTable
    _features: FeatureTable
    _lock: RLock
    _one_views: Any
    _routed: bytearray | None
    _levels: Levels

    @abstractmethod
    def _whole(self) -> Self:
        """The forest with its trees at hand."""

    @abstractmethod
    def _one_row(self, x: Any, learn: bool, classes: int = 0) -> int:
        """Write an event to a row buffer; which one it is."""

    @abstractmethod
    def _scores_one(self, x: Any) -> NDArray[Any]:
        """The score of each class for one event."""

    @abstractmethod
    def predict_proba_one(self, x: dict[Any, Any]) -> dict[Any, float]:
        """The probability of each class."""

    # ---- what a family says of itself

    def _title(self) -> str:
        return f"forest of {self.n_trees} trees"

    def _experts_on(self, row: NDArray[np.float64]) -> list[Expert]:
        """What each expert says of a row."""
        return []

    def _tree_on(self, row: NDArray[np.float64], tree: int | None, best: int) -> TreePath | None:
        """The way of a row through a tree; None for the one that tells most of class `best`."""
        return None

    def _parts_on(self, x: Any, tree: int | None) -> list[Explanation]:
        """What the forests in it say."""
        return []

    def _importances(self) -> Mapping[str, tuple[float, NDArray[np.float64]]]:
        """By expert: its share in the answers, and a number for each feature."""
        return {}

    # ---- what a user calls

    def explain_one(self, x: dict[Any, Any], tree: int | None = None) -> Explanation:
        """Why the forest answers as it does, as data; `debug_one` is the same as text.

        Parameters
        ----------
        x
            An event; it is not learned.
        tree
            The tree to look into; by default one that is typical of the answer.
        """
        with self._lock:
            if tree is not None and not 0 <= tree < self.n_trees:
                raise ParameterError(f"tree={tree!r}: use 0 to {self.n_trees - 1}")
            if (whole := self._whole()) is not self:
                return whole.explain_one(x, tree)
            which = self._one_row(x, learn=False)
            if not self._labels.labels:
                return Explanation(self._title(), [])
            row = self._one_views[which].copy()
            scores, title = self._scores_one(x).copy(), self._title()
            answer = ranked(scores, self._labels.labels)
            if self._levels.active:  # coarse labels have a say beside the experts
                said = self.predict_proba_one(x)
                scores = np.array([said.get(label, 0.0) for label in self._labels.labels])
                likely = sorted(said.items(), key=lambda one: -one[1])[:_CLASSES]
                answer = [(label, share) for label, share in likely if share > 0]
                title += " and its categories"
            self._routed = None  # what is asked below must not serve the next `learn_one`
            if not answer:
                answer = [(label, 1.0 / len(scores)) for label in self._labels.labels[:_CLASSES]]
            return Explanation(
                title,
                answer,
                self._experts_on(row),
                self._tree_on(row, tree, int(scores.argmax())),
                self._parts_on(x, tree),
            )

    def debug_one(self, x: dict[Any, Any], tree: int | None = None) -> str:
        """Why the forest answers as it does: what each expert says, and the way through a tree.

        Parameters
        ----------
        x
            An event; it is not learned.
        tree
            The tree to look into; by default one that is typical of the answer.
        """
        return self.explain_one(x, tree).text()

    def feature_importances(self, expert: str | None = None) -> dict[Any, float]:
        """The share of each feature in what the forest has learned; shares sum to one.

        For trees that split on features: in the information gain of the splits of all that vote, summed
        over their rows, so that splits near the root weigh most. For naive Bayes: in what a feature by
        itself tells of the class. For the linear rule: in the standard deviation of what it adds to the
        scores. For class means: in how far apart they are, measured by the spread within the classes.
        Together: mixed as the experts are.

        Parameters
        ----------
        expert
            One expert alone, by its name.
        """
        with self._lock:
            known = self._whole()._importances()
            if expert is not None and expert not in known:
                raise ParameterError(f"expert={expert!r}: use None or one of {', '.join(known)}")
            total = np.zeros(len(self._features))
            for name, (weight, found) in known.items():
                if expert in (None, name):
                    shares = found / max(float(found.sum()), 1e-300)
                    total += (weight if expert is None else 1.0) * shares
            if total.sum() > 0:
                total /= total.sum()
            return dict(zip(self._features.names, total.tolist()))

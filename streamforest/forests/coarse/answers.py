"""What a forest and the coarse forest beside it answer together, and how their shares follow the labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.coarse.indexing import SEEN_BEFORE, Labels
from streamforest.forests.coarse.mixing import LevelMix, TwoLevels, combine, unseen_shares
from streamforest.forests.coarse.taxonomy import NONE, Taxonomy
from streamforest.forests.core.engine import EPOCH, next_boundary
from streamforest.forests.core.labels import Label


class LevelAnswers:
    """Shares of the two levels, with what they follow: rows of each class, and its category."""

    def __init__(self, categories: int) -> None:
        self.mix = LevelMix()
        self.n_learned = 0  # rows since the first coarse label
        self.of_class = np.zeros(0, np.int64)  # the category of each class of the fine forest
        self.rows_of_class = np.zeros(0, np.int64)  # with a true class
        self.unseen = np.zeros(categories)

    def follow(self, taxonomy: Taxonomy, labels: list[Label]) -> None:
        """Classes that came without coarse labels have a category too, if the taxonomy was given."""
        more = len(labels) - len(self.of_class)
        if more > 0:
            new = taxonomy.of_classes(labels, len(self.of_class))
            self.of_class = np.append(self.of_class, new)
            self.rows_of_class = np.append(self.rows_of_class, np.full(more, SEEN_BEFORE))

    def together(
        self,
        P: tuple[NDArray[np.float64], NDArray[np.float64]],
        said: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
        index: Labels,
        learns: NDArray[np.bool_],
        categories: int,
        hidden: NDArray[np.bool_] | None = None,
    ) -> tuple[TwoLevels, NDArray[np.int64]]:
        """Answers of all rows, and the category that each most likely belongs to if its class is unknown.

        Parameters
        ----------
        P
            Posteriors of the fine forest, of the rows as asked and as learned.
        said
            The same of the coarse forest, by category; None: there is none.
        index
            The labels of the rows.
        learns
            Rows that are learned.
        categories
            How many there are.
        hidden
            Classes that are never answered, see `mixing.combine`.

        Rows are cut where shares change: at epochs, and where the category of a class is told.
        """
        n = len(learns)
        classes = len(index.of_class)
        both = TwoLevels(np.zeros((n, classes)), np.zeros((n, categories)))
        novel_in = np.full(n, NONE)
        self.of_class = index.of_class.copy()
        for r in index.changes:
            self.of_class[index.y[r]] = NONE
        rows_of_class = np.zeros(classes, np.int64)
        rows_of_class[: len(self.rows_of_class)] = self.rows_of_class
        before = 0  # classes that came before the first coarse label
        if index.first > 0:
            before = int(index.classes[index.first]) if index.first < n else classes
        rows_of_class[len(self.rows_of_class) : before] = SEEN_BEFORE
        self.rows_of_class = rows_of_class
        self.unseen = np.append(self.unseen, np.zeros(categories - len(self.unseen)))
        start = 0
        while start < n:
            stop, at_epoch = self._next_stop(start, n, learns, index, said is not None)
            part = slice(start, stop)
            begun = said is not None and start >= index.first
            coarse = said[0][part] if said is not None and begun else None
            answer = self.combine(P[0][part], coarse, hidden)
            both.fine[part], both.coarse[part] = answer
            known = _classes_of(self.of_class, categories)[index.classes[part]]
            novel_in[part] = _most_likely(answer.coarse * (1 + known))
            if said is not None and begun:
                at = start + np.flatnonzero(learns[part])
                self._count(P[1][at], said[1][at], index.y[at], index.category[at])
            if stop - 1 in index.changes:
                self.of_class[index.y[stop - 1]] = index.category[stop - 1]
            if at_epoch:
                self._end_epoch()
            start = stop
        return both, novel_in

    def _next_stop(
        self, start: int, n: int, learns: NDArray[np.bool_], index: Labels, two: bool
    ) -> tuple[int, bool]:
        """Where the rows end that are answered alike, and whether an epoch ends there."""
        stop = min([n, *(r + 1 for r in index.changes if r >= start)])
        if start < index.first:
            return min(stop, index.first), False
        if not two:
            return stop, False
        left = next_boundary(self.n_learned) - self.n_learned
        clock = np.cumsum(learns[start:stop])
        if clock[-1] < left:
            return stop, False
        return start + int(np.searchsorted(clock, left)) + 1, True

    def combine(
        self,
        fine: NDArray[np.float64],
        coarse: NDArray[np.float64] | None,
        hidden: NDArray[np.bool_] | None = None,
    ) -> TwoLevels:
        """Probabilities of classes and categories, with the shares as they stand."""
        unseen = np.zeros_like(self.unseen) if coarse is None else self.unseen
        return combine(fine, coarse, self.of_class, self.mix.share, unseen, hidden)

    def _count(
        self,
        fine: NDArray[np.float64],
        coarse: NDArray[np.float64],
        y: NDArray[np.int64],
        category: NDArray[np.int64],
    ) -> None:
        """Judge the shares by rows with labels, and count them."""
        alone, two = (
            combine(fine, coarse, self.of_class, share, self.unseen) for share in (0.0, 1.0)
        )
        self.mix.judge(alone, two, y, category)
        self.rows_of_class += np.bincount(y[y >= 0], minlength=len(self.rows_of_class))
        self.n_learned += len(y)

    def _end_epoch(self) -> None:
        """Shares and remainders follow what was counted."""
        n = self.n_learned
        self.mix.end_epoch(n - n // 2 if n <= EPOCH else EPOCH)
        self.unseen = unseen_shares(self.rows_of_class, self.of_class, len(self.unseen))


def _classes_of(of_class: NDArray[np.int64], categories: int) -> NDArray[np.int64]:
    """How many of the first k classes are of each category, k from none to all.

    A new class is more likely to be of a category with many classes than of one that has a single one.

    >>> _classes_of(np.array([1, 0, 1]), 2).tolist()
    [[0, 0], [0, 1], [1, 1], [1, 2]]
    """
    counts = np.zeros((len(of_class) + 1, categories), np.int64)
    has = np.flatnonzero(of_class >= 0)
    counts[has + 1, of_class[has]] = 1
    return np.cumsum(counts, axis=0)


def _most_likely(coarse: NDArray[np.float64]) -> NDArray[np.int64]:
    """The most probable category of each row; `NONE` where there is none."""
    if coarse.shape[1] == 0:
        return np.full(len(coarse), NONE)
    return np.where(coarse.max(axis=1) > 0, coarse.argmax(axis=1), NONE)

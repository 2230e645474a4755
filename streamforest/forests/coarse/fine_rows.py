"""The rows of a batch on their way through the fine forest: which coarse rows it learns, and as what.

A row with only a category is asked first, with all that was learned before it. It is learned under its
estimated class if that is to be believed (`trust.py`), and withheld otherwise: its values are kept, so
that it can be learned when its class is told. A batch is cut only where that has to be decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.coarse.batch_rows import BatchRows
from streamforest.forests.coarse.indexing import Labels
from streamforest.forests.coarse.rows import EstimatedRow
from streamforest.forests.coarse.taxonomy import NONE
from streamforest.forests.coarse.trust import sureness
from streamforest.forests.core.engine import EPOCH, next_boundary
from streamforest.kernels.core.operations import LEARN, PREDICT

if TYPE_CHECKING:
    from streamforest.forests.coarse.levels import Levels
    from streamforest.forests.core.base import Forest


class FineRows:
    """One batch through the fine forest.

    Parameters
    ----------
    levels, fine
        The forest, and its part that knows of categories.
    rows, index, ops
        The batch, its labels, and what is done with each event.
    """

    def __init__(
        self,
        levels: Levels,
        fine: Forest,
        rows: BatchRows,
        index: Labels,
        ops: NDArray[np.uint8],
    ) -> None:
        self._levels, self._fine, self._index = levels, fine, index
        self._batch, self._asked, self._at = rows.batch, rows.asked, rows.learned
        self._gated = levels.method is None  # the paper's methods believe every estimate
        learns = (ops & LEARN) != 0
        self._n = len(ops)
        self._counted = learns & (np.arange(self._n) >= index.first)
        self._numbers = fine.n_learned + np.cumsum(learns) - 1
        self._alone = index.coarse_only & (index.y < 0)
        self._batch.op[self._at[self._alone]] = PREDICT
        self._of_class = index.of_class.copy()
        for r in index.changes:
            self._of_class[index.y[r]] = NONE  # until that row
        self._changes = list(index.changes)
        self._scores: list[NDArray[Any]] = []
        self.estimated = 0

    def run(self) -> NDArray[Any]:
        """The fine forest's scores of all rows."""
        if self._n == 0:
            return self._fine._advance(self._batch, answer=True)
        levels = self._levels
        clock = levels.answers.n_learned + np.cumsum(self._counted)
        start, now = 0, levels.answers.n_learned
        while start < self._n:
            boundary, stop = next_boundary(now), self._n
            if self._gated:
                stop = min(stop, int(np.searchsorted(clock, boundary)) + 1)
            self._part(start, stop)
            start, now = stop, int(clock[stop - 1])
            if self._gated and now == boundary:
                levels.trust.end_epoch(now - now // 2 if now <= EPOCH else EPOCH)
        return np.concatenate(self._scores)

    def _part(self, start: int, stop: int) -> None:
        """Events during which it does not change which estimates are believed."""
        cuts: list[int] = []
        if not self._gated or self._levels.trust.open:
            cuts = (start + np.flatnonzero(self._index.estimate[start:stop])).tolist()
        for r in cuts:
            said = self._ask(start, r + 1)
            self._decide(r, said[-1])
            start = r + 1
        if start < stop:
            self._ask(start, stop)

    def _ask(self, start: int, stop: int) -> NDArray[Any]:
        """Advance through events; those with a class tell what estimates are worth."""
        first = int(self._asked[start])
        part = slice(first, int(self._at[stop - 1]) + 1)
        said = self._fine._advance(self._batch.cut(part), answer=True)
        self._scores.append(said)
        self._withhold(start, stop)
        while start < stop:
            end = min([stop, *(r + 1 for r in self._changes[:1])])
            self._look_back(np.arange(start, end), said, first)
            if self._changes and self._changes[0] == end - 1:
                change = self._changes.pop(0)
                self._of_class[self._index.y[change]] = self._index.category[change]
            start = end
        return said

    def _withhold(self, start: int, stop: int) -> None:
        """Keep rows with only a category; one that is learned after all is taken out again."""
        if self._gated:
            for r in (start + np.flatnonzero(self._alone[start:stop])).tolist():
                kept = EstimatedRow(-1, int(self._index.category[r]), self._values(r))
                self._levels.withheld.add(int(self._numbers[r]), kept)

    def _values(self, r: int) -> NDArray[np.float64]:
        at = self._at[r]
        return self._batch.X[at, : self._batch.known[at]].copy()

    def _look_back(self, events: NDArray[np.int64], said: NDArray[Any], first: int) -> None:
        """Judge what would have been estimated for rows with a class, and let the estimates learn them."""
        index, estimates = self._index, self._levels.estimates
        events = events[self._counted[events] & (index.y[events] >= 0)]
        if len(events) == 0:
            return
        scores = said[self._at[events] - first]
        among = self._among(events, scores.shape[1])
        guess = np.where(among, scores, -1).argmax(axis=1)
        if estimates.needs_rows:
            for i, r in enumerate(events.tolist()):
                row = self._values(r)
                if self._gated and among[i].any():
                    guess[i] = estimates.best(scores[i], row, np.flatnonzero(among[i]))
                estimates.learn(row, int(index.y[r]))
        if self._gated:
            told = among.any(axis=1)
            sure = sureness(scores[told], among[told], guess[told])
            self._levels.trust.judge(sure, guess[told] == index.y[events[told]])

    def _among(self, events: NDArray[np.int64], width: int) -> NDArray[np.bool_]:
        """The known classes of each event's category."""
        category, known = self._index.category[events], self._index.classes[events]
        of_class = self._of_class[:width]
        same: NDArray[np.bool_] = of_class == np.where(category < 0, NONE - 1, category)[:, None]
        same &= np.arange(width) < known[:, None]
        return same

    def _decide(self, r: int, scores: NDArray[Any]) -> None:
        """Learn a coarse row under its estimated class, if that is to be believed."""
        levels, fine = self._levels, self._fine
        among = self._among(np.array([r]), len(scores))
        row = self._values(r)
        guess = levels.estimates.best(scores, row, np.flatnonzero(among[0]))
        if self._gated:
            sure = sureness(scores[None, :], among, np.array([guess]))
            if not levels.trust.believes(float(sure[0])):
                return
            levels.withheld.take(int(self._numbers[r]))
        if fine._keeps_rows:
            kept = EstimatedRow(fine._n_learned, int(self._index.category[r]), row)
            levels.rows.add(int(self._numbers[r]), kept, fine._rows_in_memory)
        at = int(self._at[r])
        one = self._batch.cut(slice(at, at + 1))
        one.y, one.op, one.novelty = np.array([guess]), np.full(1, LEARN, np.uint8), None
        fine._advance(one, answer=False)
        self.estimated += 1

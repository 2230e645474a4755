"""How an NCM forest weighs its experts: the blend of their votes, and which metric the class means use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.batch import Batch
from streamforest.forests.core.engine import EPOCH
from streamforest.forests.core.serialization import demand
from streamforest.forests.ncm.column_scales import Take
from streamforest.kernels.core.array_table import zeros
from streamforest.kernels.core.operations import LEARN
from streamforest.kernels.ncm import blending
from streamforest.kernels.ncm.blending import BLENDS, EVENTS, MISTAKES, Blend
from streamforest.kernels.ncm.layout import FULL_IDENTITY, MEANS, NEIGHBOURS, RAW, TARGETS, TREES
from streamforest.kernels.ncm.neighbours import ALIKE, STANDARDISED

EXPERTS = ("trees", "means", "neighbours")
_UNJUDGED = BLENDS.min(axis=1) + BLENDS[:, TREES] / 8  # all experts have a share, trees the largest
_DISTANCE_RATE = 0.2  # of an epoch, in the usual distance


class VoteBlend:
    """Which shares the experts have, by what each blend of them got right lately.

    Parameters
    ----------
    mean_vote, neighbours
        Whether the class means, and the rows of leaves, are experts.
    """

    def __init__(self, mean_vote: bool, neighbours: bool) -> None:
        self.arrays: Blend = zeros(Blend)
        self._allowed = np.ones(len(BLENDS), np.bool_)
        if not mean_vote:
            self._allowed &= BLENDS[:, MEANS] == 0
        if not neighbours:
            self._allowed &= BLENDS[:, NEIGHBOURS] == 0
        self._only_trees = not mean_vote and not neighbours
        # the class means alone before the first trees are grown
        self.active_blend = len(BLENDS) - 1 if mean_vote else 0
        self.active_metric = 0  # which shrunk covariance the class means vote by

    @property
    def events(self) -> int:
        """Events since the last epoch."""
        return int(self.arrays.tally[EVENTS])

    @property
    def mistakes(self) -> int:
        """Of those, events that the active blend got wrong."""
        return int(self.arrays.tally[MISTAKES])

    def weights(self) -> dict[str, float]:
        """The shares of the experts."""
        return dict(zip(EXPERTS, BLENDS[self.active_blend].tolist()))

    # ---- votes

    def mix(self, votes: NDArray[np.int64], n_trees: int) -> NDArray[np.int64]:
        """One score per row and class."""
        out = np.empty((len(votes), votes.shape[2]), np.int64)
        blending.blend_votes(votes, n_trees, BLENDS[self.active_blend], out)
        return out

    def judge(
        self,
        batch: Batch,
        votes: NDArray[np.int64],
        best_of_means: NDArray[np.int64],
        n_trees: int,
    ) -> None:
        """Note which blends got the rows right that were just learned."""
        blending.judge(
            votes,
            batch.y,
            batch.op,
            best_of_means,
            n_trees,
            BLENDS,
            self.active_blend,
            self.arrays,
        )

    def count(self, batch: Batch) -> None:
        """Count rows that were learned without an answer."""
        self.arrays.tally[EVENTS] += int(np.count_nonzero(batch.op & LEARN))

    # ---- the end of an epoch

    def choose(self, trees_are_grown: bool) -> None:
        """Choose the blend and the metric that vote until the next epoch ends."""
        self.active_metric = int(np.argmax(self.arrays.metric_correct))
        if self._only_trees:
            self.active_blend = 0
        elif trees_are_grown:
            correct = self.arrays.blend_correct
            correct = correct if correct.any() else _UNJUDGED
            self.active_blend = int(np.argmax(np.where(self._allowed, correct, -1.0)))

    def note_distances(self, info: NDArray[np.void]) -> None:
        """Update the usual distance of neighbours by what the trees (their `info`) met in this epoch."""
        alike = (info["metric"] == RAW) | (info["metric"] == FULL_IDENTITY)
        kind = np.where(alike, ALIKE, STANDARDISED)
        total = np.bincount(kind, info["near"], minlength=2)
        n = np.bincount(kind, info["nears"], minlength=2)
        usual = self.arrays.usual
        for k in np.flatnonzero(n).tolist():
            mean = total[k] / n[k]
            change = _DISTANCE_RATE * (mean - usual[k])
            usual[k] = mean if usual[k] == 0 else usual[k] + change

    def reset(self) -> None:
        """A new epoch begins."""
        self.arrays.tally[:] = 0

    def adopt(self, other: VoteBlend) -> None:
        """Take over how well the experts of another forest did."""
        self.arrays.blend_correct[:] = other.arrays.blend_correct
        self.arrays.metric_correct[:] = other.arrays.metric_correct
        self.arrays.usual[:] = other.arrays.usual

    # ---- snapshots

    def dump(self) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot, less those in `shared.scalars`."""
        return {
            "shared.blend_correct": self.arrays.blend_correct.copy(),
            "shared.active_metric": np.array(
                [self.active_metric, self.active_blend, *self.arrays.tally]
            ),
        }

    def scalars(self) -> list[float]:
        """What it has in `shared.scalars`."""
        return [*self.arrays.usual, *self.arrays.metric_correct]

    def restore(self, take: Take, scalars: NDArray[np.float64]) -> None:
        """The state that `dump` and `scalars` described, checked."""
        demand(scalars[2:] <= 1, "shared.scalars")
        correct = take("shared.blend_correct", np.float64, len(BLENDS))
        demand((correct >= 0) & (correct <= 1), "shared.blend_correct")
        chosen = take("shared.active_metric", np.int64, 4)
        demand(chosen >= 0, "shared.active_metric")
        demand(chosen[0] < TARGETS and chosen[1] < len(BLENDS), "shared.active_metric")
        demand(chosen[3] <= chosen[2] <= EPOCH, "shared.active_metric")
        self.active_metric, self.active_blend = int(chosen[0]), int(chosen[1])
        self.arrays = Blend(
            blend_correct=correct,
            metric_correct=scalars[2:].copy(),
            usual=scalars[:2].copy(),
            tally=chosen[2:].copy(),
        )

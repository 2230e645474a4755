"""The online random forest of Saffari et al. as a River estimator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import SnapshotError
from streamforest.forests.candidate.forest import CandidateForest
from streamforest.forests.core.batch import Batch
from streamforest.forests.core.engine import EPOCH
from streamforest.forests.core.parameters import (
    MAX_TEXT_BYTES,
    check_bool,
    check_choice,
    check_int,
    check_number,
)
from streamforest.kernels.candidate import online as kernels
from streamforest.kernels.core.notice import Announced
from streamforest.kernels.core.operations import LEARN

_SINCE_BIRTH = 3  # the revision from which on leaves know what they inherited


class OnlineForestClassifier(CandidateForest):
    """Online random forest (Saffari et al., 2009): the rival of the consistent forest's paper.

    Each tree sees each event Poisson(1) times (online bagging). A leaf draws random tests, features and
    thresholds in the range seen so far, and splits once it has met `min_samples` events and its best
    test has a gain of `min_gain`. Every event chooses splits and feeds answers alike: quicker to grow
    than the consistent forest, without its guarantee. Events that a tree does not see measure its
    out-of-bag error; with `gamma`, poor old trees are discarded and start again.

    Ranges are shared by the trees and change between epochs (every 64 events); tests are drawn from
    event 64 on. A category's test is "is it this value?" or "is it in this random half of them?".

    Parameters
    ----------
    n_trees
        Number of trees.
    n_features
        Features a leaf tests.
    n_thresholds
        Random thresholds for each of them.
    min_samples
        Events a leaf must have met since its birth before it may split; those that its histogram took
        over from its parent do not count, as in the original. (Counting them, as before revision 3, splits
        earlier.)
    min_gain
        The information gain, in bits, that the best test must have.
    max_depth
        Leaves of this depth are not split.
    gamma
        γ: at each epoch one tree that saw more than 1/γ events is looked at, and discarded with the
        probability of its out-of-bag error. 0 (default) never discards, as in both papers'
        experiments on data without drift.
    max_fringe_bytes
        Bytes of test statistics per tree at most; leaves that do not fit wait, the oldest first.
    max_nodes
        Nodes per tree at most; a full tree keeps counting and answering.
    voting
        "soft" averages the trees' posteriors; "hard" is a majority vote.
    balanced
        Whether a leaf answers as if all classes were equally frequent; see `ConsistentForestClassifier`.
    max_classes, max_features, max_categories
        What the stream may bring: classes, features, categories of one feature. One class more is a
        `CapacityError`, and nothing is learned from that event; of the others `on_capacity` decides.
    max_text_bytes
        Bytes that names and categories may take together, and classes by themselves: each as long as
        it stands in a snapshot, and 128 more.
    nonfinite
        NaN and infinities in an event to be learned: "error" refuses it, "missing" takes them as missing.
        NaN in a frame is always missing.
    on_capacity
        Beyond `max_features`, `max_categories` and `max_text_bytes`: "degrade" leaves new features out and
        takes all later categories of a feature as one, or the feature as missing if over half of its events
        brought a new one; see `capacity`. "error" raises a `CapacityError`.
    absent
        What a number is that an event does not mention: "missing", or "zero" for sparse rows such as bags of
        words. With hundreds of features hash them first (River's `FeatureHasher`), or use a
        stream forest: this one draws features without looking whether rows have them.
    taxonomy
        The category of each class, as far as it is known: `{"lion": "feline", …}`. Events with both labels
        add to it; see `docs/coarse-labels.md`.
    refine
        The class that an event with only a coarse label is learned under: of the known classes of its
        category, the one that the forest finds most probable ("own"), that with the nearest mean ("mean"),
        or that of the nearest labelled row ("nn").
    n_jobs
        Threads over trees, for batches. Changes no bit of any result.
    executor
        Where trees work: in "threads" of this process, or in actors of "ray", over any number of machines
        (`pip install 'streamforest[ray]'`). Changes no bit of any result; see docs/scaling.md.
    n_actors
        Actors, with executor="ray", each with `n_jobs` threads. Trees are handed out in eights, so there are
        at most an eighth as many actors as trees, rounded up.
    seed
        For reproducible runs.

    References
    ----------
    Saffari, Leistner, Santner, Godec, Bischof: On-line Random Forests. ICCV Workshops 2009.
    Settings of the comparison: Denil et al. 2013, sections 5.2 and 5.3.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from streamforest import OnlineForestClassifier

    >>> model = OnlineForestClassifier(n_trees=20, seed=1)
    >>> evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy())
    Accuracy: 87.51%
    """

    _kernel = Announced(kernels.advance, "online forest")
    _arrays = kernels.ARRAYS
    _streams = kernels.STREAMS
    _cuts_epochs = True
    # 1: a range beyond all numbers had tests at infinity; 2: inherited events counted for min_samples
    learning_revision = 3

    def __init__(
        self,
        n_trees: int = 10,
        n_features: int = 10,
        n_thresholds: int = 10,
        min_samples: int = 50,
        min_gain: float = 0.1,
        max_depth: int = 50,
        gamma: float = 0.0,
        max_fringe_bytes: int = 8_000_000,
        max_nodes: int = 32_768,
        voting: str = "soft",
        balanced: bool = False,
        max_classes: int = 10_000,
        max_features: int = 10_000,
        max_categories: int = 1_000,
        max_text_bytes: int = MAX_TEXT_BYTES,
        nonfinite: str = "error",
        on_capacity: str = "degrade",
        absent: str = "missing",
        taxonomy: Any = None,
        refine: str = "own",
        n_jobs: int = 1,
        executor: str = "threads",
        n_actors: int = 2,
        seed: int | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.n_features = n_features
        self.n_thresholds = n_thresholds
        self.min_samples = min_samples
        self.min_gain = min_gain
        self.max_depth = max_depth
        self.gamma = gamma
        self.max_fringe_bytes = max_fringe_bytes
        self.max_nodes = max_nodes
        self.voting = voting
        self.balanced = balanced
        self.max_classes = max_classes
        self.max_features = max_features
        self.max_categories = max_categories
        self.max_text_bytes = max_text_bytes
        self.nonfinite = nonfinite
        self.on_capacity = on_capacity
        self.absent = absent
        self.taxonomy = taxonomy
        self.refine = refine
        self.n_jobs = n_jobs
        self.executor = executor
        self.n_actors = n_actors
        self.seed = seed
        self._start()
        # the shared store: ranges of the features, and those staged in this epoch
        self._low = np.zeros(0)
        self._high = np.zeros(0)
        self._staged_low = np.zeros(0)
        self._staged_high = np.zeros(0)

    def _passes_by(self) -> float:
        return math.exp(-1.0)  # a Poisson(1) number that is 0

    @property
    def _points_per_dim(self) -> int:
        return int(self._params["n_thresholds"][0])

    def _pack_params(self) -> NDArray[np.void]:
        check_int("n_features", self.n_features, 1, 1_000_000)
        check_int("n_thresholds", self.n_thresholds, 1, 10_000)
        check_int("min_samples", self.min_samples, 2)
        check_number("min_gain", self.min_gain, 0)
        check_int("max_depth", self.max_depth, 0)
        check_number("gamma", self.gamma, 0, 1)
        check_int("max_fringe_bytes", self.max_fringe_bytes, 1)
        check_int("max_nodes", self.max_nodes, 1)
        check_choice("voting", self.voting, ("soft", "hard"))
        check_bool("balanced", self.balanced)
        params = np.zeros(1, kernels.PARAMS)
        for name in kernels.PARAMS.names or ():
            if name != "hard":
                params[name] = getattr(self, name)
        params["hard"] = self.voting == "hard"
        return params

    def _kernel_arrays(self) -> tuple[Any, ...]:
        if len(self._low) < len(self._features):
            self._low = _widen(self._low, len(self._features), np.inf)
            self._high = _widen(self._high, len(self._features), -np.inf)
        return *super()._kernel_arrays(), self._low, self._high

    def _kernel_flags(self) -> tuple[bool, ...]:
        return (self._n_learned >= EPOCH,)

    def _dump(self) -> dict[str, NDArray[Any]]:
        width = len(self._features)
        return super()._dump() | {
            "range.low": _widen(self._low, width, np.inf),
            "range.high": _widen(self._high, width, -np.inf),
            "range.staged_low": _widen(self._staged_low, width, np.inf),
            "range.staged_high": _widen(self._staged_high, width, -np.inf),
        }

    def _restore(self, take: Callable[..., NDArray[Any]]) -> None:
        super()._restore(take)
        if self._saved_by is not None and self._saved_by < _SINCE_BIRTH:
            self._trees.leaf["errors"] = 0  # whose leaves count all they hold, as they did then
        width = len(self._features)
        self._low = take("range.low", np.float64, width)
        self._high = take("range.high", np.float64, width)
        self._staged_low = take("range.staged_low", np.float64, width)
        self._staged_high = take("range.staged_high", np.float64, width)
        for low, high in ((self._low, self._high), (self._staged_low, self._staged_high)):
            seen = low <= high
            unseen = np.isposinf(low) & np.isneginf(high)
            if not (seen & np.isfinite(low) & np.isfinite(high) | unseen).all():
                raise SnapshotError("the snapshot is damaged: range")

    def _observe(self, batch: Batch) -> None:
        X, learns = batch.X, batch.op & LEARN
        width = X.shape[1]
        if len(self._staged_low) < width:
            self._staged_low = _widen(self._staged_low, width, np.inf)
            self._staged_high = _widen(self._staged_high, width, -np.inf)
        rows = X if learns.all() else X[learns != 0]
        for r in range(len(rows)):
            np.fmin(self._staged_low, rows[r], out=self._staged_low)
            np.fmax(self._staged_high, rows[r], out=self._staged_high)

    def _end_epoch(self, batch: Batch) -> None:
        self._low = self._staged_low.copy()
        self._high = self._staged_high.copy()
        if self.gamma > 0:
            tree = self._trees.tree if self._shards is None else self._shards.figures
            t = kernels.poor_tree(self._trees._replace(tree=tree), self._n_learned, self.gamma)
            if t >= 0 and self._shards is not None:
                self._shards.change("restart_tree", t)
            elif t >= 0:
                self._restart_tree(t)

    def _restart_tree(self, t: int) -> None:
        kernels.restart(self._trees, t)
        self._totals[t] = 0

    # ---- trees in actors

    def _figures(self) -> NDArray[Any]:
        return self._trees.tree.copy() if self.gamma > 0 else np.zeros(0)

    def _shared(self) -> dict[str, Any]:
        return {"low": self._low, "high": self._high}

    def _take_shared(self, shared: dict[str, Any], X: NDArray[np.float64]) -> None:
        self._low, self._high = shared["low"], shared["high"]


def _widen(array: NDArray[np.float64], size: int, fill: float) -> NDArray[np.float64]:
    out = np.full(size, fill)
    out[: len(array)] = array
    return out

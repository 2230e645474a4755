"""Class-incremental forests of nearest class means (Ristin et al. 2016, hi-RF 2017) on a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.batch import length
from streamforest.forests.core.labels import as_list
from streamforest.forests.core.parameters import MAX_TEXT_BYTES
from streamforest.forests.ncm import holdout, inspection, presets
from streamforest.forests.ncm import state as ncm_state
from streamforest.forests.ncm import width as ncm_width
from streamforest.forests.ncm.votes import NCMVotes

_LARGEST = 1e15
_WARM_ROWS = 192


class NCMForestClassifier(NCMVotes):
    """Class-incremental forest of nearest-class-mean or SVM trees (Ristin et al., 2016; hi-RF, 2017).

    A node draws some of the classes it sees, takes the means of their rows as centroids, and sends an
    event to the side of the nearest one; sides are chosen by information gain. New classes need no
    training from scratch: a *strategy* says what happens to the trees when they come. From the first
    event on there is an answer: the nearest class mean speaks until trees stand.

    The forest keeps a memory of rows, and three opinions: the counts of the leaves, the class means, and
    the rows of the leaves as neighbours. Which shares of the say they get follows what each blend of them
    got right lately. Trees that are grown anew are put in place `swap_after` events after they were
    begun, whether grown in line or in a thread: the same bits. Any label and any features are taken as
    they come, also later; see `streamforest.forests.core.features`. A category has eight columns.

    Parameters
    ----------
    n_trees
        Number of trees.
    split
        "ncm": nearest class means (section 3.2). "svm": planes by hinge loss with random sides for the
        classes (section 3.3); one product a node, so answers come several times faster, but growing a
        tree takes longer.
    strategy
        "rolling": trees are grown anew from the memory one after the other, the oldest first, as many as
        events and mistakes have earned; when new classes are ready, those with more than the mean error.
        Worth on streams, below. "uls", "igt", "rtst", "rust": update leaf statistics, incrementally grow
        tree, retrain subtree, reuse subtree (section 4). "hirf": trees with more than the mean error
        outside their bags are grown anew, the others get their leaves filled from a fresh bag (hi-RF).
    mu
        µ: both sides of a split keep more than so many rows (the paper: 10).
    n_centroids
        Centroids of a node: "sqrt" or "log" of the number of classes, a share of it, or a number.
    side_search
        "greedy": single centroids change sides as long as that is better. A number: so many random
        assignments are tried (the paper: 1024).
    n_planes
        Planes tried at a node of an SVM tree.
    metric
        "raw" columns, "standardised" by their variance, "within" the classes, "full" and "full-scaled"
        by the whole covariance within the classes, drawn towards the identity or its diagonal. With more
        than 320 columns these two use the diagonal alone, in existing trees as well. "whitened" standardises
        once by the first rows, as the papers do. "auto": each tree has one of them, rather one whose young
        trees err little.
    memory
        Rows kept. When it is full a random row of the class with the most goes. With w columns (rounded
        up to eight) a row takes 4·w + 12 bytes, and 12 more in every tree; a tree at most 2 nodes of 36
        bytes and 3 centroids of 4·w + 9 bytes for each row of the memory. With more than 1,024 columns the
        memory keeps as many rows as take the place of `memory` rows of 1,024 (16 MB at least), and the
        centroids of all trees take 64 MB at most. `summary()["max_bytes"]` is the bound with the
        features and classes there are.
    pi, node_sampling
        π: the share of splitting nodes that RTST and RUST touch in a round, drawn by "quality", "size" or
        "uniform" (section 4.5).
    bagging
        Whether each tree has each row Poisson(1) times; None: only where hi-RF needs it.
    oob_boost
        α of hi-RF: a kept tree's error grows by α·tanh(error) for each round it was kept. Over the 95
        rounds from 20 to 964 characters .1 brings the forest to 96.8 % of the retrained one, .01 to
        96.5 %, 0 to 95.3 %, in about the same time.
    grow_kept
        Whether trees that hi-RF keeps may still split their leaves.
    balanced
        Whether a leaf's count of a class counts by the class' rows in memory.
    neighbours
        Newest rows of a leaf that are heard as neighbours; 0: none. 4 are better on letters that come one
        after the other (.3 points) and mnist14 (.4), 16 on digits (.1) and USPS (.2).
    mean_vote
        Whether the class means are heard beside the trees.
    class_ready, class_batch
        A new class is ready after so many events; so many ready ones make a round (None: a 25th of all
        classes).
    event_credit, mistake_credit
        Rounds that as many events, or mistakes, as there are rows in memory earn.
    swap_after
        Events after which a tree that was begun is put in place; earlier, in steps of 64, while the memory
        holds less than four times as many.
    background
        Grow trees in a thread that releases the GIL. Changes no bit of any result.
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
        words.
    n_jobs
        Threads over trees, for batches. Changes no bit of any result.
    seed
        For reproducible runs; every tree draws from hashes of its own seed.

    Notes
    -----
    Measured on digits ×3, letter, USPS, and letter and clinc150 with classes that come one after the
    other: mean accuracy .892 (25 trees, one seed). One at a time: without class means .883, without
    neighbours .887, metric "standardised" .887, "raw" .888, µ = 2 .891, µ = 10 .886, counts that are not
    balanced .891, strategy "hirf" .890, "igt" .882. `streamforest bench incremental` and `bench hirf` have
    the papers' own protocol.

    Done otherwise than the papers: hi-RF judges a row outside of both bags, the one that grew the splits
    and the one that filled the leaves; RUST cuts leaves with fewer than µ rows only after all drawn nodes
    have taken in the new classes.

    References
    ----------
    Ristin, Guillaumin, Gall, Van Gool: Incremental Learning of Random Forests for Large-Scale Image
    Classification. PAMI 2016. Xie, Wang, Peng: hi-RF: Incremental Learning Random Forest for Large-Scale
    Multi-class Data Classification. 2017.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from streamforest import NCMForestClassifier

    >>> model = NCMForestClassifier(n_trees=10, seed=1)
    >>> evaluate.progressive_val_score(datasets.ImageSegments().take(1000), model, metrics.Accuracy())
    Accuracy: 91.39%

    A class nobody has seen stands out before it has a label:

    >>> x, _ = next(iter(datasets.ImageSegments()))
    >>> model.novelty_one(x) < 2 < model.novelty_one(dict.fromkeys(x, 1000.0))
    True
    """

    largest = _LARGEST

    def __init__(
        self,
        n_trees: int = 25,
        split: str = "ncm",
        strategy: str = "rolling",
        mu: int = 1,
        n_centroids: str | float = "sqrt",
        side_search: str | int = "greedy",
        n_planes: int = 20,
        metric: str = "auto",
        memory: int = 10_000,
        pi: float = 0.05,
        node_sampling: str = "quality",
        bagging: bool | None = None,
        oob_boost: float = 0.1,
        grow_kept: bool = True,
        balanced: bool = True,
        neighbours: int = 8,
        mean_vote: bool = True,
        class_ready: int = 16,
        class_batch: int | None = None,
        event_credit: float = 0.1,
        mistake_credit: float = 10.0,
        swap_after: int = 256,
        background: bool = False,
        max_classes: int = 10_000,
        max_features: int = 10_000,
        max_categories: int = 1_000,
        max_text_bytes: int = MAX_TEXT_BYTES,
        nonfinite: str = "error",
        on_capacity: str = "degrade",
        absent: str = "missing",
        n_jobs: int = 1,
        seed: int | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.split = split
        self.strategy = strategy
        self.mu = mu
        self.n_centroids = n_centroids
        self.side_search = side_search
        self.n_planes = n_planes
        self.metric = metric
        self.memory = memory
        self.pi = pi
        self.node_sampling = node_sampling
        self.bagging = bagging
        self.oob_boost = oob_boost
        self.grow_kept = grow_kept
        self.balanced = balanced
        self.neighbours = neighbours
        self.mean_vote = mean_vote
        self.class_ready = class_ready
        self.class_batch = class_batch
        self.event_credit = event_credit
        self.mistake_credit = mistake_credit
        self.swap_after = swap_after
        self.background = background
        self.max_classes = max_classes
        self.max_features = max_features
        self.max_categories = max_categories
        self.max_text_bytes = max_text_bytes
        self.nonfinite = nonfinite
        self.on_capacity = on_capacity
        self.absent = absent
        self.n_jobs = n_jobs
        self.seed = seed
        self._start()
        self._features.largest = _LARGEST

    @classmethod
    def paper(cls, strategy: str = "rtst", **parameters: Any) -> NCMForestClassifier:
        """A forest with the papers' settings instead of those that were measured to be better.

        50 trees, µ = 10, π = .05 by quality, √classes centroids of a node, 1024 random sides tried,
        one whitening of the features by the first rows, bags, leaves as they are counted and nothing
        but trees that vote (Ristin 2016, section 5.2). Other `parameters` are passed on.

        >>> NCMForestClassifier.paper("hirf", seed=1).mu
        10
        """
        return cls(**{**presets.PAPER, "strategy": strategy, **parameters})

    def _plant(self, seeds: NDArray[np.uint64]) -> None:
        self._params = presets.pack(self)
        super()._plant(seeds)

    # ---- how new an event is

    tells_novelty: ClassVar[bool] = True

    def novelty_one(self, x: dict[Any, Any]) -> float:
        """How unlike everything known an event is, before any label exists: about 1 for what is usual.

        √(a·b) / c with a the squared distance from the nearest class mean over that class' own, b the
        squared distance from the nearest rows of the leaves the event falls into over what is usual,
        and c the support of the answer, its probability. Infinite before anything was learned.
        """
        return float(self.novelty_many([x])[0])

    def novelty_many(self, X: Any) -> NDArray[np.float64]:
        """`novelty_one` for each row of a batch."""
        novelty = self.answers(X).novelty
        assert novelty is not None
        return novelty

    # ---- recorded sets

    def fit_many(self, X: Any, y: Any) -> None:
        """Take in a recorded set at once and grow every tree anew from the memory.

        With a memory that holds the whole set this is the papers' offline forest; on a model that
        has learned before, all trees begin afresh. Where metrics or opinions are to be chosen,
        forests that are grown without an eighth of the rows are judged by it first, at twice the time.
        """
        with self._lock:
            self._take_in(X, y, trees=False)
            if self._n_seen:
                holdout.judge(self, X, as_list(y, length(X)))
                self._rounds.plant(self)
                self._settle_blend()

    def extend_many(self, X: Any, y: Any) -> None:
        """Take in rows at once, say of new classes, then one round of the strategy over all trees.

        This is an increment of the papers' protocol: leaf statistics first, then the structure.
        """
        with self._lock:
            self._take_in(X, y, trees=True)
            if self._n_seen:
                (self._rounds.round if self._rounds.stands else self._rounds.plant)(self)
                self._settle_blend()

    def _take_in(self, X: Any, y: Any, trees: bool) -> None:
        """Learn without answers, splits and rounds; without `trees` into the memory only."""
        grows = int(self._params["grows"][0])
        self._params["grows"] = self._params["judges"] = 0
        self._taking_in = "trees" if trees else "memory"
        try:
            self._learn(X, y)
            if self._n_columns > max(self._old_columns, ncm_width.WIDE):
                # what comes next would make trees of both widths; an epoch's end would not
                self._new_columns()
                self._grind()
        finally:
            self._params["grows"], self._params["judges"] = grows, 1
            self._taking_in = None

    # ---- snapshots

    def _dump(self) -> dict[str, NDArray[Any]]:
        return ncm_state.dump(self)

    def _restore(self, take: Callable[..., NDArray[Any]]) -> None:
        ncm_state.restore(self, take)

    # ---- the rest

    def warm_up(self) -> None:
        """Compile, or load, all that this forest will ever call, so that no event has to wait."""
        other = self.clone({"memory": 64, "swap_after": 0, "mu": min(self.mu, 1)})
        rng = np.random.default_rng(0)
        y = np.arange(_WARM_ROWS) % 3 + (np.arange(_WARM_ROWS) > 100)
        rows = [{"a": float(v), "b": "x"} for v in y + rng.random(_WARM_ROWS)]
        other.advance(rows, y)
        other.predict_one(rows[0])
        other.learn_one(rows[0], 0)
        other.extend_many(rows[:8], [9] * 8)
        other.novelty_one(rows[0])
        other._dump()

    def summary(self) -> dict[str, Any]:
        """Size and shape of the forest.

        `memory_bytes` is the rows kept, `total_bytes` all arrays as allocated, `max_bytes` what they
        can take with the features and classes there are; `metrics` counts trees by metric, `opinions`
        are the shares in the answers, `tree_error` how often a single tree was wrong lately.
        """
        with self._lock:
            return inspection.summary(self)

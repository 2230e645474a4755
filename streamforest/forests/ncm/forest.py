"""Class-incremental forests of nearest class means (Ristin et al. 2016, hi-RF 2017) on a stream."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.coarse import recorded
from streamforest.forests.core import warming
from streamforest.forests.core.batch import INTO_LEAVES, INTO_MEMORY, length
from streamforest.forests.core.labels import as_list
from streamforest.forests.core.parameters import MAX_TEXT_BYTES
from streamforest.forests.ncm import holdout, inspection, presets
from streamforest.forests.ncm.processing import NCMProcessing


class NCMForestClassifier(NCMProcessing):
    """Class-incremental forest of nearest-class-mean or SVM trees (Ristin et al., 2016; hi-RF, 2017).

    A node draws some of the classes it sees, takes the means of their rows as centroids, and sends an
    event to the side of the nearest one; sides are chosen by information gain. New classes need no
    training from scratch: a *strategy* says how the trees are retrained when they come. There is an
    answer from the first event on: until trees are grown, it is the nearest class mean.

    The forest keeps a memory of rows, and has three experts: the counts of the leaves, the class means,
    and the rows of the leaves as neighbours. Their weights follow what each blend of them got right
    lately. A tree that is grown anew is swapped in `swap_after` events after it was started, in line or in a
    thread: the same bits. Labels and features may come at any time. A category takes eight columns.

    Parameters
    ----------
    n_trees
        Number of trees.
    split
        "ncm": nearest class means (section 3.4). "svm": planes by hinge loss with random sides for the
        classes (section 3.2); a node takes one product, so answers are several times faster, but growing
        a tree takes longer.
    strategy
        "rolling": trees are grown anew from the memory one after the other, the oldest first, as many as
        events and mistakes have earned; when new classes are ready, those with more than the mean error.
        What it is worth on streams is measured below. "uls", "igt", "rtst", "rust": update leaf
        statistics, incrementally grow tree, retrain subtree, reuse subtree (section 4). "hirf": trees with
        more than the mean error outside their bags are grown anew, the others get their leaves filled from
        a new bag (hi-RF).
    mu
        µ: both sides of a split have more than so many rows (the paper: 10).
    n_centroids
        Centroids of a node: "sqrt" or "log" of the number of classes, a share of it, or a number.
    side_search
        "greedy": single centroids change sides as long as that is better. A number: so many random
        assignments are tried (the paper: 1024).
    n_sets, lambda_reg, c
        The regularised forest (Ristin 2015, section 3.2): so many sets of class means are tried at a node (0:
        one of a fixed size), of 2 to c·√classes each, and each mean of a set costs `lambda_reg` of the
        information gain, in nats.
    coarse_method, lambda_coarse
        How trees use coarse labels (2015, section 4); None: as all forests do, see `refine`. "stacked": a
        forest of coarse rows adds its posteriors to the features (`fit_many` only). "joint": the gain of
        categories among coarse rows is added, times `lambda_coarse` (.1). "h": the same among all rows, times
        1. "nn": a coarse row is learned under the class of its nearest neighbour in its category. "nn-h":
        both. The nearest neighbour hurts where a metric was learned before (28.3 against 30.6 in the paper),
        and on features of deep networks the gain is 1.02.
    n_planes
        Planes tried at a node of an SVM tree.
    svm_passes, svm_penalty
        Steps of descent for each row of a node when a plane is fitted (for 100 rows at least, for 1,000 at
        most), and the penalty on the plane's squared length, over the mean squared length of a row. On
        caltech101 and 100 classes of clinc150 (12 and 8 trees) two passes without a penalty reach .819 and
        .827, these .822 and .830 at 1.6 times the training, 24 passes .824 and .834 at 5 to 6 times.
    metric
        How distances are measured. "raw": by the columns as they are. "standardised": divided by their
        variance. "within": divided by their variance within the classes. "full", "full-scaled": by the
        whole covariance within the classes, shrunk towards the identity or towards its diagonal; with more
        than 320 columns by the diagonal alone, in existing trees as well. "whitened": standardised once by
        the first rows, as the papers do. "auto": each tree has one of them, more likely one whose young
        trees make few errors.
    memory
        Rows to keep. When it is full a random row of the class with the most rows is evicted. With w
        columns (rounded up to eight) a row takes 4·w + 12 bytes, and 12 more in every tree; a tree takes at
        most 2 nodes of 36 bytes and 3 centroids of 4·w + 9 bytes for each row of the memory. With more than
        1,024 columns the memory takes no more bytes than `memory` rows of 1,024 columns (16 MB at least),
        and the centroids of all trees take 64 MB at most. `summary()["max_bytes"]` is the bound with the
        features and classes there are.
    drift
        Whether old rows that the newest contradict leave memory, trees and class means ("rolling" only).
    pi, node_sampling
        π: the share of splitting nodes that RTST and RUST retrain at a time, drawn by "quality", "size" or
        "uniform" (section 4.5).
    bagging
        Whether each tree has each row Poisson(1) times; None: only with hi-RF, which needs it.
    oob_boost
        α of hi-RF: α·tanh(error) is added to the error of a tree for each time it was kept. Over the 95
        increments from 20 to 964 characters .1 brings the forest to 96.8 % of the retrained one, .01 to
        96.5 %, 0 to 95.3 %, in about the same time.
    oob_weighting
        Whether hi-RF's out-of-bag error is corrected for the age of rows (ours; the paper's is not). A row
        older than the splits of a kept tree had to miss two bags, a newer one only one: uncorrected, rows of
        new classes count e times, and against trees that were kept.
    grow_kept
        Whether trees that hi-RF keeps may still split their leaves. The published hi-RF has False: RLP
        empties and refills leaves, nothing else. Growing is more accurate and takes longer.
    balanced
        Whether a leaf's count of a class is divided by the class' rows in memory.
    neighbours
        Newest rows of a leaf that vote as neighbours; 0: none. 4 are better on letters that come one after
        the other (.3 points) and mnist14 (.4), 16 on digits (.1) and USPS (.2).
    mean_vote
        Whether the class means vote beside the trees.
    class_ready, class_batch
        A new class is ready after so many events; trees are retrained for so many ready ones (None: a 25th
        of all classes).
    event_credit, mistake_credit
        How often all trees are retrained for as many events, or mistakes, as there are rows in memory.
    swap_after
        Events after which a tree that is being grown is swapped in; fewer, in steps of 64, while the memory
        holds less than four times as many rows.
    background
        Grow trees in a thread that releases the GIL. Changes no bit of any result.
    max_classes, max_features, max_categories
        What the stream may bring: classes, features, categories of one feature. One class more is a
        `CapacityError`, and nothing is learned from that event; of the others `on_capacity` decides. So is
        what would make more than 2²⁴ class means, one for each class and column.
    max_text_bytes
        Bytes of names and categories, and of classes: each as long as in a snapshot, and 128 more.
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
    taxonomy
        The category of each class, as far as it is known: `{"lion": "feline", …}`. Events with both labels
        add to it; see `docs/coarse-labels.md`.
    refine
        The class that an event with only a coarse label is learned under: of the known ones of its category
        the most probable ("own"), that with the nearest mean ("mean"), or of the nearest labelled row ("nn").
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

    What the papers leave open: a leaf that found no split is tested again when it has half as many rows more
    (IGT); with RUST the plane of an SVM node is fitted anew from the old one, and a known class stands on the
    side that most of its rows go to now.

    Two things differ from the papers: hi-RF judges a tree by rows outside both its bags, and RUST cuts leaves
    with fewer than µ rows only after all drawn nodes have taken in the new classes.

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

    An event of an unknown class is recognised before it has a label:

    >>> x, _ = next(iter(datasets.ImageSegments()))
    >>> model.novelty_one(x) < 2 < model.novelty_one(dict.fromkeys(x, 1000.0))
    True
    """

    largest = 1e15
    max_means: ClassVar[int] = 1 << 24  # of 12 bytes: 200 MB
    _revision: ClassVar[int] = 2  # 1: without what the forest knows of drift
    learning_revision: ClassVar[int] = 4  # 2: SVM without penalty; 3: memory without drift

    def __init__(
        self,
        n_trees: int = 25,
        split: str = "ncm",
        strategy: str = "rolling",
        mu: int = 1,
        n_centroids: str | float = "sqrt",
        side_search: str | int = "greedy",
        n_sets: int = 0,
        lambda_reg: float = 0.0,
        c: float = 1.0,
        coarse_method: str | None = None,
        lambda_coarse: float | None = None,
        n_planes: int = 20,
        svm_passes: float = 6.0,
        svm_penalty: float = 0.003,
        metric: str = "auto",
        memory: int = 10_000,
        drift: bool = True,
        pi: float = 0.05,
        node_sampling: str = "quality",
        bagging: bool | None = None,
        oob_boost: float = 0.1,
        oob_weighting: bool = False,
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
        taxonomy: Any = None,
        refine: str = "own",
        n_jobs: int = 1,
        seed: int | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.split = split
        self.strategy = strategy
        self.mu = mu
        self.n_centroids = n_centroids
        self.side_search = side_search
        self.n_sets = n_sets
        self.lambda_reg = lambda_reg
        self.c = c
        self.coarse_method = coarse_method
        self.lambda_coarse = lambda_coarse
        self.n_planes = n_planes
        self.svm_passes = svm_passes
        self.svm_penalty = svm_penalty
        self.metric = metric
        self.memory = memory
        self.drift = drift
        self.pi = pi
        self.node_sampling = node_sampling
        self.bagging = bagging
        self.oob_boost = oob_boost
        self.oob_weighting = oob_weighting
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
        self.taxonomy = taxonomy
        self.refine = refine
        self.n_jobs = n_jobs
        self.seed = seed
        self._start()

    @classmethod
    def paper(cls, strategy: str = "rtst", **parameters: Any) -> NCMForestClassifier:
        """A forest with the papers' settings instead of those that were measured to be better.

        50 trees, µ = 10, π = .05 by quality, √classes centroids of a node, 1024 random sides tried,
        features whitened once by the first rows, bags, counts that are not balanced, and no experts
        beside the trees (Ristin 2016, section 5.1). "hirf" is the published hi-RF: trees are grown to purity
        (µ = 0), and those that are kept do not grow. "rncmf" is the regularised forest of 2015: 1000 sets of
        class means, 50 random sides for each, λ_reg = .001. Other `parameters` are passed on.

        >>> NCMForestClassifier.paper("rust").mu, NCMForestClassifier.paper("hirf").mu
        (10, 0)
        >>> NCMForestClassifier.paper("rncmf", coarse_method="nn-h").n_sets
        1000
        """
        if strategy == "rncmf":
            return cls(**{**presets.PAPER, **presets.REGULARISED, **parameters})
        own = presets.PAPER_HIRF if strategy == "hirf" else {}
        return cls(**{**presets.PAPER, **own, "strategy": strategy, **parameters})

    def _pack_params(self) -> NDArray[np.void]:
        return presets.pack(self)

    # ---- how new an event is

    tells_novelty: ClassVar[bool] = True

    def novelty_one(self, x: dict[Any, Any]) -> float:
        """How unlike everything known an event is, before any label exists: about 1 for what is usual.

        √(a·b) / c: a is the squared distance from the nearest class mean, divided by that of the class'
        own events; b is the squared distance from the nearest rows of the leaves that the event falls
        into, divided by the usual one; c is the probability of the answer. Infinite before anything was
        learned.
        """
        return float(self.novelty_many([x])[0])

    def novelty_many(self, X: Any) -> NDArray[np.float64]:
        """`novelty_one` for each row of a batch."""
        new = self.answers(X).novelty
        assert new is not None
        return new

    # ---- how good the trees are

    def tree_errors(self) -> NDArray[np.float64]:
        """The running share of events that each tree alone got wrong."""
        with self._lock:
            return self._trees.errors()

    def out_of_bag_errors(self) -> NDArray[np.float64]:
        """The share of rows outside its bags that each tree alone gets wrong."""
        with self._lock:
            return self._trees.out_of_bag_errors(self._memory, self.oob_weighting)

    # ---- recorded sets

    def fit_many(self, X: Any, y: Any, *, coarse: Any = None) -> None:
        """Learn a recorded set at once and grow every tree anew from the memory.

        With a memory that holds the whole set this is the papers' offline forest; on a model that
        has learned before, all trees start again. Where metrics or experts are to be chosen, forests
        that are grown without an eighth of the rows are judged by it first, at twice the time.
        """
        with self._lock:
            if coarse is not None:
                X, y = recorded.prepare(self, X, y, coarse)
            self._learn_set(X, y, INTO_MEMORY)
            if self._means.n_classes:
                holdout.judge(self, X, as_list(y, length(X)))
                self._grow_all()

    def extend_many(self, X: Any, y: Any) -> None:
        """Learn rows at once, say of new classes, then apply the strategy once to all trees.

        This is an increment of the papers' protocol: leaf statistics first, then the structure.
        """
        with self._lock:
            self._learn_set(X, y, INTO_LEAVES)
            if self._means.n_classes:
                if self._retraining.trees_are_grown:
                    self._retraining.retrain_all(self._now())
                    self._blend.choose(True)
                else:
                    self._grow_all()

    # ---- the rest

    def warm_up(self, first_events: bool = False) -> None:
        """Compile, or load, all that it will ever call, or only what its first events call."""
        other = warming.small(self, memory=64, swap_after=0, mu=min(self.mu, 1))
        if first_events:
            warming.begin(other)
            return
        y = np.arange(warming.ROWS) % 3 + (np.arange(warming.ROWS) > 100)
        noise = np.random.default_rng(0).random(warming.ROWS)
        rows = [{"a": float(v), "b": "x"} for v in y + noise]
        other.advance(rows, y)
        other.predict_one(rows[0])
        other.learn_one(rows[0], 0)
        other.extend_many(rows[:8], [9] * 8)
        other.novelty_one(rows[0])
        other._trees.repack(0)
        warming.summarise_and_reload(other)

    def summary(self) -> dict[str, Any]:
        """Size and shape of the forest.

        `memory_bytes` is what the rows take, `total_bytes` what all arrays take as allocated, `max_bytes`
        what they can take with the features and classes there are; `metrics` counts trees by metric,
        `expert_weights` are the shares of the experts in the answers, `tree_error` is how often a single
        tree was wrong lately, `times_forgotten` how often old rows had to go since the stream had changed.
        """
        with self._lock:
            return {
                "learned": self._n_learned,
                "classes": len(self._labels),
                "features": len(self._features),
                "capacity": self._features.totals(),
                **inspection.summary(self._parts(), self._retraining, len(self._labels)),
                "times_forgotten": self._forgetting.times,
                **self._levels.summary(),
            }

"""The consistent online forest as a River estimator."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import ConsistencyWarning, ParameterError
from streamforest.forests.candidate.forest import CandidateForest
from streamforest.forests.core.parameters import (
    MAX_TEXT_BYTES,
    check_bool,
    check_choice,
    check_int,
    check_number,
)
from streamforest.kernels.candidate import consistent as kernels
from streamforest.kernels.candidate.grow import UNBOUNDED
from streamforest.kernels.core.notice import Announced


class ConsistentForestClassifier(CandidateForest):
    """Consistent online random forest (Denil et al., 2013).

    Each tree draws, for every event, one of two streams. *Structure* events place candidate splits
    and choose between them; *estimation* events fill the class histograms that answer. Since no event
    does both, the trees stay honest, and the forest provably converges to the best possible error as
    the stream goes on. A leaf of depth d splits when some candidate has at least α(d) estimation
    events on both sides and a gain above τ; a leaf that has met β(d) of them splits on its best
    candidate whatever its gain.

    Memory is bounded: only the leaves of the *fringe* collect candidates. When a place falls free, the
    inactive leaf with the largest ŝ = p̂·ê, its share of events times its share of errors, takes it; an
    active leaf stays until it splits. With a drift, prefer a forest that forgets: this one does not.

    Labels (str, int, bool, finite float) and features are taken as they come; see
    `streamforest.forests.core.features` for what a value may be. Strings are categories without order: a
    split asks "is it this value?" or "is it in this random half of the values?".

    Parameters
    ----------
    n_trees
        Number of trees. More are more accurate, at a cost that grows in proportion.
    lam
        λ: a leaf looks at min(1 + Poisson(λ), number of features) dimensions (section 3.3).
    n_splits
        m: distinct candidate points in each of them, taken from the leaf's first structure events.
    tau
        τ: the information gain, in bits, above which a valid candidate splits its leaf (section 3.4).
    alpha0, alpha_growth
        α(d) = alpha0 · alpha_growth ** d. The theorem needs it to grow: `alpha_growth` above 1; at 1
        a `ConsistencyWarning` says that nothing grows.
    beta_factor
        β(d) = beta_factor · α(d), at least α(d).
    p_structure
        The share of structure events among those that count for either stream.
    p_ignore
        The share that a tree ignores: the third stream of section 3.2. The paper found no use in it.
    max_fringe
        Active leaves per tree at most; None: as many as the bytes allow.
    max_fringe_bytes
        Bytes of candidate statistics per tree at most, counted from live entries: a leaf with D
        dimensions and K classes takes about 16·D·m·(K + 1) + 24·D·m, the classes of its histogram
        counting from the start. One leaf may always be active.
        Classes that an active leaf meets later can overshoot the bound by their rows;
        `summary()["fringe_overshoot"]` shows it.
    max_nodes
        Nodes per tree at most. A full tree keeps counting and answering, gives its fringe back, and
        the guarantee ends. A node takes 120 bytes, a class of a leaf 16; arrays are kept up to twice
        as large as what they hold, so a forest stays below n_trees · 2 · (max_fringe_bytes +
        max_nodes · (120 + 8 · classes of a leaf)).
    voting
        "soft" averages the trees' posteriors; "hard" is the paper's majority vote (section 3.5). Ties
        go to the class seen first.
    balanced
        Whether a leaf answers as if all classes were equally frequent: a class's count counts by its share
        of all events of that class, and trees whose estimation stream has had none of them do not vote
        against it. A class of two events is then not buried by one of two thousand, and a rare class is
        named more often than it comes. See docs/few-examples.md for what it is worth.
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
        For reproducible runs; every tree draws from hashes of its own seed.

    Notes
    -----
    The defaults fulfil the conditions of the theorem and were chosen on the thirteen streams of
    `streamforest bench forest`: mean accuracy .810 with 10 trees, 2 seeds. From λ = 5, m = 10, τ = .05,
    α₀ = 5, growth 1.05 (.781), one at a time: α₀ = 10 .759, α₀ = 2 .801, λ = 3 .772, λ = 10 .789,
    m = 5 .778 (at the defaults 2, 3 and 4 are level), τ = .1 .782, p_structure = .35 .779 and
    .65 .772, hard voting .728. On the Gaussian mixture a larger α₀ is a little closer to the Bayes
    rule (.667 against .662 of .670).

    References
    ----------
    Denil, Matheson, de Freitas: Consistency of Online Random Forests. ICML 2013.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from streamforest import ConsistentForestClassifier

    >>> model = ConsistentForestClassifier(n_trees=20, seed=1)
    >>> evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy())
    Accuracy: 90.55%

    A whole batch at once, predicted and learned row by row just the same:

    >>> events = list(datasets.Phishing())
    >>> batch = ConsistentForestClassifier(n_trees=20, seed=1)
    >>> P = batch.advance([x for x, _ in events], [y for _, y in events])
    >>> P.shape, batch.classes_
    ((1250, 2), [True, False])
    """

    _kernel = Announced(kernels.advance, "consistent forest")
    _arrays = kernels.ARRAYS
    _streams = kernels.STREAMS

    def __init__(
        self,
        n_trees: int = 10,
        lam: float = 10.0,
        n_splits: int = 3,
        tau: float = 0.1,
        alpha0: float = 1.0,
        alpha_growth: float = 1.1,
        beta_factor: float = 50.0,
        p_structure: float = 0.5,
        p_ignore: float = 0.0,
        max_fringe: int | None = None,
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
        self.lam = lam
        self.n_splits = n_splits
        self.tau = tau
        self.alpha0 = alpha0
        self.alpha_growth = alpha_growth
        self.beta_factor = beta_factor
        self.p_structure = p_structure
        self.p_ignore = p_ignore
        self.max_fringe = max_fringe
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

    def _passes_by(self) -> float:
        return 1.0 - (1.0 - self.p_ignore) * (1.0 - self.p_structure)

    @property
    def _points_per_dim(self) -> int:
        return int(self._params["n_splits"][0])

    def _pack_params(self) -> NDArray[np.void]:
        check_number("lam", self.lam, 0, 1e6)
        check_int("n_splits", self.n_splits, 1, 10_000)
        check_number("tau", self.tau, 0)
        check_number("alpha0", self.alpha0, 0, inside=True)
        check_number("alpha_growth", self.alpha_growth, 1)
        check_number("beta_factor", self.beta_factor, 0, inside=True)
        check_number("p_structure", self.p_structure, 0, 1, inside=True)
        check_number("p_ignore", self.p_ignore, 0, 0.99)
        if self.max_fringe is not None:
            check_int("max_fringe", self.max_fringe, 1)
        check_int("max_fringe_bytes", self.max_fringe_bytes, 1)
        check_int("max_nodes", self.max_nodes, 1)
        check_choice("voting", self.voting, ("soft", "hard"))
        check_bool("balanced", self.balanced)
        if self.beta_factor < 1:
            raise ParameterError(
                f"beta_factor={self.beta_factor!r} makes beta smaller than alpha: use at least 1"
            )
        if self.alpha_growth == 1:
            warnings.warn(
                "alpha_growth=1: alpha(d) does not grow with the depth, so the forest's "
                "theorem of consistency does not hold; use a value above 1",
                ConsistencyWarning,
                stacklevel=5,
            )
        params = np.zeros(1, kernels.PARAMS)
        for name in kernels.PARAMS.names or ():
            if name not in ("max_fringe", "hard"):
                params[name] = getattr(self, name)
        params["max_fringe"] = UNBOUNDED if self.max_fringe is None else self.max_fringe
        params["hard"] = self.voting == "hard"
        return params

"""The stream forest as a River estimator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import FeatureError, ParameterError
from streamforest.forests import stream_arrays, stream_inspect, stream_state
from streamforest.forests.base import Forest
from streamforest.forests.engine import EPOCH
from streamforest.forests.parameters import check_int, check_number
from streamforest.kernels import ring_advance, ring_store
from streamforest.kernels.compiling import Announced
from streamforest.kernels.entropy import STEPS, XLOGX
from streamforest.kernels.ring import PARAMS, Grove
from streamforest.kernels.tree import LEARN

_LARGEST = float(np.finfo(np.float32).max)
_SAME_NAME = tuple(name for name in PARAMS.names or () if name not in ("ring_rows", "slots"))


class StreamForestClassifier(Forest):
    """Stream forest: the two streams of the consistent forest, over a ring of recent rows.

    The consistent forest [^1] splits a leaf by candidates whose statistics it has to collect first,
    forgets every event once it is counted, and knows no drift. This forest keeps its rule and changes
    the rest. In each tree an event belongs to the *structure* stream, which alone places splits, or to
    the *estimation* stream, which alone feeds answers. On top of that:

    - **One ring of rows for all trees.** Each leaf holds a list of its rows in the ring. A leaf is
      tested for a split when its structure rows have grown by a fifth: every threshold of a random
      set of features is looked at, and a split is made when its information gain pays for the
      parameters it adds and for the choice among so many (Akaike's criterion; there is no threshold
      to be set). The children are tested at once.
    - **Two opinions a tree**: the class counts of the leaf, and the leaf's newest estimation rows
      weighted by their distance, both smoothed by the leaf's ancestors. The forest mixes the two by
      their recent errors. Even trees measure distance in standard deviations, odd ones in ranges.
    - **Vote weights**: where the recent accuracies of the trees differ by more than chance, better
      trees count for more.
    - **Challengers**: when a tree's errors rise (and now and then for no reason) a new tree is grown
      from recent rows and runs beside the old one; whoever makes fewer errors votes. It is built a
      few tests an event, so that no event waits for it.

    Classes and features may appear at any time. A missing value goes to the larger side of a split
    and says nothing about distance. Categories (strings) have no order: a split sends a *set* of them
    to either side, found exactly for two classes and by random groups of classes for more; in
    distances they differ or they do not. Counts are sparse, so hundreds of classes cost what is seen.

    *What is given up, what is kept.* The ring and `max_nodes` bound the rows that a deep leaf can
    learn from, so the theorem of consistency of Denil et al. is not claimed here: it belongs to
    `ConsistentForestClassifier`. The two-stream rule is kept, as long as a tree stands: with
    `drift=False`, other labels in the estimation stream would leave every split where it is, and
    other labels in the structure stream would leave both opinions of a given structure. Every label
    counts, whatever its stream, in three places: vote weights, the mix of the opinions, and swaps.

    Each parameter says what it is worth: prequential accuracy in points, 20 trees, measured on the 13
    streams of `streamforest bench forest` (the trial's figures where marked *).

    Parameters
    ----------
    n_trees
        Trees. 40 instead of 20 bring .1 to 1 point* for twice the time.
    p_structure
        Share of events in the structure stream. In early runs, before the neighbours' smoothing had
        its value, .35 was .1 to .3 points better on segments, pendigits and covtype and no better
        elsewhere; .45 cost .1 on bananas.
    n_candidates
        Features looked at in a split test: at most this, at most two thirds of all (at least two).
        Features that are constant in the leaf do not count.
    test_rows
        Newest rows of either stream that a test looks at.
    test_growth
        A leaf is tested again when its structure rows have grown by this share.
    neighbours
        Estimation rows of a leaf that the second opinion weighs, the newest. The second opinion is
        worth 1 to 6 points* where classes are many; 64 instead of 32 change nothing but the speed.
    neighbour_power
        How fast a row's weight falls with its squared distance. In few dimensions less is better
        (4 instead of 6: electricity +.2), in many more (usps -.4, mnist14 -.9).
    smoothing
        Weight of the parent's answer in a node's counts, in events. On phishing .3 and 3 do as well.
    neighbour_smoothing
        The same for the neighbours, where the nearest row has weight 1. .1 instead of 1, together with
        a `neighbour_power` of 6 instead of 8, brought .8 points on usps, 1.2 on letter and covtype, .9
        on electricity, .6 on pendigits, and cost .1 on bananas and .2 on phishing.
    drift
        Whether trees are challenged. Worth 5 points on covtype*, 7 on electricity*, 9 on Agrawal's
        stream with drift*.
    alarm
        Standard deviations by which recent errors must exceed earlier ones to call a challenger.
    challenge_rate
        Probability of a challenger at an event without an alarm, after event 1,000.
    rechallenge_rate
        What is added to it just after a swap; it fades within 1,000 events.
    max_challenge_rows
        Most rows such a challenger is grown from (the number is log-uniform from 64).
    trial_events
        Events after which a challenger that has not won is dropped.
    ring_rows
        Rows in the ring.
    max_ring_bytes
        Bound on the bytes of the ring (rows, labels and lists of all trees). With many features the
        ring holds fewer than `ring_rows` rows; it shrinks when features appear. Never below 64 rows.
    max_nodes
        Nodes a tree may have (a challenger is a tree of its own). When they are used up no leaf is
        split any more; leaves go on learning.
    max_classes, max_features, max_categories
        Bounds; going over one is a `CapacityError` and nothing is learned.
    nonfinite
        `"error"` refuses NaN and infinities when learning, `"missing"` takes them as missing.
    n_jobs
        Threads. Predictions and state are the same bits for any number.
    seed
        Seed of all random draws.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from streamforest import StreamForestClassifier
    >>> model = StreamForestClassifier(seed=1)
    >>> evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy())
    Accuracy: 91.03%

    Why an event is classified as it is:

    >>> x, y = next(iter(datasets.Phishing()))
    >>> print(model.debug_one(x, tree=0))  # doctest: +ELLIPSIS
    forest of 20 trees: True ...
      counts of leaves ...
      neighbours in leaves ...
    tree 0 (recent accuracy ...
    >>> importances = model.feature_importances()
    >>> max(importances, key=importances.get)
    'empty_server_form_handler'

    References
    ----------
    [^1]: Denil, M., Matheson, D. and de Freitas, N., 2013. Consistency of online random forests.
    In International Conference on Machine Learning (pp. 1256-1264).
    """

    _kernel = Announced(ring_advance.advance, "stream forest")
    _cuts_epochs: ClassVar[bool] = True
    _grove: Grove

    def __init__(
        self,
        n_trees: int = 20,
        p_structure: float = 0.4,
        n_candidates: int = 20,
        test_rows: int = 512,
        test_growth: float = 0.2,
        neighbours: int = 32,
        neighbour_power: int = 6,
        smoothing: float = 1.0,
        neighbour_smoothing: float = 0.1,
        drift: bool = True,
        alarm: float = 2.5,
        challenge_rate: float = 0.0005,
        rechallenge_rate: float = 0.004,
        max_challenge_rows: int = 4_000,
        trial_events: int = 500,
        ring_rows: int = 16_384,
        max_ring_bytes: int = 64_000_000,
        max_nodes: int = 4_096,
        max_classes: int = 10_000,
        max_features: int = 10_000,
        max_categories: int = 1_000,
        nonfinite: str = "error",
        n_jobs: int = 1,
        seed: int | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.p_structure = p_structure
        self.n_candidates = n_candidates
        self.test_rows = test_rows
        self.test_growth = test_growth
        self.neighbours = neighbours
        self.neighbour_power = neighbour_power
        self.smoothing = smoothing
        self.neighbour_smoothing = neighbour_smoothing
        self.drift = drift
        self.alarm = alarm
        self.challenge_rate = challenge_rate
        self.rechallenge_rate = rechallenge_rate
        self.max_challenge_rows = max_challenge_rows
        self.trial_events = trial_events
        self.ring_rows = ring_rows
        self.max_ring_bytes = max_ring_bytes
        self.max_nodes = max_nodes
        self.max_classes = max_classes
        self.max_features = max_features
        self.max_categories = max_categories
        self.nonfinite = nonfinite
        self.n_jobs = n_jobs
        self.seed = seed
        self._start()
        self._features.largest = _LARGEST

    # ---- arrays

    def _pack_params(self) -> NDArray[np.void]:
        check_number("p_structure", self.p_structure, 0, 1, inside=True)
        check_int("n_candidates", self.n_candidates, 1)
        check_int("test_rows", self.test_rows, 2, 32_767)
        check_number("test_growth", self.test_growth, 0, 1e6)
        check_int("neighbours", self.neighbours, 1, 32_767)
        check_int("neighbour_power", self.neighbour_power, 0, 1_000)
        check_number("smoothing", self.smoothing, 1e-9, 1e6)
        check_number("neighbour_smoothing", self.neighbour_smoothing, 1e-9, 1e6)
        if not isinstance(self.drift, bool):
            raise ParameterError(f"drift={self.drift!r}: use True or False")
        check_number("alarm", self.alarm, 0)
        check_number("challenge_rate", self.challenge_rate, 0, 1)
        check_number("rechallenge_rate", self.rechallenge_rate, 0, 1)
        check_int("max_challenge_rows", self.max_challenge_rows, 1)
        check_int("trial_events", self.trial_events, 1)
        check_int("ring_rows", self.ring_rows, 64, 1 << 29)
        check_int("max_ring_bytes", self.max_ring_bytes, 1)
        check_int("max_nodes", self.max_nodes, 1, 1 << 30)
        params = np.zeros(1, PARAMS)
        for name in _SAME_NAME:
            params[name] = getattr(self, name)
        self._set_ring(params, 0)
        return params

    def _set_ring(self, params: NDArray[np.void], features: int) -> None:
        rows = stream_arrays.readable_rows(
            self._parameters["ring_rows"],
            self._parameters["max_ring_bytes"],
            features,
            self.n_trees,
        )
        params["ring_rows"] = rows
        params["slots"] = rows + EPOCH

    def _plant(self, seeds: NDArray[np.uint64]) -> None:
        self._params = self._pack_params()
        self._grove = stream_arrays.plant(seeds)
        # what all trees share; changed at the end of an epoch only
        self._metric = stream_arrays.new_metric(self._grove.rows.shape[1])
        self._vote_power = 0.0
        self._opinion_mix = np.ones(2)
        # what that is made of
        self._stats = np.zeros((5, self._grove.rows.shape[1]))
        self._opinion_loss = np.zeros(2)
        self._columns = 0  # of the ring
        self._n_known = 0  # features known as of the last row

    def _scratch(self) -> None:
        super()._scratch()
        self._routes = np.zeros((self.n_trees, 3), np.int64)

    def _call(
        self,
        first: int,
        last: int,
        want: NDArray[np.int64],
        X: NDArray[np.float64],
        y: NDArray[np.int64],
        op: NDArray[np.uint8],
        known: NDArray[np.int64],
        reuse: bool,
        votes: NDArray[np.int64],
    ) -> bool:
        self._n_known = int(known[-1]) if len(known) else 0
        if X.shape[1] > self._columns:
            self._widen(X.shape[1])
        return self._kernel.run(  # type: ignore[no-any-return]
            *self._grove,
            self._params,
            self._metric,
            self._vote_power,
            STEPS,
            XLOGX,
            first,
            last,
            self._progress,
            want,
            X,
            y,
            op,
            known,
            self._features.categorical,
            self._routes,
            reuse,
            votes,
        )

    def _enlarge(self, want: NDArray[np.int64]) -> None:
        self._grove = stream_arrays.enlarge(self._grove, want)

    def _widen(self, columns: int) -> None:
        """Room for the columns of a batch, in the ring and in what is made of it."""
        self._grove = stream_arrays.enlarge_ring(
            self._grove, 0, int(self._params["slots"][0]), columns, self._columns
        )
        self._columns = columns
        width = self._grove.rows.shape[1]
        if width > self._metric.shape[2]:
            metric = stream_arrays.new_metric(width)
            metric[:, :, : self._metric.shape[2]] = self._metric
            stats = np.zeros((5, width))
            stats[:, : self._stats.shape[1]] = self._stats
            self._metric, self._stats = metric, stats

    # ---- input: the ring is float32

    largest = _LARGEST

    def _encode(
        self, X: Any, learns: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        rows, known = super()._encode(X, learns)
        if not ring_store.fits_float32(rows, _LARGEST):
            with np.errstate(invalid="ignore"):
                r, c = np.argwhere(np.abs(rows) > _LARGEST)[0].tolist()
            raise FeatureError(f"row {r}: {_too_large(self._features.names[c], rows[r, c])}")
        return rows, known

    def _one_row(self, x: Any, learn: bool) -> int:
        which = super()._one_row(x, learn)
        row = self._one_views[which]
        if not ring_store.fits_float32(row, _LARGEST):
            c = int(np.nanargmax(np.abs(row[0])))
            raise FeatureError(_too_large(self._features.names[c], row[0, c]))
        return which

    # ---- epochs

    def _observe(
        self, X: NDArray[np.float64], y: NDArray[np.int64], learns: NDArray[np.bool_]
    ) -> None:
        if X.shape[1] > self._columns:
            self._widen(X.shape[1])
        slots = int(self._params["slots"][0])
        rows = min(slots, self._n_learned + len(X))
        if rows > len(self._grove.rows):
            self._grove = stream_arrays.enlarge_ring(
                self._grove, rows, slots, self._columns, self._columns
            )
        ring_store.stage(
            self._grove.rows, self._grove.labels, self._stats, X, y, learns, self._n_learned, slots
        )

    def _end_epoch(self) -> None:
        ring_store.settle_metric(self._stats, self._features.categorical, self._metric)
        self._vote_power = ring_store.vote_power(self._grove.voter)
        ring_store.settle_mix(self._opinion_loss, self._opinion_mix)
        features = self._n_known
        rows = stream_arrays.readable_rows(
            self._parameters["ring_rows"],
            self._parameters["max_ring_bytes"],
            features,
            self.n_trees,
        )
        if rows < self._params["ring_rows"][0]:
            self._grove = stream_arrays.shrink_ring(
                self._grove,
                self._n_learned,
                int(self._params["slots"][0]),
                rows,
                self._parameters["p_structure"],
                self._features.categorical,
            )
            self._set_ring(self._params, features)

    # ---- votes

    def _new_votes(self, n: int) -> NDArray[np.int64]:
        return np.zeros((n, 2, len(self._labels)), np.int64)

    def _mix(self, votes: NDArray[np.int64]) -> NDArray[Any]:
        return ring_store.mix_votes(votes, self._opinion_mix)

    def _move(
        self,
        X: NDArray[np.float64],
        y: NDArray[np.int64],
        op: NDArray[np.uint8],
        known: NDArray[np.int64],
        votes: NDArray[np.int64],
    ) -> None:
        super()._move(X, y, op, known, votes)
        ring_store.judge_opinions(votes, y, op, LEARN, self._opinion_loss)

    def _call_one(self, X: NDArray[np.float64], op: NDArray[np.uint8], reuse: bool) -> bool:
        learns = op[0] & LEARN
        if learns and not reuse:  # else the votes of `predict_one` are still there
            self._one_votes = self._new_votes(1)
        while not super()._call_one(X, op, reuse):
            self._enlarge(self._want)
        if learns:
            ring_store.judge_opinions(self._one_votes, self._one_y, op, LEARN, self._opinion_loss)
        return True

    # ---- snapshots

    def _dump(self) -> dict[str, NDArray[Any]]:
        return stream_state.dump(self)

    def _restore(self, take: Callable[..., NDArray[Any]]) -> None:
        stream_state.restore(self, take)

    # ---- looking inside

    def summary(self) -> dict[str, Any]:
        """Size and shape of the forest: the trees that vote, their challengers, the ring.

        `ring_bytes` is what `max_ring_bytes` bounds, `total_bytes` what all arrays take as allocated;
        `opinion_mix` the shares of counts and neighbours, `vote_power` the spread of vote weights.
        """
        return stream_inspect.summary(self)

    def debug_one(self, x: dict[Any, Any], tree: int | None = None) -> str:
        """Why the forest answers as it does: votes, and the path, opinions and neighbours of a tree.

        Parameters
        ----------
        x
            An event; it is not learned.
        tree
            The tree to look into; by default the one that has been right most often lately.
        """
        with self._lock:
            return stream_inspect.debug_one(self, x, tree)

    def feature_importances(self) -> dict[Any, float]:
        """The share of each feature in the information gain of the splits of all trees that vote.

        Gains are those at the time of the split, each summed over the structure rows it was chosen
        by: splits near the root weigh most.
        """
        return stream_inspect.feature_importances(self)


def _too_large(name: Any, value: float) -> str:
    return (
        f"feature {name!r} is {value:g}, beyond what this forest's ring of float32 holds "
        f"(±{_LARGEST:.3g}): scale it"
    )

"""The few-shot forest as a River estimator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import CapacityError, LabelError, ParameterError
from streamforest.forests.core.axis_aligned import trees_as_expert
from streamforest.forests.core.engine import EPOCH
from streamforest.forests.core.explanation import Expert, TreePath
from streamforest.forests.core.labels import Label
from streamforest.forests.core.parameters import (
    MAX_TEXT_BYTES,
    check_bool,
    check_choice,
    check_int,
    check_number,
)
from streamforest.forests.few import inspection
from streamforest.forests.few import state as few_state
from streamforest.forests.few.processing import FewShotProcessing
from streamforest.kernels.few.layout import MOST_SUPPORT, PARAMS
from streamforest.text import shown

PAPERS: dict[str, dict[str, Any]] = {
    "rodner": {
        "n_trees": 10,
        "prior_variance": 1e-5,
        "few_rows": 1_000,
        "level_rows": 1_000,
        "leave_one_out": False,
        "regrow": 0.0,
    }
}
"""Settings of papers where the defaults differ."""


class FewShotForestClassifier(FewShotProcessing):
    """Few-shot forest: a new class borrows from classes like it until it has rows of its own.

    Two photos of an okapi are not enough to learn it. But an okapi is somewhat like a zebra and somewhat like
    a giraffe, and of those the forest has seen many. So it assumes that okapis fall where zebras and giraffes
    fall, and corrects that by the few rows there are. That is the idea of Rodner and Denzler [^1].

    - **Trees grown to purity.** Extremely randomised, axis-aligned trees over a bounded memory of rows: a
      leaf that gets a row of a second class is split at once, and trees are grown anew in turn.
    - **Balanced votes.** A class counts in a leaf by the share of its rows that lie there, as if all
      classes were equally frequent: a class of two rows is not outvoted by one of two thousand.
    - **A prior for classes of few rows.** The shares of a class with up to `few_rows` rows are the MAP
      estimate under a Gaussian prior around the mean shares of its *support classes*: those given to
      `announce`, or the nearest class means. It fades by itself: a tree uses the estimate only while it
      explains the class's own rows better than plain shares do (leave one out).
    - **An extra level.** Where such a class and its support fall into the same leaf, one more split tells
      them apart, trained on all rows of the class.

    Where it has its place: few rows a class, leaves that are pure, and support classes that are known. The
    default NCM forest does without all this and is better on most streams (docs/few-examples.md has figures).

    Parameters
    ----------
    n_trees
        Number of trees.
    n_candidates
        Features tried at a split, each with one random threshold; None: the root of their number.
    balanced
        Whether votes are balanced. False answers with plain counts; `few_rows` must be 0 then.
    prior_variance
        σ² of the prior. None: 1/m² in a tree of m leaves; a fixed value means something else in every tree.
    few_rows
        Rows up to which a class uses the prior; 0: no class does.
    level_rows
        Rows up to which it uses the extra level, which costs accuracy on other classes from 4 rows on.
    n_support
        Nearest class means that a class nobody has announced takes as support; 0: announced classes only.
    max_few
        Classes that use a prior at a time: those announced, then the newest.
    leave_one_out
        Whether a tree stops using the prior of a class of two rows or more that plain shares explain better.
    regrow
        A tree is grown anew after as many events as this share of the rows in memory; 0: never.
    memory
        Rows to keep. A full memory drops a random row of the class that has the most.
    max_memory_bytes
        Bound on the bytes of the rows. With many features fewer than `memory` rows are kept, never below 64.
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
    taxonomy
        The category of each class, as far as it is known: `{"lion": "feline", …}`. Events with both labels
        add to it; see `docs/coarse-labels.md`.
    refine
        The class that an event with only a coarse label is learned under: of the known classes of its
        category, the one that the forest finds most probable ("own"), that with the nearest mean ("mean"),
        or that of the nearest labelled row ("nn").
    n_jobs
        Threads over trees, for batches. Changes no bit of any result.
    seed
        For reproducible runs; every tree draws from hashes of its own seed.

    References
    ----------
    [^1]: Rodner, E. and Denzler, J., 2011. Learning with few examples for binary and multiclass
    classification using regularization of randomized trees. Pattern Recognition Letters 32 (2), 244-251.

    Examples
    --------
    >>> from streamforest import FewShotForestClassifier
    >>> model = FewShotForestClassifier(seed=1)
    >>> for i in range(40):
    ...     model.learn_one({"stripes": 1 + i % 5, "neck": 2 + i % 3}, "zebra")
    ...     model.learn_one({"stripes": 0, "neck": 9 + i % 3}, "giraffe")
    >>> model.announce("okapi", support=["zebra", "giraffe"])
    >>> model.learn_one({"stripes": 3, "neck": 6}, "okapi")
    >>> model.predict_one({"stripes": 2, "neck": 6.5})
    'okapi'
    """

    def __init__(
        self,
        n_trees: int = 20,
        n_candidates: int | None = None,
        balanced: bool = True,
        prior_variance: float | None = None,
        few_rows: int = 8,
        level_rows: int = 3,
        n_support: int = 5,
        max_few: int = 16,
        leave_one_out: bool = True,
        regrow: float = 0.5,
        memory: int = 10_000,
        max_memory_bytes: int = 64_000_000,
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
        self.n_candidates = n_candidates
        self.balanced = balanced
        self.prior_variance = prior_variance
        self.few_rows = few_rows
        self.level_rows = level_rows
        self.n_support = n_support
        self.max_few = max_few
        self.leave_one_out = leave_one_out
        self.regrow = regrow
        self.memory = memory
        self.max_memory_bytes = max_memory_bytes
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
    def paper(cls, name: str = "rodner", **parameters: Any) -> FewShotForestClassifier:
        """A forest with a paper's settings instead of those that were measured to be better.

        "rodner": 10 trees, σ² = 10⁻⁵, the prior and the extra level whatever the number of rows, and trees
        grown once, by `fit_many`, from all rows, those of the new class included. `level_rows=0` leaves the
        extra level out, `few_rows=0` the prior too, and `balanced=False` as well makes it a plain forest.
        Other `parameters` are passed on.

        >>> FewShotForestClassifier.paper("rodner", seed=1).prior_variance
        1e-05
        """
        check_choice("name", name, tuple(PAPERS))
        return cls(**{**PAPERS[name], **parameters})

    def _pack_params(self) -> NDArray[np.void]:
        if self.n_candidates is not None:
            check_int("n_candidates", self.n_candidates, 1)
        check_bool("balanced", self.balanced)
        check_bool("leave_one_out", self.leave_one_out)
        if self.prior_variance is not None:
            check_number("prior_variance", self.prior_variance, 0, 1e6, inside=True)
        check_int("few_rows", self.few_rows, 0, 1_000)
        check_int("level_rows", self.level_rows, 0, 1_000)
        check_int("n_support", self.n_support, 0, MOST_SUPPORT)
        check_int("max_few", self.max_few, 1, 1_000)
        check_number("regrow", self.regrow, 0, 1e6)
        check_int("memory", self.memory, EPOCH, 1 << 24)
        check_int("max_memory_bytes", self.max_memory_bytes, 1)
        if self.few_rows and not self.balanced:
            raise ParameterError(
                f"balanced=False has no effect with few_rows={self.few_rows}: the prior is one on balanced "
                "shares; set few_rows=0 too"
            )
        params = np.zeros(1, PARAMS)
        for name in ("few_rows", "level_rows", "balanced", "leave_one_out"):
            params[name] = getattr(self, name)
        params["variance"] = self.prior_variance or 0.0
        params["n_candidates"] = self.n_candidates or 0
        params["max_nodes"] = 4 * (self.memory + EPOCH)
        return params

    # ---- what a user may say beside events

    def announce(self, label: Any, support: Sequence[Any]) -> None:
        """A class that is about to come, or has few rows, is like these: it uses them from its first row on.

        Its support takes effect at once and stays while the class has no more than `few_rows` rows;
        announcing it again replaces it. The class is in `classes_` from now on, with
        probability 0 until its first row.

        Parameters
        ----------
        label
            The class.
        support
            One to 16 classes that the forest has seen.

        Raises
        ------
        LabelError
            The label or a support class cannot be a class, or is not known, or is named twice.
        CapacityError
            `max_few` announced classes have few rows already, or there is no room for another class.
        """
        with self._lock:
            self._refuse_if_broken()
            classes = self._announceable(label, support)
            self._routed = None
            k = self._labels.learn(label)
            self._make_room(0)
            counts = self._memory.counts(len(self._labels))
            self._support.announce(k, classes, counts)
            self._support.fill(self._memory)
            self._settle()

    def check_announcement(self, label: Any, support: Sequence[Any]) -> None:
        """Refuse what `announce` would refuse; change nothing."""
        with self._lock:
            self._announceable(label, support)

    def _announceable(self, label: Any, support: Sequence[Any]) -> list[int]:
        """The support classes of an announcement that can be made, as indices."""
        if self.few_rows == 0:
            raise ParameterError(
                f"announce {shown(label)}: few_rows=0 has no class use its support; set few_rows"
            )
        classes = self._known_support(label, support)
        k = self._labels.find(label)
        counts = self._memory.counts(len(self._labels))
        if k < 0:
            self._labels.require_room(label)
            self._features.require_cells(len(self._labels) + 1, self.max_means)
        elif counts[k] > self.few_rows:
            raise LabelError(
                f"announce {shown(label)}: it has {counts[k]} rows, over few_rows={self.few_rows}, and "
                "needs no support; raise few_rows to give it one"
            )
        waiting = [c for c in self._support.announced if counts[c] <= self.few_rows and c != k]
        if len(waiting) >= self.max_few:
            raise CapacityError(
                f"announce {shown(label)}: {len(waiting)} announced classes have few rows already; raise "
                f"max_few={self.max_few}"
            )
        return classes

    def _known_support(self, label: Any, support: Sequence[Any]) -> list[int]:
        """The support classes as indices, checked."""
        if isinstance(support, str) or not isinstance(support, Sequence):
            raise LabelError(
                f"announce {shown(label)}: support={shown(support)}; give a list of classes"
            )
        if not 1 <= len(support) <= MOST_SUPPORT:
            raise LabelError(
                f"announce {shown(label)}: {len(support)} support classes; give 1 to {MOST_SUPPORT}"
            )
        classes = [self._labels.find(one) for one in support]
        unknown = [shown(one) for one, k in zip(support, classes) if k < 0]
        if unknown:
            raise LabelError(
                f"announce {shown(label)}: support class {', '.join(unknown)} has not been seen; name "
                "classes the forest has learned"
            )
        if len(set(classes)) < len(classes) or self._labels.find(label) in classes:
            raise LabelError(
                f"announce {shown(label)}: support={shown(list(support))} names a class twice or the class "
                "itself; name each other class once"
            )
        return classes

    @property
    def announced(self) -> dict[Label, list[Label]]:
        """Announced classes that still have few rows, with their support classes."""
        labels = self._labels.labels
        return {
            labels[k]: [labels[c] for c in support]
            for k, support in self._support.announced.items()
        }

    # ---- recorded sets

    def fit_many(self, X: Any, y: Any) -> None:
        """Learn a recorded set at once and grow every tree anew from the memory.

        With a memory that holds the whole set this is the paper's forest. Support classes are chosen anew.
        """
        with self._lock:
            self._learn(X, y)
            n_features = len(self._features)
            for t in range(self.n_trees):
                self._regrow(t, n_features)
            if self.few_rows:
                classes = len(self._labels)
                self._support.find_nearest(self._memory, classes, self._numeric(n_features))
                self._settle()

    # ---- snapshots

    def _dump(self) -> dict[str, NDArray[Any]]:
        return few_state.dump(self)

    def _restore(self, take: Callable[..., NDArray[Any]]) -> None:
        few_state.restore(self, take)

    def summary(self) -> dict[str, Any]:
        """Size and shape of the forest, summed over its trees.

        `helped` are the classes that use a prior now, with their support classes; `total_bytes` is what all
        arrays take as allocated.
        """
        with self._lock:
            labels = self._labels.labels
            arrays = self._support.arrays
            helped = {
                labels[k]: [labels[c] for c in row[row >= 0].tolist()]
                for k, row in zip(arrays.label.tolist(), arrays.support)
                if k >= 0
            }
            nodes = int(self._trees.tree["n_nodes"].sum())
            every = (*self._trees, *self._memory.arrays, *arrays)
            return {
                "trees": self.n_trees,
                "events": self._n_learned,
                "classes": len(labels),
                "features": len(self._features),
                "nodes": nodes,
                "leaves": (nodes + self.n_trees) // 2,
                "rows": len(self._memory),
                "helped": {str(label): list(map(str, of_it)) for label, of_it in helped.items()},
                "total_bytes": sum(array.nbytes for array in every),
                **self._levels.summary(),
                "capacity": self._features.totals(),
            }

    # ---- explanations

    def _experts_on(self, row: NDArray[np.float64]) -> list[Expert]:
        return [trees_as_expert(self, row)]

    def _tree_on(self, row: NDArray[np.float64], tree: int | None, best: int) -> TreePath:
        return inspection.tree_on(self, row, tree, best)

    def _importances(self) -> dict[str, tuple[float, NDArray[np.float64]]]:
        return {"trees": (1.0, inspection.gains(self))}

"""What every forest offers: River's methods, `advance`, and input as it comes.

Everything a user can call turns events into rows and labels into indices and ends in the engine: rows in
order, each predicted before it is learned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from river import base

from streamforest.errors import FeatureError
from streamforest.forests.coarse.calls import refuse_keywords, wants_coarse
from streamforest.forests.coarse.levels import Levels
from streamforest.forests.core import warming
from streamforest.forests.core.batch import (
    Answers,
    asks_one,
    length,
    posteriors,
    split_fresh,
)
from streamforest.forests.core.encoding import RowEncoding
from streamforest.forests.core.explanation import Explained
from streamforest.forests.core.features import UNSEEN, FeatureTable
from streamforest.forests.core.labels import Label, LabelTable
from streamforest.forests.core.parameters import EXECUTORS, MOST_TREES, check_choice, check_int
from streamforest.forests.core.serialization import plain_parameters
from streamforest.kernels.core.operations import LEARN, PREDICT

_OP_PREDICT = np.full(1, PREDICT, np.uint8)


class Forest(RowEncoding, Explained, base.MiniBatchClassifier):
    """Base of all forests of this package.

    Predictions and learned state are the same bits for any batch size and any number of threads.
    """

    largest: ClassVar[float] = float("inf")  # beyond this a finite value is refused

    tells_novelty: ClassVar[bool] = False
    """Whether `answers` says how new each row is to the forest."""

    # Constructor arguments every forest has; subclasses store them under these names.
    n_trees: int
    max_classes: int
    max_features: int
    max_categories: int
    max_text_bytes: int
    nonfinite: str
    on_capacity: str = "degrade"
    absent: str = "missing"
    coarse_method: str | None = None
    taxonomy: Any = None
    refine: str = "own"
    n_jobs: int
    seed: int | None

    def _start(self) -> None:
        """Check the common parameters and plant the trees. Called at the end of `__init__`."""
        check_int("n_trees", self.n_trees, 1, MOST_TREES)
        check_int("max_classes", self.max_classes, 1)
        check_int("max_features", self.max_features, 1)
        check_int("max_categories", self.max_categories, 1)
        check_int("max_text_bytes", self.max_text_bytes, 1)
        check_int("n_jobs", self.n_jobs, 1)
        check_choice("executor", self.executor, EXECUTORS)
        check_int("n_actors", self.n_actors, 1, MOST_TREES)
        if self.executor == "ray":
            from streamforest.forests.sharded import driver

            driver.check(self)
        if self.seed is not None:
            check_int("seed", self.seed, 0)
        check_choice("nonfinite", self.nonfinite, ("error", "missing"))
        check_choice("on_capacity", self.on_capacity, ("degrade", "error"))
        check_choice("absent", self.absent, ("missing", "zero"))
        self._parameters = plain_parameters(self)  # changing an attribute later changes nothing
        self._labels = LabelTable(self.max_classes, self.max_text_bytes)
        self._features = FeatureTable(
            self.max_features,
            self.max_categories,
            self.nonfinite,
            self.max_text_bytes,
            self.on_capacity,
            self.absent,
        )
        self._features.largest = self.largest
        self._n_learned = 0
        self._levels = Levels(self)
        seeds = np.random.SeedSequence(self.seed).generate_state(self.n_trees, np.uint64)
        self._plant(seeds.astype(np.uint64))
        self._scratch()

    def _scratch(self) -> None:
        super()._scratch()
        self._one_buffers(8)

    # ---- River's contract

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def classes_(self) -> list[Label]:
        """The classes in the order first seen."""
        return self._levels.visible(self._labels.labels)

    @property
    def n_learned(self) -> int:
        """The clock: events learned so far, at either level."""
        return self._n_learned + self._levels.n_elsewhere

    @property
    def categories_(self) -> list[Label]:
        """The categories in the order first seen; see `docs/coarse-labels.md`."""
        return list(self._levels.taxonomy.categories.labels)

    @property
    def taxonomy_(self) -> dict[Label, Label]:
        """The category of each class, as given and as learned from events with both labels."""
        return self._levels.taxonomy.as_dict()

    @property
    def capacity(self) -> dict[str, Any]:
        """What there was no room for, as counts of learned events.

        `other`: by feature, those whose category shares the code of all later ones; `dropped`: by feature,
        those in which it counts as missing because it brought ever new ones; `left_out`: values of features
        beyond `max_features` or `max_text_bytes`.
        """
        return self._features.capacity()

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"n_trees": 5, "seed": 42}

    def learn_one(self, x: dict[Any, Any], y: Any = None, *, coarse: Any = None) -> None:
        """Learn one event. If `predict_one` was just asked about the same row, its routing is used.

        Parameters
        ----------
        x
            The features.
        y
            The class; None if only the category is known.
        coarse
            The category, if it is known.
        """
        with self._lock:
            self._place_trees()
            if coarse is not None or self._levels.active:
                self._levels.advance(self, [x], [y], [LEARN], [coarse], 1, False)
                return
            k = self._labels.find(y)
            classes = len(self._labels) + (k < 0)
            if k < 0:
                self._labels.require_room(y)  # before the event's features are let in
                self._features.require_cells(classes, self.max_means)
            row = self._one_row(x, learn=True, classes=classes)
            if k < 0:
                k = self._labels.learn(y)
            reuse = self._routed is not None and self._routed == self._one_rows[row]
            self._routed = None
            self._one_y[0] = k
            self._one_known[0] = len(self._features)
            self._learn_row(self._one_views[row], reuse)

    def predict_one(
        self, x: dict[Any, Any], *, level: str = "fine", coarse: Any = None, **kwargs: Any
    ) -> Any:
        """The most probable class; None before anything was learned. Ties go to the class seen first.

        Parameters
        ----------
        x
            The features.
        level
            "fine": a class; "coarse": a category.
        coarse
            Ignored: River's evaluators hand a label's keyword to both methods.
        """
        refuse_keywords(kwargs)
        with self._lock:
            self._place_trees()
            if wants_coarse(level) or self._levels.active:
                return self._levels.predict_one(self, x, level)
            if not self._labels.labels:
                self._one_row(x, learn=False)
                return None
            return self._labels.labels[int(self._scores_one(x).argmax())]

    def predict_proba_one(
        self, x: dict[Any, Any], *, level: str = "fine", coarse: Any = None, **kwargs: Any
    ) -> dict[Any, float]:
        """The probability of every class ever seen, or of every category; see `predict_one`."""
        refuse_keywords(kwargs)
        with self._lock:
            self._place_trees()
            if wants_coarse(level) or self._levels.active:
                return self._levels.predict_proba_one(self, x, level)
            if not self._labels.labels:
                self._one_row(x, learn=False)
                return {}
            scores = self._scores_one(x)
            total = scores.sum()
            if total == 0:
                return dict.fromkeys(self._labels.labels, 1.0 / len(scores))
            return dict(zip(self._labels.labels, (scores / total).tolist()))

    def learn_many(self, X: pd.DataFrame, y: Any = None, *, coarse: Any = None) -> None:
        """Learn the rows of a frame in order: the same as `learn_one` in a loop."""
        if coarse is not None or self._levels.active:
            self._answer(X, y, np.full(length(X), LEARN, np.uint8), coarse, novelty=False)
        else:
            self._learn(X, y)

    def predict_proba_many(
        self, X: pd.DataFrame, *, level: str = "fine", coarse: Any = None
    ) -> pd.DataFrame:
        """The probabilities of every class, or category, for the rows of a frame."""
        P, names = self._posteriors_of(X, level)
        return pd.DataFrame(P, index=_index_of(X), columns=names)

    def predict_many(
        self, X: pd.DataFrame, *, level: str = "fine", coarse: Any = None
    ) -> pd.Series:
        """The most probable class, or category, for each row of a frame."""
        P, names = self._posteriors_of(X, level)
        answers = [names[k] for k in P.argmax(axis=1)] if names else [None] * len(P)
        return pd.Series(answers, index=_index_of(X), dtype=None if names else "object")

    def _posteriors_of(self, X: Any, level: str) -> tuple[NDArray[np.float64], list[Label]]:
        """Probabilities of the classes or categories that there are."""
        if not wants_coarse(level):
            return self.advance(X), self.classes_
        P = self._levels.answer(self, X).coarse
        assert P is not None
        return P, self.categories_

    def refine_one(self, row: int, y: Any) -> bool:
        """Learn the class of a row that was learned with only a coarse label.

        If the row was withheld because its class could not be estimated well, it is learned now. If it was
        learned under an estimated class, that is withdrawn, as long as the forest has the row in its memory;
        only NCM forests have one. Otherwise nothing is learned, and the row counts as missed in
        `summary()["levels"]`.

        Parameters
        ----------
        row
            The number of the row: what `n_learned` was before it was learned.
        y
            Its class, which must be of its category.

        Returns
        -------
        Whether the class was learned.
        """
        with self._lock:
            self._place_trees()
            return self._levels.refine_one(self, row, y)

    # ---- the contract

    def advance(
        self,
        X: ArrayLike | pd.DataFrame | Sequence[Mapping[Any, Any]],
        y: Sequence[Any] | NDArray[Any] | pd.Series | None = None,
        op: ArrayLike | None = None,
        *,
        coarse: Sequence[Any] | NDArray[Any] | pd.Series | None = None,
    ) -> NDArray[np.float64]:
        """Take a batch of events in order: predict each, then learn it.

        Parameters
        ----------
        X
            A 2-D array (its columns are the features 0, 1, …), a frame, or a sequence of dicts.
        y
            One label per row; `None` where there is none (the row is then predicted only).
        op
            What to do with each row: `PREDICT`, `LEARN` or `BOTH`. Default: both, or predict where
            there is no label.
        coarse
            One category per row, None where there is none. A row with only a category is learned as well.

        Returns
        -------
        Posteriors taken before the row was learned, one row per event, one column per class of
        `classes_` as it stands after the call. A class not seen before a row is 0 there; a row
        before any class is all zeros; a row that was only learned is NaN. A bad row refuses the
        whole call, names the row and nothing is learned.
        """
        return self._answer(X, y, op, coarse, novelty=False).posteriors

    def answers(self, X: Any, y: Any = None, op: Any = None, *, coarse: Any = None) -> Answers:
        """`advance`, with all that the forest has to say of each row before learning it."""
        return self._answer(X, y, op, coarse, novelty=self.tells_novelty)

    def _answer(self, X: Any, y: Any, op: Any, coarse: Any, *, novelty: bool) -> Answers:
        with self._lock:
            self._place_trees()
            if coarse is not None or self._levels.known or self._levels.active:
                return self._levels.advance(self, X, y, op, coarse, length(X), novelty)
            if not novelty and self._labels.labels and asks_one(X, y, op):
                return Answers(self._posteriors_one(X[0]))
            batch, known_classes = self._prepare(X, y, op)
            whole, of_row = batch, None
            if self._features.fresh:
                whole, of_row = split_fresh(batch, self._features.fresh, UNSEEN)
            if novelty:
                whole.novelty = np.full(len(whole.X), np.nan)
            scores = self._advance(whole, answer=True)
            self._tidy()
            new = whole.novelty
            if of_row is not None:
                scores, new = scores[of_row], None if new is None else new[of_row]
            if new is not None:
                new[(batch.op & PREDICT) == 0] = np.nan
            return Answers(posteriors(scores, batch.op, known_classes), new)

    def _posteriors_one(self, x: Any) -> NDArray[np.float64]:
        """The answer to a batch of one event: the same bits, without the making of a batch."""
        try:
            scores = self._scores_one(x)
        except FeatureError as error:
            raise FeatureError(f"row 0: {error}") from None
        total = scores.sum()
        row = scores / total if total else np.full(len(scores), 1.0 / len(scores))
        return row[None, :]

    def _learn(self, X: Any, y: Any) -> None:
        """Learn rows whose answers nobody asks for: they are not worth their memory."""
        with self._lock:
            self._place_trees()
            batch, _ = self._prepare(X, y, np.full(length(X), LEARN, np.uint8))
            self._advance(batch, answer=False)
            self._tidy()

    def predict_trees(self, X: ArrayLike | pd.DataFrame) -> NDArray[np.int64]:
        """The answer of each tree by itself: class indices [trees, rows], -1 where it has none yet."""
        with self._lock:
            return self._whole()._predict_trees(X)

    def warm_up(self, first_events: bool = False) -> None:
        """Compile, or load, all that this forest will ever call, so that no event has to wait.

        `first_events`: only what the first events call. What comes later waits then for what it needs, if a
        second process has not compiled it meanwhile; no result depends on it.
        """
        warming.warm_up(self, first_events)

    def save(self, path: Any) -> None:
        """Write a snapshot; `streamforest.load` reads it."""
        from streamforest.forests.persistence.snapshot import save

        save(self, path)

    # ---- one event

    def _scores_one(self, x: Any) -> NDArray[Any]:
        self._refuse_if_broken()
        self._routed = None
        row = self._one_row(x, learn=False)
        if self._shards is not None:
            self._one_y[0], self._one_known[0] = -1, len(self._features)
            event = self._one_event(self._one_views[row], _OP_PREDICT, False)
            asked: NDArray[Any] = self._advance(event, answer=True)[0]
            return asked
        if self._one_votes.shape[-1] != len(self._labels):
            self._one_votes = self._new_votes(1)
        self._one_votes.fill(0)
        self._call_one(self._one_views[row], _OP_PREDICT, False)
        self._routed = self._one_rows[row]
        return self._mix_one()

    # ---- rows in memory

    _keeps_rows: ClassVar[bool] = False

    def _rows_in_memory(self) -> NDArray[np.int64]:
        """The numbers of the rows that the forest keeps and can still withdraw."""
        return np.zeros(0, np.int64)

    def _mix_one(self) -> NDArray[Any]:
        """The scores of the row that `_call_one` was just asked about."""
        scores: NDArray[Any] = self._mix(self._one_votes)[0]
        return scores


def _index_of(X: Any) -> Any:
    return X.index if isinstance(X, pd.DataFrame) else None

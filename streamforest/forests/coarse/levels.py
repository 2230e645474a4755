"""The part of a forest that knows of categories: the taxonomy, the coarse forest, rows with a coarse label.

A forest owns one from the start, but a second forest, which learns categories, is made only when the first
coarse label comes: without coarse labels nothing is computed here, and no bit of any result changes.

A row with only a coarse label is learned by the coarse forest, and by the fine one under an estimated class
of its category, if that is to be believed (`fine_rows.py`). Rows are taken in order, each estimated with all
that was learned before it, so that it does not matter how they are cut into batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import InputError
from streamforest.forests.coarse import recorded, state
from streamforest.forests.coarse.answers import LevelAnswers
from streamforest.forests.coarse.batch_rows import BatchRows
from streamforest.forests.coarse.estimates import ESTIMATES
from streamforest.forests.coarse.fine_rows import FineRows
from streamforest.forests.coarse.indexing import Labels, index_rows, read_labels
from streamforest.forests.coarse.mixing import TwoLevels
from streamforest.forests.coarse.rows import EstimatedRow, EstimatedRows, WithheldRows
from streamforest.forests.coarse.taxonomy import NONE, Taxonomy, is_hidden, read_pairs
from streamforest.forests.coarse.trust import Trust
from streamforest.forests.core.batch import Answers, Batch, length, posteriors
from streamforest.forests.core.labels import plain_label
from streamforest.forests.core.parameters import check_choice
from streamforest.forests.core.serialization import RUNTIME_SETTINGS
from streamforest.kernels.core.operations import BOTH, LEARN, PREDICT

if TYPE_CHECKING:
    from streamforest.forests.core.base import Forest

_OP_PREDICT = np.full(1, PREDICT, np.uint8)


class Levels:
    """Categories beside the classes of one forest.

    Parameters
    ----------
    forest
        The forest whose classes they are.
    """

    def __init__(self, forest: Forest) -> None:
        check_choice("refine", forest.refine, tuple(ESTIMATES))
        self.method = forest.coarse_method  # of one NCM forest for both levels
        self.hides = self.method in ("joint", "h")  # rows without a class have a hidden one
        self.taxonomy = Taxonomy(forest.max_classes, forest.max_text_bytes)
        self.taxonomy.hides = self.hides
        for y, coarse in read_pairs(forest.taxonomy):
            self.taxonomy.learn(y, coarse)
        self.forest: Forest | None = None  # learns categories
        self.answers = LevelAnswers(len(self.taxonomy.categories))
        nearest = self.method in ("nn", "nn-h")
        self.estimates = ESTIMATES["nn" if nearest else forest.refine]()
        self.trust = Trust()
        self.rows, self.withheld = EstimatedRows(), WithheldRows()
        self.n_elsewhere = 0  # learned rows that the fine forest has not learned
        self.counts = dict.fromkeys(("coarse_rows", "estimated", "refined", "missed"), 0)
        self.of_second = np.zeros(0, np.int64)  # the category of each class of the coarse forest

    @property
    def active(self) -> bool:
        """Whether a coarse label has ever come, or is awaited by a forest for both levels."""
        return self.forest is not None or self.method is not None

    @property
    def known(self) -> bool:
        """Whether there is a category, given or seen."""
        return len(self.taxonomy.categories) > 0

    def visible(self, labels: list[Any]) -> list[Any]:
        """The classes that may be answered."""
        return [y for y in labels if not is_hidden(y)] if self.hides else list(labels)

    def _hidden(self, fine: Forest) -> NDArray[np.bool_] | None:
        if not self.hides:
            return None
        return np.array([is_hidden(y) for y in fine._labels.labels], np.bool_)

    def codes_of_classes(self, fine: Forest) -> NDArray[np.int32]:
        """The code of each class' category, as the kernels of NCM trees read it."""
        codes = self.taxonomy.of_classes(fine._labels.labels)
        hidden = self._hidden(fine)
        return (codes if hidden is None else np.where(hidden, -2 - codes, codes)).astype(np.int32)

    def _second(self, fine: Forest) -> Forest:
        """A forest like the fine one that has learned nothing."""
        params: dict[str, Any] = dict(fine._parameters)
        for name, value in (("taxonomy", None), ("refine", "own"), ("coarse_method", None)):
            if name in params:
                params[name] = value
        if params.get("seed") is not None:
            params["seed"] += 1
        second = type(fine)(**params)
        second.quiet = True
        return second

    # ---- batches

    def advance(
        self, fine: Forest, X: Any, y: Any, op: Any, coarse: Any, n: int, novelty: bool
    ) -> Answers:
        """Take a batch of `n` events in order through both forests."""
        self.answers.follow(self.taxonomy, fine._labels.labels)
        labels, names, ops = read_labels(y, coarse, op, n)
        learns = (ops & LEARN) != 0
        if self.method == "stacked":
            X = recorded.stacked(self, fine, X, learns)
        created = not self.active and any(
            name is not None and learn for name, learn in zip(names, learns.tolist())
        )
        second = self._second(fine) if created else self.forest
        if second is not None:
            self._run_like(fine, second)
        fine._features.begin()
        before = len(fine._labels), len(self.taxonomy), len(self.taxonomy.categories)
        second_before = 0
        if second is not None:
            second._features.begin()
            second_before = len(second._labels)
        try:
            index = index_rows(
                self.taxonomy,
                fine._labels,
                self.answers.of_class,
                labels,
                names,
                learns,
                not self.active,
                self.hides,
            )
            kept = index.coarse_only if self.method is None else index.estimate
            of_fine = learns & ((index.y >= 0) | kept)
            rows = BatchRows(fine, X, of_fine, index.y, ops)
            rows.set_upper(
                np.where(index.coarse_only & self.hides, -2 - index.category, index.category)
            )
            fine._features.require_cells(len(fine._labels), fine.max_means)
            others = None
            if second is not None:
                of_second = learns & (index.category >= 0) & (np.arange(n) >= index.first)
                target, known = self._index_second(second, index, of_second)
                others = BatchRows(second, X, of_second, target, ops)
                second._features.require_cells(len(second._labels), second.max_means)
        except InputError:
            fine._features.rollback()
            fine._labels.truncate(before[0])
            self.taxonomy.truncate(*before[1:])
            if second is not None:
                second._features.rollback()
                second._labels.truncate(second_before)
            raise
        fine._routed = None
        fine._tell()
        self.forest = second
        try:
            said = None
            if second is not None and others is not None:
                said = self._ask_second(second, others, known)
            return self._through(fine, rows, said, index, ops, novelty)
        except BaseException:
            fine._broken = fine._broken or bool(learns.any())
            raise

    def _index_second(
        self, second: Forest, index: Labels, learns: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Categories as classes of the coarse forest, in the order in which it learns them."""
        target, known = np.full(len(learns), -1), np.zeros(len(learns), np.int64)
        names = self.taxonomy.categories.labels
        for r, learn in enumerate(learns.tolist()):
            known[r] = len(second._labels)
            if learn:
                target[r] = second._labels.learn(names[index.category[r]])
        return target, known

    def _ask_second(
        self, second: Forest, rows: BatchRows, known: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Take the coarse forest through the rows; its posteriors by category, as asked and as learned."""
        scores = second._advance(rows.batch, answer=True)
        second._tidy()
        new = second._labels.labels[len(self.of_second) :]
        found = [self.taxonomy.categories.find(name) for name in new]
        self.of_second = np.append(self.of_second, np.array(found, np.int64))
        every = np.full(len(known), BOTH, np.uint8)
        asked = self._by_category(posteriors(scores[rows.asked], every, known))
        if (rows.asked == rows.learned).all():
            return asked, asked
        return asked, self._by_category(posteriors(scores[rows.learned], every, known))

    def _run_like(self, fine: Forest, second: Forest) -> None:
        """Threads and actors of the coarse forest are as those of the fine one."""
        for name in RUNTIME_SETTINGS:
            if hasattr(fine, name):
                setattr(second, name, getattr(fine, name))
        second._place_trees()

    def _by_category(self, P: NDArray[np.float64]) -> NDArray[np.float64]:
        out = np.zeros((len(P), len(self.taxonomy.categories)))
        out[:, self.of_second] = P
        return out

    def _through(
        self,
        fine: Forest,
        rows: BatchRows,
        said: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
        index: Labels,
        ops: NDArray[np.uint8],
        novelty: bool,
    ) -> Answers:
        """The fine forest through the rows, then the answers of both together."""
        batch = rows.batch
        if novelty:
            batch.novelty = np.full(len(batch.X), np.nan)
        through = FineRows(self, fine, rows, index, ops)
        scores = through.run()
        fine._tidy()
        every = np.full(len(ops), BOTH, np.uint8)
        asked = posteriors(scores[rows.asked], every, index.classes)
        learned = posteriors(scores[rows.learned], every, index.classes)
        learns, hidden = (ops & LEARN) != 0, self._hidden(fine)
        both, novel_in = self.answers.together(
            (asked, learned),
            said,
            index,
            learns,
            len(self.taxonomy.categories),
            hidden,
        )
        coarse_rows = int(np.count_nonzero(index.coarse_only))
        learned_by_fine = int(np.count_nonzero(index.coarse_only & (index.y >= 0)))
        learned_by_fine += through.estimated
        self.counts["coarse_rows"] += coarse_rows
        self.counts["estimated"] += through.estimated
        self.n_elsewhere += coarse_rows - learned_by_fine
        new = None
        quiet = (ops & PREDICT) == 0
        if batch.novelty is not None:
            new = batch.novelty[rows.asked]
            new[quiet] = np.nan
        both.fine[quiet] = np.nan
        both.coarse[quiet] = np.nan
        novel_in[quiet] = NONE
        fine_answers = both.fine if hidden is None else both.fine[:, ~hidden]
        return Answers(fine_answers, new, both.coarse, novel_in if novelty else None)

    # ---- calls

    def answer(self, fine: Forest, X: Any) -> Answers:
        """Predict a batch at both levels."""
        with fine._lock:
            fine._place_trees()
            return self.advance(fine, X, None, None, None, length(X), False)

    def answer_one(self, fine: Forest, x: Any) -> TwoLevels:
        """Probabilities of classes and categories for one event."""
        if self.method == "stacked":
            said = self.advance(fine, [x], None, None, None, 1, False)
            assert said.coarse is not None
            return TwoLevels(said.posteriors, said.coarse)
        self.answers.follow(self.taxonomy, fine._labels.labels)
        n = len(fine._labels)
        scores = np.zeros(0)
        if n:
            scores = fine._scores_one(x)
        else:
            fine._one_row(x, learn=False)
        P = posteriors(scores[None, :], _OP_PREDICT, np.array([n]))
        coarse = None
        if self.forest is not None:
            self._run_like(fine, self.forest)
            found = self.forest._scores_one(x)[None, :]
            known = np.array([len(self.of_second)])
            coarse = self._by_category(posteriors(found, _OP_PREDICT, known))
        hidden = self._hidden(fine)
        both = self.answers.combine(P, coarse, hidden)
        return both if hidden is None else TwoLevels(both.fine[:, ~hidden], both.coarse)

    def predict_proba_one(self, fine: Forest, x: Any, level: str) -> dict[Any, float]:
        """The probability of every class or category."""
        both = self.answer_one(fine, x)
        names = self.taxonomy.categories.labels if level == "coarse" else fine.classes_
        P = both.coarse if level == "coarse" else both.fine
        return dict(zip(names, P[0].tolist()))

    def predict_one(self, fine: Forest, x: Any, level: str) -> Any:
        """The most probable class or category; None if there is none."""
        P = self.predict_proba_one(fine, x, level)
        best = max(P, key=P.__getitem__, default=None)
        return None if best is None or P[best] <= 0 else best

    def refine_one(self, fine: Forest, number: int, y: Any) -> bool:
        """Learn the class of a row that was learned with its category; whether the row is still there."""
        known = self.rows.look_up(number) or self.withheld.look_up(number)
        if known is None:
            plain_label(y)  # a label that cannot be one is refused, whatever became of the row
            self.counts["missed"] += 1
            return False
        if fine._labels.find(y) < 0:
            fine._labels.require_room(y)
        self.taxonomy.learn(y, self.taxonomy.categories.labels[known.category])
        row = self.withheld.take(number)
        if row is None:
            row = self.rows.take(number, fine._rows_in_memory())
        if row is None:
            self.counts["missed"] += 1
            return False
        self._relearn(fine, row, y)
        self.counts["refined"] += 1
        return True

    def _relearn(self, fine: Forest, row: EstimatedRow, y: Any) -> None:
        """Let the fine forest learn the row with its true class."""
        fine._routed = None
        self.answers.follow(self.taxonomy, fine._labels.labels)
        values = np.full((1, max(1, len(fine._features))), np.nan)
        values[0, : len(row.values)] = row.values
        k = fine._labels.learn(y)
        if k == len(self.answers.of_class):
            self.answers.of_class = np.append(self.answers.of_class, row.category)
            self.answers.rows_of_class = np.append(self.answers.rows_of_class, 0)
        self.answers.of_class[k] = row.category
        self.answers.rows_of_class[k] += 1
        if self.estimates.needs_rows:
            self.estimates.learn(row.values, k)
        known = np.array([len(fine._features)])
        batch = Batch(values, np.array([k]), np.full(1, LEARN, np.uint8), known)
        batch.upper = np.full(1, row.category, np.int32)
        self.n_elsewhere -= 1  # the row was counted when it was learned with its category
        fine._advance(batch, answer=False)

    # ---- snapshots

    def dump(self, fine: Forest) -> tuple[dict[str, Any] | None, dict[str, NDArray[Any]]]:
        """Metadata and arrays of a snapshot."""
        return state.dump(self, fine)

    def restore(self, fine: Forest, meta: Any, arrays: dict[str, NDArray[Any]]) -> None:
        """The same back, checked."""
        state.restore(self, fine, meta, arrays)

    # ---- looking inside

    def summary(self) -> dict[str, Any]:
        """Size and shape, under one key; nothing if there are no categories."""
        if not self.known:
            return {}
        told: dict[str, Any] = {
            "categories": len(self.taxonomy.categories),
            "classes_with_category": len(self.taxonomy),
            "coarse_share": round(self.answers.mix.share, 4) if self.active else 0.0,
            **self.counts,
            "refinable_rows": len(self.rows) + len(self.withheld),
        }
        if self.forest is not None:
            told["forest"] = self.forest.summary()
        return {"levels": told}

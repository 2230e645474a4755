"""The stream forest, the NCM forest and recent neighbours side by side, as one River estimator."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.auto import families
from streamforest.forests.auto.blend import Blend
from streamforest.forests.auto.families import FAMILIES, epoch_start, plant, scores_of, taking
from streamforest.forests.auto.recent import RecentNeighbours
from streamforest.forests.auto.resting import Resting
from streamforest.forests.core.base import Forest
from streamforest.forests.core.batch import Batch
from streamforest.forests.core.explanation import Expert, Explanation, ranked
from streamforest.forests.core.parameters import MAX_TEXT_BYTES, check_number
from streamforest.forests.core.serialization import demand
from streamforest.forests.ncm.forest import NCMForestClassifier
from streamforest.forests.stream.forest import StreamForestClassifier
from streamforest.kernels.auto.blending import AGES, VOICES
from streamforest.kernels.core.operations import LEARN, PREDICT

_OWN_REVISION = 2  # of the blend, see `learning_revision`; 1: young classes were as all others
_RECENT_DECAY = 0.998
_RECENT = len(FAMILIES)  # the voice of the recent neighbours


class AutoForestClassifier(Forest):
    """Both families at once: a stream forest and an NCM forest, blended by what was right lately.

    Neither family is best everywhere. The stream forest follows drift and is ahead on streams of few
    classes; the NCM forest is ahead on textures, letters and weather, and knows how new an event is. Here
    both learn every event, on one table of features and labels, and their posteriors are added up. A third
    voice is a short memory, the nearest of the last 32 to 512 rows: it knows of a change before any forest
    does. The share of each voice follows the blends that were right lately, so that nobody has to choose,
    and where they make different mistakes the sum is ahead of all. Classes of a few rows have a lift by the
    same rule: their votes count up to sixteen times, as long as that is right.

    Each family is to the last bit the forest of that kind with the same seed and parameters, until the NCM
    forest rests: where no blend with it has been right more often than the stream forest for 1,024 events,
    it takes part in every eighth epoch of 64 events only, until it is worth its time again or a class comes.

    Parameters
    ----------
    n_trees
        Trees of the stream forest. The NCM forest has a quarter more.
    blend_decay
        What is left of a hit of a blend of the two families after one more event. Nearer to 1 the shares
        are steadier, and later to follow a change; .998 costs .02 points in the mean of 14 streams.
    ring_rows, max_ring_bytes, max_plain_bytes, max_nodes
        Bounds of the stream forest; see `StreamForestClassifier`.
    drift
        Whether trees of the stream forest are challenged, and old rows of the NCM forest may go.
    memory, swap_after, background
        Rows that the NCM forest keeps, and how its trees are grown anew; see `NCMForestClassifier`.
    max_classes, max_features, max_categories
        What the stream may bring: classes, features, categories of one feature. One class more is a
        `CapacityError`, and nothing is learned from that event; of the others `on_capacity` decides. So is
        what would make more than 2²⁴ class means, one for each class and column.
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
        Threads. From two on the families work side by side in batches. Predictions and state are the
        same bits for any number.
    seed
        Seed of all random draws.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from streamforest import AutoForestClassifier
    >>> model = AutoForestClassifier(n_trees=10, seed=1)
    >>> evaluate.progressive_val_score(datasets.ImageSegments().take(1000), model, metrics.Accuracy())
    Accuracy: 92.99%
    >>> 0.1 < model.shares()["ncm"] < 0.3
    True
    """

    largest: ClassVar[float] = min(StreamForestClassifier.largest, NCMForestClassifier.largest)
    max_means: ClassVar[int] = NCMForestClassifier.max_means
    tells_novelty: ClassVar[bool] = True
    _cuts_epochs: ClassVar[bool] = True
    _revision: ClassVar[int] = 2
    # revisions only rise, so that the sum is another one whenever any of them is
    learning_revision: ClassVar[int] = (
        StreamForestClassifier.learning_revision
        + NCMForestClassifier.learning_revision
        + _OWN_REVISION
    )

    def __init__(
        self,
        n_trees: int = 20,
        blend_decay: float = 0.999,
        ring_rows: int = 16_384,
        max_ring_bytes: int = 64_000_000,
        max_plain_bytes: int = 32_000_000,
        max_nodes: int = 4_096,
        drift: bool = True,
        memory: int = 10_000,
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
        self.blend_decay = blend_decay
        self.ring_rows = ring_rows
        self.max_ring_bytes = max_ring_bytes
        self.max_plain_bytes = max_plain_bytes
        self.max_nodes = max_nodes
        self.drift = drift
        self.memory = memory
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

    # ---- the families

    def _plant(self, seeds: NDArray[np.uint64]) -> None:
        check_number("blend_decay", self.blend_decay, 0, 1, inside=True)
        self._seeds = seeds
        self._blend = Blend(float(self.blend_decay), _RECENT_DECAY)
        self._recent = RecentNeighbours()
        self._rest = Resting()
        seed = int(seeds[0] >> np.uint64(11)) if self.seed is None else self.seed
        self._families = plant(self, seed)

    def _call(
        self,
        first: int,
        last: int,
        want: NDArray[np.int64],
        batch: Batch,
        votes: NDArray[np.int64],
    ) -> bool:
        """Take both families through the rows of an epoch; they enlarge what is too small themselves."""
        stream, ncm = self._families
        ncm.background = self.background  # type: ignore[attr-defined]
        self._recent.process(batch, self._n_learned, self._features.categorical, votes, _RECENT)
        if not self._rest.takes_part(self._n_learned):
            stream.n_jobs = ncm.n_jobs = self.n_jobs
            self._tell_resting(batch)
            votes[:, 0] = stream._advance(batch, answer=True)
            return True
        self._rest.new_rows(batch, self._features)
        if self.n_jobs == 1 or len(batch.X) == 1:
            stream.n_jobs = ncm.n_jobs = 1
            votes[:, 0] = stream._advance(batch, answer=True)
            votes[:, 1] = ncm._advance(batch, answer=True)
            return True
        stream.n_jobs, ncm.n_jobs = self.n_jobs // 2, self.n_jobs - self.n_jobs // 2
        running = self._threads(1).submit(ncm._advance, batch, answer=True)
        try:
            votes[:, 0] = stream._advance(batch, answer=True)
            votes[:, 1] = running.result()
        except BaseException:  # whatever happened, no thread works on after this call
            wait([running])
            raise
        return True

    def _tell_resting(self, batch: Batch) -> None:
        """Let the resting NCM forest know what is new, and say how new rows are."""
        told = self._rest.rows_for(batch, self._features)
        if told is None:
            return
        self._families[1]._advance(told, answer=False)
        if batch.novelty is not None and told.novelty is not None:
            batch.novelty[(batch.op & PREDICT) != 0] = told.novelty[(told.op & PREDICT) != 0]

    def _process(self, batch: Batch, votes: NDArray[np.int64]) -> None:
        self._call(0, self.n_trees, self._want, batch, votes)

    def _enlarge(self, want: NDArray[np.int64]) -> None:
        """Nothing: all arrays belong to the families."""

    def _call_one(self, X: NDArray[np.float64], op: NDArray[np.uint8], reuse: bool) -> bool:
        if not reuse and self._one_votes.shape[2] != len(self._labels):
            self._one_votes = self._new_votes(1)
        event, categorical = self._one_event(X, op, reuse), self._features.categorical
        self._recent.process(event, self._n_learned, categorical, self._one_votes, _RECENT)
        both = self._rest.takes_part(self._n_learned)
        awake = self._families if both else self._families[:1]
        if not reuse:
            self._one_votes[0, 1] = 0
            for voice, family in enumerate(awake):
                self._one_votes[0, voice] = scores_of(family, X)
        self._one_scores = self._blend.mix(self._one_votes, self._one_y, op, both)
        if op[0] & LEARN:
            self._families[1].background = self.background  # type: ignore[attr-defined]
            y, known = int(self._one_y[0]), int(self._one_known[0])
            if not self._rest.knows(y, known, X.shape[1], self._features):
                if both:
                    self._rest.new_rows(event, self._features)
                else:
                    self._tell_resting(event)
            for family in awake:
                family._one_y[0] = self._one_y[0]
                family._one_known[0] = self._one_known[0]
                family._learn_row(X, True)  # it was just asked about this very row
        return True

    def _tidy(self) -> None:
        for family in self._families:
            family._tidy()

    # ---- votes: of each family, and of the recent neighbours

    def _new_votes(self, n: int) -> NDArray[np.int64]:
        return np.zeros((n, VOICES, len(self._labels)), np.int64)

    def _mix(self, votes: NDArray[np.int64]) -> NDArray[np.int64]:
        n = len(votes)
        both = self._rest.takes_part(self._n_learned)
        return self._blend.mix(votes, np.full(n, -1), np.full(n, PREDICT, np.uint8), both)

    def _mix_one(self) -> NDArray[np.int64]:
        scores: NDArray[np.int64] = self._one_scores[0]
        return scores

    def _mix_and_judge(
        self, votes: NDArray[np.int64], y: NDArray[np.int64], op: NDArray[np.uint8]
    ) -> NDArray[np.int64]:
        return self._blend.mix(votes, y, op, self._rest.takes_part(self._n_learned))

    def _end_epoch(self, batch: Batch) -> None:
        begun = epoch_start(self._n_learned - 1)
        both = self._rest.takes_part(begun)
        self._blend.end_epoch(self._n_learned - begun, both)
        self._rest.end_epoch(self._n_learned, both, self._blend.worth())
        self._recent.end_epoch(int(batch.known[-1]))

    def _predict_trees(self, X: Any) -> NDArray[np.int64]:
        self._refuse_if_broken()
        self._routed = None
        return np.concatenate([family._predict_trees(X) for family in self._families])

    def warm_up(self, first_events: bool = False) -> None:
        """Compile, or load, all that this forest will ever call, or only what its first events call."""
        families.warm_up(self, first_events)

    # ---- how new an event is

    def novelty_one(self, x: dict[Any, Any]) -> float:
        """How unlike everything known an event is, before any label exists: about 1 for what is usual.

        The NCM forest says it; see `NCMForestClassifier.novelty_one`. Infinite before anything was learned.
        """
        return float(self.novelty_many([x])[0])

    def novelty_many(self, X: Any) -> NDArray[np.float64]:
        """`novelty_one` for each row of a batch."""
        novelty = self.answers(X).novelty
        assert novelty is not None
        return novelty

    # ---- snapshots

    def _dump(self) -> dict[str, NDArray[Any]]:
        arrays = {"tree.seed": self._seeds, **self._blend.dump(len(self._labels))}
        arrays["family.revisions"] = np.array([family._revision for family in self._families])
        arrays |= self._recent.dump(self._n_learned, len(self._features))
        arrays |= self._rest.dump(self._families[1]._n_learned, self._features)
        for name, family in zip(FAMILIES, self._families):
            arrays |= {f"{name}.{key}": array for key, array in family._dump().items()}
        return arrays

    def _restore(self, take: Callable[..., NDArray[Any]]) -> None:
        self._restore_revision(take, self._revision)

    def _restore_revision(self, take: Callable[..., NDArray[Any]], revision: int) -> None:
        self._plant(take("tree.seed", np.uint64, self.n_trees))  # without a seed they were drawn
        classes = len(self._labels)
        begun = epoch_start(self._n_learned)
        self._blend.restore(take, self._n_learned - begun, classes, revision)
        self._recent.restore(take, self._n_learned, self._features, classes)
        of_ncm = self._rest.restore(take, self._n_learned, self._features, classes, revision)
        revisions = take("family.revisions", np.int64, len(FAMILIES)).tolist()
        learned = (self._n_learned, of_ncm)
        for name, family, own, rows in zip(FAMILIES, self._families, revisions, learned):
            demand(1 <= own <= family._revision, "family.revisions")
            family._n_learned = rows
            family._restore_revision(taking(take, name), own)
            family._scratch()

    # ---- looking inside

    def shares(self) -> dict[str, float]:
        """The say of each family and of the recent neighbours; it changes when an epoch ends."""
        stream, ncm, recent = self._blend.voices()
        if not self._rest.takes_part(self._n_learned):
            stream, ncm = stream + ncm, 0.0
        return dict(zip((*FAMILIES, "recent"), (stream, ncm, recent)))

    def summary(self) -> dict[str, Any]:
        """Size and shape of the forest.

        `shares` is the say of each family and of the recent neighbours in an answer, `young_lifts` what the
        votes of classes of fewer than so many rows are multiplied by, `ncm_rests` whether
        the NCM forest rests, `recent_rows` the rows that the neighbours look at, `total_bytes` what all
        arrays take as allocated, and `families` has the summary of each.
        """
        with self._lock:
            of_each = {name: family.summary() for name, family in zip(FAMILIES, self._families)}
            return {
                "trees": sum(family.n_trees for family in self._families),
                "events": self._n_learned,
                "classes": len(self._labels),
                "features": len(self._features),
                "capacity": self._features.totals(),
                "nodes": sum(of_it["nodes"] for of_it in of_each.values()),
                "shares": {name: round(share, 4) for name, share in self.shares().items()},
                "young_lifts": {
                    str(age): round(lift, 2)
                    for age, lift in zip(AGES.tolist(), self._blend.lift.tolist())
                },
                "ncm_rests": self._rest.resting,
                "recent_rows": self._recent.rows,
                "total_bytes": self._recent.nbytes
                + sum(of_it["total_bytes"] for of_it in of_each.values()),
                "families": of_each,
                **self._levels.summary(),
            }

    def _title(self) -> str:
        return "blend"

    def _experts_on(self, row: NDArray[np.float64]) -> list[Expert]:
        labels = self._labels.labels
        return [
            Expert(name, share, ranked(scores, labels))
            for (name, share), scores in zip(self.shares().items(), self._one_votes[0])
        ]

    def _parts_on(self, x: Any, tree: int | None) -> list[Explanation]:
        """Each family; a resting NCM forest was not asked."""
        both = self._rest.takes_part(self._n_learned)
        told = []
        for name, family in zip(FAMILIES, self._families if both else self._families[:1]):
            which = tree if tree is None or tree < family.n_trees else None
            found = family.explain_one(x, which)
            told.append(replace(found, forest=f"{name}: {found.forest}"))
        return told

    def _importances(self) -> dict[str, tuple[float, NDArray[np.float64]]]:
        """Those of both families; the recent neighbours have none."""
        stream, ncm = self._families
        share = self.shares()
        found = {name: (share["stream"] * w, v) for name, (w, v) in stream._importances().items()}
        for name, (weight, values) in ncm._importances().items():
            found[name] = share["ncm"] * weight, values
        return found

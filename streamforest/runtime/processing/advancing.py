"""Every model through the rows of a batch: predict, then learn, row by row, and what each of them said.

Where the class of an event comes after its category, the batch is cut, and the models take the class between
the two rows where its label stood in the stream. So it does not matter how records are cut into batches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest import LEARN
from streamforest.forests.core.batch import Answers, joined
from streamforest.io.codec.dead_letters import passed_on
from streamforest.io.codec.events import MAX_PREDICTION, Prediction, encode_prediction
from streamforest.io.failpoints import during
from streamforest.io.log import OutputRecord, Partition
from streamforest.observe import telemetry as reports
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.labels.batch import LateBatch
from streamforest.runtime.processing.adapters import Model
from streamforest.runtime.processing.admission import Rows
from streamforest.runtime.processing.intake import Intake

_SAMPLED = 128  # rows predicted on their own, once a second, to know what predicting takes

Level = tuple[Any, float, Any, Any]
"""The likeliest category, its probability, the true one, and the one that a new event belongs to."""


@dataclass
class Said:
    """What the model that publishes said of each row."""

    labels: list[Any] = field(default_factory=list)
    top: list[Likely] = field(default_factory=list)
    novelty: list[float | None] = field(default_factory=list)
    levels: list[Level | None] = field(default_factory=list)


def advance_models(
    state: RunState,
    intake: Intake,
    main: str,
    top: int,
    telemetry: reports.Listener | None,
    sample_due: Callable[[], bool],
) -> Said:
    """Move every model through the rows; what the one called `main` said, if anyone hears of it.

    Without `telemetry` the rows were published before: in recovery.
    """
    rows, late = intake.rows, intake.late
    told = Said()
    if not len(rows) and (late is None or not late.judged):
        return told
    if telemetry is not None and any(rows.new):
        learned = state.models[main].n_learned
        telemetry.on_event(reports.ClassesBorn(*_born(rows, learned)))
        state.newest_at = time.time()
    sample = telemetry is not None and len(rows) > 0 and sample_due()
    for number, (name, model) in enumerate(state.models.items()):
        predict = predict_seconds(model, rows) if sample else None
        begun = time.perf_counter()
        with during("inside-advance"):
            said = _advance(model, number, rows, late)
        seconds = time.perf_counter() - begun if len(rows) else 0.0
        guesses = answers(said.posteriors, model.classes_)
        upper: Sequence[Any] = ()
        if said.coarse is not None:
            upper = answers(said.coarse, model.categories_)
        if name == main:
            told.labels = guesses
            told.novelty = plain_novelty(said.novelty, len(rows))
            if telemetry is not None:
                told.top = top_classes(said.posteriors, model.classes_, top)
                told.levels = plain_levels(said, upper, model.categories_, rows.categories)
        if telemetry is not None and said.novelty is not None:
            telemetry.on_event(reports.NoveltyMeasured(name, said.novelty))
        batch = _judged(name, model, number, rows, late, guesses, upper, seconds)
        state.measures.on_event(batch)
        if telemetry is None:
            continue
        telemetry.on_event(batch)
        if predict is not None:
            learned = int(np.count_nonzero(rows.op & LEARN))
            beyond = max(0.0, seconds - predict * len(rows))
            learn = beyond / learned if learned else None
            telemetry.on_event(reports.BatchSampled(name, predict, learn, len(rows)))
    if late is not None and state.late is not None:
        for refinement in late.refinements:
            state.late.refined(refinement.done)
    return told


def _born(rows: Rows, learned: int) -> tuple[list[Any], int, list[int]]:
    """New classes, events learned before the batch, and before each of them.

    One that waits for more events is not born yet.
    """
    learns = (rows.op & LEARN).tolist()
    born = [k for k, (new, one) in enumerate(zip(rows.new, learns)) if new and one]
    before = rows.learned_before(learned)
    return [rows.y[k] for k in born], learned, [before[k] for k in born]


def _judged(
    name: str,
    model: Model,
    number: int,
    rows: Rows,
    late: LateBatch | None,
    guesses: list[Any],
    upper: Sequence[Any],
    seconds: float,
) -> reports.BatchAdvanced:
    """True labels beside what the model said at the time, at both levels."""
    truth, predicted, earlier = rows.y, guesses, 0
    known = upper or [None] * len(rows)
    pairs = list(zip(rows.categories or (), known))
    if late is not None:
        truth, predicted = late.settle(guesses, number)
        earlier = len(truth) - len(late.predicted)
        pairs = late.settle_coarse(known, number)
    pairs = [pair for pair in pairs if pair[0] is not None]
    return reports.BatchAdvanced(
        name,
        truth,
        predicted,
        seconds,
        earlier,
        model.n_learned,
        [one for one, _ in pairs],
        [one for _, one in pairs],
    )


def _advance(model: Model, number: int, rows: Rows, late: LateBatch | None) -> Answers:
    """One model through the rows, cut where a class follows its category."""
    if late is None or not (late.refinements or late.coarse_rows):
        return model.advance(rows) if len(rows) else Answers(np.zeros((0, len(model.classes_))))
    pieces: list[Answers] = []
    start = 0
    of_row = dict(late.coarse_rows)
    stops = [(refinement.row, refinement) for refinement in late.refinements]
    for stop, refinement in [*stops, (len(rows), None)]:
        if stop > start:
            part = rows.part(slice(start, stop))
            before = model.n_learned
            pieces.append(model.advance(part))
            for row, own in enumerate(model.numbers(part, before), start):
                if row in of_row:
                    of_row[row].numbers.append(own)
            start = stop
        if refinement is not None:
            done = model.refine(refinement.entry.numbers[number], refinement.y)
            refinement.done = refinement.done or done
    return joined(pieces) if pieces else Answers(np.zeros((0, len(model.classes_))))


def plain_levels(
    said: Answers, names: Sequence[Any], categories: list[Any], truth: Sequence[Any] | None
) -> list[Level | None]:
    """Categories as predictions carry them; nothing where a model knows none."""
    rows = len(said.posteriors)
    if said.coarse is None or not categories:
        return [None] * rows
    best = said.coarse.max(axis=1).tolist()
    novel_in: Sequence[Any] = [None] * rows
    if said.novel_in is not None:
        novel_in = [None if k < 0 else categories[k] for k in said.novel_in.tolist()]
    return list(zip(names, best, truth or [None] * rows, novel_in))


# ---- from posteriors to what a prediction says

Likely = list[tuple[Any, float]]
"""Classes with their probabilities, the likeliest first."""


def answers(posteriors: NDArray[np.float64], classes: list[Any]) -> list[Any]:
    """Most probable class of each row; None where no class was known.

    >>> answers(np.array([[0.0, 0.0], [0.25, 0.75]]), ["cat", "dog"])
    [None, 'dog']
    """
    if not classes:
        return [None] * len(posteriors)
    if len(posteriors) == 1:  # half the calls of NumPy: it is what a server answers with
        best = int(posteriors[0].argmax())
        return [None if posteriors[0, best] <= 0 else classes[best]]
    top = posteriors.argmax(axis=1)  # ties: the class seen first
    labels = [classes[k] for k in top.tolist()]
    unknown = posteriors[np.arange(len(top)), top] <= 0
    for i in np.flatnonzero(unknown).tolist():
        labels[i] = None
    return labels


def top_classes(posteriors: NDArray[np.float64], classes: list[Any], most: int) -> list[Likely]:
    """The `most` likeliest classes of each row with their probabilities, those of 0 left out.

    >>> top_classes(np.array([[0.2, 0.8, 0.0]]), ["a", "b", "c"], 3)
    [[('b', 0.8), ('a', 0.2)]]
    """
    if not classes:
        return [[] for _ in posteriors]
    if len(posteriors) == 1:
        row = posteriors[0]
        first = np.argsort(-row, kind="stable")[:most]
        return [[(classes[k], p) for k, p in zip(first.tolist(), row[first].tolist()) if p > 0]]
    order = np.argsort(-posteriors, axis=1, kind="stable")[:, :most]
    values = np.take_along_axis(posteriors, order, axis=1)
    named = classes.__getitem__
    ranked = [
        list(zip(map(named, row), probabilities))
        for row, probabilities in zip(order.tolist(), values.tolist())
    ]
    there = (values > 0).sum(axis=1)
    for i in np.flatnonzero(there < order.shape[1]).tolist():
        del ranked[i][there[i] :]
    return ranked


def plain_novelty(values: NDArray[np.float64] | None, rows: int) -> list[float | None]:
    """Novelty as predictions carry it: no number where there is none, and six digits.

    >>> plain_novelty(np.array([1.23456789, np.inf]), 2), plain_novelty(None, 1)
    ([1.23457, None], [None])
    """
    if values is None:
        return [None] * rows
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in values.tolist()]


def predictions(
    taken: list[tuple[Partition, Any, Any, int]], columns: list[list[Any]], commit: int | None
) -> list[OutputRecord]:
    """The answers to a batch as messages, which wait for the commit that makes them true.

    `taken` has the partition, record, id and number of each event; `columns` their labels, likely classes,
    true labels, whether those are new, events learned before, novelty, and what was said of categories.
    """
    messages: list[OutputRecord] = []
    rows = zip(taken, *columns, strict=True)
    for (at, record, identity, number), label, likely, truth, new, before, far, level in rows:
        topic, partition = at
        prediction = Prediction(
            number,
            label,
            likely[0][1] if likely else 0.0,
            truth,
            likely,
            topic,
            partition,
            record.offset,
            before,
            new,
            identity,
            commit,
            far,
        )
        if level is not None:
            name, share, prediction.coarse_truth, prediction.novel_in = level
            prediction.coarse, prediction.coarse_probability = name, share
        value = encode_prediction(prediction)
        if len(value) > MAX_PREDICTION:
            prediction.top = likely[:1]
            value = encode_prediction(prediction)
        headers = passed_on(record.headers) if record.headers else []
        messages.append(OutputRecord(value, record.key, headers, partition))
    return messages


def predict_seconds(model: Model, rows: Rows) -> float:
    """What it takes to predict one of these rows and learn nothing; the model stays as it is."""
    few = rows.head(_SAMPLED)
    begun = time.perf_counter()
    model.advance(few)
    return (time.perf_counter() - begun) / len(few)

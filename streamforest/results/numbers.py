"""What a report says of a run, worked out of its predictions: every list in it is bounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from streamforest.observe.evaluation import AGE_LIMITS, Totals, kappa_temporal
from streamforest.observe.page.recent_classes import NewClass
from streamforest.text import printable

POINTS = 160  # of a curve
_FEWEST = 20  # events of a point
MAX_CLASSES = 200  # in the table of classes, the newest
MAX_MATRIX = 15  # classes of the confusion matrix, the most frequent
MAX_PAIRS = 20
BINS = 10  # of the calibration
_NAME = 64


def measure(frame: pd.DataFrame) -> dict[str, Any]:
    """All numbers of a report, as plain data. `frame` is what `streamforest.results.read` gives."""
    labelled = frame[frame["truth"].notna()]
    truth, predicted = labelled["truth"].tolist(), labelled["label"].tolist()
    totals = Totals()
    totals.update(truth, predicted)
    hits = np.array([a == b for a, b in zip(truth, predicted)], bool)
    same = np.array([a == b for a, b in zip(truth[1:], truth)], bool)
    repeats = np.concatenate([[False], same]) if len(hits) else same
    no_change = float(repeats.mean()) if len(hits) else None
    events = labelled["event"].to_numpy(np.int64)
    probability = labelled["probability"].to_numpy(np.float64)
    calibration, error = _calibration(probability, hits, predicted)
    return {
        "events": len(frame),
        "labelled": len(labelled),
        "classes": totals.classes,
        "first": int(frame["event"].min()) if len(frame) else None,
        "last": int(frame["event"].max()) if len(frame) else None,
        "accuracy": totals.accuracy,
        "kappa": totals.kappa,
        "no_change": no_change,
        "kappa_temporal": kappa_temporal(totals.accuracy, no_change),
        "curve": _curve(events, hits, repeats, probability),
        "ages": [[b.name, b.events, b.accuracy] for b in totals.ages()],
        "births": _births(truth, hits, events),
        "confusion": _confusion(truth, predicted),
        "calibration": calibration,
        "calibration_error": error,
        "novelty": _novelty(frame),
    }


def _name(label: Any) -> str:
    return printable(str(label), _NAME)


def _curve(
    events: NDArray[np.int64],
    hits: NDArray[np.bool_],
    repeats: NDArray[np.bool_],
    probability: NDArray[np.float64],
) -> dict[str, list[Any]]:
    """Accuracy over time: points of equally many labelled events, each at its last event."""
    n = len(hits)
    points = max(1, min(POINTS, n // _FEWEST))
    ends = [n * (i + 1) // points for i in range(points)] if n else []
    starts = [0, *ends[:-1]]
    spans = [(a, b) for a, b in zip(starts, ends) if b > a]

    def mean(values: NDArray[Any]) -> list[float]:
        return [round(float(values[a:b].mean()), 5) for a, b in spans]

    return {
        "event": [int(events[b - 1]) for _, b in spans],
        "accuracy": mean(hits),
        "no_change": mean(repeats),
        "confidence": mean(probability),
    }


def _births(truth: list[Any], hits: NDArray[np.bool_], events: NDArray[np.int64]) -> dict[str, Any]:
    """Each class: its first event, how many there were, and how well it was recognised by its age."""
    of_class: dict[Any, list[int]] = {}
    for i, label in enumerate(truth):
        of_class.setdefault(label, []).append(i)
    rows = []
    for label, places in list(of_class.items())[-MAX_CLASSES:]:
        followed = NewClass(0, 0.0, 0)  # by place, whatever the label is
        followed.count(hits[places].tolist())
        ages = [right / n if n else None for n, right in followed.ages]
        recent = hits[places[-100:]]
        rows.append(
            {
                "name": _name(label),
                "first": int(events[places[0]]),
                "events": len(places),
                "recall": float(hits[places].mean()),
                "lately": float(recent.mean()),
                "ages": ages + [None] * (len(AGE_LIMITS) + 1 - len(ages)),
                "reached": followed.reached,
            }
        )
    return {"total": len(of_class), "listed": rows}


def _confusion(truth: list[Any], predicted: list[Any]) -> dict[str, Any]:
    """A matrix of the most frequent classes, the rest summed up, and the pairs mistaken most often."""
    pairs: dict[tuple[Any, Any], int] = {}
    seen: dict[Any, int] = {}
    for a, b in zip(truth, predicted):
        pairs[a, b] = pairs.get((a, b), 0) + 1
        seen[a] = seen.get(a, 0) + 1
    most = sorted(seen, key=lambda label: -seen[label])[:MAX_MATRIX]
    place = {label: i for i, label in enumerate(most)}
    other = len(most)
    matrix = np.zeros((other, other + 1), np.int64)
    for (a, b), count in pairs.items():
        if a in place:
            matrix[place[a], place.get(b, other)] += count
    wrong = sorted(((n, a, b) for (a, b), n in pairs.items() if a != b), key=lambda one: -one[0])
    return {
        "names": [_name(label) for label in most],
        "left_out": len(seen) - len(most),
        "matrix": matrix.tolist(),
        "pairs": [
            {
                "label": _name(a),
                "predicted": "no class yet" if b is None else _name(b),
                "times": n,
                "share": n / seen[a],
            }
            for n, a, b in wrong[:MAX_PAIRS]
        ],
    }


def _calibration(
    probability: NDArray[np.float64], hits: NDArray[np.bool_], predicted: list[Any]
) -> tuple[list[dict[str, Any]], float | None]:
    """How often a prediction of some probability is right, and the expected calibration error."""
    known = np.array([label is not None for label in predicted], bool)
    p, hit = probability[known], hits[known]
    if not len(p):
        return [], None
    which = np.minimum((p * BINS).astype(np.int64), BINS - 1)
    rows, error = [], 0.0
    for b in range(BINS):
        inside = which == b
        n = int(inside.sum())
        if n:
            mean, right = float(p[inside].mean()), float(hit[inside].mean())
            error += n / len(p) * abs(mean - right)
            rows.append({"events": n, "probability": mean, "accuracy": right})
    return rows, error


def _novelty(frame: pd.DataFrame) -> dict[str, Any] | None:
    """The median novelty of events whose class was new, and of the others."""
    told = frame[frame["novelty"].notna()]
    new = told["new"].to_numpy(bool)
    if not new.any() or new.all():
        return None
    values = told["novelty"].to_numpy(np.float64)
    return {
        "new": float(np.median(values[new])),
        "known": float(np.median(values[~new])),
        "events": int(new.sum()),
    }

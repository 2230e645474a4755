"""Measures are held against River's metrics and against plain recomputation."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from river import metrics

from streamforest.observe.evaluation import AGE_LIMITS, CURVE_POINTS, Recent, Totals
from streamforest.observe.latency import LatencyHistogram
from streamforest.observe.measures import ModelMeasures


def random_events(n: int, seed: int = 0) -> tuple[list[str | None], list[str | None]]:
    """Labels of classes that appear over time, with guesses that are right half the time."""
    rng = random.Random(seed)
    truth: list[str | None] = []
    guess: list[str | None] = [None]
    for i in range(n):
        truth.append(f"class {rng.randrange(1 + i // 100)}")
        if i:
            known = [t for t in truth[:-1] if t is not None]
            guess.append(truth[-1] if truth[-1] in known and rng.random() < 0.5 else known[0])
    return truth, guess


def test_accuracy_and_kappa_are_those_of_river() -> None:
    truth, guess = random_events(700)
    totals, accuracy, kappa = Totals(), metrics.Accuracy(), metrics.CohenKappa()
    totals.update(truth, guess)
    for t, g in zip(truth, guess):
        accuracy.update(t, g)
        kappa.update(t, g)
    assert totals.accuracy == pytest.approx(accuracy.get())
    assert totals.kappa == pytest.approx(kappa.get())


def test_class_ages_are_those_of_a_plain_count() -> None:
    truth, guess = random_events(1500, seed=1)
    totals = Totals()
    totals.update(truth, guess)
    limits = (0, *AGE_LIMITS, len(truth))
    for bucket, low, high in zip(totals.ages(), limits, limits[1:]):
        hits = [
            truth[i] == guess[i]
            for i in range(len(truth))
            if low < truth[: i + 1].count(truth[i]) <= high
        ]
        assert (bucket.events, bucket.correct) == (len(hits), sum(hits))
    assert [bucket.name for bucket in totals.ages()] == ["1–10", "11–50", "51–200", "201+"]


def test_unlabelled_events_count_as_events_only() -> None:
    totals = Totals()
    totals.update([None, "a", None], ["a", "a", None])
    assert (totals.events, totals.labelled, totals.correct, totals.classes) == (3, 1, 1, 1)


def test_the_table_of_classes_is_bounded() -> None:
    totals = Totals(max_classes=3)
    totals.update(list(range(10)), [None] * 10)
    assert (totals.classes, totals.untracked, totals.labelled) == (3, 7, 10)


@pytest.mark.parametrize("cut", [1, 137, 499])
def test_totals_go_on_from_their_state_as_if_never_stored(cut: int) -> None:
    truth, guess = random_events(500)
    whole, first = Totals(), Totals()
    whole.update(truth, guess)
    first.update(truth[:cut], guess[:cut])
    second = Totals.from_state(json.loads(json.dumps(first.state())))
    second.update(truth[cut:], guess[cut:])
    assert second.state() == whole.state()


def test_each_class_has_its_first_event_recall_and_precision() -> None:
    truth, guess = random_events(700)
    totals = Totals()
    totals.update(truth, guess)
    for one in totals.by_class():
        places = [i for i, t in enumerate(truth) if t == one.label]
        taken = [i for i, g in enumerate(guess) if g == one.label and i >= places[0]]
        right = [i for i in places if guess[i] == truth[i]]
        assert (one.first, one.events, one.correct) == (places[0] + 1, len(places), len(right))
        assert one.recall == len(right) / len(places)
        assert one.precision == (len(right) / len(taken) if taken else None)


def test_a_state_without_recall_goes_on_and_counts_it_from_there() -> None:
    truth, guess = random_events(500)
    first = Totals()
    first.update(truth[:300], guess[:300])
    old = first.state()
    old["classes"] = [row[:3] for row in old["classes"]]
    totals = Totals.from_state(json.loads(json.dumps(old)))
    assert {one.recall for one in totals.by_class()} == {None}
    totals.update(truth[300:], guess[300:])
    for one in totals.by_class():
        places = [i for i, t in enumerate(truth) if t == one.label]
        since = [truth[i] == guess[i] for i in places if i >= 300 or places[0] >= 300]
        assert one.events == len(places)
        assert one.recall == (sum(since) / len(since) if since else None)
    again = Totals.from_state(json.loads(json.dumps(totals.state())))
    assert again.by_class() == totals.by_class()
    for wrong in ([1, 1, 2, 1, 0], [1, 1, 0, 1], [1, 1, 1, 1, 1], [1, -1, 0, 0, 0]):
        with pytest.raises((ValueError, TypeError)):
            Totals.from_state({**old, "classes": [["a", *wrong]]})


def test_nothing_measured_is_none_not_zero() -> None:
    totals = Totals()
    assert (totals.accuracy, totals.kappa, Recent().accuracy) == (None, None, None)
    assert totals.ages()[0].accuracy is None


def test_window_holds_the_last_events_only() -> None:
    truth, guess = random_events(900)
    recent = Recent(window=50)
    for i in range(0, 900, 7):
        recent.update(truth[i : i + 7], guess[i : i + 7])
    expected = sum(t == g for t, g in zip(truth[-50:], guess[-50:])) / 50
    assert recent.accuracy == pytest.approx(expected)
    assert len(recent) == 50


def test_curve_spans_the_stream_and_stays_short() -> None:
    recent = Recent()
    recent.update([1] * 5000 + [0] * 5000, [1] * 10_000)
    curve = recent.curve()
    assert CURVE_POINTS // 2 <= len(curve) <= CURVE_POINTS
    middle = len(curve) // 2
    assert set(curve[: middle - 1]) == {1.0}
    assert set(curve[middle + 1 :]) == {0.0}


def test_quantiles_are_within_the_stated_error() -> None:
    durations = np.random.default_rng(0).lognormal(-8, 1.5, 20_000)
    histogram = LatencyHistogram()
    for seconds in durations:
        histogram.add(float(seconds))
    for q in (0.01, 0.5, 0.99):
        assert histogram.quantile(q) == pytest.approx(np.quantile(durations, q), rel=0.04)


def test_durations_outside_the_range_go_to_its_ends() -> None:
    histogram = LatencyHistogram()
    histogram.add(0.0)
    histogram.add(1e9)
    assert histogram.quantile(0.0) < 2e-6
    assert histogram.quantile(1.0) > 900


def test_measures_take_up_their_sidecar_or_leave_it() -> None:
    truth, guess = random_events(300)
    measures = ModelMeasures()
    measures.update(truth, guess, seconds=0.01)
    other = ModelMeasures()
    other.restore_passing(json.loads(json.dumps(measures.passing_state())))
    assert other.passing_state() == measures.passing_state()
    broken = measures.passing_state() | {"per_event": [[10**6, 1]]}
    with pytest.raises(ValueError, match="bucket"):
        other.restore_passing(broken)
    assert other.passing_state() == measures.passing_state()

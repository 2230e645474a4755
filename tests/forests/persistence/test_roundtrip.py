"""What was learned can be saved, and what was saved can be loaded: the long forms, and old files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from river import compose, preprocessing
from support import roundtrip
from support.forging import Forgery, forged, sealed
from support.roundtrip import ZOO, Made, feed, forests, round_trip

import streamforest
from streamforest import StreamForestClassifier
from streamforest.errors import FeatureError, LabelError, SnapshotError
from streamforest.forests.core import registry
from streamforest.forests.persistence import snapshot
from streamforest.forests.persistence.snapshot import decode, encode
from streamforest.kernels.core.simd_distance import SCALE
from streamforest.kernels.stream.baselines import COUNT, INVERSE, LOG, MEAN, VARIANCE

OLD = Path(__file__).parents[2] / "golden" / "old"
ROUND_TRIPS = int(os.environ.get("STREAMFOREST_ROUND_TRIPS", "100000"))
"""Of the long form, over all forests that STREAMFOREST_ROUND_TRIP_KINDS names (default: all)."""

_KINDS = os.environ.get("STREAMFOREST_ROUND_TRIP_KINDS", "").split()
_TOGETHER = 500  # round trips of one run: after each of 300 events, then drawn ones

_NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.decimals(-1000, 1000, places=2).map(float),
    st.integers(-3, 20),
    st.sampled_from([0.0, -0.0, 0.1, 1e15, -1e15, 1e12, 1e-12, 5e-324, 1.7e308, -1.7e308]),
    st.none(),
)
_LABELS = st.one_of(
    st.sampled_from(["a", "b", "c"]),
    st.integers(5, 8),
    st.floats(0.25, 0.75, width=16),
    st.text(max_size=2),
)
_EVENTS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("uvw"), _NUMBERS, max_size=3),
        st.one_of(st.none(), st.text(max_size=3), st.floats(-2, 2)),
        _LABELS,
    ),
    min_size=2,
    max_size=12,
)


@pytest.mark.parametrize("kind", sorted(forest.class_name for forest in registry.entries()))
def test_any_events_at_all(kind: str) -> None:
    """The same with values that nobody thought of; what a forest refuses is left out."""

    @settings(
        max_examples=8,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(_EVENTS)
    def hold(events: list[tuple[dict[str, Any], Any, Any]]) -> None:
        model = Made(kind, {}).model(1)
        for x, word, y in events:
            feed(model, [({**x, "word": word if word is None else str(word)}, y)])
            model = round_trip(model)

    hold()


@pytest.mark.slow
@pytest.mark.timeout(24 * 3600)
def test_a_hundred_thousand_round_trips() -> None:
    ways = [made for made in forests() if not _KINDS or made.kind in _KINDS]
    done = dict.fromkeys((str(made) for made in ways), 0)
    seed = 0
    while sum(done.values()) < ROUND_TRIPS:
        for made in ways:
            for zoo in ZOO:
                if sum(done.values()) >= ROUND_TRIPS:
                    break
                trips = min(_TOGETHER, ROUND_TRIPS - sum(done.values()))
                done[str(made)] += roundtrip.run(made, zoo, trips, roundtrip.DENSE, seed)
            print(f"{sum(done.values()):,} round trips, {made}: {done[str(made)]:,}", flush=True)
        seed += 1


def test_a_class_first_value_is_its_mean_and_has_no_variance() -> None:
    rng = np.random.default_rng(3)
    model = StreamForestClassifier(n_trees=1, seed=1)
    for i in range(600):
        x = {f"p{j}": round(float(rng.uniform(1, 900)), 2) * 10.0**j for j in range(5)}
        new = i >= 300 and i % 25 == 0
        y = i if new else int(rng.integers(0, 3))
        model.learn_one(x, y)
        plane = model._baselines.arrays.plane[:, :5, : len(model.classes_)]
        assert (plane[VARIANCE] >= 0).all()
        if new:
            assert plane[MEAN, :, -1].tolist() == list(x.values())
            assert not plane[VARIANCE, :, -1].any()


def test_a_class_that_has_faded_has_no_negative_variance() -> None:
    """A count that has faded makes the next value the first one once more, wholly or nearly."""
    rng = np.random.default_rng(4)
    model = StreamForestClassifier(n_trees=1, seed=1)
    model.advance([{"a": v} for v in rng.normal(1e6, 1.0, 100).tolist()], ["rare", "often"] * 50)
    counts = model._baselines.arrays.plane[COUNT, 0]
    for i in range(300):
        counts[0] *= 10.0 ** -rng.uniform(14, 20)  # so many fadings take 70,000 events
        model.learn_one({"a": (1e6, 0.01)[i % 2] * float(rng.random())}, "rare")
        assert model._baselines.arrays.plane[VARIANCE, 0, 0] >= 0, counts[0]
    round_trip(model)


def test_a_metric_is_finite_whatever_the_relevance() -> None:
    made = Made("StreamForestClassifier", {"relevance": 10.0})
    rng = np.random.default_rng(0)
    model = made.model(1)
    y = rng.integers(0, 2, 256)
    X = rng.normal(size=(256, 500)) * 1e-25
    X[:, 0] += y * 1e-20
    model.advance(X, y)
    round_trip(model)
    assert model._metric[:, SCALE].max() == np.float32(3e38)
    data = forged(encode({"main": model}), Forgery("models/main/0/shared.scale", 0, np.inf))
    assert np.isfinite(round_trip(decode(data)[0]["main"])._metric[:, SCALE]).all()


# ---- files written by earlier rules


def test_a_file_with_a_variance_below_zero_loads() -> None:
    """The first rule left a rounding error of either sign; in this file one as large as -4e7."""
    path = OLD / "stream-2-negative-variance.safetensors"
    tensors, _ = snapshot._parse(path.read_bytes())
    planes = tensors["models/main/0/plain.plane"].reshape(7, 3, 3)
    assert sorted(np.sign(planes[VARIANCE, :, 2])) == [-1, -1, 0]
    assert np.isnan(planes[LOG]).sum() == 1  # naive Bayes could not answer with it either
    model = streamforest.load(path)
    plane = model._baselines.arrays.plane[:, :3, :3]
    assert (plane[VARIANCE] >= 0).all()
    assert (plane[INVERSE] > 0).all()
    kept = planes[VARIANCE] >= 0
    for now, then in zip(plane, planes):
        np.testing.assert_array_equal(now[kept], then[kept])
    answers = model.predict_proba_one({"price": 100.0, "far": 1e12, "share": 0.2})
    assert sum(answers.values()) == pytest.approx(1.0)
    round_trip(model)
    for events in zip(range(200), ZOO["prices"](np.random.default_rng(1))):
        feed(model, [events[1]])
    round_trip(model)


def test_a_variance_that_no_rounding_explains_is_refused() -> None:
    path = OLD / "stream-2-negative-variance.safetensors"
    tensors, content = snapshot._parse(path.read_bytes())
    planes = tensors["models/main/0/plain.plane"].reshape(7, 3, 3)
    planes[VARIANCE, 1, 0] = -1.0  # of prices up to 900

    data = sealed(tensors, content)
    with pytest.raises(SnapshotError, match=r"baselines\.plane"):
        decode(data)


# ---- pipelines


@pytest.mark.parametrize("scaler", ["StandardScaler", "MinMaxScaler", "MaxAbsScaler"])
def test_pipelines_that_were_asked_about_features_they_have_not_met(scaler: str) -> None:
    """A scaler notes what it is asked about; that must not keep the pipeline from being saved."""
    pipeline = (
        compose.Discard("nothing")
        | getattr(preprocessing, scaler)()
        | StreamForestClassifier(n_trees=1, seed=1)
    )
    stream = ZOO["scales"](np.random.default_rng(1))
    for i in range(15):
        x, y = next(stream)
        pipeline.predict_one({**x, f"asked {i}": 2.0})
        round_trip(pipeline)
        pipeline.learn_one(x, y)
        pipeline = round_trip(pipeline)


def test_a_variance_of_river_below_zero_is_none() -> None:
    scaler = preprocessing.StandardScaler()
    scaler.learn_one({"a": 3.0})
    scaler.vars["a"] = -1e-15  # what `learn_many` may leave of 9 - 9
    loaded = round_trip(scaler | StreamForestClassifier(n_trees=1, seed=1))
    assert loaded["StandardScaler"].vars["a"] == 0.0
    assert loaded["StandardScaler"].transform_one({"a": 4.0}) == {"a": 0.0}


# ---- names


def test_numbers_too_long_to_be_saved_name_nothing() -> None:
    model = StreamForestClassifier(n_trees=1, seed=1)
    long = 10**1_300
    with pytest.raises(LabelError, match="at most 2,000 bits"):
        model.learn_one({"a": 1.0}, long)
    with pytest.raises(FeatureError, match="at most 2,000 bits"):
        model.learn_one({long: 1.0}, "a")
    model.learn_one({10**600: 1.0}, -(10**600))
    assert round_trip(model).classes_ == [-(10**600)]
    assert encode({"main": model})

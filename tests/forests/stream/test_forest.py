"""What the stream forest promises beyond the contract: late classes, gaps, categories, drift, bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.events import blobs, growing_stream

from streamforest import LEARN, StreamForestClassifier
from streamforest.datasets import gaussians
from streamforest.errors import FeatureError, ParameterError
from streamforest.forests.core.batch import Batch
from streamforest.forests.persistence.snapshot import decode, encode
from streamforest.forests.stream import arrays as stream_arrays
from streamforest.forests.stream import baseline_inspection
from streamforest.kernels.candidate.layout import VOTE_UNIT
from streamforest.kernels.core.operations import PREDICT
from streamforest.kernels.stream.advance import _BUILD_WORK
from streamforest.kernels.stream.baselines import BIAS, LOG_N
from streamforest.kernels.stream.layout import HISTORY
from streamforest.kernels.stream.votes import NEAR


def _hits(model: StreamForestClassifier, X: Any, y: Any, batch: int = 500) -> np.ndarray:
    """Which events are predicted right before they are learned."""
    out = []
    for a in range(0, len(X), batch):
        P = model.advance(X[a : a + batch], y[a : a + batch])
        index = {label: k for k, label in enumerate(model.classes_)}
        out.append(P.argmax(axis=1) == [index[label] for label in np.asarray(y[a : a + batch])])
    return np.concatenate(out)


def _wheel(n: int, change: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three features, four classes whose regions all change places after `change` events."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    y = 2 * (X[:, 0] > 0.5) + (X[:, 1] > 0.5)
    y[change:] = (y[change:] + 1) % 4
    return X, y


# ---- classes


def test_a_class_first_seen_at_event_100_000() -> None:
    rng = np.random.default_rng(1)
    n = 100_000
    X, y = blobs(n, n_classes=5, n_features=4, seed=1)
    model = StreamForestClassifier(n_trees=5, seed=1)
    model.advance(X, y, op=np.full(n, LEARN))
    late = rng.random(600) < 0.2
    X, y = blobs(600, n_classes=5, n_features=4, seed=1)
    X[late] = rng.normal(size=(int(late.sum()), 4)) * 0.5 + 9.0
    y = np.where(late, 77, y)
    hits = _hits(model, X, y, batch=50)
    assert model.classes_[-1] == 77
    assert hits[late][5:].mean() > 0.95
    assert hits[~late].mean() > 0.7  # the others overlap; they must not suffer


def test_hundreds_of_classes_take_room_for_those_that_came() -> None:
    rng = np.random.default_rng(0)
    classes = 300
    centres = rng.normal(size=(classes, 10)) * 3.0
    y = rng.integers(0, classes, 12_000)
    X = centres[y] + rng.normal(size=(len(y), 10)) * 0.7
    model = StreamForestClassifier(n_trees=5, seed=1)
    hits = _hits(model, X, y)
    assert hits[-2_000:].mean() > 0.93
    nodes = model._trees.node.shape[1]
    assert nodes > 1_000
    # dense counts would take a number for each node and class
    assert model._trees.hist.shape[1] < 0.25 * nodes * classes


# ---- values


def test_missing_values_cost_little_and_rows_without_any_value_are_taken() -> None:
    X, y = blobs(6_000, seed=3)
    whole = _hits(StreamForestClassifier(n_trees=10, seed=1), X, y)[2_000:].mean()
    gaps = np.random.default_rng(0).random(X.shape) < 0.15
    holes = np.where(gaps, np.nan, X)
    model = StreamForestClassifier(n_trees=10, seed=1, nonfinite="missing")
    with_gaps = _hits(model, holes, y)[2_000:].mean()
    assert with_gaps > whole - 0.06
    before = model.n_learned
    P = model.advance(np.full((3, X.shape[1]), np.nan), y[:3])
    assert np.isfinite(P).all()
    assert model.n_learned == before + 3
    assert sum(model.predict_proba_one({}).values()) == pytest.approx(1.0)


def _shops(n: int, seed: int) -> tuple[list[dict[str, str]], np.ndarray]:
    """Two categories of 40 values each; the class is a pair of properties the values stand for."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 3, (2, 40))
    chosen = rng.integers(0, 40, (n, 2))
    y = 3 * kinds[0, chosen[:, 0]] + kinds[1, chosen[:, 1]]
    y = np.where(rng.random(n) < 0.05, rng.integers(0, 9, n), y)
    return [{"shop": f"s{a}", "city": f"c{b}"} for a, b in chosen.tolist()], y


def test_categories_are_values_without_order() -> None:
    """Against the same events with codes as numbers: few errors are left but those of the noise."""
    for seed in range(3):
        xs, y = _shops(4_000, seed)
        codes = [{name: float(value[1:]) for name, value in x.items()} for x in xs]
        as_sets, as_codes = (
            _hits(StreamForestClassifier(n_trees=10, seed=1), events, y)[1_000:].mean()
            for events in (xs, codes)
        )
        assert as_sets > 0.94  # of .956 that can be known
        assert as_codes < 0.86


def test_categories_that_only_tell_together_are_split_in_the_end() -> None:
    """Whether two properties agree: no set of shops or of cities by itself says anything."""
    scores = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        kinds = rng.integers(0, 3, (2, 40))
        chosen = rng.integers(0, 40, (4_000, 2))
        y = kinds[0, chosen[:, 0]] == kinds[1, chosen[:, 1]]
        xs = [{"shop": f"s{a}", "city": f"c{b}"} for a, b in chosen.tolist()]
        model = StreamForestClassifier(n_trees=10, seed=1)
        scores.append(_hits(model, xs, y)[1_000:].mean())
    assert np.mean(scores) > 0.82  # .72 if a set had to pay for ever


def test_a_value_beyond_float32_is_refused_and_nothing_learned() -> None:
    model = StreamForestClassifier(n_trees=2, seed=1)
    model.learn_one({"a": 1.0, "b": 2.0}, "x")
    bits = encode({"main": model})
    with pytest.raises(FeatureError, match="'b' is 1e\\+39"):
        model.learn_one({"a": 1.0, "b": 1e39}, "y")
    with pytest.raises(FeatureError, match="'new' is -1e\\+300"):
        model.learn_one({"a": 1.0, "b": 2.0, "new": -1e300}, "y")
    with pytest.raises(FeatureError, match="row 1: feature 'a'"):
        model.advance([{"a": 1.0, "b": 0.0}, {"a": 3.5e38, "b": 0.0}], ["x", "y"])
    with pytest.raises(FeatureError, match="'a'"):
        model.predict_one({"a": -1e39, "b": 0.0})
    assert encode({"main": model}) == bits
    # large, but held: distances must not become NaN
    model.learn_one({"a": 3e38, "b": -3e38}, "y")
    for _ in range(70):
        model.learn_one({"a": -3e38, "b": 3e38}, "x")
    assert sum(model.predict_proba_one({"a": 3e38, "b": 3e38}).values()) == pytest.approx(1.0)


def test_parameters_are_checked() -> None:
    for wrong in ({"p_structure": 1.5}, {"test_rows": 1}, {"test_rows": 40_000}, {"smoothing": 0}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            StreamForestClassifier(**wrong)


# ---- drift


def test_recovers_from_a_sudden_change() -> None:
    X, y = _wheel(6_000, change=3_000)
    hits = _hits(StreamForestClassifier(n_trees=10, seed=1), X, y)
    without = _hits(StreamForestClassifier(n_trees=10, seed=1, drift=False), X, y)
    assert hits[2_000:3_000].mean() > 0.95
    assert hits[3_000:3_050].mean() < 0.5  # the change is real
    assert hits[3_300:3_600].mean() > 0.85
    assert hits[4_000:].mean() > 0.95
    assert hits[3_000:].mean() > without[3_000:].mean() + 0.05


def test_a_challenger_is_built_a_few_tests_an_event_and_saved_half_built() -> None:
    xs, ys = growing_stream(4_000)
    model = StreamForestClassifier(n_trees=4, seed=2, challenge_rate=0.02)
    largest_test = model.test_rows * model.n_candidates
    half_built = 0
    for a in range(3_500):
        model.advance(xs[a : a + 1], ys[a : a + 1])
        place = model._trees.tree_slot
        building = place["building"] == 1
        assert (place["work"][building] <= _BUILD_WORK + largest_test).all()
        if not building.any() or a < 400 * half_built + 1_500:
            continue
        half_built += 1
        other = decode(encode({"main": model}))[0]["main"]
        assert other._trees.tree_slot["building"].any()
        rest = xs[a + 1 : a + 401], ys[a + 1 : a + 401]
        twin = decode(encode({"main": model}))[0]["main"]
        for x, label in zip(*rest):
            other.learn_one(x, label)
        twin.advance(*rest)
        assert encode({"main": other}) == encode({"main": twin})
    assert half_built > 2
    assert model.summary()["challengers_grown"] > 20


# ---- bounds


def test_ring_and_nodes_stay_within_their_bounds() -> None:
    X, y = blobs(5_000, n_features=40, seed=2)
    y = np.random.default_rng(0).integers(0, 4, 5_000) * (X[:, 0] > 0) + y  # trees want to grow
    model = StreamForestClassifier(
        n_trees=4, seed=1, max_ring_bytes=200_000, max_nodes=41, challenge_rate=0.01
    )
    sizes = []
    for a in range(0, 5_000, 250):
        model.advance(X[a : a + 250], y[a : a + 250])
        sizes.append(model.summary()["total_bytes"])
    trees = model._trees
    ring = trees.rows.nbytes + trees.labels.nbytes + trees.link.nbytes
    assert ring <= 200_000
    assert model.summary()["ring_bytes"] == ring
    assert model.summary()["ring_rows"] < 1_000
    assert trees.tree_slot["n_nodes"].max() == 41
    assert sizes[-1] <= 1.5 * sizes[4]  # flat once the ring has gone round
    assert trees.errors.nbytes == 4 * 4 * HISTORY


def test_new_features_shrink_a_ring_that_is_bounded_in_bytes() -> None:
    model = StreamForestClassifier(n_trees=2, seed=1, max_ring_bytes=100_000)
    rng = np.random.default_rng(0)
    rows = []
    for a in range(2_000):
        width = 4 if a < 1_500 else 100
        rows.append({f"f{j}": v for j, v in enumerate(rng.normal(size=width).tolist())})
    y = [x["f0"] > 0 for x in rows]
    model.advance(rows[:1_500], y[:1_500])
    many = model.summary()["ring_rows"]
    hits = _hits(model, rows[1_500:], y[1_500:], batch=100)
    few = model.summary()["ring_rows"]
    assert few == stream_arrays.readable_rows(16_384, 100_000, 100, 2)
    assert few < many / 4
    assert hits.mean() > 0.9


def test_baselines_fall_silent_at_their_bound_and_the_forest_goes_on() -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(60, 30)) * 2.0
    y = np.minimum(rng.integers(0, 60, 6_000), np.arange(6_000) // 50)  # classes come one by one
    X = centres[y] + rng.normal(size=(6_000, 30))
    bound = 8 * 40 * 7 * 30  # the planes of 40 classes
    model = StreamForestClassifier(n_trees=5, seed=1, max_plain_bytes=bound)
    sizes = []
    hits = []
    for a in range(0, 6_000, 100):
        hits.append(_hits(model, X[a : a + 100], y[a : a + 100]))
        sizes.append(model.summary()["plain_bytes"])
    slack = 2 * 30 * (8 * 16 + 12) + 4 * 8 * 64 + 6 * 8  # what is not planes or tables
    assert max(sizes) <= bound + slack
    assert sizes[10] > 10_000
    assert sizes[-1] < 5_000
    assert model.summary()["expert_weights"]["naive Bayes"] == 0
    assert np.concatenate(hits)[-1_000:].mean() > 0.8
    loaded = decode(encode({"main": model}))[0]["main"]
    assert encode({"main": loaded}) == encode({"main": model})


# ---- experts


def test_smooth_clouds_are_left_to_naive_bayes_and_lines_to_the_linear_rule() -> None:
    stream = gaussians(20_000, seed=3)
    assert stream.bayes is not None
    best = stream.bayes[5_000:].mean()
    scores = {}
    for name, params in (("all", {}), ("trees", {"max_plain_bytes": 0})):
        model = StreamForestClassifier(n_trees=10, seed=1, **params)
        scores[name] = _hits(model, stream.X, stream.y)[5_000:].mean()
        if name == "all":
            mix = model.summary()["expert_weights"]
            assert max(mix, key=mix.__getitem__) == "naive Bayes"
    assert best - scores["all"] < 0.5 * (best - scores["trees"])
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6_000, 20))
    y = X @ rng.normal(size=20) > 0
    model = StreamForestClassifier(n_trees=10, seed=1)
    hits = _hits(model, X, y)
    mix = model.summary()["expert_weights"]
    assert max(mix, key=mix.__getitem__) == "linear"
    assert hits[3_000:].mean() > 0.95
    without = _hits(StreamForestClassifier(n_trees=10, seed=1, max_plain_bytes=0), X, y)
    assert hits[3_000:].mean() > without[3_000:].mean() + 0.05


def test_distances_are_stretched_along_features_that_matter() -> None:
    """Forty classes of four small clouds each in four features, among twelve that say nothing."""
    rng = np.random.default_rng(0)
    n = 4_000
    clouds = rng.random((40, 4, 4))
    y = rng.integers(0, 40, n)
    told = clouds[y, rng.integers(0, 4, n)] + rng.normal(size=(n, 4)) * 0.05
    X = np.concatenate([told, rng.random((n, 12))], axis=1)
    scores = {}
    for relevance in (0.0, 1.0):
        model = StreamForestClassifier(n_trees=10, seed=1, relevance=relevance)
        scores[relevance] = _hits(model, X, y)[2_000:].mean()
    assert scores[1.0] > scores[0.0] + 0.04


# ---- looking inside


def test_summary_importances_and_debug() -> None:
    model = StreamForestClassifier(n_trees=3, seed=1)
    assert model.debug_one({"a": 1.0}) == "nothing learned yet"
    rng = np.random.default_rng(0)
    for _ in range(2_000):
        a, b = rng.random(2).tolist()
        colour = ["red", "green", "blue"][int(rng.integers(0, 3))]
        model.learn_one({"a": a, "noise": b, "colour": colour}, (a > 0.5) != (colour == "red"))
    importances = model.feature_importances()
    assert list(importances) == model._features.names
    assert sum(importances.values()) == pytest.approx(1.0)
    assert importances["noise"] < min(importances["a"], importances["colour"])
    bits = encode({"main": model})
    event = {"a": 0.9, "noise": 0.5, "colour": "blue"}
    text = model.debug_one(event)
    assert encode({"main": model}) == bits
    assert text.startswith("forest of 3 trees: True")
    for word in ("'a' = 0.9 >", "estimation events", "events ago", "weight 1.000"):
        assert word in text
    assert "True rather than False: 'a' +" in text
    assert "tree 2 " in model.debug_one({"a": 0.1}, tree=2)
    summary = model.summary()
    assert summary["events"] == 2_000
    assert summary["nodes"] == 2 * summary["leaves"] - 3
    assert 0 < summary["depth"] < 20


def test_importances_of_each_expert_and_of_all() -> None:
    """A number and a category that tell, and two that do not, one of few values."""
    rng = np.random.default_rng(0)
    model = StreamForestClassifier(n_trees=3, seed=1)
    for _ in range(2_000):
        y = int(rng.integers(0, 3))
        x = {"clear": y + 0.5 * float(rng.normal()), "faint": y + 3 * float(rng.normal())}
        x |= {"noise": float(rng.normal()), "dice": float(rng.integers(1, 7))}
        model.learn_one(x | {"tag": "abcd"[y if rng.random() < 0.7 else 3]}, y)
    for expert in (None, "trees", "naive Bayes", "linear"):
        found = model.feature_importances(expert)
        assert sum(found.values()) == pytest.approx(1.0)
        assert min(found["clear"], found["tag"]) > found["faint"] > 0.0
        assert max(found["noise"], found["dice"]) < min(found["clear"], found["tag"])
    with pytest.raises(ParameterError, match=r"expert='bayes'.*naive Bayes"):
        model.feature_importances("bayes")
    assert StreamForestClassifier(n_trees=1, seed=1).feature_importances() == {}


def test_debug_adds_up_the_baselines_as_the_kernel_does() -> None:
    """What features say of each class, summed, gives the answers of both experts."""
    xs, ys = growing_stream(1_500)
    model = StreamForestClassifier(n_trees=1, seed=1)
    model.advance(xs[:1_000], ys[:1_000])
    p, spread = model._baselines.arrays, model._spread
    categorical = model._features.categorical
    rows, known = model._encode(xs[1_000:], np.zeros(500, np.bool_))
    votes = model._new_votes(500)
    labels, ops = np.full(500, -1), np.full(500, PREDICT, np.uint8)
    model._process_rest(Batch(rows, labels, ops, known), votes)
    classes = len(model.classes_)
    for row, of_row in zip(rows, votes[:, NEAR + 1 :, :classes]):
        for says, start, said in (
            (baseline_inspection.bayes_says, p.share[LOG_N], of_row[0]),
            (baseline_inspection.linear_says, p.share[BIAS], of_row[1]),
        ):
            scores = start[:classes] + says(p, spread, row, categorical, False).sum(axis=0)
            shares = np.exp(scores - scores.max())
            np.testing.assert_allclose(said / VOTE_UNIT, shares / shares.sum(), atol=1e-8)


def test_debug_names_the_neighbours_the_kernel_uses() -> None:
    """The text is computed beside the kernel: it must weigh the same rows."""
    X, y = blobs(2_000, seed=5)
    model = StreamForestClassifier(n_trees=1, seed=1, drift=False, smoothing=1e-9)
    model.advance(X, y)
    agree = 0
    for row in X[:50]:
        lines = model.debug_one(dict(enumerate(row.tolist()))).splitlines()
        nearest = next(line for line in lines if "weight 1.000" in line)
        with_neighbours = next(line for line in lines if "with its neighbours" in line)
        agree += nearest.split(":")[0].strip() == with_neighbours.split()[3]
    assert agree > 40

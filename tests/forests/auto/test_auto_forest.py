"""The auto forest: two whole forests, recent neighbours, and one answer by what was right lately."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from support.events import blobs, growing_stream
from support.forging import Forgery, forged

import streamforest
from streamforest import (
    BOTH,
    LEARN,
    PREDICT,
    AutoForestClassifier,
    NCMForestClassifier,
    StreamForestClassifier,
    datasets,
)
from streamforest.errors import ParameterError, SnapshotError, StreamForestError
from streamforest.forests.auto.families import ncm_trees
from streamforest.forests.auto.recent import RecentNeighbours
from streamforest.forests.auto.resting import Resting
from streamforest.forests.core.batch import Batch
from streamforest.forests.core.engine import next_boundary
from streamforest.forests.core.features import FeatureTable
from streamforest.forests.ncm.forgetting import Forgetting
from streamforest.forests.persistence.snapshot import decode, encode
from streamforest.kernels.auto.blending import AGES, LIFTS, SHARES


def _turning(n: int, seed: int = 0) -> tuple[Any, list[int]]:
    """Two classes on the plane that change places every 300 events."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    turned = (np.arange(n) // 300) % 2
    return X, ((X[:, 0] > 0).astype(int) ^ turned).tolist()


def test_each_family_is_the_forest_of_its_kind() -> None:
    xs, ys = growing_stream(1_200)
    both = AutoForestClassifier(n_trees=4, seed=7, memory=300)
    both.advance(xs, ys)
    alone = (
        StreamForestClassifier(n_trees=4, seed=7),
        NCMForestClassifier(n_trees=ncm_trees(4), seed=7, memory=300),
    )
    for family, forest in zip(both._families, alone):
        forest.advance(xs, ys)
        ours, theirs = family._dump(), forest._dump()
        assert ours.keys() == theirs.keys()
        for name, array in ours.items():
            np.testing.assert_array_equal(array, theirs[name], err_msg=name)


def test_the_answer_is_the_blend_of_all_by_fading_hits() -> None:
    """Held against the rule written down event by event, in plain Python."""
    X, y = blobs(700, 6, 5, seed=3)
    labels = y.tolist()
    both = AutoForestClassifier(n_trees=3, seed=2)
    answers = both.advance(X, labels)
    one = StreamForestClassifier(n_trees=3, seed=2).advance(X, labels)
    other = NCMForestClassifier(n_trees=ncm_trees(3), seed=2).advance(X, labels)
    index = {label: k for k, label in enumerate(both.classes_)}
    near = _recent_alone(X, [index[label] for label in labels], len(index))
    blends, lift = [_Plain(0.999), _Plain(0.998)], _PlainLift(len(index))
    begun = 0
    for i, label in enumerate(labels):
        forests = blends[0].mixed(one[i], other[i])
        lifted = lift.lifted(forests)
        np.testing.assert_allclose(answers[i], blends[1].mixed(lifted, near[i]), atol=1e-8)
        blends[0].judge(one[i], other[i], index[label])
        blends[1].judge(lifted, near[i], index[label])
        lift.judge(forests, index[label])
        if i + 1 == next_boundary(i):
            for blend in (*blends, lift):
                blend.end_epoch(i + 1 - begun)
            begun = i + 1
    assert all(len(blend.seen) > 5 for blend in (*blends, lift))  # the shares have moved


def test_a_young_class_is_believed_sooner() -> None:
    """Recall of the first ten events of a class, where one comes every 40 events."""
    rng = np.random.default_rng(5)
    centres = rng.normal(0, 1.6, (30, 6))
    y = np.array([rng.integers(0, min(30, 2 + i // 40)) for i in range(1_500)])
    X = centres[y] + rng.normal(0, 1, (1_500, 6))
    forest = AutoForestClassifier(n_trees=5, seed=1)
    plain = AutoForestClassifier(n_trees=5, seed=1)
    plain._blend.lift_hits[:, 0] = 1e9  # a lift of one, for ever
    plain._blend._settle()

    def first_ten(model: AutoForestClassifier) -> float:
        posteriors = model.advance(X, y)
        best = np.array(list(model.classes_))[posteriors.argmax(axis=1)]
        age = np.array([int((y[:i] == y[i]).sum()) for i in range(len(y))])
        young = (age >= 1) & (age <= 10) & (np.arange(len(y)) > 100)
        return float((best == y)[young].mean())

    assert first_ten(forest) > first_ten(plain) + 0.01
    lifts = forest.summary()["young_lifts"]
    assert list(lifts) == ["5", "20", "80"]
    assert lifts["5"] > 1.5


def test_a_new_class_wakes_the_family_that_rests() -> None:
    rest = Resting()
    rest.classes = rest.counted = 3
    rest.resting, rest.quiet = True, 16
    rest.end_epoch(640, False, 0.0)
    assert rest.resting
    rest.classes = 4
    rest.end_epoch(704, False, 0.0)
    assert not rest.resting
    for _ in range(15):
        rest.end_epoch(768, True, 0.0)
        assert not rest.resting
    rest.end_epoch(768, True, 0.0)
    assert rest.resting


class _Plain:
    """A blend of two, with Python's numbers."""

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.hits, self.fresh = [0.0] * len(SHARES), [0] * len(SHARES)
        self.seen: set[float] = set()

    def mixed(self, one: Any, other: Any) -> Any:
        weight = [np.exp(0.5 * h - 3 * g) for h, g in zip(self.hits, SHARES)]
        share = sum(w * g for w, g in zip(weight, SHARES)) / sum(weight)
        self.seen.add(round(share, 3))
        return (1 - share) * one + share * other

    def judge(self, one: Any, other: Any, k: int) -> None:
        for s, g in enumerate(SHARES.tolist()):
            mixed = (1 - g) * one + g * other
            self.fresh[s] += mixed.max() > 0 and int(mixed.argmax()) == k

    def end_epoch(self, events: int) -> None:
        self.hits = [self.decay**events * h + f for h, f in zip(self.hits, self.fresh)]
        self.fresh = [0] * len(SHARES)


class _PlainLift:
    """What young classes have more, with Python's numbers."""

    def __init__(self, classes: int) -> None:
        self.rows = [0] * classes
        self.hits = [[0.0] * len(LIFTS) for _ in AGES]
        self.fresh = [[0] * len(LIFTS) for _ in AGES]
        self.seen: set[float] = set()

    def _of_age(self) -> list[float]:
        out = []
        for hits in self.hits:
            weight = [np.exp(0.5 * h) / lift for h, lift in zip(hits, LIFTS)]
            logs = sum(w * np.log(lift) for w, lift in zip(weight, LIFTS))
            out.append(float(np.exp(logs / sum(weight))))
        return out

    def _age(self, k: int) -> int:
        return sum(self.rows[k] >= age for age in AGES.tolist())

    def lifted(self, posterior: Any) -> Any:
        by = [*self._of_age(), 1.0]
        self.seen.add(round(by[0], 3))
        out = np.array([p * by[self._age(k)] for k, p in enumerate(posterior)])
        return out / max(out.sum(), 1e-300)

    def judge(self, posterior: Any, y: int) -> None:
        for a in range(len(AGES)):
            if any(p > 0 and self._age(k) == a for k, p in enumerate(posterior)):
                for s, lift in enumerate(LIFTS):
                    by = [*self._of_age(), 1.0]
                    by[a] = lift
                    out = [p * by[self._age(k)] for k, p in enumerate(posterior)]
                    self.fresh[a][s] += int(np.argmax(out)) == y
        self.rows[y] += 1

    def end_epoch(self, events: int) -> None:
        for hits, fresh in zip(self.hits, self.fresh):
            for s in range(len(LIFTS)):
                hits[s] = 0.9998**events * hits[s] + fresh[s]
                fresh[s] = 0


def _recent_alone(X: Any, y: list[int], classes: int) -> Any:
    """What the recent neighbours say, which have tests of their own."""
    recent = RecentNeighbours()
    votes = np.zeros((len(X), 3, classes), np.int64)
    start = 0
    while start < len(X):
        stop = min(next_boundary(start), len(X))
        part = slice(start, stop)
        n = stop - start
        batch = Batch(
            X[part], np.array(y[part]), np.full(n, BOTH, np.uint8), np.full(n, X.shape[1])
        )
        recent.process(batch, start, np.zeros(X.shape[1], np.uint8), votes[part], 2)
        recent.end_epoch(X.shape[1])
        start = stop
    return votes[:, 2] / float(1 << 32)


def test_a_family_that_is_behind_falls_silent() -> None:
    X, y = _turning(4_000)
    model = AutoForestClassifier(n_trees=8, seed=1, memory=2_000)
    P = model.advance(X, y)
    stream = StreamForestClassifier(n_trees=8, seed=1).advance(X, y)
    right, best = P.argmax(axis=1) == y, stream.argmax(axis=1) == y
    assert model.shares()["ncm"] < 0.25
    assert right[1_000:].mean() > best[1_000:].mean() - 0.01


def test_recent_neighbours_speak_up_where_everything_moves() -> None:
    stream = datasets.load("moving-squares", 3_000)
    model = AutoForestClassifier(n_trees=5, seed=1, memory=2_000)
    right = model.advance(stream.X, stream.y).argmax(axis=1) == [
        model.classes_.index(label) for label in stream.y.tolist()
    ]
    forest = StreamForestClassifier(n_trees=5, seed=1)
    alone = forest.advance(stream.X, stream.y).argmax(axis=1) == [
        forest.classes_.index(label) for label in stream.y.tolist()
    ]
    assert right[500:].mean() > 0.985
    assert right[500:].mean() > alone[500:].mean()
    assert model.shares()["recent"] > 0.5


def test_what_it_tells_of_itself() -> None:
    xs, ys = growing_stream(900)
    model = AutoForestClassifier(n_trees=4, seed=1)
    assert model.debug_one(xs[0]) == "nothing learned yet"
    assert model.novelty_one(xs[0]) == float("inf")
    model.advance(xs, ys)
    told = model.summary()
    assert sum(told["shares"].values()) == pytest.approx(1, abs=1e-3)
    assert list(told["shares"]) == ["stream", "ncm", "recent"]
    assert told["recent_rows"] == 512
    assert told["trees"] == 4 + 5
    assert told["events"] == 900
    assert told["families"]["ncm"]["trees"] == 5
    assert told["families"]["stream"]["events"] == 900
    assert json.loads(json.dumps(told)) == told
    before = encode({"main": model})
    text = model.debug_one(xs[3])
    assert text.startswith("blend: ")
    assert "\n  stream " in text
    assert "\n  ncm " in text
    assert "\n  recent " in text
    assert "forest of 4 trees" in text
    numbers = {name: 1e9 for name, value in xs[3].items() if isinstance(value, float)}
    assert model.novelty_one(xs[3]) < model.novelty_one(numbers)
    assert sum(model.feature_importances().values()) == pytest.approx(1)
    assert model.predict_trees(xs[:7]).shape == (9, 7)
    assert encode({"main": model}) == before  # asking changes nothing


def test_a_question_in_between_does_not_change_what_is_learned() -> None:
    """`predict_one` leaves its routes to `learn_one`; others that ask must not leave theirs."""
    xs, ys = growing_stream(400)
    asked, plain = (AutoForestClassifier(n_trees=3, seed=1, memory=200) for _ in range(2))
    for i, (x, y) in enumerate(zip(xs, ys)):
        plain.predict_one(x)
        plain.learn_one(x, y)
        asked.predict_one(x)
        if i:
            asked.debug_one(xs[i - 1])
        if i % 3 == 0:
            asked.novelty_one(xs[i // 2])
        asked.learn_one(x, y)
    assert encode({"main": asked}) == encode({"main": plain})


@pytest.mark.parametrize("threads", [1, 2])
def test_a_family_that_was_interrupted_is_told(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = blobs(300)
    model = AutoForestClassifier(n_trees=3, seed=1, n_jobs=threads)

    def interrupt(*args: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(model._families[1], "_advance", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.advance(X, y)
    monkeypatch.undo()
    for ask in (lambda: model.advance(X, y), lambda: encode({"main": model})):
        with pytest.raises(StreamForestError, match="load the last snapshot"):
            ask()


@pytest.mark.parametrize(
    ("field", "at", "value"),
    [
        ("blend.hits", 0, -1.0),
        ("blend.hits", 2, 1065.0),
        ("blend.hits", 1, float("nan")),
        ("blend.hits", 9, 565.0),
        ("blend.fresh", 0, -1),
        ("blend.fresh", 3, 37),
        ("blend.class_rows", 0, 81),
        ("blend.lift_hits", 4, 5065.0),
        ("blend.lift_fresh", 2, 37),
        ("recent.rows", 0, float("inf")),
        ("recent.labels", 0, 99),
        ("recent.hits", 0, 34.0),
        ("recent.columns", 0, -1.0),
        ("recent.columns", 0, 101.0),
        ("recent.features", 0, 100),
        ("resting.counters", 0, 2),
        ("resting.counters", 1, 17),
        ("resting.counters", 2, 101),
        ("resting.counters", 3, 99),
        ("family.revisions", 0, 0),
        ("family.revisions", 1, 99),
        ("stream.tree.active", 0, 2),
        ("ncm.memory.number", 0, -1),
        ("ncm.forgetting.tally", 0, -1.0),
        ("ncm.forgetting.counters", 0, 1_025),
    ],
)
def test_damage_is_refused(field: str, at: int, value: Any) -> None:
    xs, ys = growing_stream(100)  # 36 of them in the last epoch
    model = AutoForestClassifier(n_trees=2, seed=1)
    model.advance(xs, ys)
    data = encode({"main": model})
    assert decode(data)[0]["main"].n_learned == 100
    with pytest.raises(SnapshotError, match=field.rpartition(".")[2]):
        decode(forged(data, Forgery(f"models/main/0/{field}", at, value)))


def test_parameters_are_checked() -> None:
    for decay in (0, 1, "a"):
        with pytest.raises(ParameterError, match="blend_decay="):
            AutoForestClassifier(blend_decay=decay)
    with pytest.raises(ParameterError, match="memory="):
        AutoForestClassifier(memory=0)
    assert streamforest.AutoForestClassifier is AutoForestClassifier


def test_without_a_seed_it_is_saved_and_goes_on_alike() -> None:
    xs, ys = growing_stream(700)
    model = AutoForestClassifier(n_trees=3, memory=200)
    model.advance(xs[:500], ys[:500])
    loaded = decode(encode({"main": model}))[0]["main"]
    np.testing.assert_array_equal(
        model.advance(xs[500:], ys[500:]), loaded.advance(xs[500:], ys[500:])
    )
    assert encode({"main": model}) == encode({"main": loaded})


def _noise(n: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Squares that move, so that the NCM forest is of no use, with something new now and then."""
    squares = datasets.load("moving-squares", n)
    xs: list[dict[str, Any]] = []
    ys: list[str] = []
    for i, (x, y) in enumerate(squares.dicts()):
        x = dict(x)
        if i > 1_500:
            x["shop"] = f"s{i // 150}"
        if i > 1_700 and i % 3 == 0:
            x["late"] = None if i < 1_800 else float(i % 7)
        if i > 2_200:
            x["later"] = float(i % 5)
        xs.append(x)
        ys.append(f"{y}" if i < 2_500 or i % 97 else "new")  # which wakes it for 1,024 events
    return xs, ys


def test_a_forest_without_a_say_rests_whatever_the_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Forgetting, "forget", lambda *parts: None)  # or it would have a say
    n = 3_700
    xs, ys = _noise(n)
    runs = []
    for cut in (1, 7, 500):
        model = AutoForestClassifier(n_trees=3, seed=1, memory=300, n_jobs=1 + (cut == 500))
        answers, novelty = [], []
        for start in range(0, n, cut):
            told = model.answers(xs[start : start + cut], ys[start : start + cut])
            answers += [np.pad(row, (0, 12 - len(row))).tobytes() for row in told.posteriors]
            assert told.novelty is not None
            novelty += told.novelty.tolist()
            if cut == 500:
                model = decode(encode({"main": model}))[0]["main"]
        runs.append((answers, novelty, encode({"main": model})))
    one = AutoForestClassifier(n_trees=3, seed=1, memory=300)
    by_dicts = []
    for i, (x, y) in enumerate(zip(xs, ys)):
        p = list(one.predict_proba_one(x).values())
        by_dicts.append(np.pad(np.array(p), (0, 12 - len(p))).tobytes())
        one.learn_one(x, y)
        if i % 400 == 399:
            one = decode(encode({"main": one}))[0]["main"]
    assert one.summary()["ncm_rests"]
    assert one._families[1].n_learned < n - 500
    assert np.isfinite(runs[0][1][1:]).all()
    assert runs[0] == runs[1] == runs[2]
    assert by_dicts == runs[0][0]
    assert encode({"main": one}) == runs[0][2]


def test_a_resting_forest_wakes_when_it_is_heard() -> None:
    """Squares that move are not for it; digits are, beside two stumps."""
    moving, digits = datasets.load("moving-squares", 2_000), datasets.load("digits", 2_500)
    stumps = {"n_trees": 2, "max_nodes": 3, "max_plain_bytes": 0, "drift": False}
    model = AutoForestClassifier(seed=1, memory=1_500, **stumps)
    for x, y in moving.dicts():
        model.learn_one(x, f"square {y}")
    assert model.summary()["ncm_rests"]
    assert model.shares()["ncm"] < 0.05
    model.advance([x for x, _ in digits.dicts()], digits.y)
    assert not model.summary()["ncm_rests"]
    assert model.shares()["ncm"] > 0.1


def test_what_a_resting_forest_is_told() -> None:
    rest = Resting()
    table = FeatureTable(max_features=9, max_categories=9, nonfinite="error")
    events = [{"a": 1.0}, {"a": 2.0}, {"a": 3.0, "b": None}, {"a": 1.0, "b": 1.0}, {"c": "x"}]
    events += [{"c": "x"}, {"c": "y"}, {"a": 1.0}, {"a": 1.0}]
    X, known = table.rows(events, [True] * 8 + [False])
    y = np.array([0, 0, 0, 0, 0, 0, 0, 1, 2])
    op = np.array([LEARN] * 8 + [PREDICT], np.uint8)
    batch = Batch(X, y, op, known)
    expected = [True, False, True, True, True, False, True, True, False]
    assert rest.new_rows(batch, table).tolist() == expected
    again = Resting()
    found = [again.new_rows(batch.cut(slice(r, r + 1)), table)[0] for r in range(9)]
    assert found == expected
    assert not rest.new_rows(batch, table).any()

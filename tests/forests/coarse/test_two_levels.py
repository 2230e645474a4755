"""Coarse labels in every forest: the same bits for any batch, threads and snapshot; what it refuses."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.coarse_stream import GENUS, two_levels
from support.forging import Forgery, forged

from streamforest import LEARN, PREDICT
from streamforest.errors import (
    InputError,
    LabelError,
    ParameterError,
    SnapshotError,
    TaxonomyError,
)
from streamforest.forests.coarse import rows, trust
from streamforest.forests.core import engine, registry
from streamforest.forests.persistence.snapshot import decode, encode

KINDS = registry.kinds()


def small(kind: str, **params: Any) -> Any:
    cls: Any = registry.get(kind).load()
    return cls(**{"n_trees": 4, "seed": 3, **params})


def padded(P: Any, width: int) -> list[bytes]:
    return [np.pad(row, (0, width - len(row))).tobytes() for row in P]


ESTIMATED = [(kind, "own") for kind in KINDS] + [
    (kind, refine)
    for kind in KINDS
    if kind not in ("online", "auto")  # the estimate is the same code in every forest
    for refine in ("mean", "nn")
]


@pytest.mark.parametrize(("kind", "refine"), ESTIMATED)
def test_batches_threads_and_snapshots_give_the_same_bits(
    kind: str, refine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_WORTH_THREADS", 0)
    monkeypatch.setattr(trust, "_RIGHT", 0.7)  # so that every forest learns some of its estimates
    n = 420
    xs, ys, coarse = two_levels(n, first_coarse=60)
    runs: dict[Any, Any] = {}
    for batch, threads in ((1, 1), (7, 2), (200, 1), (420, 2)):
        model = small(kind, refine=refine, n_jobs=threads)
        fine: list[bytes] = []
        upper: list[bytes] = []
        for a in range(0, n, batch):
            part = slice(a, a + batch)
            told = model.answers(xs[part], ys[part], coarse=coarse[part])
            fine += padded(told.posteriors, 10)
            upper += padded(np.zeros((len(xs[part]), 0)) if told.coarse is None else told.coarse, 4)
            if batch == 7 and a % 35 == 0:
                model = decode(encode({"main": model}))[0]["main"]
                model.n_jobs = threads
            if a == 210:
                model = pickle.loads(pickle.dumps(copy.deepcopy(model)))
        runs[batch] = fine, upper, encode({"main": model})
    model = small(kind, refine=refine)
    fine, upper = [], []
    for x, y, name in zip(xs, ys, coarse):
        fine += padded([list(model.predict_proba_one(x, coarse=name).values())], 10)
        upper += padded([list(model.predict_proba_one(x, level="coarse").values())], 4)
        model.learn_one(x, y, coarse=name)
    runs["one by one"] = fine, upper, encode({"main": model})
    assert model.n_learned == n
    assert len(model.classes_) == 10
    assert set(model.taxonomy_.items()) <= set(GENUS.items())
    counts = model.summary()["levels"]
    assert counts["coarse_rows"] == sum(y is None for y in ys)
    assert 0 < counts["estimated"] <= counts["coarse_rows"]
    for name, run in runs.items():
        for what, got, expected in zip(("fine", "coarse", "snapshot"), run, runs[1]):
            if what == "snapshot":
                assert got == expected, f"{what} of {name}"
            else:
                wrong = [r for r in range(n) if got[r] != expected[r]]
                assert not wrong, f"{what} of {name}: rows {wrong[:5]}"


@pytest.mark.parametrize("kind", KINDS)
def test_coarse_rows_are_worth_something_and_probabilities_add_up(kind: str) -> None:
    xs, ys, coarse = two_levels(600, seed=1)
    model = small(kind, n_trees=6)
    model.learn_many(pd.DataFrame(xs[:500]), ys[:500], coarse=coarse[:500])
    hits = 0
    for x, y, name in zip(xs[500:], ys[500:], coarse[500:]):
        fine = model.predict_proba_one(x)
        upper = model.predict_proba_one(x, level="coarse", coarse="ignored")
        assert sum(upper.values()) == pytest.approx(1.0)
        for category, p in upper.items():
            of_it = sum(q for label, q in fine.items() if model.taxonomy_[label] == category)
            assert p - of_it >= -1e-9  # the rest is what is kept for unknown classes
        best = model.predict_one(x, level="coarse")
        assert best == max(upper, key=upper.__getitem__)
        hits += best == (GENUS[y] if y else name)
    assert hits > 70
    X = pd.DataFrame(xs[500:])
    by_frame = model.predict_proba_many(X, level="coarse")
    assert list(by_frame.columns) == model.categories_
    assert model.predict_many(X, level="coarse").iloc[0] == model.predict_one(
        xs[500], level="coarse"
    )
    assert model.predict_many(X).iloc[0] == model.predict_one(xs[500])


@pytest.mark.parametrize("kind", KINDS)
def test_a_category_without_known_classes_is_all_remainder(kind: str) -> None:
    model = small(kind)
    for i in range(40):
        model.learn_one(
            {"a": float(i % 2)}, "lion" if i % 2 else None, coarse="feline" if i % 2 else "canine"
        )
    assert model.classes_ == ["lion"]
    assert model.categories_ == ["canine", "feline"]
    fine = model.predict_proba_one({"a": 0.0})
    upper = model.predict_proba_one({"a": 0.0}, level="coarse")
    assert list(fine) == ["lion"]
    assert upper["canine"] > 0.2
    assert fine["lion"] <= upper["feline"] < 0.8
    assert model.n_learned == 40
    assert model.summary()["levels"]["coarse_rows"] == 20


@pytest.mark.parametrize("kind", KINDS)
def test_without_coarse_labels_nothing_changes(kind: str) -> None:
    xs, ys, _ = two_levels(200, first_coarse=200)
    with_it, without = small(kind, taxonomy=GENUS), small(kind)
    P = with_it.advance(xs, ys)
    assert (without.advance(xs, ys) == P).all()
    assert (with_it.advance(xs, coarse=[None] * 200) == without.advance(xs)).all()
    assert "levels" not in without.summary()
    assert with_it._dump().keys() == without._dump().keys()
    assert all(with_it._dump()[k].tobytes() == v.tobytes() for k, v in without._dump().items())
    upper = with_it.predict_proba_one(xs[0], level="coarse")
    fine = with_it.predict_proba_one(xs[0])
    for category in upper:
        of_it = sum(p for label, p in fine.items() if GENUS[label] == category)
        assert upper[category] == pytest.approx(of_it)
    assert without.predict_one(xs[0], level="coarse") is None
    assert without.predict_proba_one(xs[0], level="coarse") == {}


@pytest.mark.parametrize("kind", KINDS)
def test_what_contradicts_the_taxonomy_is_refused_and_loses_nothing(kind: str) -> None:
    model = small(kind, taxonomy={"lion": "feline"})
    xs = [{"a": float(i)} for i in range(4)]
    before = encode({"main": model})
    with pytest.raises(
        TaxonomyError, match="'lion' is of category 'feline', but comes with 'canine'"
    ):
        model.learn_one(xs[0], "lion", coarse="canine")
    assert encode({"main": model}) == before
    model.advance(xs, ["lion", "wolf", None, "tiger"], coarse=["feline", "canine", "canine", None])
    before = encode({"main": model})
    with pytest.raises(TaxonomyError, match=r"row 2: class 'wolf' .* 'canine'.* 'feline'"):
        model.advance(
            [*xs[:2], {"new": 1.0}],
            ["okapi", None, "wolf"],
            coarse=["giraffid", "ursine", "feline"],
        )
    with pytest.raises(LabelError, match="row 0: op asks to learn it"):
        model.advance(xs[:1], [None], [LEARN], coarse=[None])
    with pytest.raises(LabelError, match="coarse has 1 labels, X has 2 rows"):
        model.advance(xs[:2], coarse=["feline"])
    with pytest.raises(InputError, match="unknown keyword 'corse'"):
        model.predict_one(xs[0], corse="feline")
    with pytest.raises(ParameterError, match="level='genus'"):
        model.predict_one(xs[0], level="genus")
    assert encode({"main": model}) == before
    assert model.taxonomy_ == {"lion": "feline", "wolf": "canine"}
    model.learn_one(xs[3], "tiger", coarse="feline")
    assert model.taxonomy_["tiger"] == "feline"
    assert not model.refine_one(99, "wolf")
    assert model.summary()["levels"]["missed"] == 1


def test_a_taxonomy_is_a_dict_or_pairs() -> None:
    with pytest.raises(ParameterError, match="taxonomy is 'feline'"):
        small("stream", taxonomy="feline")
    with pytest.raises(ParameterError, match="refine='best'"):
        small("stream", refine="best")
    with pytest.raises(TaxonomyError):
        small("stream", taxonomy=[("lion", "feline"), ("lion", "canine")])
    model = small("stream", taxonomy={1: "odd", "1": "text"})
    model.learn_one({"a": 1.0}, 1, coarse="odd")
    other = decode(encode({"main": model}))[0]["main"]
    assert other.taxonomy_ == {1: "odd", "1": "text"}
    assert other.clone().taxonomy_ == other.taxonomy_


def test_learn_only_rows_leave_the_same_bits() -> None:
    xs, ys, coarse = two_levels(300)
    both, apart = small("stream"), small("stream")
    both.advance(xs, ys, coarse=coarse)
    apart.advance(xs, ys, [LEARN] * 300, coarse=coarse)
    assert encode({"main": both}) == encode({"main": apart})
    P = apart.advance(xs[:2], [None, "x"], [PREDICT, LEARN], coarse=["genus 0", None])
    assert np.isfinite(P[0]).all()
    assert np.isnan(P[1]).all()


def sightings(n: int, apart: float) -> tuple[list[dict[str, float]], list[Any], list[Any]]:
    """Three genera of four species each, which are `apart`; every fifth event tells its species."""
    rng = np.random.default_rng(5)
    genera = rng.normal(size=(3, 6)) * 4
    species = rng.normal(size=(3, 4, 6)) * apart
    xs, ys, coarse = [], [], []
    for i in range(n):
        g, s = int(rng.integers(3)), int(rng.integers(4))
        values = genera[g] + species[g, s] + rng.normal(size=6)
        xs.append({f"f{j}": float(v) for j, v in enumerate(values)})
        ys.append(f"{g}.{s}" if i % 5 == 0 else None)
        coarse.append(f"genus {g}")
    return xs, ys, coarse


@pytest.mark.parametrize("refine", ["own", "mean", "nn"])
def test_only_estimates_that_are_right_are_learned(refine: str) -> None:
    for apart, most in ((3.0, 700), (0.3, 0)):
        xs, ys, coarse = sightings(1_000, apart)
        model = small("stream", refine=refine)
        model.learn_many(pd.DataFrame(xs), ys, coarse=coarse)
        counts = model.summary()["levels"]
        assert counts["coarse_rows"] == 800
        assert (counts["estimated"] > 300) == (apart == 3.0), counts
        assert counts["estimated"] <= most
        assert counts["refinable_rows"] == 800 - counts["estimated"]
        assert model.n_learned == 1_000


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_was_withheld_is_learned_when_its_class_is_told(kind: str) -> None:
    """Species that nobody can tell from their genus: the forest learns nothing of them until then."""
    xs, ys, coarse = sightings(60, 0.3)
    model = small(kind)
    for x, y, name in zip(xs, ys, coarse):
        model.learn_one(x, y, coarse=name)
    assert model.n_learned == 60
    classes = len(model.classes_)
    number = ys.index(None)
    wrong = next(y for y in model.classes_ if model.taxonomy_[y] != coarse[number])
    with pytest.raises(TaxonomyError, match=f"'{wrong}' is of category"):
        model.refine_one(number, wrong)
    other = decode(encode({"main": model}))[0]["main"]
    for same in (model, other):
        assert same.refine_one(number, "new one")
        assert not same.refine_one(number, "new one")  # it is no longer kept
        assert same.taxonomy_["new one"] == coarse[number]
        assert len(same.classes_) == classes + 1
        assert same.n_learned == 60
    assert encode({"main": model}) == encode({"main": other})
    counts = model.summary()["levels"]
    assert (counts["refined"], counts["missed"]) == (1, 1)
    assert counts["refinable_rows"] == 47


def test_the_newest_rows_are_withheld_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MAX_WITHHELD", 10)
    xs, _, coarse = sightings(40, 0.3)
    model = small("consistent")
    model.learn_many(pd.DataFrame(xs), [None] * 40, coarse=coarse)
    assert model.summary()["levels"]["refinable_rows"] == 10
    assert not model.refine_one(29, "a")
    assert model.refine_one(30, "a")
    monkeypatch.setattr(rows, "_MAX_VALUES", 13)  # two rows of six
    model.learn_one(xs[0], coarse=coarse[0])
    assert model.summary()["levels"]["refinable_rows"] == 2


@pytest.mark.parametrize(
    ("field", "at", "value"),
    [
        ("number", 2, 3),  # of a row that is yet to come
        ("category", 0, 1),
        ("values", 0, 1e16),  # more than an NCM forest takes
        ("values", 0, float("inf")),
        ("values", 1, 1.0),  # a code that the feature does not have
        ("values", 1, -1.0),
        ("values", 1, 0.5),
    ],
)
def test_damage_of_withheld_rows_is_refused(field: str, at: int, value: float) -> None:
    model = small("ncm")
    for k in range(3):
        model.learn_one({"a": float(k), "b": "red"}, coarse="x")
    data = encode({"main": model})
    assert decode(data)[0]["main"].refine_one(0, "y")
    with pytest.raises(SnapshotError, match=f"withheld.{field}"):
        decode(forged(data, Forgery(f"models/main/0/levels.withheld.{field}", at, value)))


def test_an_unknown_class_is_likelier_in_a_category_of_many_classes() -> None:
    """And where the rows are cut changes nothing."""
    xs, ys, coarse = two_levels(300, seed=2)
    runs = []
    for batch in (1, 7, 300):
        model = small("ncm")
        runs.append(
            [
                k
                for a in range(0, 300, batch)
                for k in model.answers(
                    xs[a : a + batch], ys[a : a + batch], coarse=coarse[a : a + batch]
                ).novel_in.tolist()
            ]
        )
    assert runs[0] == runs[1] == runs[2]
    assert {*runs[0]} == {-1, 0, 1, 2, 3}
    model, rng = small("ncm"), np.random.default_rng(0)
    for i in range(240):  # five oaks in a row, and one fig beside them
        k = i % 6
        x = {"a": 2.0 * k + float(rng.normal()), "b": float(rng.normal())}
        model.learn_one(x, f"oak {k}" if k < 5 else "fig", coarse="oaks" if k < 5 else "figs")
    told = model.answers([{"a": float(a), "b": 0.0} for a in np.linspace(7, 11, 81)])
    differ = told.coarse.argmax(axis=1) != told.novel_in
    assert {*told.novel_in[differ].tolist()} == {model.categories_.index("oaks")}

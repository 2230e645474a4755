"""Predictions as a frame, and the numbers of a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streamforest
from streamforest.errors import InputError
from streamforest.io.codec.events import Prediction, encode_prediction, pack_predictions
from streamforest.observe.evaluation import AGE_LIMITS
from streamforest.results import read
from streamforest.results.numbers import MAX_CLASSES, MAX_MATRIX, MAX_PAIRS, POINTS, measure
from streamforest.results.reading import as_frame


def made(n: int, classes: int = 5, seed: int = 0) -> list[Prediction]:
    """A run in which classes appear over time, with some unlabelled events."""
    rng = np.random.default_rng(seed)
    found = []
    seen: set[str] = set()
    for i in range(n):
        y = f"c{rng.integers(0, 1 + classes * i // n)}"
        guess = y if y in seen and rng.random() < 0.8 else (min(seen) if seen else None)
        p = float(rng.uniform(0.2, 1.0)) if guess else 0.0
        truth = None if rng.random() < 0.1 else y
        new = truth is not None and truth not in seen
        if truth is not None:
            seen.add(truth)
        top = [] if guess is None else [(guess, p)]
        found.append(
            Prediction(i, guess, p, truth, top, "t", i % 3, i, i, new, novelty=5.0 if new else 1.0)
        )
    return found


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = made(50)
    file = tmp_path / "p.jsonl"
    lines = [
        *(encode_prediction(one) for one in written[:20]),
        pack_predictions([encode_prediction(p) for p in written[20:]]),
    ]
    file.write_bytes(b"\n".join(lines) + b"\n")
    frame = read(file)
    assert frame.event.tolist() == list(range(50))
    assert frame.label.tolist() == [one.label for one in written]
    assert frame.truth.tolist() == [one.truth for one in written]
    assert frame.probability.tolist() == [one.probability for one in written]
    judged = frame[frame.truth.notna()]
    assert judged.correct.tolist() == [a == b for a, b in zip(judged.label, judged.truth)]
    assert frame[frame.truth.isna()].correct.isna().all()
    assert len(read(file, limit=20)) == 20


def test_the_package_has_it_without_another_import() -> None:
    assert streamforest.results.read is read


def test_what_was_delivered_twice_is_there_once_and_partitions_are_merged() -> None:
    written = made(30)
    frame = as_frame([*written[::-1], *written[:7]])
    assert frame.event.tolist() == list(range(30))


def test_only_what_is_committed_counts(tmp_path: Path) -> None:
    lines = [encode_prediction(one) + b"\n" for one in made(10)]
    (tmp_path / "predictions.jsonl").write_bytes(b"".join(lines) + b'{"half')
    sizes = {"predictions": sum(map(len, lines[:8]))}
    commit = {"metadata": "", "position": 8, "sizes": sizes}
    (tmp_path / "commit.json").write_text(json.dumps(commit), encoding="utf-8")
    assert len(read(tmp_path)) == 8


@pytest.mark.parametrize("line", [b"nonsense", b"{}", b'{"event": "x"}', b"[1]", b"[" * 100_000])
def test_a_line_that_is_no_prediction_is_named(line: bytes, tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_bytes(encode_prediction(made(1)[0]) + b"\n" + line + b"\n")
    with pytest.raises(InputError, match=r"p\.jsonl, line 2: not a prediction"):
        read(file)


def test_what_holds_no_predictions_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no predictions"):
        read(tmp_path)
    with pytest.raises(InputError, match="no such file or folder"):
        read(tmp_path / "gone")
    assert len(as_frame([])) == 0


def test_the_numbers_are_those_of_a_plain_count() -> None:
    frame = as_frame(made(3_000))
    numbers = measure(frame)
    judged = frame[frame.truth.notna()].reset_index(drop=True)
    right = (judged.label == judged.truth).to_numpy()
    assert numbers["accuracy"] == pytest.approx(right.mean())
    assert numbers["labelled"] == len(judged)
    assert numbers["no_change"] == pytest.approx((judged.truth == judged.truth.shift()).mean())
    curve = numbers["curve"]
    assert len(curve["event"]) <= POINTS
    assert curve["event"][-1] == judged.event.iloc[-1]
    assert np.mean(curve["accuracy"]) == pytest.approx(right.mean(), abs=0.01)
    for one in numbers["births"]["listed"]:
        mine = judged[judged.truth == one["name"]]
        hits = (mine.label == mine.truth).to_numpy()
        assert one["first"] == mine.event.iloc[0]
        assert one["events"] == len(mine)
        assert one["recall"] == pytest.approx(hits.mean())
        for age, low, high in zip(one["ages"], (0, *AGE_LIMITS), (*AGE_LIMITS, len(mine))):
            part = hits[low:high]
            assert age == (pytest.approx(part.mean()) if len(part) else None)
    matrix = np.array(numbers["confusion"]["matrix"])
    assert matrix.sum() == len(judged)
    assert np.trace(matrix) == right.sum()
    counted = [pair["times"] for pair in numbers["confusion"]["pairs"]]
    assert counted == sorted(counted, reverse=True)
    assert sum(counted) == len(judged) - right.sum()
    known = judged[judged.label.notna()]
    bins = pd.cut(known.probability, np.linspace(0, 1, 11), right=False)
    by_bin = (known.label == known.truth).groupby(bins, observed=True).mean()
    assert [one["accuracy"] for one in numbers["calibration"]] == pytest.approx(by_bin.tolist())
    assert numbers["novelty"] == {"new": 5.0, "known": 1.0, "events": 5}


def test_every_list_is_bounded() -> None:
    rng = np.random.default_rng(0)
    found = [
        Prediction(i, int(rng.integers(0, 900)), 0.5, int(y), [], "t", 0, i, i)
        for i, y in enumerate(rng.integers(0, 900, 9_000))
    ]
    numbers = measure(as_frame(found))
    assert len(numbers["births"]["listed"]) == MAX_CLASSES
    assert numbers["births"]["total"] == 900
    assert len(numbers["confusion"]["matrix"]) == MAX_MATRIX
    assert len(numbers["confusion"]["pairs"]) == MAX_PAIRS
    assert len(json.dumps(numbers)) < 200_000


@pytest.mark.parametrize("events", [0, 1, 2, 19])
def test_few_events_are_no_problem(events: int) -> None:
    numbers: dict[str, Any] = measure(as_frame(made(events)))
    assert numbers["events"] == events
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers

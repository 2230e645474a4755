"""Bags of words: a stream forest and an NCM forest beside the usual choice for texts."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import Any

import pytest
from river import feature_extraction, naive_bayes

from streamforest import NCMForestClassifier, StreamForestClassifier, datasets


def _score(model: Any, events: int) -> tuple[float, float]:
    """Accuracy of predicting each text before it is learned, and events per second of CPU time."""
    pipeline = feature_extraction.BagOfWords(on="text") | model
    right, start = 0, time.process_time()
    for x, y in datasets.load("texts", events).dicts():
        right += pipeline.predict_one(x) == y
        pipeline.learn_one(x, y)
    return right / events, events / (time.process_time() - start)


def test_absent_words_are_no_gaps() -> None:
    """As gaps a forest learns next to nothing of them: present is always 1."""
    zero, _ = _score(StreamForestClassifier(n_trees=4, absent="zero", seed=1), 1_500)
    missing, _ = _score(StreamForestClassifier(n_trees=4, seed=1), 1_500)
    bayes, _ = _score(naive_bayes.MultinomialNB(), 1_500)
    assert zero > missing + 0.05
    assert zero > bayes - 0.03


@pytest.mark.slow
def test_words_beside_multinomial_naive_bayes(capsys: pytest.CaptureFixture[str]) -> None:
    forest = StreamForestClassifier(absent="zero", seed=1)
    forest.warm_up()
    scores = {
        "stream": _score(forest, 10_000),
        "ncm": _score(NCMForestClassifier(absent="zero", seed=1), 10_000),
        "MultinomialNB": _score(naive_bayes.MultinomialNB(), 10_000),
    }
    with capsys.disabled():
        print(f"\nstreamforest {version('streamforest')}, river {version('river')}")
        for name, (accuracy, speed) in scores.items():
            print(f"{name:14} {accuracy:.2%} {speed:7,.0f} events/s")
    assert scores["stream"][0] >= scores["MultinomialNB"][0] - 0.03

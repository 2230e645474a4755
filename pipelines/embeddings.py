"""Texts as vectors, one event a line, for `embeddings.toml`.

    python pipelines/embeddings.py

`embed` stands for the encoder that you use (a sentence transformer, an image model, a service). This one
needs no download: a word is a random vector that only depends on the word, a text the mean of its words.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from river import metrics

from streamforest import NCMForestClassifier, datasets

WIDTH = 48
FILE = Path("embeddings.jsonl")


@cache
def word_vector(word: str) -> NDArray[np.float64]:
    """The vector of a word: the same in every process."""
    seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")
    return np.random.default_rng(seed).normal(size=WIDTH)


def embed(text: str) -> list[float]:
    """A text as a vector of length one. Put your encoder here."""
    total = np.sum([word_vector(word) for word in text.split()], axis=0)
    return [round(v, 5) for v in (total / np.linalg.norm(total)).tolist()]


def events() -> Iterator[tuple[list[float], str]]:
    """2,000 requests with their intents."""
    for x, y in datasets.load("intents", events=2_000).dicts():
        yield embed(str(x["text"])), str(y)


def main() -> None:
    """Write the events, and score a forest on them in Python: each is predicted before it is learned."""
    rows = list(events())
    lines = [json.dumps({"x": vector, "y": label}) for vector, label in rows]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    model = NCMForestClassifier(n_trees=15, seed=1)
    posteriors = model.advance(np.array([vector for vector, _ in rows]), [y for _, y in rows])
    accuracy = metrics.Accuracy()
    for row, (_, y) in zip(posteriors, rows):
        accuracy.update(y, model.classes_[int(row.argmax())] if row.any() else None)
    print(f"{len(rows):,} vectors to {FILE}; {accuracy}")


if __name__ == "__main__":
    main()

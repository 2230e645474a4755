"""A generated stream of short texts: what a bag of words is made of, without a download."""

from __future__ import annotations

import numpy as np

from streamforest.datasets.stream import Stream

_SYLLABLES = [consonant + vowel for consonant in "bdfghjklmnprstvwz" for vowel in "aeiou"]
TOPICS = ("harvest", "weather", "market")
_SHORTEST, _LONGEST = 8, 24  # words of a text


def texts(n: int = 10_000, words: int = 5_000, seed: int = 0, contrast: float = 0.7) -> Stream:
    """Texts on three topics over the same `words`, each topic with frequencies of its own.

    Frequencies fall with the rank of a word as in a language (Zipf), and each topic multiplies them by a
    random factor whose logarithm has a standard deviation of `contrast`: no word gives a topic away. An
    event has one feature, `text`.

    >>> stream = texts(3, seed=1)
    >>> x, y = next(iter(stream.dicts()))
    >>> y, x["text"].split()[:3]
    ('market', ['ropa', 'jaza', 'kafi'])
    """
    rng = np.random.default_rng(seed)
    word = np.array([a + b for a in _SYLLABLES for b in _SYLLABLES])
    word = word[rng.permutation(len(word))[:words]]
    usual = 1.0 / np.arange(2, words + 2)
    shares = usual * np.exp(contrast * rng.normal(size=(len(TOPICS), words)))
    upto = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    y = rng.integers(0, len(TOPICS), n)
    lengths = rng.integers(_SHORTEST, _LONGEST + 1, n)
    rows = [
        " ".join(word[np.minimum(np.searchsorted(upto[k], rng.random(size)), words - 1)])
        for k, size in zip(y.tolist(), lengths.tolist())
    ]
    return Stream(
        "texts", np.zeros((n, 0)), np.array(TOPICS)[y], (), texts=np.array(rows), seed=seed
    )

"""Streams that need no data folder: generated ones and those that come with a package.

River is imported only when one of its streams is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.datasets.stream import Stream
from streamforest.errors import DatasetError

_WEIGHTS = np.array([0.30, 0.25, 0.20, 0.15, 0.10])
_CENTRES = 0.94 * np.array([[0.0, 0.0], [1.6, 0.6], [-1.2, 1.5], [0.5, -1.9], [-1.6, -1.2]])
_SPREADS = np.array([[1.0, 1.0], [0.8, 1.2], [1.2, 0.8], [1.3, 0.7], [0.7, 1.0]])


def gaussians(n: int = 100_000, seed: int = 0) -> Stream:
    """Five overlapping Gaussian classes in the plane, after Denil et al. 2013, Fig. 2.

    The centres are scaled (.94) so that the best possible rule gets about two thirds of the rows
    right, as in the paper. `bayes` says for each row whether that rule, which knows the
    distribution exactly, gets it right: a forest is compared with it on the same rows.

    >>> s = gaussians(1_000, seed=1)
    >>> s.X.shape, s.classes, s.bayes_rate
    ((1000, 2), [1, 4, 0, 3, 2], 0.661)
    """
    if n < 1:
        raise DatasetError(f"gaussians: n is {n}; ask for at least 1 row")
    rng = np.random.default_rng(seed)
    y = rng.choice(len(_WEIGHTS), n, p=_WEIGHTS)
    X = _CENTRES[y] + rng.normal(size=(n, 2)) * _SPREADS[y]
    return Stream(
        name="gaussians",
        X=X,
        y=y,
        features=("x", "y"),
        bayes=_gaussian_bayes_rule(X) == y,
        seed=seed,
    )


def _gaussian_bayes_rule(X: NDArray[np.float64]) -> NDArray[np.int64]:
    """The class with the largest posterior under the mixture that made the rows."""
    log_posterior = np.empty((len(X), len(_WEIGHTS)))
    for k, (weight, centre, spread) in enumerate(zip(_WEIGHTS, _CENTRES, _SPREADS)):
        standard = (X - centre) / spread
        log_posterior[:, k] = (
            np.log(weight) - np.log(spread).sum() - 0.5 * (standard**2).sum(axis=1)
        )
    best: NDArray[np.int64] = log_posterior.argmax(axis=1)
    return best


def gaussians_bayes_rate(step: float = 0.01) -> float:
    """The accuracy no rule can beat on `gaussians`: the integral of the largest weighted density, on a grid.

    The integrand is continuous and falls off like a Gaussian, so the error of a grid this fine is
    below 1e-6.
    """
    axis = np.arange(-9.0, 9.0, step)
    best = np.zeros((len(axis), len(axis)))
    for weight, centre, spread in zip(_WEIGHTS, _CENTRES, _SPREADS, strict=True):
        along = [
            np.exp(-0.5 * ((axis - c) / s) ** 2) / (s * np.sqrt(2 * np.pi))
            for c, s in zip(centre, spread, strict=True)
        ]
        np.maximum(best, weight * np.outer(along[0], along[1]), out=best)
    return float(best.sum() * step * step)


def digits(passes: int = 3, seed: int = 0) -> Stream:
    """The 8×8 digits of `digit_images`, `passes` times over, each pass in a new order.

    >>> digits(passes=1).X.shape
    (1797, 64)
    """
    if passes < 1:
        raise DatasetError(f"digits: passes is {passes}; ask for at least 1")
    X, y = digit_images()
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.permutation(len(y)) for _ in range(passes)])
    return Stream(
        name="digits",
        X=X[rows],
        y=y[rows],
        features=tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(8)),
        seed=seed,
    )


def digit_images() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Handwritten digits, 8×8 pixels from 0 to 16, and which digit each one is.

    The test rows of the UCI set "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak 1998,
    doi.org/10.24432/C50P49, CC BY 4.0), in the order in which scikit-learn has them too.
    """
    with np.load(Path(__file__).with_name("digits.npz"), allow_pickle=False) as archive:
        return archive["x"].astype(np.float64), archive["y"].astype(np.int64)


def bundled(name: str, class_name: str) -> Stream:
    """A recorded set that installs with River, by the name of its class there."""
    from river import datasets

    return _from_river(name, getattr(datasets, class_name)())


def rbf(n: int = 20_000) -> Stream:
    """River's random RBF generator: 50 features, 10 classes, 50 centroids."""
    from river.datasets import synth

    generator = synth.RandomRBF(
        seed_model=42, seed_sample=42, n_classes=10, n_features=50, n_centroids=50
    )
    return _from_river("rbf", islice(generator, n), seed=42)


def agrawal(n: int = 20_000, before: int = 0, after: int = 3) -> Stream:
    """River's Agrawal generator: one function turns into another at event 10,000, width 100."""
    from river.datasets import synth

    generator = synth.ConceptDriftStream(
        stream=synth.Agrawal(classification_function=before, seed=42),
        drift_stream=synth.Agrawal(classification_function=after, seed=42),
        seed=42,
        position=10_000,
        width=100,
    )
    stream = _from_river("agrawal", islice(generator, n), seed=42)
    return replace(stream, categorical=("car", "zipcode"), drifts=(10_000,) if n > 10_000 else ())


def waveform(n: int = 10_000) -> Stream:
    """River's waveform generator (Breiman et al. 1984): 21 columns and 19 of noise."""
    from river.datasets import synth

    return _from_river("waveform", islice(synth.Waveform(seed=42, has_noise=True), n), seed=42)


def led(n: int = 10_000) -> Stream:
    """River's LED generator (Breiman et al. 1984): seven segments, 17 columns that say nothing."""
    from river.datasets import synth

    generator = synth.LED(seed=42, noise_percentage=0.1, irrelevant_features=True)
    return _from_river("led", islice(generator, n), seed=42)


def hyperplane(n: int = 20_000) -> Stream:
    """River's rotating hyperplane: ten features, all of them drifting."""
    from river.datasets import synth

    generator = synth.Hyperplane(
        seed=42, n_features=10, n_drift_features=10, mag_change=0.001, noise_percentage=0.05
    )
    return _from_river("hyperplane", islice(generator, n), seed=42)


def sea(n: int = 20_000) -> Stream:
    """River's SEA concepts (Street and Kim 2001) one after the other, a quarter of the events each."""
    from river.datasets import synth

    quarter = n // 4
    events: list[tuple[dict[Any, Any], Any]] = []
    for variant in range(4):
        generator = synth.SEA(variant=variant, seed=42 + variant, noise=0.1)
        events += islice(generator, quarter)
    stream = _from_river("sea", events, seed=42)
    return replace(stream, drifts=(quarter, 2 * quarter, 3 * quarter))


def rbf_drift(n: int = 20_000) -> Stream:
    """River's random RBF generator with moving centroids: 10 features, 4 classes."""
    from river.datasets import synth

    generator = synth.RandomRBFDrift(
        seed_model=42,
        seed_sample=42,
        n_classes=4,
        n_features=10,
        n_centroids=20,
        change_speed=0.001,
        n_drift_centroids=20,
    )
    return _from_river("rbf-drift", islice(generator, n), seed=42)


def random_tree(n: int = 10_000) -> Stream:
    """River's random tree generator: labels are the leaves of a tree over numbers and codes."""
    from river.datasets import synth

    generator = synth.RandomTree(
        seed_tree=42,
        seed_sample=42,
        n_classes=4,
        n_num_features=5,
        n_cat_features=3,
        n_categories_per_feature=5,
        max_tree_depth=8,
    )
    stream = _from_river("random-tree", islice(generator, n), seed=42)
    codes = tuple(name for name in stream.features if "cat" in name)
    return replace(stream, categorical=codes)


def _from_river(
    name: str,
    events: Iterable[tuple[dict[Any, Any], Any]],
    seed: int | None = None,
) -> Stream:
    """Collect River's (dict, label) pairs; columns in the order of their names as text."""
    rows: list[list[float]] = []
    labels: list[Any] = []
    keys: list[Any] = []
    for x, label in events:
        keys = keys or sorted(x, key=str)
        rows.append([float(x[key]) for key in keys])
        labels.append(label)
    return Stream(
        name=name,
        X=np.array(rows, dtype=np.float64),
        y=np.array(labels),
        features=tuple(str(key) for key in keys),
        seed=seed,
    )

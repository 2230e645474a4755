"""As in Fig. 5: body parts from depth images, two algorithms with the same memory bound.

Section 5.3 of Denil et al. 2013, on rendered figures instead of recorded motion (see
`streamforest.datasets.depth`): up to 50 pixels of each of 20 classes from every training pose, one
pass, accuracy on pixels of unseen poses without the background. Ours: m = 10, τ = .01,
α(d) = 25·1.01^d, β(d) = 4·α(d). Saffari et al. 2009: as many features and thresholds a leaf, 25
samples to split, depth 8.

Bytes: the paper gave ours 1.6 GB for leaf statistics, that is 64 MB to each of 25 trees at
λ = 2000, and the rival up to 10 GB. Here every tree of either has the former, in proportion to λ.
The rival as published keeps statistics in all leaves that may still split, so its depth alone
bounds its memory, and 8 is about the deepest that fits. Our bounded fringe can carry its algorithm
too, to any depth: that is not in the paper and is shown as a third line, because it is the stronger
rival.

The paper's scale is 25 trees, λ = 2000 and 2,000 poses (`full`); the default is smaller in all
three, so that a laptop needs minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamforest.bench.denil.common import (
    Curve,
    Figure,
    Options,
    Panel,
    Picture,
    Watcher,
    learn,
    log_spaced,
    named,
    transposed,
)

if TYPE_CHECKING:
    from streamforest.datasets.depth import DepthFigures
    from streamforest.forests.core.base import Forest

SETTINGS: dict[str, Any] = {
    "n_splits": 10,
    "tau": 0.01,
    "alpha0": 25.0,
    "alpha_growth": 1.01,
    "beta_factor": 4.0,
}
RIVAL: dict[str, Any] = {"n_thresholds": 10, "min_gain": 0.01, "min_samples": 25}
RIVAL_DEPTH = 8
ANY_DEPTH = 1_000
BYTES_A_CANDIDATE = 32_000  # 1.6 GB / 25 trees / 2000 candidate offsets
MAX_NODES = 1 << 20
OURS, RIVAL_AS_PUBLISHED, RIVAL_IN_FRINGE = (
    "ours",
    "Saffari et al. (depth 8)",
    "Saffari et al. in our bounded fringe",
)
TITLE = "Fig. 5's kind: body parts from depth images, same bytes"
_PER_PART = 50
_MARGIN = 12  # pixels around the figure that the picture shows


@dataclass(frozen=True)
class Scale:
    """How large the experiment is."""

    runs: int
    trees: int
    candidates: int
    poses: int
    test_poses: int
    pixels_a_test_pose: int | None
    pool: int
    points: int


QUICK = Scale(1, 2, 30, 6, 4, 100, 200, 3)
LAPTOP = Scale(3, 5, 200, 1_000, 50, 200, 4_000, 9)
PAPER = Scale(5, 25, 2_000, 2_000, 500, None, 4_000, 10)


def scale_of(options: Options) -> Scale:
    """The scale asked for, with single sizes replaced where the options name them."""
    base = QUICK if options.quick else PAPER if options.full else LAPTOP
    poses = options.poses or base.poses
    if options.events:
        poses = min(poses, max(1, options.events // (20 * _PER_PART)))
    return Scale(
        options.runs or base.runs,
        options.trees or base.trees,
        options.candidates or base.candidates,
        poses,
        base.test_poses,
        base.pixels_a_test_pose,
        base.pool,
        base.points,
    )


def bytes_a_tree(candidates: int) -> int:
    """Bytes for the leaf statistics of one tree, in proportion to the paper's.

    >>> bytes_a_tree(2_000)
    64000000
    """
    return BYTES_A_CANDIDATE * candidates


def forests(scale: Scale, seed: int, n_jobs: int) -> dict[str, Forest]:
    """The algorithms by name, all with the same bound on their leaf statistics."""
    from streamforest import ConsistentForestClassifier, OnlineForestClassifier

    common: dict[str, Any] = {
        "n_trees": scale.trees,
        "max_fringe_bytes": bytes_a_tree(scale.candidates),
        "max_nodes": MAX_NODES,
        "n_jobs": n_jobs,
        "seed": seed,
    }
    rival = {"n_features": scale.candidates, **RIVAL, **common}
    return {
        OURS: ConsistentForestClassifier(lam=float(scale.candidates), **SETTINGS, **common),
        RIVAL_AS_PUBLISHED: OnlineForestClassifier(max_depth=RIVAL_DEPTH, **rival),
        RIVAL_IN_FRINGE: OnlineForestClassifier(max_depth=ANY_DEPTH, **rival),
    }


def test_accuracy(models: list[Forest], figures: DepthFigures, scale: Scale) -> list[float]:
    """Share of test pixels that each forest classifies correctly; features are computed once."""
    right, total = np.zeros(len(models)), 0
    for X, y in figures.test_pixels(scale.test_poses, scale.pixels_a_test_pose):
        right += [(named(model, X) == y).sum() for model in models]
        total += len(y)
    return [float(n) / total for n in right]


def draw_pose(models: dict[str, Forest], figures: DepthFigures, index: int = 0) -> Picture:
    """Fig. 4: depth, true parts and the parts each forest names, around one test figure."""
    from streamforest.datasets.depth import FAR

    image = figures.image(index, test=True)
    rows, cols = np.nonzero(image.parts)
    box = np.s_[
        max(0, rows.min() - _MARGIN) : rows.max() + _MARGIN + 1,
        max(0, cols.min() - _MARGIN) : cols.max() + _MARGIN + 1,
    ]
    parts = image.parts[box]
    grid_rows, grid_cols = np.mgrid[box]
    answers: dict[str, NDArray[Any]] = {name: np.zeros_like(parts) for name in models}
    for line in range(len(parts)):  # a line at a time: the features of all pixels are too many
        X = figures.features(image, grid_rows[line], grid_cols[line])
        for name, model in models.items():
            answers[name][line] = named(model, X)
    depth = np.where(parts > 0, image.depth[box], np.nan)
    return Picture(
        ["depth", "true parts", *models],
        [np.where(depth < FAR, depth, np.nan), parts, *answers.values()],
    )


def run(options: Options, watcher: Watcher) -> Figure:
    """Measure accuracy over poses, and draw one pose as the first run classifies it in the end."""
    from streamforest.datasets.depth import DepthFigures

    scale = scale_of(options)
    points = log_spaced(min(5, scale.poses), scale.poses, scale.points)
    measured: list[list[list[float]]] = []
    peaks: dict[str, int] = {}
    sizes: dict[str, dict[str, int]] = {}
    picture: Picture | None = None
    for r in range(scale.runs):
        figures = DepthFigures(seed=options.seed + r, n_pairs=scale.pool)
        models = forests(scale, options.seed + r, options.n_jobs)
        watcher.begin(f"Fig. 5, run {r + 1} of {scale.runs}", scale.poses)
        measured.append([])
        for pose in range(scale.poses):
            X, y = figures.training_pixels(pose, _PER_PART)
            for name, model in models.items():
                learn(model, X, y)
                peaks[name] = max(peaks.get(name, 0), model.summary()["fringe_bytes"])
            if pose + 1 in points:
                measured[-1].append(test_accuracy(list(models.values()), figures, scale))
            watcher.update(pose + 1)
        if r == 0:
            keys = ("leaves", "active", "depth", "fringe_bytes", "total_bytes")
            for name, model in models.items():
                summary = model.summary()
                sizes[name] = {key: summary[key] for key in keys}
            picture = draw_pose(
                {name: models[name] for name in (OURS, RIVAL_AS_PUBLISHED)}, figures
            )

    x = [float(n) for n in points]
    names = (OURS, RIVAL_AS_PUBLISHED, RIVAL_IN_FRINGE)
    curves = [
        Curve(name, x, values) for name, values in zip(names, transposed(measured), strict=True)
    ]
    end = {curve.name: np.array(curve.runs)[:, -1] for curve in curves}
    lead = {name: end[OURS] - end[name] for name in (RIVAL_AS_PUBLISHED, RIVAL_IN_FRINGE)}
    budget = bytes_a_tree(scale.candidates) * scale.trees
    return Figure(
        key="5",
        title=TITLE,
        settings={
            "trees": scale.trees,
            "candidates": scale.candidates,
            "pool": scale.pool,
            "poses": scale.poses,
            "runs": scale.runs,
            "ours": SETTINGS,
            "rival": {**RIVAL, "max_depth": RIVAL_DEPTH},
            "fringe_bytes_allowed": budget,
        },
        panels=[Panel("Depth images", "training poses", "accuracy on test pixels", curves)],
        facts={
            "ours_above_at_the_end_of_every_run": {
                name: bool((by_run > 0).all()) for name, by_run in lead.items()
            },
            "peak_fringe_bytes": peaks,
            "sizes_after_the_first_run": sizes,
        },
        findings=[
            f"After {x[-1]:,.0f} poses ours is "
            + " and ".join(f"{lead[name].mean():+.3f} against {name}" for name in lead)
            + ".",
            f"Leaf statistics allowed: {budget / 1e6:,.1f} MB in the forest; most used: "
            + ", ".join(f"{name} {peak / 1e6:,.1f}" for name, peak in peaks.items())
            + " MB.",
        ],
        picture=picture,
    )

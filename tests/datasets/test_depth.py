"""The depth images of Denil 2013, section 5.3: repeatable, complete, and true to their geometry."""

from __future__ import annotations

import numpy as np
import pytest

from streamforest.datasets.depth import FAR, PARTS, DepthFigures, DepthImage, Solid, render
from streamforest.errors import ParameterError

SMALL = DepthFigures(seed=3, n_pairs=200)


def test_images_and_pixels_are_functions_of_seed_and_index() -> None:
    again = DepthFigures(seed=3, n_pairs=200)
    again.image(7)  # making another pose in between must change nothing
    first, second = SMALL.image(4), again.image(4)
    assert np.array_equal(first.depth, second.depth)
    assert np.array_equal(first.parts, second.parts)
    for one, other in zip(SMALL.training_pixels(4), again.training_pixels(4), strict=True):
        assert np.array_equal(one, other)
    other_seed = DepthFigures(seed=4, n_pairs=200)
    assert not np.array_equal(first.parts, other_seed.image(4).parts)
    assert not np.array_equal(SMALL.pairs, other_seed.pairs)
    assert not np.array_equal(first.parts, SMALL.image(5).parts)


def test_test_poses_are_not_training_poses() -> None:
    assert not np.array_equal(SMALL.image(0).parts, SMALL.image(0, test=True).parts)


def test_every_class_appears_and_hardly_a_pose_hides_many() -> None:
    present = [set(np.unique(SMALL.image(i).parts).tolist()) for i in range(40)]
    assert set.union(*present) == set(range(len(PARTS))) == set(range(20))
    assert np.mean([len(classes) for classes in present]) > 18


def test_labels_and_depth_agree() -> None:
    for index in range(10):
        image = SMALL.image(index)
        assert image.depth.shape == image.parts.shape == (240, 320)
        figure = image.parts > 0
        assert np.array_equal(figure, image.depth < FAR)
        near, far = image.depth[figure].min(), image.depth[figure].max()
        assert 0.5 < near < far < 6.0
        assert far - near < 2.5  # one figure, not pieces of several


def test_the_head_is_above_the_feet_and_left_is_left() -> None:
    def middle(part: str, axis: int) -> float:
        places = [
            np.nonzero(image.parts == PARTS.index(part))[axis].mean()
            for image in (SMALL.image(i) for i in range(20))
            if (image.parts == PARTS.index(part)).any()
        ]
        return float(np.mean(places))

    assert middle("head", 0) < middle("pelvis", 0) < middle("left foot", 0)
    # The figure faces the camera: its left shoulder is on the right of the picture.
    assert middle("left shoulder", 1) > middle("right shoulder", 1)


def test_a_ball_is_rendered_where_and_as_large_as_it_is() -> None:
    centre = np.array([0.2, -0.1, 2.0])
    image = render([Solid(5, centre, centre, 0.1)], 240, 320)
    rows, cols = np.nonzero(image.parts == 5)
    focal = 1.27 * 240
    assert rows.mean() == pytest.approx(120 + focal * -0.1 / 2 - 0.5, abs=0.6)
    assert cols.mean() == pytest.approx(160 + focal * 0.2 / 2 - 0.5, abs=0.6)
    assert len(rows) == pytest.approx(np.pi * (focal * 0.1 / 2) ** 2, rel=0.05)
    assert image.depth.min() == pytest.approx(1.9, abs=0.01)


@pytest.mark.parametrize("end", [(0.2, -0.1, 2.0), (0.4, 0.3, 2.2), (0.2, -0.1, 2.6)])
def test_a_capsule_is_the_hull_of_the_balls_along_its_line(end: tuple[float, ...]) -> None:
    start, stop = np.array([0.2, -0.1, 2.0]), np.array(end)
    balls = [
        Solid(5, centre, centre, 0.1)
        for centre in (start + t * (stop - start) for t in np.linspace(0, 1, 400))
    ]
    capsule = render([Solid(5, start, stop, 0.1)], 120, 160)
    hull = render(balls, 120, 160)
    assert np.array_equal(capsule.parts, hull.parts)
    assert np.allclose(capsule.depth, hull.depth, atol=2e-3)


def test_the_nearer_solid_hides_the_farther_one_in_either_order() -> None:
    near, far = np.array([0.0, 0.0, 1.5]), np.array([0.05, 0.0, 2.5])
    solids = [Solid(1, near, near, 0.1), Solid(2, far, far, 0.3)]
    one, other = render(solids, 64, 64), render(solids[::-1], 64, 64)
    assert np.array_equal(one.parts, other.parts)
    assert one.parts[32, 32] == 1
    assert {1, 2} <= set(np.unique(one.parts).tolist())


def test_training_pixels_are_balanced_finite_and_shuffled() -> None:
    X, y = SMALL.training_pixels(2, per_part=20)
    assert X.shape == (len(y), 200)
    assert np.isfinite(X).all()
    assert np.abs(X).max() <= FAR
    available = np.bincount(SMALL.image(2).parts.ravel(), minlength=20)
    assert np.array_equal(np.bincount(y, minlength=20), np.minimum(available, 20))
    assert (np.diff(y) != 0).mean() > 0.8


def test_features_are_depth_differences_at_offsets_that_shrink_with_depth() -> None:
    figures = DepthFigures(seed=0, height=120, width=160, n_pairs=30)
    image = figures.image(1)
    rows, cols = np.nonzero(image.parts)
    rows, cols = rows[::97], cols[::97]
    values = figures.features(image, rows, cols)

    def probe(row: float, col: float) -> float:
        r, c = int(np.floor(row + 0.5)), int(np.floor(col + 0.5))
        inside = 0 <= r < 120 and 0 <= c < 160
        return float(image.depth[r, c]) if inside else FAR

    wrong = 0
    for i, (row, col) in enumerate(zip(rows, cols, strict=True)):
        pixels = 1.27 * 120 / float(image.depth[row, col])
        for j, (a, b) in enumerate(figures.pairs):
            plain = probe(row + pixels * a[1], col + pixels * a[0]) - probe(
                row + pixels * b[1], col + pixels * b[0]
            )
            wrong += abs(plain - values[i, j]) > 1e-5
    assert wrong <= 0.002 * values.size  # float32 may round a probe to the next pixel


def test_a_figure_twice_as_far_has_the_same_features() -> None:
    """The scaling of the offsets makes them depth invariant (Shotton et al. 2011, section 3.2)."""
    figures = DepthFigures(seed=0, height=480, width=640, n_pairs=300, spread=0.1)

    def values(distance: float) -> np.ndarray:
        centre = np.array([0.0, 0.0, distance])
        image = render([Solid(3, centre, centre, 0.3)], 480, 640)
        flat = DepthImage(np.where(image.parts > 0, distance, FAR).astype(np.float32), image.parts)
        return figures.features(flat, np.array([240]), np.array([320]))[0]

    near, far = values(2.0), values(4.0)
    assert (np.abs(near) > 0).any()
    # Only the step from figure to background changes, by the two metres between the distances.
    assert (np.sign(near) == np.sign(far)).mean() > 0.97


def test_test_pixels_leave_the_background_out() -> None:
    figures = DepthFigures(seed=1, n_pairs=10)
    everything = list(figures.test_pixels(2))
    assert len(everything) == 2
    for index, (X, y) in enumerate(everything):
        assert len(y) == (figures.image(index, test=True).parts > 0).sum()
        assert (y > 0).all()
        assert len(X) == len(y)
    sample = list(figures.test_pixels(2, per_pose=100))
    assert [len(y) for _, y in sample] == [100, 100]


@pytest.mark.parametrize(
    ("name", "value"),
    [("height", 3), ("width", 0), ("n_pairs", 0), ("seed", -1), ("spread", 0.0)],
)
def test_a_bad_argument_is_named_with_its_value_and_remedy(name: str, value: float) -> None:
    with pytest.raises(ParameterError, match=rf"{name}={value}.*give"):
        DepthFigures(**{name: value})  # type: ignore[arg-type]

"""Synthetic depth images of jointed figures, with the body part of every pixel.

The third experiment of Denil et al. 2013 (section 5.3, Figs. 4 and 5) names the body part that a
pixel of a depth image belongs to, after Shotton et al. 2011. Its images were rendered from recorded
motion that cannot be shipped; these are rendered from random poses of a figure of 19 parts, so that
the experiment runs anywhere and never runs out of data. Every image is a function of seed and index
alone: any pose can be made again without making those before it.

What carries over from the papers: 19 parts and a background as 20 classes; up to 50 pixels of each
class from a pose; a feature is the difference in depth between two pixels at random offsets from
the one to be named, and the offsets shrink with its depth, so that a feature means the same on a
near and a far figure. What differs: the pool of offset pairs is fixed by the seed and its members
are ordinary columns, from which a leaf draws many; in the paper every leaf draws new pairs.

>>> figures = DepthFigures(seed=1, n_pairs=50)
>>> X, y = figures.training_pixels(0)
>>> X.shape[1], len(set(y.tolist())) <= len(PARTS)
(50, True)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamforest.errors import ParameterError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PARTS: tuple[str, ...] = (
    "background",
    "head",
    "neck",
    "chest",
    "belly",
    "pelvis",
    "left shoulder",
    "right shoulder",
    "left upper arm",
    "right upper arm",
    "left forearm",
    "right forearm",
    "left hand",
    "right hand",
    "left thigh",
    "right thigh",
    "left calf",
    "right calf",
    "left foot",
    "right foot",
)
"""The classes; a part's number is its place here. Left and right are the figure's own."""

FAR = 10.0
"""Depth in metres where there is nothing: the background, and every probe outside the image."""

_FOCAL = 1.27  # focal length over image height: the Kinect's field of view of 43 degrees
_DISTANCE = (2.3, 4.0)  # metres from the camera to the figure's pelvis
_TURN = 1.0  # the figure faces the camera up to this turn, radians to either side
_TILT = 0.15  # camera above or below, radians to either side
_CHUNK = 32  # pixels whose features are worked out together
_STREAM_POOL, _STREAM_TRAIN, _STREAM_TEST, _STREAM_PIXELS = range(4)


@dataclass(frozen=True)
class Bone:
    """One part of the figure: where it hangs, how far it turns, what it looks like.

    Lengths are metres in the frame of the part it hangs on (x to the figure's left, y up, z the way
    it faces). `turns` are the ranges of the angles about x, y and z, radians, for the left side;
    the right side is its mirror image. A part is an ellipsoid (`radii` of three numbers around
    `shape_from`) or a capsule (one radius, from `shape_from` to `shape_to`).
    """

    parent: str
    joint: tuple[float, float, float]
    turns: tuple[tuple[float, float], tuple[float, float], tuple[float, float]]
    radii: tuple[float, ...]
    shape_from: tuple[float, float, float] = (0.0, 0.0, 0.0)
    shape_to: tuple[float, float, float] = (0.0, 0.0, 0.0)


_BODY: dict[str, Bone] = {
    "pelvis": Bone("", (0, 0, 0), ((-0.2, 0.3), (0, 0), (-0.15, 0.15)), (0.165, 0.12, 0.115)),
    "belly": Bone(
        "pelvis", (0, 0.07, 0), ((-0.1, 0.4), (-0.3, 0.3), (-0.2, 0.2)), (0.145, 0.13, 0.105),
        shape_from=(0, 0.09, 0),
    ),
    "chest": Bone(
        "belly", (0, 0.18, 0), ((-0.1, 0.3), (-0.2, 0.2), (-0.15, 0.15)), (0.165, 0.175, 0.12),
        shape_from=(0, 0.13, 0),
    ),
    "neck": Bone(
        "chest", (0, 0.28, 0), ((-0.2, 0.3), (-0.3, 0.3), (-0.2, 0.2)), (0.058,),
        shape_to=(0, 0.1, 0),
    ),
    "head": Bone(
        "neck", (0, 0.12, 0), ((-0.3, 0.4), (-0.7, 0.7), (-0.2, 0.2)), (0.085, 0.125, 0.105),
        shape_from=(0, 0.1, 0.015),
    ),
    "shoulder": Bone(
        "chest", (0.1, 0.215, 0), ((0, 0), (-0.2, 0.2), (-0.1, 0.35)), (0.068,),
        shape_to=(0.085, 0, 0),
    ),
    "upper arm": Bone(
        "shoulder", (0.105, -0.01, 0), ((-2.4, 0.6), (-0.4, 0.4), (0, 2.2)), (0.05,),
        shape_from=(0, -0.04, 0), shape_to=(0, -0.27, 0),
    ),
    "forearm": Bone(
        "upper arm", (0, -0.29, 0), ((-2.2, 0), (-1.2, 0.6), (0, 0)), (0.04,),
        shape_to=(0, -0.23, 0),
    ),
    "hand": Bone(
        "forearm", (0, -0.26, 0), ((-0.6, 0.6), (-1.2, 1.2), (-0.4, 0.4)), (0.045, 0.09, 0.028),
        shape_from=(0, -0.075, 0),
    ),
    "thigh": Bone(
        "pelvis", (0.09, -0.06, 0), ((-1.5, 0.5), (-0.3, 0.3), (-0.05, 0.6)), (0.078,),
        shape_to=(0, -0.37, 0),
    ),
    "calf": Bone(
        "thigh", (0, -0.42, 0), ((0, 1.7), (0, 0), (0, 0)), (0.054,), shape_to=(0, -0.37, 0)
    ),
    "foot": Bone(
        "calf", (0, -0.41, 0), ((-0.4, 0.3), (-0.4, 0.4), (0, 0)), (0.042,),
        shape_from=(0, -0.02, 0), shape_to=(0, -0.03, 0.16),
    ),
}  # fmt: skip
_PAIRED = ("shoulder", "upper arm", "forearm", "hand", "thigh", "calf", "foot")


@dataclass(frozen=True)
class Solid:
    """One posed part in the camera's frame (x right, y down, z away from the camera).

    A capsule is the points within `radius` of the line `start`–`end`. An ellipsoid (`axes` given)
    lies around `start`; the rows of `axes` are its directions, each over its radius.
    """

    part: int
    start: Floats
    end: Floats
    radius: float
    axes: Floats | None = None


@dataclass(frozen=True)
class DepthImage:
    """Depth in metres and part number of every pixel; both have the same shape."""

    depth: NDArray[np.float32]
    parts: NDArray[np.uint8]


def _rotation(x: float, y: float, z: float) -> Floats:
    """Turn about z, then x, then y, in the frame of Bone."""
    (cx, cy, cz), (sx, sy, sz) = np.cos([x, y, z]), np.sin([x, y, z])
    about_x = np.array([[1, 0, 0], [0, cx, -sx], [0, sx, cx]])
    about_y = np.array([[cy, 0, sy], [0, 1, 0], [-sy, 0, cy]])
    about_z = np.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]])
    turn: Floats = about_y @ about_x @ about_z
    return turn


def random_figure(rng: np.random.Generator) -> list[Solid]:
    """A figure of random build in a random pose before a camera at a random distance.

    One number per pose says how lively it is: most joints of a real figure are near rest at most
    times, and a few poses use their whole range.
    """
    tall, wide = rng.uniform(0.88, 1.08), rng.uniform(0.9, 1.25)
    lively = rng.uniform(0.15, 1.0)
    stand = _rotation(rng.uniform(-_TILT, _TILT), rng.uniform(-_TURN, _TURN), 0.0)
    # The camera's y points down and its z away from it: a figure that faces it looks along -z.
    to_camera = np.diag([1.0, -1.0, -1.0])
    place = np.array([rng.uniform(-0.25, 0.25), rng.uniform(-0.1, 0.05), rng.uniform(*_DISTANCE)])

    frames: dict[str, tuple[Floats, Floats]] = {"": (stand, np.zeros(3))}
    solids: list[Solid] = []
    for name, bone in _BODY.items():
        for side in ("left ", "right ") if name in _PAIRED else ("",):
            mirror = np.array([-1.0 if side == "right " else 1.0, 1.0, 1.0])
            angles = [rng.uniform(low, high) * lively for low, high in bone.turns]
            if side == "right ":
                angles[1], angles[2] = -angles[1], -angles[2]
            held_by = bone.parent if bone.parent in frames else side + bone.parent
            base_turn, base = frames[held_by]
            turn = base_turn @ _rotation(*angles)
            origin = base + base_turn @ (np.array(bone.joint) * mirror * tall)
            frames[side + name] = (turn, origin)
            ends = [
                to_camera @ (origin + turn @ (np.array(point) * mirror * tall)) + place
                for point in (bone.shape_from, bone.shape_to)
            ]
            part = PARTS.index(side + name)
            if len(bone.radii) == 1:
                solids.append(Solid(part, ends[0], ends[1], bone.radii[0] * wide))
                continue
            radii = np.array(bone.radii) * np.array([wide, tall, wide])
            axes = (to_camera @ turn).T / radii[:, None]
            solids.append(Solid(part, ends[0], ends[0], float(radii.max()), axes))
    return solids


def _sphere_hit(rays: Floats, centre: Floats, radius: float) -> Floats:
    """Depth at which rays (x, y, 1) from the camera enter a sphere; inf where they miss it."""
    a = np.einsum("ij,ij->i", rays, rays)
    b = rays @ centre
    inside = b * b - a * (centre @ centre - radius * radius)
    hit: Floats = np.where(inside >= 0, (b - np.sqrt(np.maximum(inside, 0))) / a, np.inf)
    return hit


def _capsule_hit(rays: Floats, solid: Solid) -> Floats:
    """Depth at which rays enter a capsule: its two balls, and the cylinder between them."""
    hit = np.minimum(
        _sphere_hit(rays, solid.start, solid.radius), _sphere_hit(rays, solid.end, solid.radius)
    )
    line = solid.end - solid.start
    length2 = float(line @ line)
    along_ray, along_start = rays @ line, float(solid.start @ line)
    a = length2 * np.einsum("ij,ij->i", rays, rays) - along_ray**2
    b = length2 * (rays @ solid.start) - along_start * along_ray
    c = length2 * float(solid.start @ solid.start) - along_start**2 - solid.radius**2 * length2
    inside = b * b - a * c
    crosses = a > 1e-12  # a ray along the line, or a line of no length, meets the balls only
    depth = (b - np.sqrt(np.maximum(inside, 0))) / np.where(crosses, a, 1.0)
    place = depth * along_ray - along_start
    wall = crosses & (inside >= 0) & (place >= 0) & (place <= length2)
    return np.where(wall, np.minimum(depth, hit), hit)


def render(solids: list[Solid], height: int, width: int) -> DepthImage:
    """Depth and part of every pixel: each solid is met by the rays of its own box of pixels only,
    and the nearest one wins (a z-buffer)."""
    focal = _FOCAL * height
    depth = np.full((height, width), FAR)
    parts = np.zeros((height, width), dtype=np.uint8)
    for solid in solids:
        ends = np.stack([solid.start, solid.end])
        nearest = float(ends[:, 2].min()) - solid.radius
        if nearest <= 0.1:
            continue  # behind the lens or on it; no pose of random_figure comes that close
        # Near edge of the ball around either end: the box may be a little large, never too small.
        low = np.floor(focal * (ends[:, :2] - solid.radius) / ends[:, 2:]).min(axis=0)
        high = np.ceil(focal * (ends[:, :2] + solid.radius) / ends[:, 2:]).max(axis=0)
        margin = np.ceil(focal * solid.radius * (1 / nearest - 1 / ends[:, 2].max()) + 1)
        left, top = (np.array([width, height]) // 2 + low - margin).astype(int)
        right, bottom = (np.array([width, height]) // 2 + high + margin).astype(int)
        rows = np.arange(max(top, 0), min(bottom + 1, height))
        cols = np.arange(max(left, 0), min(right + 1, width))
        if not len(rows) or not len(cols):
            continue
        y, x = np.meshgrid(
            (rows - height / 2 + 0.5) / focal, (cols - width / 2 + 0.5) / focal, indexing="ij"
        )
        rays = np.stack([x.ravel(), y.ravel(), np.ones(x.size)], axis=1)
        if solid.axes is None:
            hit = _capsule_hit(rays, solid)
        else:
            hit = _sphere_hit(rays @ solid.axes.T, solid.axes @ solid.start, 1.0)
        box = np.s_[rows[0] : rows[-1] + 1, cols[0] : cols[-1] + 1]
        hit = hit.reshape(x.shape)
        nearer = hit < depth[box]
        depth[box][nearer] = hit[nearer]
        parts[box][nearer] = solid.part
    return DepthImage(depth.astype(np.float32), parts)


@dataclass(frozen=True)
class DepthFigures:
    """An endless stream of depth images of random figures, and their pixels as rows of features.

    Parameters
    ----------
    seed
        Fixes the pool of offset pairs, every pose and every draw of pixels.
    height, width
        Size of the images in pixels. The paper's are 480 by 640.
    n_pairs
        Size of the pool of offset pairs, hence the number of features.
    spread
        Standard deviation of an offset, in metres at the depth of the pixel: the paper's Gaussian.
    """

    seed: int = 0
    height: int = 240
    width: int = 320
    n_pairs: int = 4000
    spread: float = 0.25
    pairs: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, low in (("height", 16), ("width", 16), ("n_pairs", 1), ("seed", 0)):
            value = getattr(self, name)
            if value < low:
                raise ParameterError(f"{name}={value!r}: give a whole number of at least {low}")
        if not (np.isfinite(self.spread) and self.spread > 0):
            raise ParameterError(f"spread={self.spread!r}: give a finite number above 0 (metres)")
        rng = np.random.default_rng([self.seed, _STREAM_POOL])
        object.__setattr__(self, "pairs", rng.normal(0.0, self.spread, (self.n_pairs, 2, 2)))

    def image(self, index: int, *, test: bool = False) -> DepthImage:
        """The image of pose `index`; the poses for testing are a stream of their own."""
        stream = _STREAM_TEST if test else _STREAM_TRAIN
        rng = np.random.default_rng([self.seed, stream, index])
        return render(random_figure(rng), self.height, self.width)

    def features(self, image: DepthImage, rows: Ints, cols: Ints) -> Floats:
        """Depth differences of the pool's offset pairs at the given pixels, one row a pixel.

        An offset of u metres lies focal·u/depth pixels away, as in Shotton et al. 2011, eq. 1.
        """
        focal = np.float32(_FOCAL * image.depth.shape[0])
        height, width = image.depth.shape
        framed = np.full((height + 2, width + 2), np.float32(FAR))
        framed[1:-1, 1:-1] = image.depth
        flat = framed.ravel()
        shift = focal / image.depth[rows, cols]
        # Pixel r of the image is row r + 1 of the frame; the half rounds to the nearest.
        at_row, at_col = (rows + 1.5).astype(np.float32), (cols + 1.5).astype(np.float32)
        pool = self.pairs.astype(np.float32)
        values = np.empty((len(rows), self.n_pairs))
        for start in range(0, len(rows), _CHUNK):  # small enough to stay in the cache
            part = slice(start, start + _CHUNK)
            probes = []
            for end in (0, 1):
                r = shift[part, None] * pool[:, end, 1] + at_row[part, None]
                c = shift[part, None] * pool[:, end, 0] + at_col[part, None]
                place = np.clip(r, 0, height + 1).astype(np.int32) * np.int32(width + 2)
                place += np.clip(c, 0, width + 1).astype(np.int32)
                probes.append(flat[place])
            np.subtract(probes[0], probes[1], out=values[part])
        return values

    def training_pixels(self, index: int, per_part: int = 50) -> tuple[Floats, Ints]:
        """Up to `per_part` pixels of each class of pose `index`, without replacement, shuffled."""
        image = self.image(index)
        rng = np.random.default_rng([self.seed, _STREAM_PIXELS, index])
        flat = image.parts.ravel()
        chosen = [
            rng.choice(where, min(per_part, len(where)), replace=False)
            for where in (np.flatnonzero(flat == part) for part in range(len(PARTS)))
        ]
        pixels = rng.permutation(np.concatenate(chosen))
        rows, cols = np.divmod(pixels, self.width)
        return self.features(image, rows, cols), flat[pixels].astype(np.int64)

    def test_pixels(
        self, n_poses: int, per_pose: int | None = None
    ) -> Iterator[tuple[Floats, Ints]]:
        """Pixels of the figure (no background) of test poses 0 … n_poses - 1, one pose at a time.

        `per_pose` takes a random sample of that many, None all of them as in the paper.
        """
        for index in range(n_poses):
            image = self.image(index, test=True)
            pixels = np.flatnonzero(image.parts.ravel())
            if per_pose is not None and per_pose < len(pixels):
                rng = np.random.default_rng([self.seed, _STREAM_PIXELS, index, 1])
                pixels = np.sort(rng.choice(pixels, per_pose, replace=False))
            rows, cols = np.divmod(pixels, self.width)
            yield self.features(image, rows, cols), image.parts.ravel()[pixels].astype(np.int64)

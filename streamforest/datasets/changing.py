"""Generated streams that change all the time, abruptly, or back to what they were.

What a model has learned on them is wrong soon: by steady movement, since something else changes places with
it, or since it comes back. They follow the ideas of the artificial streams of Losing, Hammer and Wersing
(ICDM 2016), drawn anew here; all are functions of their seed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamforest.datasets.stream import Stream
from streamforest.errors import DatasetError

_SQUARES = 4
_HORIZON = 120  # events after which a square reaches the place where its neighbour stood
_TURNS_BACK = 1_200  # events until the row of squares changes direction
_BOARD = 4  # squares a side
_OWNERS = 4
_SWAP_EVERY = 400
_TURN = 2 * np.pi / 8_000  # of the board, an event
_BLOBS = 15
_INTERCHANGE_EVERY = 1_000


def moving_squares(n: int = 10_000, seed: int = 0) -> Stream:
    """Four squares in a row, a class each, that move along the row and back.

    No rule that knows where they are is ever wrong. A square reaches the place where its neighbour stood
    after 120 events, so that who remembers more than these answers with the neighbour's class.

    >>> s = moving_squares(1_000, seed=1)
    >>> s.X.shape, sorted(s.classes)
    ((1000, 2), [0, 1, 2, 3])
    """
    _demand_rows("moving-squares", n)
    rng = np.random.default_rng(seed)
    y = rng.integers(0, _SQUARES, n)
    phase = np.arange(n) % (2 * _TURNS_BACK)
    along = np.minimum(phase, 2 * _TURNS_BACK - phase) / _HORIZON
    X = rng.random((n, 2))
    X[:, 0] += 2.0 * y + along
    turns = tuple(range(_TURNS_BACK, n, _TURNS_BACK))
    return Stream("moving-squares", X, y, ("along", "across"), seed=seed, drifts=turns)


def rotating_board(n: int = 10_000, seed: int = 0) -> Stream:
    """A board of 4×4 squares that turns once in 8,000 events; every 400 events two squares change owners.

    A square's owner is the class of the points on it. Every fourth change takes back the last three, so
    that what was true comes back.

    >>> s = rotating_board(1_000, seed=1)
    >>> s.X.shape, len(s.classes), s.drifts
    ((1000, 2), 4, (400, 800))
    """
    _demand_rows("rotating-board", n)
    rng = np.random.default_rng(seed)
    owner = np.arange(_BOARD * _BOARD) % _OWNERS
    rng.shuffle(owner)
    points = rng.uniform(-1.0, 1.0, (n, 2))
    angle = _TURN * np.arange(n)
    cosine, sine = np.cos(angle), np.sin(angle)
    cell = np.minimum((points + 1.0) / 2.0 * _BOARD, _BOARD - 1).astype(np.int64)
    square = cell[:, 0] * _BOARD + cell[:, 1]
    y = np.empty(n, np.int64)
    kept = owner.copy()
    for number, start in enumerate(range(0, n, _SWAP_EVERY)):
        if number % 4 == 0:
            owner = kept.copy()
        else:
            _swap_owners(owner, rng)
        rows = slice(start, start + _SWAP_EVERY)
        y[rows] = owner[square[rows]]
    X = np.stack(
        [cosine * points[:, 0] - sine * points[:, 1], sine * points[:, 0] + cosine * points[:, 1]],
        axis=1,
    )
    changes = tuple(range(_SWAP_EVERY, n, _SWAP_EVERY))
    return Stream("rotating-board", X, y, ("x", "y"), seed=seed, drifts=changes)


def _swap_owners(owner: NDArray[np.int64], rng: np.random.Generator) -> None:
    """Two squares of different owners, drawn at random, change owners."""
    a = int(rng.integers(0, len(owner)))
    b = int(rng.choice(np.flatnonzero(owner != owner[a])))
    owner[a], owner[b] = owner[b], owner[a]


def interchanging_blobs(n: int = 20_000, seed: int = 0) -> Stream:
    """Fifteen Gaussian classes in the plane; every 1,000 events some change places, each time one more.

    >>> s = interchanging_blobs(2_500, seed=1)
    >>> s.X.shape, len(s.classes), s.drifts
    ((2500, 2), 15, (1000, 2000))
    """
    _demand_rows("interchanging-blobs", n)
    rng = np.random.default_rng(seed)
    columns = np.arange(_BLOBS) % 4
    centre = np.stack([columns, np.arange(_BLOBS) // 4], axis=1) * 2.0
    centre += rng.uniform(-0.4, 0.4, centre.shape)
    shape = rng.normal(0.0, 0.3, (_BLOBS, 2, 2))
    place = np.arange(_BLOBS)  # of each class
    y = rng.integers(0, _BLOBS, n)
    X = np.empty((n, 2))
    noise = rng.normal(size=(n, 2))
    for number, start in enumerate(range(0, n, _INTERCHANGE_EVERY)):
        if number:
            moving = rng.permutation(_BLOBS)[: min(number + 1, _BLOBS)]
            place[moving] = place[np.roll(moving, 1)]
        rows = slice(start, start + _INTERCHANGE_EVERY)
        there = place[y[rows]]
        X[rows] = centre[there] + np.einsum("rij,rj->ri", shape[there], noise[rows])
    changes = tuple(range(_INTERCHANGE_EVERY, n, _INTERCHANGE_EVERY))
    return Stream("interchanging-blobs", X, y, ("x", "y"), seed=seed, drifts=changes)


def _demand_rows(name: str, n: int) -> None:
    if n < 1:
        raise DatasetError(f"{name}: n is {n}; ask for at least 1 row")

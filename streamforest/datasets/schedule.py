"""Class schedules: an order of rows in which classes appear over time.

A recorded set has all its classes from the start; the streams this package is made for do not. A
schedule opens `first` classes at event 0 and another one every `every` events, and puts the rows in
an order that respects it. It is a pure function of the labels and its arguments: the same rows in
the same order on every machine, in the benchmark, in a pipeline and in a replay.

How rows are placed. Rows of open classes come in their recorded order. When a class opens, its rows
held back until then are spread evenly over all that is left, and those recorded later stay where
they were. So no row is lost, a new class comes mixed with the old ones instead of in a burst, each
class keeps its own order, and every class lasts to about the end of the stream. Only where the open
classes run out of rows does the next class open early, since time is counted in events.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.datasets.stream import Label, Stream
from streamforest.errors import ConfigError

Order = str | Sequence[Label]
"""`"recorded"`, `"random"`, or a list of labels."""


def class_order(y: NDArray[Any], order: Order = "recorded", seed: int = 0) -> list[Label]:
    """The classes in the order in which a schedule opens them.

    `"recorded"`: as they first appear in `y`. `"random"`: shuffled with `seed`. A list: as listed;
    classes it leaves out follow as recorded.

    >>> y = np.array(["b", "a", "b", "c"])
    >>> class_order(y), class_order(y, ["c"])
    (['b', 'a', 'c'], ['c', 'b', 'a'])
    """
    values, first_seen = np.unique(y, return_index=True)
    recorded: list[Label] = values[np.argsort(first_seen)].tolist()
    if isinstance(order, str):
        if order == "recorded":
            return recorded
        if order == "random":
            shuffled = np.random.default_rng(seed).permutation(len(recorded))
            return [recorded[i] for i in shuffled]
        raise ConfigError(
            f"order is {order!r}; give 'recorded', 'random' or a list of the stream's labels"
        )
    listed = list(order)
    if len(set(listed)) != len(listed):
        raise ConfigError(f"order lists a label twice: {listed}; list every label once")
    known = set(recorded)
    if unknown := [label for label in listed if label not in known]:
        raise ConfigError(
            f"order lists {unknown}, labels the stream does not have; it has {recorded}"
        )
    chosen = set(listed)
    return listed + [label for label in recorded if label not in chosen]


def schedule_rows(
    y: NDArray[Any],
    order: Order = "recorded",
    first: int = 2,
    every: int = 400,
    seed: int = 0,
) -> NDArray[np.int64]:
    """Indices of all rows of `y`, in an order in which classes appear over time.

    Parameters
    ----------
    y
        The labels in their recorded order.
    order
        Which class opens next; see `class_order`.
    first
        Classes open from event 0 on.
    every
        Events between one opening and the next.
    seed
        For `order="random"`.

    Examples
    --------
    >>> y = np.array(["a", "b", "a", "b", "a", "b"])
    >>> rows = schedule_rows(y, first=1, every=2)
    >>> rows.tolist(), y[rows].tolist()
    ([0, 2, 1, 3, 4, 5], ['a', 'a', 'b', 'b', 'a', 'b'])
    """
    if first < 1:
        raise ConfigError(f"first is {first}; at least 1 class must be open from the start")
    if every < 1:
        raise ConfigError(f"every is {every}; at least 1 event must pass between two openings")
    n = len(y)
    waiting = [np.flatnonzero(y == label) for label in class_order(y, order, seed)]
    waiting.reverse()
    # Rows come in the order of their place on a time line. Heap of (place of a class' next row,
    # number of the class, how many of its rows came already).
    heap: list[tuple[float, int, int]] = []
    opened: list[tuple[list[int], list[float]]] = []
    now, end = 0.0, float(n)
    result = np.empty(n, dtype=np.int64)
    for event in range(n):
        due = first + event // every
        while waiting and (len(opened) < due or not heap):
            if not heap and opened:
                end = now + n  # all open classes ran out: a time line of the same length follows
            rows = waiting.pop()
            places = _places(rows, now, end)
            heapq.heappush(heap, (places[0], len(opened), 0))
            opened.append((rows.tolist(), places))
        now, number, index = heap[0]
        rows_of_class, places = opened[number]
        result[event] = rows_of_class[index]
        if index + 1 < len(places):
            heapq.heapreplace(heap, (places[index + 1], number, index + 1))
        else:
            heapq.heappop(heap)
    return result


def _places(rows: NDArray[np.int64], now: float, end: float) -> list[float]:
    """Where the rows of a class that opens `now` stand on the time line, in ascending order."""
    places = rows.astype(np.float64)
    held_back = int(np.searchsorted(places, now))
    places[:held_back] = now + (end - now) * np.arange(held_back) / max(held_back, 1)
    places.sort()
    return [float(place) for place in places]


def schedule(
    stream: Stream,
    order: Order = "recorded",
    first: int = 2,
    every: int = 400,
    seed: int = 0,
) -> Stream:
    """The stream with its rows in the order of a class schedule; see `schedule_rows`."""
    return stream.take(schedule_rows(stream.y, order, first, every, seed))

"""Quantiles of durations in constant memory.

A histogram over logarithmic buckets: 32 to a factor of ten, from 1 µs to 1,000 s, so a quantile is
within 4 % of the true one however long the stream runs. A reservoir would lose the rare slow call,
which is the one that p99 is asked for.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

from streamforest.jsonable import count, rows

_PER_DECADE = 32
_LOWEST = 1e-6
_DECADES = 9
_BUCKETS = _PER_DECADE * _DECADES


class LatencyHistogram:
    """Counts of durations by logarithmic bucket.

    >>> h = LatencyHistogram()
    >>> for ms in range(1, 101):
    ...     h.add(ms / 1000)
    >>> round(h.quantile(0.5), 2), round(h.quantile(0.99), 1)
    (0.05, 0.1)
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * _BUCKETS
        self.total = 0

    def add(self, seconds: float, weight: int = 1) -> None:
        """Count a duration, `weight` times; what lies outside the range goes to its end."""
        place = int(_PER_DECADE * math.log10(max(seconds, _LOWEST) / _LOWEST))
        self.counts[min(place, _BUCKETS - 1)] += weight
        self.total += weight

    def quantile(self, q: float) -> float:
        """The duration below which a share `q` of all counted ones lies; 0.0 before the first."""
        if not self.total:
            return 0.0
        wanted = max(1, math.ceil(q * self.total))
        place = next(p for p, below in enumerate(accumulate(self.counts)) if below >= wanted)
        return float(_LOWEST * 10 ** ((place + 0.5) / _PER_DECADE))

    def state(self) -> list[list[int]]:
        """The filled buckets, as pairs of bucket and count."""
        return [[place, count] for place, count in enumerate(self.counts) if count]

    @classmethod
    def from_state(cls, state: Any) -> LatencyHistogram:
        """The histogram that `state()` described; ValueError if it describes none."""
        histogram = cls()
        for place, durations in rows(state, "buckets", 2):
            place = count(place, "a bucket", _BUCKETS - 1)
            histogram.counts[place] = count(durations, "durations")
        histogram.total = sum(histogram.counts)
        return histogram

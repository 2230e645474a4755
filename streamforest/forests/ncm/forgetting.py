"""When an NCM forest lets go of old rows: what is no longer true leaves memory, trees and class means.

At the end of an epoch some of its rows are answered again, by neighbours among the newest rows and among
all of the last 4,096 (`kernels/ncm/windows.py`). Only rows on which a window and the whole disagree count,
and they fade. When a window has won so many more of them than it has lost that chance hardly explains it,
all rows before it go, but for the newest of each class: a class that pauses is not forgotten. Where nothing
changes, more rows are better and none goes: none did on any of the stationary benchmark streams.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamforest.forests.core.engine import EPOCH
from streamforest.forests.core.serialization import demand
from streamforest.forests.ncm.column_scales import ColumnTable, Take
from streamforest.forests.ncm.row_memory import Evicted, RowMemory
from streamforest.kernels.ncm.windows import LONGEST, LOST, WINDOWS, WON, judge_windows

_COMPARED = 32_768  # pairs of rows in an epoch: where the memory is large, fewer rows are answered
_FADE = 0.9  # of what was won and lost, an epoch
_SURE = 4.0  # standard deviations that a window must be ahead
_SURE_AGAIN = 2.0  # the same where rows have gone lately: what has changed once goes on changing
_LATELY = 1_024  # events
_KEPT_OF_CLASS = 16  # rows, however old
_ROUNDING = 1 + 1e-9


class Forgetting:
    """What each window has won and lost against the whole memory, and which one is to be kept."""

    def __init__(self) -> None:
        self.tally = np.zeros((len(WINDOWS), 2))
        self.quiet = _LATELY  # events since rows have gone, as far as they matter
        self.times = 0  # that rows have gone

    def forget(
        self, memory: RowMemory, columns: ColumnTable, events: int, learned: int
    ) -> Evicted | None:
        """Remove rows from memory that are no longer true; `events` have just been learned."""
        window = self._window(memory, columns, events)
        if window is None:
            return None
        gone = memory.forget_before(learned - window, _KEPT_OF_CLASS, learned)
        self.tally[:] = 0.0  # against other rows from now on
        if gone is not None:
            self.quiet = 0
            self.times += 1
        return gone

    def _window(self, memory: RowMemory, columns: ColumnTable, events: int) -> int | None:
        """Rows back that are still true, where older ones are not."""
        slots = memory.slots
        answered = max(1, min(events, _COMPARED // max(1, min(len(slots), LONGEST))))
        fresh = np.zeros(self.tally.shape, np.int64)
        judge_windows(
            memory.arrays,
            slots,
            columns.arrays.fill,
            columns.arrays.scales,
            max(0, len(slots) - events),
            max(1, events // answered),
            fresh,
        )
        self.tally *= _FADE
        self.tally += fresh
        sure = _SURE if self.quiet >= _LATELY else _SURE_AGAIN
        self.quiet = min(self.quiet + events, _LATELY)
        won, lost = self.tally[:, WON], self.tally[:, LOST]
        lead = won - lost
        lead[lead <= sure * np.sqrt(won + lost)] = 0.0
        best = int(np.argmax(lead))
        return int(WINDOWS[best]) if lead[best] > 0 else None

    # ---- snapshots

    def dump(self) -> dict[str, NDArray[Any]]:
        """The arrays of a snapshot."""
        return {
            "forgetting.tally": self.tally.flatten(),
            "forgetting.counters": np.array([self.quiet, self.times]),
        }

    def restore(self, take: Take, learned: int) -> None:
        """The same back."""
        tally = take("forgetting.tally", np.float64, self.tally.size)
        demand((tally >= 0) & (tally <= EPOCH / (1 - _FADE) * _ROUNDING), "forgetting.tally")
        quiet, times = take("forgetting.counters", np.int64, 2).tolist()
        demand(0 <= quiet <= _LATELY and 0 <= times <= learned, "forgetting.counters")
        self.tally[:] = tally.reshape(self.tally.shape)
        self.quiet, self.times = quiet, times

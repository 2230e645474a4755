"""Stream time: what the records say, never what this machine's clock says.

It is the highest record timestamp so far, in the journal's order, with one exception: a record that is far
ahead of all others (a producer whose clock is wrong, the year 9999) does not move it. If many in a row are
ahead, the stream has really gone on, after a pause perhaps, and time goes to the middle one of them. Records
from far behind (1970) neither move it nor count.
"""

from __future__ import annotations

from typing import Any

IN_A_ROW = 50


class StreamClock:
    """Milliseconds since 1970, as far as the stream has come; None until it is sure.

    >>> clock = StreamClock(step_ms=1_000)
    >>> for at in range(5_000, 5_000 + IN_A_ROW):
    ...     _ = clock.move(at)
    >>> clock.now
    5025
    >>> _ = clock.move(5_500), clock.move(253_402_300_799_000), clock.move(5_400)
    >>> clock.now
    5500
    """

    def __init__(self, step_ms: int) -> None:
        self.step_ms = step_ms
        self.now: int | None = None
        self._ahead: list[int] = []

    @property
    def stamp(self) -> int | None:
        """The time of what is taken now; None while records run ahead and nobody knows yet."""
        return None if self._ahead else self.now

    def peek(self, timestamp: int) -> int | None:
        """What the time would be after a record, unless it turns out to be ahead."""
        if self.now is None or timestamp < 0 or self._is_ahead(timestamp):
            return self.now
        return max(self.now, timestamp)

    def _is_ahead(self, timestamp: int) -> bool:
        return self.now is None or timestamp > self.now + self.step_ms

    def move(self, timestamp: int) -> int | None:
        """Take a record's timestamp (negative: it has none). If the time of what was taken without a
        stamp is known now, that time.
        """
        now = self.now
        if timestamp < 0 or (now is not None and timestamp < now - self.step_ms):
            return None
        if now is not None and not self._is_ahead(timestamp):
            was, self._ahead = self._ahead, []
            self.now = max(now, timestamp)
            return now if was else None
        self._ahead.append(timestamp)
        if len(self._ahead) < IN_A_ROW:
            return None
        self.now, self._ahead = sorted(self._ahead)[IN_A_ROW // 2], []
        return self.now

    def state(self) -> list[Any]:
        """Plain data for a snapshot."""
        return [self.now, list(self._ahead)]

    def restore(self, state: Any) -> None:
        """Take up what `state()` gave; TypeError or ValueError if it is none."""
        now, ahead = state
        self.now = None if now is None else int(now)
        self._ahead = [int(timestamp) for timestamp in ahead]
        if len(self._ahead) >= IN_A_ROW:
            raise ValueError(f"{len(self._ahead)} records ahead")

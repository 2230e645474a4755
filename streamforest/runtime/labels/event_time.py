"""Stream time: the time of the records, never of this machine's clock.

It is the highest record timestamp so far, in the journal's order, with two exceptions.

- A record far ahead of the time (a producer with a wrong clock, the year 9999) does not move it. If 50 in a
  row are far ahead, the stream has gone on, perhaps after a pause: the time becomes that of the middle one.
- If 50 records in a row are far behind, the time itself was wrong: it goes back to that of the middle one.

When the time goes back, nothing has become younger; when it soon returns to where it was, nothing has become
older. `shift` says by how much the times of all entries have to move, so that their age stays the same.
"""

from __future__ import annotations

from typing import Any

from streamforest.jsonable import rows, time_of

IN_A_ROW = 50


class StreamClock:
    """Stream time in milliseconds since 1970; None until 50 records have said what it is.

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
        self.shift = 0
        """By how much the last record has moved the time without time having passed."""
        self._ahead: list[int] = []
        self._behind: list[int] = []
        self._left: int | None = None  # the time from which it went back, and to where
        self._back = 0

    @property
    def stamp(self) -> int | None:
        """The time of an entry that is added now; None while records are far ahead and it is not known."""
        return None if self._ahead else self.now

    def peek(self, timestamp: int) -> int | None:
        """What the time would be after a record; one far ahead would not move it."""
        if self.now is None or timestamp < 0 or self._is_ahead(timestamp):
            return self.now
        return max(self.now, timestamp)

    def _is_ahead(self, timestamp: int) -> bool:
        return self.now is None or timestamp > self.now + self.step_ms

    def move(self, timestamp: int) -> int | None:
        """A record was taken; a negative timestamp means that it has none. Returns the time of the entries
        that were added while it was not known, if it is known now.
        """
        now, self.shift = self.now, 0
        if timestamp < 0:
            return None
        if now is None or self._is_ahead(timestamp):
            self._behind = []
            self._ahead.append(timestamp)
            return self._jump(self._ahead) if len(self._ahead) == IN_A_ROW else None
        if timestamp < now - self.step_ms:
            self._behind.append(timestamp)
            return self._jump(self._behind) if len(self._behind) == IN_A_ROW else None
        was, self._ahead, self._behind = self._ahead, [], []
        self.now = max(now, timestamp)
        if self._left is not None and self.now > self._back + self.step_ms:
            self._left = None  # the stream has gone on from here: the time is right
        return now if was else None

    def _jump(self, row: list[int]) -> int:
        """Go to the middle of so many records in a row."""
        then, now = self.now, sorted(row)[IN_A_ROW // 2]
        self.now, self._ahead, self._behind = now, [], []
        if then is not None and now < then:
            self.shift = now - then
            self._left = then if self._left is None else max(self._left, then)
            self._back = now
        elif then is not None and self._left is not None:
            self.shift = min(now, self._left) - then
            self._left = self._left if now < self._left else None
        return now

    def state(self) -> list[Any]:
        """Plain data for a snapshot; two values where no record is far behind, as in older snapshots."""
        state: list[Any] = [self.now, list(self._ahead)]
        if self._behind or self._left is not None:
            back = None if self._left is None else [self._left, self._back]
            state += [list(self._behind), back]
        return state

    def restore(self, state: Any) -> None:
        """Restore what `state()` returned; TypeError or ValueError if it is damaged."""
        now, ahead, behind, back = state if len(state) == 4 else (*state, [], None)
        self.now = None if now is None else time_of(now, "now")
        self._ahead = [time_of(timestamp, "ahead") for timestamp in rows(ahead, "ahead")]
        self._behind = [time_of(timestamp, "behind") for timestamp in rows(behind, "behind")]
        if back is not None:
            self._left, self._back = (time_of(timestamp, "back") for timestamp in back)
        for row in (self._ahead, self._behind):
            if len(row) >= IN_A_ROW:
                raise ValueError(f"{len(row)} records in a row")
        if self.now is None and (self._behind or back is not None):
            raise ValueError("records behind a time that is not known")

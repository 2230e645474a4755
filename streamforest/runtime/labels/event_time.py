"""Stream time: what the records say, never what this machine's clock says.

It is the highest record timestamp so far, in the journal's order, with one exception: a record that is far
ahead of all others (a producer whose clock is wrong, the year 9999) does not move it. If many in a row are
ahead, the stream has really gone on, after a pause perhaps, and time goes to the middle one of them. Nor does
a record from far behind (1970) move it, unless as many in a row are: then it was the time that was wrong, and
it comes back to the middle one of those. Coming back is not time that passes, nor is returning soon after to
where it was: `shift` says by how much all that is stamped has to move along, so that its age stays.
"""

from __future__ import annotations

from typing import Any

from streamforest.jsonable import rows, time_of

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
        self.shift = 0
        """What the last record has moved the time by without any having passed."""
        self._ahead: list[int] = []
        self._behind: list[int] = []
        self._left: int | None = None  # the time that it came back from, and where to
        self._back = 0

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
            self._left = None  # it has gone on from here: this is the time
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
        """Plain data for a snapshot; short, as it always was, while nothing is behind."""
        told: list[Any] = [self.now, list(self._ahead)]
        if self._behind or self._left is not None:
            back = None if self._left is None else [self._left, self._back]
            told += [list(self._behind), back]
        return told

    def restore(self, state: Any) -> None:
        """Take up what `state()` gave; TypeError or ValueError if it is none."""
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
            raise ValueError("behind what?")

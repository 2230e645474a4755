"""What became of the rows: how many were read, learned, only predicted or refused, and why.

The counts are part of a run's state, so they are a function of the records alone: a run that was killed five
times ends with those of an undisturbed run. One example is kept for each reason of a refusal.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

from streamforest.jsonable import count, rows
from streamforest.observe.telemetry import EventRefused, RowsRead, TelemetryEvent
from streamforest.text import printable

MAX_REASONS = 100
_MAX_TEXT = 300  # characters of an example's place and of its message
WARNING_SHARE = 0.01
"""Dead letters above this share of the events are a warning."""
FAILED_SHARE = 0.5
"""A finite run with a larger share of dead letters has failed."""


@dataclass
class Refused:
    """The dead letters of one reason: how many, and where and why the first one was."""

    count: int
    place: str
    message: str


@dataclass(frozen=True)
class Summary:
    """What became of all events up to now; the parts add up to `read`."""

    read: int
    learned: int
    predicted_only: int
    waiting: int
    dead_letters: int

    @property
    def dead_letter_share(self) -> float:
        """Dead letters as a share of the events; 0 before the first event."""
        return self.dead_letters / self.read if self.read else 0.0

    def __add__(self, other: Summary) -> Summary:
        return Summary(*map(operator.add, astuple(self), astuple(other)))

    def parts(self) -> dict[str, int]:
        """Each part by name, without `read`."""
        return {
            "learned": self.learned,
            "predicted_only": self.predicted_only,
            "waiting": self.waiting,
            "dead_letters": self.dead_letters,
        }


class RowCounts:
    """Counts rows as a listener, replayed ones too.

    >>> counts = RowCounts()
    >>> counts.on_event(RowsRead(records=5, labels=0, predicted=4, learned=3, not_admitted=0, waiting=0))
    >>> counts.on_event(EventRefused("label", "a.csv, row 4", "NaN is not a label"))
    >>> counts.summary()
    Summary(read=5, learned=3, predicted_only=1, waiting=0, dead_letters=1)
    """

    __slots__ = ("labels", "learned", "not_admitted", "predicted", "refused", "waiting")

    def __init__(self) -> None:
        self.predicted = 0
        self.learned = 0
        self.not_admitted = 0
        self.labels = 0
        self.waiting = 0
        """Events whose label may still come; not part of `state`, which has them in its label store."""
        self.refused: dict[str, Refused] = {}

    def on_event(self, event: TelemetryEvent) -> None:
        """Count the rows of a poll, or a dead letter."""
        if isinstance(event, RowsRead):
            self.predicted += event.predicted
            self.learned += event.learned
            self.not_admitted += event.not_admitted
            self.labels += event.labels
            self.waiting = event.waiting
        elif isinstance(event, EventRefused):
            known = self.refused.get(event.reason)
            if known is not None:
                known.count += 1
            elif len(self.refused) < MAX_REASONS:
                place, message = (
                    printable(event.place, _MAX_TEXT),
                    printable(event.message, _MAX_TEXT),
                )
                self.refused[event.reason] = Refused(1, place, message)

    def summary(self) -> Summary:
        """The counts so far."""
        dead_letters = sum(refused.count for refused in self.refused.values())
        return Summary(
            read=self.predicted + dead_letters,
            learned=self.learned,
            predicted_only=self.predicted - self.learned - self.waiting,
            waiting=self.waiting,
            dead_letters=dead_letters,
        )

    def state(self) -> dict[str, Any]:
        """Plain data for a snapshot; reasons in the order first seen."""
        return {
            "predicted": self.predicted,
            "learned": self.learned,
            "not_admitted": self.not_admitted,
            "labels": self.labels,
            "refused": [
                [reason, refused.count, refused.place, refused.message]
                for reason, refused in self.refused.items()
            ],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], waiting: int = 0) -> RowCounts:
        """The counts that `state()` described; ValueError, TypeError or KeyError if it is none."""
        counts = cls()
        for name in ("predicted", "learned", "not_admitted", "labels"):
            setattr(counts, name, count(state[name], name))
        counts.waiting = waiting
        for reason, number, place, message in rows(state["refused"], "refused", 4):
            if not all(type(text) is str for text in (reason, place, message)):
                raise ValueError("a dead letter's reason, place and message are text")
            if reason in counts.refused or len(counts.refused) >= MAX_REASONS:
                raise ValueError(f"reason {reason!r:.60} twice, or over {MAX_REASONS} of them")
            place, message = printable(place, _MAX_TEXT + 1), printable(message, _MAX_TEXT + 1)
            counts.refused[reason] = Refused(count(number, "dead letters"), place, message)
        if counts.learned + counts.waiting > counts.predicted:
            raise ValueError(f"{counts.learned} of {counts.predicted} rows are learned")
        return counts

    @classmethod
    def unknown(cls, events: int, learned: int, waiting: int = 0) -> RowCounts:
        """Of a snapshot that has none: its dead letters are not known, and count as predicted."""
        counts = cls()
        counts.predicted = max(events, learned + waiting)
        counts.learned, counts.waiting = learned, waiting
        return counts

"""Labels that come later than their events, or earlier: who waits for whom, for how long.

An event without a label is predicted at once and waits here, with its features and with what each model
said of it. When its label comes, by `id`, the model learns from the event as it was, and the label is
held against the prediction made at the time. A label may also come before its event.

Each label ends as one of these, and each event that waits as matched or expired:

    matched     met its event (an early one: when the event came)
    duplicate   a second label for an id: counted and ignored
    unmatched   no event came in time, or the event had expired
    early       came before its event; it is held, and will be matched, unmatched or refused
    refused     was held and could not be learned when its event came: a dead letter
    expired     an event that waited too long, or was pushed out by newer ones

Everything is bounded, by number and in bytes, ids included, and the oldest goes first. Beyond its bytes the
store forgets ids that are done with and gives up early labels while either takes over a quarter of them, and
lets events expire from there on: neither kind can push the others out. Time is stream time (`event_time.py`):
what is matched and what expires is a function of the records in the journal's order, so that recovery
comes to the very same end. All of it is part of the snapshot.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import ValuesView
from dataclasses import dataclass, field
from typing import Any

import msgspec

from streamforest.errors import SnapshotError
from streamforest.jsonable import LARGEST_OFFSET, count, rows, scalar, time_of
from streamforest.observe.telemetry import LabelStatus
from streamforest.runtime.labels.entries import Held, Kept, Known, Place, Said, Waiting
from streamforest.runtime.labels.event_time import StreamClock

MATCHED, EARLY, EXPIRED = "matched", "early", "expired"
DUPLICATE, UNMATCHED, REFUSED = "duplicate", "unmatched", "refused"
OUTCOMES = (MATCHED, EARLY, EXPIRED, DUPLICATE, UNMATCHED, REFUSED)
AT_ONCE, NEVER = "at_once", "never"
"""Events that brought their label along, and those that cannot wait for one: without an id, or with one
that another event has."""
_COUNTS = (*OUTCOMES, AT_ONCE, NEVER)


@dataclass(frozen=True)
class LateRules:
    """Bounds of the store: how long, how many, how much."""

    wait_ms: int = 86_400_000
    max_events: int = 100_000
    max_bytes: int = 64 << 20
    max_early: int = 10_000
    clock_step_ms: int = 3_600_000

    @property
    def max_ids(self) -> int:
        """Ids remembered after they were matched or have expired, to tell a second label apart."""
        return 2 * self.max_events

    def told(self) -> str:
        """In a few words, for the journal: events and labels are matched by these."""
        return (
            f"labels wait={self.wait_ms} events={self.max_events} bytes={self.max_bytes} ids too "
            f"early={self.max_early} step={self.clock_step_ms}"
        )


class LabelStore:
    """Events that wait for labels and labels that wait for events, by id, the oldest first."""

    def __init__(self, rules: LateRules) -> None:
        self.rules = rules
        self.clock = StreamClock(rules.clock_step_ms)
        self.waiting: Kept[Waiting] = Kept()
        self.early: Kept[Held] = Kept()
        self.known: Kept[Known] = Kept()
        self.counts: Counter[str] = Counter(dict.fromkeys(_COUNTS, 0))

    @property
    def bytes(self) -> int:
        """What everything in it is counted with."""
        return self.waiting.bytes + self.early.bytes + self.known.bytes

    # ---- looking things up, as of the time a record would make it

    def event_of(self, identity: Any, timestamp: int) -> Waiting | None:
        """The event that waits for this label."""
        found = self.waiting.get(identity)
        return None if found is None or self._over(found.since, timestamp) else found

    def label_of(self, identity: Any, timestamp: int) -> Held | None:
        """The label that waits for this event."""
        found = self.early.get(identity)
        return None if found is None or self._over(found.since, timestamp) else found

    def _over(self, since: int | None, timestamp: int) -> bool:
        return self._is_over(since, self.clock.peek(timestamp))

    def _is_over(self, since: int | None, now: int | None) -> bool:
        return since is not None and now is not None and since + self.rules.wait_ms < now

    # ---- what a record changes: take out what it meets, let time pass, put in what is new

    def take_event(self, identity: Any) -> None:
        """The event's label has come."""
        self.waiting.take(identity)

    def take_label(self, identity: Any) -> None:
        """The label's event has come."""
        self.early.take(identity)

    def tick(self, timestamp: int) -> None:
        """A record was taken: let time pass, and what has waited too long go."""
        placed = self.clock.move(timestamp)
        if self.clock.shift:
            for kept in (self.waiting, self.early, self.known):
                _shift(kept.values(), self.clock.shift)
        if placed is not None:
            for kept in (self.waiting, self.early, self.known):
                _place(kept.values(), placed)
        now = self.clock.now
        while self.waiting and self._is_over(_first(self.waiting).since, now):
            self._expire()
        while self.early and self._is_over(_first(self.early).since, now):
            self._give_up()
        while self.known and self._is_over(_first(self.known).since, now):
            self.known.take(self.known.oldest())

    def wait(self, identity: Any, x: Any, timestamp: int) -> Waiting | None:
        """Let an event wait for its label; None if it cannot."""
        if identity is None or identity in self.waiting or identity in self.known:
            self._count(NEVER)
            return None
        entry = Waiting(msgspec.msgpack.encode(x), timestamp, self.clock.stamp)
        self.waiting.put(identity, entry)
        while len(self.waiting) > self.rules.max_events:
            self._expire()
        self._fit()
        return entry

    def brought(self, identity: Any) -> None:
        """An event came with its label."""
        self._count(AT_ONCE)
        if identity is None:
            return
        if self.early.take(identity) is not None:
            self._count(DUPLICATE)
        if identity not in self.waiting:
            self._remember(identity, labelled=True)
            self._fit()

    def met(self, identity: Any) -> None:
        """A label and its event have met, whichever came first."""
        self._remember(identity, labelled=True)
        self._fit()
        self._count(MATCHED)

    def refused(self) -> None:
        """A label that was held could not be learned."""
        self._count(REFUSED)

    def hold(self, identity: Any, y: Any, timestamp: int, place: Place) -> None:
        """A label without a waiting event: a second one, one that came too late, or an early one."""
        known = self.known.get(identity)
        if known is not None or identity in self.waiting:
            self._count(DUPLICATE if known is not None and known.labelled else UNMATCHED)
        elif identity in self.early:
            self._count(DUPLICATE)
        else:
            self.early.put(identity, Held(y, timestamp, self.clock.stamp, place))
            self._count(EARLY)
            while len(self.early) > self.rules.max_early:
                self._give_up()
            self._fit()

    def _fit(self) -> None:
        """Keep to the bytes there are."""
        quarter = self.rules.max_bytes // 4
        while self.bytes > self.rules.max_bytes:
            if self.known.bytes > quarter:
                self.known.take(self.known.oldest())
            elif self.early.bytes > quarter:
                self._give_up()
            else:
                self._expire()

    def _expire(self) -> None:
        identity = self.waiting.oldest()
        self.waiting.take(identity)
        self._remember(identity, labelled=False)
        self._count(EXPIRED)

    def _give_up(self) -> None:
        self.early.take(self.early.oldest())
        self._count(UNMATCHED)

    def _remember(self, identity: Any, labelled: bool) -> None:
        self.known.put(identity, Known(labelled, self.clock.stamp))
        while len(self.known) > self.rules.max_ids:
            self.known.take(self.known.oldest())

    def _count(self, outcome: str) -> None:
        self.counts[outcome] += 1

    # ---- what there is to tell

    @property
    def share(self) -> float | None:
        """Share of events that got their label, of those whose waiting is over; None before the first."""
        labelled = self.counts[MATCHED] + self.counts[AT_ONCE]
        decided = labelled + self.counts[EXPIRED] + self.counts[NEVER]
        return labelled / decided if decided else None

    def status(self) -> LabelStatus:
        """What it holds, and how labels have ended so far."""
        waiting, early = len(self.waiting), len(self.early)
        return LabelStatus(dict(self.counts), self.share, waiting, early, self.bytes)

    # ---- snapshots

    def state(self, models: list[str]) -> dict[str, Any]:
        """Plain data, a function of the records alone; `models` in the order of the guesses, each of
        which is written once: a class may have a long name, and be what all events are taken for.
        """
        said = Said()
        return {
            "models": models,
            "clock": self.clock.state(),
            "waiting": [
                [i, base64.b64encode(e.x).decode(), e.at, e.since, [*map(said, e.guesses)]]
                for i, e in self.waiting.items()
            ],
            "said": said.labels,
            "early": [[i, e.y, e.at, e.since, list(e.place)] for i, e in self.early.items()],
            "known": [[i, e.labelled, e.since] for i, e in self.known.items()],
            "counts": {name: self.counts[name] for name in _COUNTS},
        }

    @classmethod
    def from_state(cls, rules: LateRules, state: Any, models: list[str]) -> LabelStore:
        """What `state()` described, with the guesses of these models; SnapshotError if it describes
        nothing.
        """
        store = cls(rules)
        try:
            order = [rows(state["models"], "models").index(name) for name in models]
            store.clock.restore(rows(state["clock"], "clock"))
            listed = state.get("said")  # older snapshots have the guesses themselves
            labels = None if listed is None else [_said(one) for one in rows(listed, "said")]
            for identity, x, at, since, guesses in rows(state["waiting"], "waiting", 5):
                said = [guesses[number] for number in order]
                said = [_said(one) if labels is None else labels[_number(one)] for one in said]
                entry = Waiting(_packed(x), time_of(at, "at"), _time(since), said)
                store.waiting.put(_new(identity, store.waiting), entry)
            for identity, y, at, since, (topic, number, offset) in rows(state["early"], "early", 5):
                partition, at_offset = (count(n, "place", LARGEST_OFFSET) for n in (number, offset))
                place = str(topic), partition, at_offset
                held = Held(scalar(y, "a label"), time_of(at, "at"), _time(since), place)
                store.early.put(_new(identity, store.early), held)
            for identity, labelled, since in rows(state["known"], "known", 3):
                store.known.put(_new(identity, store.known), Known(bool(labelled), _time(since)))
            for name in _COUNTS:
                store.counts[name] = count(state["counts"][name], name)
        except (
            KeyError,
            IndexError,
            TypeError,
            ValueError,
            RecursionError,
            msgspec.MsgspecError,
        ) as error:
            raise SnapshotError(f"its label store cannot be read: {error}") from error
        # bounds that were lowered since: what no longer has a place is let go by the next records
        return store


def _number(guess: Any) -> int:
    if type(guess) is not int or guess < 0:
        raise ValueError(f"a guess with the number {guess!r}")
    return guess


def _first(kept: Kept[Any]) -> Any:
    return kept[kept.oldest()]


def _time(since: Any) -> int | None:
    return None if since is None else time_of(since, "since")


def _new(identity: Any, kept: dict[Any, Any]) -> Any:
    """An id as an event may have one, and no second time: its bytes would be counted twice."""
    if scalar(identity, "an id") in kept:
        raise ValueError(f"id {identity!r:.60} is listed twice")
    return identity


def _said(guess: Any) -> Any:
    return None if guess is None else scalar(guess, "a prediction")


def _packed(text: Any) -> bytes:
    """Features as an event may have them, packed."""
    packed = base64.b64decode(text, validate=True)
    found = msgspec.msgpack.decode(packed)
    values = found.values() if isinstance(found, dict) else rows(found, "features")
    for value in values:
        if not (value is None or isinstance(value, str | int | float)):
            raise ValueError(f"a feature is a {type(value).__name__}")
    return packed


def _place(kept: ValuesView[Any], since: int) -> None:
    """Give those at the end that have no time yet theirs."""
    for one in reversed(kept):  # type: ignore[call-overload]
        if one.since is not None:
            break
        one.since = since


def _shift(kept: ValuesView[Any], by: int) -> None:
    """Keep the age of those that have a time, now that another one is true."""
    for one in kept:
        if one.since is not None:
            one.since += by


Judged = tuple[int, Any, Waiting | None]
"""A row's number (-1: none), its true label, and the event it was predicted with, if that was before."""


@dataclass
class LateBatch:
    """What the labels of a batch have to do with its rows."""

    predicted: list[int] = field(default_factory=list)
    """Rows that are predicted; the others are only learned."""
    asked: list[tuple[int, Waiting]] = field(default_factory=list)
    """Rows whose prediction an event takes along while it waits."""
    judged: list[Judged] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    """Seconds from each event's record to that of its label."""
    labels: int = 0
    """Records that were labels."""

    def settle(self, guesses: list[Any], model: int) -> tuple[list[Any], list[Any]]:
        """True labels, and what was said of each event when it was predicted, in order."""
        for row, entry in self.asked:
            entry.guesses.append(guesses[row])
        truth = [y for _, y, _ in self.judged]
        said = [
            guesses[row] if entry is None else entry.guesses[model] for row, _, entry in self.judged
        ]
        return truth, said

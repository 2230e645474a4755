"""The label store: events that wait for their labels, and labels that wait for their events.

An event without a label is predicted at once and waits here, with its features and the prediction of each
model. When its label comes, by `id`, the models learn from the event as it was, and the label is compared
with the prediction made at the time. A label may also come before its event.

Each label has one of these outcomes, and each event that waits is matched or expires:

    matched     it belongs to a waiting event (an early label: its event has come)
    duplicate   a second label for an id: counted and ignored
    refined     the class of an event that was learned with a coarse label: it is learned instead of the
                estimated one
    refinement_missed  such a class, but no model has the row any more, or it is no class yet
    unmatched   no event came in time, or the event had expired
    early       it came before its event and waits; it will be matched, unmatched or refused
    refused     it waited and could not be learned when its event came: a dead letter
    expired     an event that waited too long, or was displaced by newer ones

Everything is bounded, in number and in bytes, ids included, and the oldest goes first. Above `max_bytes` the
store first forgets finished ids, then events with a coarse label, then early labels, each while they take
over a quarter of the bytes, and then lets events expire: no kind can displace the others. Time is stream
time (`event_time.py`): what is matched and what expires is a function of the records in the journal's order,
so recovery gives exactly the same. All of it is part of the snapshot.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import ValuesView
from dataclasses import dataclass
from typing import Any

import msgspec

from streamforest.errors import SnapshotError
from streamforest.jsonable import LARGEST_OFFSET, count, rows, scalar, time_of
from streamforest.observe.telemetry import LabelStatus
from streamforest.runtime.labels.entries import (
    Held,
    Kept,
    Known,
    LabelNumbers,
    Place,
    Refinable,
    Waiting,
)
from streamforest.runtime.labels.event_time import StreamClock
from streamforest.runtime.labels.saved import index_of, new_id, packed_of, said_of, since_of

MATCHED, EARLY, EXPIRED = "matched", "early", "expired"
DUPLICATE, UNMATCHED, REFUSED = "duplicate", "unmatched", "refused"
REFINED, REFINEMENT_MISSED = "refined", "refinement_missed"
OUTCOMES = (MATCHED, EARLY, EXPIRED, DUPLICATE, UNMATCHED, REFUSED)
AT_ONCE, NEVER = "at_once", "never"
"""Events that brought their label along, and those that cannot wait for one: without an id, or with one
that another event has."""
_COUNTS = (*OUTCOMES, AT_ONCE, NEVER)
_OF_CLASSES = (REFINED, REFINEMENT_MISSED)  # in a snapshot only where there are any


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

    def described(self) -> str:
        """As text, for the journal: the rules by which events and labels were matched."""
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
        self.refinable: Kept[Refinable] = Kept()
        self.counts: Counter[str] = Counter(dict.fromkeys((*_COUNTS, *_OF_CLASSES), 0))

    @property
    def bytes(self) -> int:
        """Bytes of all entries together."""
        kinds: tuple[Kept[Any], ...] = (self.waiting, self.early, self.known, self.refinable)
        return sum(kept.bytes for kept in kinds)

    # ---- lookups, as of the time after a record

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

    # ---- what a record changes: remove what it matches, let time pass, add what is new

    def take_event(self, identity: Any) -> None:
        """The event's label has come."""
        self.waiting.take(identity)

    def take_label(self, identity: Any) -> None:
        """The label's event has come."""
        self.early.take(identity)

    def tick(self, timestamp: int) -> None:
        """A record was taken: let time pass, and remove what has waited too long."""
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
        if identity is None or identity in self.waiting or self._is_done(identity):
            self._count(NEVER)
            return None
        entry = Waiting(msgspec.msgpack.encode(x), timestamp, self.clock.stamp)
        self.waiting.put(identity, entry)
        while len(self.waiting) > self.rules.max_events:
            self._expire()
        self._fit()
        return entry

    def _is_done(self, identity: Any) -> bool:
        return identity in self.known or identity in self.refinable

    def brought(self, identity: Any, entry: Refinable | None = None) -> None:
        """An event came with its label; `entry` if that was a coarse one."""
        self._count(AT_ONCE)
        if identity is None:
            return
        if self.early.take(identity) is not None:
            self._count(DUPLICATE)
        if identity not in self.waiting and (entry is None or not self._is_done(identity)):
            self._end(identity, entry)

    def met(self, identity: Any, entry: Refinable | None = None) -> None:
        """A label was matched with its event, whichever came first; `entry` if it was a coarse one."""
        self._end(identity, entry)
        self._count(MATCHED)

    def _end(self, identity: Any, entry: Refinable | None) -> None:
        """Waiting is over: all is known, or a class may still follow."""
        if entry is None:
            self._remember(identity, labelled=True)
        else:
            self.refinable.put(identity, entry)
            while len(self.refinable) > self.rules.max_ids:
                self._close()
        self._fit()

    def refine(self, identity: Any) -> None:
        """The class of an event with a coarse label has come; `refined` counts what became of it."""
        self._remember(identity, labelled=True)
        self._fit()

    def refined(self, done: bool) -> None:
        """Whether a model could still learn such a class."""
        self._count(REFINED if done else REFINEMENT_MISSED)

    def refused(self) -> None:
        """A label that was held could not be learned."""
        self._count(REFUSED)

    def hold(self, identity: Any, y: Any, timestamp: int, place: Place, coarse: Any = None) -> None:
        """A label without a waiting event: a second one, one that came too late, or an early one."""
        known, early = self.known.get(identity), self.early.get(identity)
        if identity in self.refinable:  # `y` is None: the category once more
            self._count(DUPLICATE)
        elif known is not None and known.coarse and y is not None:
            self._count(REFINEMENT_MISSED)
            self._remember(identity, labelled=True)
        elif known is not None or identity in self.waiting:
            self._count(DUPLICATE if known is not None and known.labelled else UNMATCHED)
        elif early is not None and (early.y is not None or y is None):
            self._count(DUPLICATE)
        else:
            stamp = self.clock.stamp
            if early is not None:  # its class follows its category, and both wait for the event
                coarse = early.coarse
            self.early.put(identity, Held(y, timestamp, stamp, place, coarse))
            self._count(EARLY if early is None else REFINED)
            while len(self.early) > self.rules.max_early:
                self._give_up()
            self._fit()

    def _fit(self) -> None:
        """Keep to `max_bytes`."""
        quarter = self.rules.max_bytes // 4
        while self.bytes > self.rules.max_bytes:
            if self.known.bytes > quarter:
                self.known.take(self.known.oldest())
            elif self.refinable.bytes > quarter:
                self._close()
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

    def _close(self) -> None:
        """The oldest event with a coarse label: if its class comes, that is too late."""
        self._remember(self.refinable.oldest(), labelled=True, coarse=True)

    def _remember(self, identity: Any, labelled: bool, coarse: bool = False) -> None:
        self.refinable.take(identity)
        self.known.put(identity, Known(labelled, self.clock.stamp, coarse))
        while len(self.known) > self.rules.max_ids:
            self.known.take(self.known.oldest())

    def _count(self, outcome: str) -> None:
        self.counts[outcome] += 1

    # ---- status

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
        """Plain data, a function of the records alone; `models` in the order of the predictions. Each
        predicted label is written once: it may be long, and that of every waiting event.
        """
        number_of = LabelNumbers()
        known = [[i, "coarse" if e.coarse else e.labelled, e.since] for i, e in self.known.items()]
        told = {
            "models": models,
            "clock": self.clock.state(),
            "waiting": [
                [i, base64.b64encode(e.x).decode(), e.at, e.since, [*map(number_of, e.guesses)]]
                for i, e in self.waiting.items()
            ],
            "said": number_of.labels,
            "early": [[i, e.y, e.at, e.since, list(e.place)] for i, e in self.early.items()],
            "known": known,
            "counts": {name: n for name, n in self.counts.items() if n or name not in _OF_CLASSES},
        }
        upper = {
            "coarse_said": [
                [i, e.coarse_guesses]
                for i, e in self.waiting.items()
                if any(one is not None for one in e.coarse_guesses)
            ],
            "coarse_early": [[i, e.coarse] for i, e in self.early.items() if e.coarse is not None],
            "refinable": [
                [i, e.coarse, e.numbers, [*map(number_of, e.guesses)]]
                for i, e in self.refinable.items()
            ],
        }
        return {**told, **{name: listed for name, listed in upper.items() if listed}}

    @classmethod
    def from_state(cls, rules: LateRules, state: Any, models: list[str]) -> LabelStore:
        """The store that `state()` describes, with the predictions of these models; SnapshotError if it is
        damaged.
        """
        store = cls(rules)
        try:
            order = [rows(state["models"], "models").index(name) for name in models]
            store.clock.restore(rows(state["clock"], "clock"))
            listed = state.get("said")  # older snapshots have the labels themselves
            labels = None if listed is None else [said_of(one) for one in rows(listed, "said")]
            listed = rows(state.get("coarse_early", []), "coarse_early", 2)
            names = {identity: scalar(name, "a category") for identity, name in listed}
            listed = rows(state.get("coarse_said", []), "coarse_said", 2)
            upper = {identity: [said_of(said[n]) for n in order] for identity, said in listed}
            for identity, x, at, since, guesses in rows(state["waiting"], "waiting", 5):
                said = [guesses[number] for number in order]
                said = [said_of(one) if labels is None else labels[index_of(one)] for one in said]
                entry: Any = Waiting(packed_of(x), time_of(at, "at"), since_of(since), said)
                entry.coarse_guesses = upper.pop(identity, [None] * len(order))
                store.waiting.put(new_id(identity, store.waiting), entry)
            for identity, y, at, since, (topic, number, offset) in rows(state["early"], "early", 5):
                partition, at_offset = (count(n, "place", LARGEST_OFFSET) for n in (number, offset))
                place = str(topic), partition, at_offset
                name = names.pop(identity, None)
                y = None if y is None and name is not None else scalar(y, "a label")
                held = Held(y, time_of(at, "at"), since_of(since), place, name)
                store.early.put(new_id(identity, store.early), held)
            for identity, labelled, since in rows(state["known"], "known", 3):
                entry = Known(bool(labelled), since_of(since), labelled == "coarse")
                store.known.put(new_id(identity, store.known), entry)
            for identity, name, own, guesses in rows(state.get("refinable", []), "refinable", 4):
                if labels is None or len(own) != len(state["models"]):
                    raise ValueError(f"rows of {len(own)} models")
                said = [labels[index_of(guesses[number])] for number in order]
                found = [count(own[number] + 1, "a row") - 1 for number in order]
                entry = Refinable(scalar(name, "a category"), found, said)
                store.refinable.put(new_id(identity, store.refinable), entry)
            for name in _COUNTS:
                store.counts[name] = count(state["counts"][name], name)
            for name in _OF_CLASSES:
                store.counts[name] = count(state["counts"].get(name, 0), name)
            if names or upper or not store.refinable.keys().isdisjoint(store.known):
                raise ValueError("categories of ids that do not wait, or that are known")
        except (
            KeyError,
            IndexError,
            TypeError,
            ValueError,
            RecursionError,
            msgspec.MsgspecError,
        ) as error:
            raise SnapshotError(f"its label store cannot be read: {error}") from error
        # where bounds were lowered since, the next records remove what is beyond them
        return store


def _first(kept: Kept[Any]) -> Any:
    return kept[kept.oldest()]


def _place(kept: ValuesView[Any], since: int) -> None:
    """Set the time of the youngest entries, which have none yet."""
    for one in reversed(kept):  # type: ignore[call-overload]
        if one.since is not None:
            break
        one.since = since


def _shift(kept: ValuesView[Any], by: int) -> None:
    """Move the time of all entries that have one, so that their age stays the same."""
    for one in kept:
        if one.since is not None:
            one.since += by

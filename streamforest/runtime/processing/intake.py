"""From the records of a poll to rows: which events are taken, refused, or wait for a label.

Every decision depends on the records before it alone, in the journal's order: the same order gives the
same decisions, however it is cut into batches, in a first run and in recovery.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamforest import LEARN
from streamforest.errors import CapacityError, EventError, InputError, LabelError
from streamforest.io.codec.decoders import RecordDecoder
from streamforest.io.codec.events import Event, Format, encode, is_label
from streamforest.io.log import Partition, Records
from streamforest.observe.telemetry import RowsRead
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.labels.entries import Place
from streamforest.runtime.labels.store import LabelStore, LateBatch
from streamforest.runtime.processing.admission import Rows

Taken = tuple[Partition, Any, Any, int]
"""Partition, record, the event's id and its number."""
Refuse = Callable[[Any, Partition, InputError], None]


@dataclass(frozen=True)
class Intake:
    """Rows for the models, and the records that are to be answered, in order."""

    rows: Rows
    taken: list[Taken]
    unadmitted: int
    """Events whose label is no class yet: predicted, not learned."""
    late: LateBatch | None = None


def take_in(
    state: RunState,
    records: Records,
    decode: RecordDecoder,
    refuse: Refuse,
    labels_topic: str | None = None,
    format: Format = "json",
) -> Intake:
    """Judge every record; `state` counts them, knows their positions and who was let in. A label that
    was held and is refused is made a message of this format again.
    """
    if state.late is None:
        intake = _events_only(state, records, decode, refuse)
    else:
        late = _LateIntake(state, state.late, refuse, format)
        intake = late.all(records, decode, labels_topic)
    state.passed(records)
    return intake


def _events_only(
    state: RunState, records: Records, decode: RecordDecoder, refuse: Refuse
) -> Intake:
    """The usual case: an event has its label or never gets one."""
    admit, read = state.gate.admit, state.reader.read
    columns = state.reader.columns
    convert = columns.convert
    taken: list[Taken] = []
    number, unadmitted = state.events, 0
    for partition, record in zip(records.partitions, records.records, strict=True):
        try:
            event = read(record, decode)
            if columns.passes_numbers:
                unadmitted += not admit(event.x, event.y, True, convert)
            else:
                unadmitted += not admit(convert(event.x), event.y)
            taken.append((partition, record, event.id, number))
        except InputError as error:
            refuse(record, partition, error)
        number += 1
    return Intake(state.gate.take(), taken, unadmitted)


@dataclass(frozen=True)
class _HeldRecord:
    """A label that was held and then refused, for its dead letter: its record is long read."""

    offset: int
    value: bytes
    key: None = None
    headers: tuple[()] = ()


class _LateIntake:
    """Events and labels of one poll."""

    def __init__(self, state: RunState, store: LabelStore, refuse: Refuse, format: Format) -> None:
        self.gate = state.gate
        self.reader = state.reader
        self.rules = state.reader.rules
        self.format = format
        self.store = store
        self.refuse = refuse
        self.number = state.events
        self.taken: list[Taken] = []
        self.unadmitted = 0
        self.batch = LateBatch()

    def all(self, records: Records, decode: RecordDecoder, labels_topic: str | None) -> Intake:
        for partition, record in zip(records.partitions, records.records, strict=True):
            try:
                if partition[0] == labels_topic:
                    event = self.reader.read_label(record, decode)
                else:
                    event = self.reader.read(record, decode)
                if is_label(event):
                    self._label(event, record, (*partition, record.offset))
                else:
                    self._event(event, record, partition)
            except InputError as error:
                self.refuse(record, partition, error)
            self.number += 1
        return Intake(self.gate.take(), self.taken, self.unadmitted, self.batch)

    def _event(self, event: Event, record: Any, partition: Partition) -> None:
        """Predicted at once; learned at once if its label is there, else it waits."""
        event.x = self.reader.convert(event.x)
        store, at, row = self.store, record.timestamp, len(self.gate)
        identity, y = event.id, event.y
        held = None
        if y is None and identity is not None:
            held = store.label_of(identity, at)
        if held is not None:
            y = self._admit_with(event, identity, held.y, held.place)
        else:
            self.unadmitted += not self.gate.admit(event.x, y)
        self.taken.append((partition, record, identity, self.number))
        self.batch.predicted.append(row)
        self.batch.judged.append((row, y, None))
        if held is not None:
            store.take_label(identity)
        store.tick(at)
        if event.y is not None:
            store.brought(identity)
        elif y is not None and held is not None:
            store.met(identity)
            self.batch.delays.append(max(0, held.at - at) / 1000)
        else:
            entry = store.wait(identity, event.x, at)
            if entry is not None:
                self.batch.asked.append((row, entry))

    def _admit_with(self, event: Event, identity: Any, y: Any, place: Place) -> Any:
        """Take an event with a label that was held for it: the label, or None if it cannot be learned.

        Then the event is taken without it, and it is the label that becomes a dead letter.
        """
        try:
            self.unadmitted += not self.gate.admit(event.x, y)
            return y
        except InputError as error:
            self.gate.admit(event.x, None)
            fields = {self.rules.id: identity, self.rules.label: y}
            record = _HeldRecord(place[2], encode(fields, self.format))
            self.refuse(record, place[:2], error)
            self.store.refused()
            return None

    def _label(self, event: Event, record: Any, place: Place) -> None:
        """Learned if its event waits, held if that may still come, else only counted."""
        store, at, identity, y = self.store, record.timestamp, event.id, event.y
        if identity is None or y is None:
            raise EventError(
                f"invalid label: it needs both {self.rules.id!r} and {self.rules.label!r}",
                "invalid",
            )
        entry = store.event_of(identity, at)
        if entry is None:
            self._check(y)
            store.tick(at)
            store.hold(identity, y, at, place)
        else:
            row = len(self.gate)
            self.gate.admit(entry.features(), y, predict=False)
            self.batch.judged.append((row if len(self.gate) > row else -1, y, entry))
            store.take_event(identity)
            store.tick(at)
            store.met(identity)
            self.batch.delays.append(max(0, at - entry.at) / 1000)
        self.batch.labels += 1

    def _check(self, y: Any) -> None:
        """A label that could never be learned is refused now, not when its event comes."""
        if self.gate.labels.find(y) < 0:
            self.gate.labels.require_room(y)


def rows_read(intake: Intake, records: int, waiting: int) -> RowsRead:
    """What became of the records of a poll; `waiting` events wait for their label now."""
    return RowsRead(
        records=records,
        labels=0 if intake.late is None else intake.late.labels,
        predicted=len(intake.taken),
        learned=int(np.count_nonzero(intake.rows.op & LEARN)),
        not_admitted=intake.unadmitted,
        waiting=waiting,
    )


def reason_of(error: InputError) -> str:
    """One short word for why an event was refused."""
    if isinstance(error, EventError):
        return error.reason
    if isinstance(error, CapacityError):
        return "capacity"
    return "label" if isinstance(error, LabelError) else "feature"

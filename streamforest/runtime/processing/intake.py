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
from streamforest.errors import (
    CapacityError,
    EventError,
    InputError,
    LabelError,
    TaxonomyError,
)
from streamforest.io.codec.decoders import RecordDecoder
from streamforest.io.codec.events import Event, Format, encode, is_label
from streamforest.io.features.columns import Columns
from streamforest.io.log import Partition, Records
from streamforest.observe.telemetry import RowsRead
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.labels.batch import LateBatch, Refinement
from streamforest.runtime.labels.entries import Held, Place, Refinable, Waiting
from streamforest.runtime.labels.store import LabelStore
from streamforest.runtime.processing.admission import Admission, Rows
from streamforest.text import shown

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
    """The usual case: an event has its label or never gets one.

    Most events of most streams are numbers of known columns with a known class: nothing is to be decided
    about them. The others go the long way, which gives such an event the same row.
    """
    gate, read, columns = state.gate, state.reader.read, state.reader.columns
    admit_numbers: Callable[[Any, Any], bool] = gate.admit_numbers
    numbers = state.reader.numbers_decoder(gate.known_columns(), decode)
    taken: list[Taken] = []
    number, unadmitted = state.events - 1, 0
    for partition, record in zip(records.partitions, records.records, strict=True):
        number += 1
        try:
            event = None if numbers is None else numbers(record)
            if event is None:
                event = read(record, decode)
            x, y = event.x, event.y
            if event.coarse is not None or type(x) is dict or not admit_numbers(x, y):
                unadmitted += not _admit(gate, columns, event)
            taken.append((partition, record, event.id, number))
        except InputError as error:
            refuse(record, partition, error)
    return Intake(gate.take(), taken, unadmitted)


def _admit(gate: Admission, columns: Columns, event: Event) -> bool:
    """Let admission decide about an event; False if its label is no class yet."""
    x = gate.named(event.x)
    if columns.passes_numbers:
        return gate.admit(x, event.y, True, columns.convert, event.coarse)
    return gate.admit(columns.convert(x), event.y, coarse=event.coarse)


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
        identity, y, coarse = event.id, event.y, event.coarse
        held, met = None, False
        if y is None and identity is not None:
            held = store.label_of(identity, at)
        if held is not None:
            y, coarse, met = self._admit_with(event, identity, held)
        else:
            self.unadmitted += not self.gate.admit(event.x, y, coarse=coarse)
        self.taken.append((partition, record, identity, self.number))
        self.batch.predicted.append(row)
        self.batch.judged.append((row, y, None))
        self.batch.judged_coarse.append((row, self._category(y, coarse), None))
        if held is not None:
            store.take_label(identity)
        store.tick(at)
        entry: Any = None
        if y is None and coarse is not None:
            entry = self._learned_coarse(row, coarse)
            self.batch.asked.append((row, entry))
        if held is not None and met:
            store.met(identity, entry)
            self.batch.delays.append(max(0, held.at - at) / 1000)
        elif y is not None or coarse is not None:
            store.brought(identity, entry)
        else:
            entry = store.wait(identity, event.x, at)
            if entry is not None:
                self.batch.asked.append((row, entry))

    def _category(self, y: Any, coarse: Any) -> Any:
        """The category of an event, as it came or as its class has it."""
        return self.gate.categories.of(y) if coarse is None else coarse

    def _learned_coarse(self, row: int, coarse: Any) -> Refinable:
        """A row that is learned with a coarse label alone: its class may follow."""
        entry = Refinable(coarse)
        self.batch.coarse_rows.append((row, entry))
        return entry

    def _admit_with(self, event: Event, identity: Any, held: Held) -> tuple[Any, Any, bool]:
        """Take an event with a label that was held for it; class and category that are learned, and whether
        the label is.

        If the label cannot be learned, the event is taken without it, and it is the label that becomes a
        dead letter.
        """
        coarse = held.coarse if event.coarse is None else event.coarse
        try:
            if held.coarse is not None and held.coarse != coarse:
                raise _two_categories(identity, coarse, held.coarse)
            self.unadmitted += not self.gate.admit(event.x, held.y, coarse=coarse)
            return held.y, coarse, True
        except InputError as error:
            self.gate.admit(event.x, None, coarse=event.coarse)
            fields = {self.rules.id: identity}
            if held.y is not None:
                fields[self.rules.label] = held.y
            if held.coarse is not None:
                fields[self.rules.coarse] = held.coarse
            record = _HeldRecord(held.place[2], encode(fields, self.format))
            self.refuse(record, held.place[:2], error)
            self.store.refused()
            return None, event.coarse, False

    def _label(self, event: Event, record: Any, place: Place) -> None:
        """Learned if its event waits, held if that may still come, else only counted."""
        store, at, identity = self.store, record.timestamp, event.id
        y, coarse = event.y, event.coarse
        if identity is None or (y is None and coarse is None):
            raise EventError(
                f"invalid label: it needs both {self.rules.id!r} and {self.rules.label!r}, or "
                f"{self.rules.coarse!r} instead of a class",
                "invalid",
            )
        entry = store.event_of(identity, at)
        refinable = store.refinable.get(identity)
        if entry is not None:
            self._late(entry, y, coarse)
            store.take_event(identity)
            store.tick(at)
            refinable = None if y is not None else self.batch.coarse_rows[-1][1]
            if refinable is not None:
                refinable.guesses = entry.guesses
            store.met(identity, refinable)
            self.batch.delays.append(max(0, at - entry.at) / 1000)
        elif refinable is not None and y is not None:
            self._refine(identity, refinable, y, coarse)
            store.tick(at)
        else:
            self._hold(identity, y, coarse, at, place)
        self.batch.labels += 1

    def _late(self, entry: Waiting, y: Any, coarse: Any) -> None:
        """The label of an event that waits."""
        row = len(self.gate)
        self.gate.admit(entry.features(), y, predict=False, coarse=coarse)
        at = row if len(self.gate) > row else -1
        if y is None:
            self._learned_coarse(row, coarse)
        else:
            self.batch.judged.append((at, y, entry))
        self.batch.judged_coarse.append((at, self._category(y, coarse), entry))

    def _refine(self, identity: Any, entry: Refinable, y: Any, coarse: Any) -> None:
        """The class of an event that was learned with a coarse label."""
        if coarse is not None and coarse != entry.coarse:
            raise _two_categories(identity, entry.coarse, coarse)
        if self.gate.admit_refinement(y, entry.coarse):
            self.batch.refinements.append(Refinement(len(self.gate), y, entry))
        else:
            self.store.refined(False)
        self.batch.judged.append((-1, y, entry))
        self.store.refine(identity)

    def _hold(self, identity: Any, y: Any, coarse: Any, at: int, place: Place) -> None:
        """A label without an event; one that could never be learned is refused now, not when that comes."""
        early = self.store.label_of(identity, at)
        if early is not None and early.coarse is not None:
            if coarse is not None and coarse != early.coarse:
                raise _two_categories(identity, early.coarse, coarse)
            coarse = early.coarse
        self.gate.check_labels(y, coarse)
        self.store.tick(at)
        self.store.hold(identity, y, at, place, coarse)


def _two_categories(identity: Any, known: Any, coarse: Any) -> TaxonomyError:
    return TaxonomyError(
        f"id {shown(identity)} is of category {shown(known)}, but comes with {shown(coarse)}: correct one "
        "of the two labels"
    )


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
    if isinstance(error, TaxonomyError):
        return "taxonomy"
    return "label" if isinstance(error, LabelError) else "feature"

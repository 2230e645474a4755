"""From a decoded record to an event: the layout is found out once, then every record is read by it.

What the reader knows (the layout, the types of the columns, what did not fit) is a function of the records
in the journal's order. It is part of the run's state and of its snapshots, so that a recovered run reads a
record as the first run did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamforest.errors import EventError
from streamforest.io.codec.decoders import NumbersDecoder, RecordDecoder
from streamforest.io.codec.events import BOUNDS, VERSION, Bounds, Event, is_label
from streamforest.io.features.columns import ColumnReport, Columns
from streamforest.io.features.layout import (
    FLAT,
    NESTED,
    NO_FEATURES,
    flat_event,
    is_nested,
    label_of,
    nested_event,
)
from streamforest.io.features.profile import ROWS
from streamforest.io.features.rules import FeatureRules
from streamforest.jsonable import count, rows
from streamforest.text import guess, printable, shown

_WITHOUT_LABEL = 100  # records after which a stream without any label is warned of
_MAX_KEYS = 40
DEFAULT_RULES = FeatureRules()


class EventReader:
    """Reads the records of one stream, in their order.

    `labels` says that labels come by themselves, so that a record may be one.
    """

    def __init__(
        self,
        rules: FeatureRules = DEFAULT_RULES,
        bounds: Bounds = BOUNDS,
        max_columns: int = 10_000,
        labels: bool = False,
    ) -> None:
        self.rules, self._bounds, self._labels = rules, bounds, labels
        self.columns = Columns(rules, bounds, max_columns)
        self.convert = self.columns.convert
        self.layout: str | None = None if rules.layout == "auto" else rules.layout
        self._young = True  # while the first records are counted
        self._settled = False  # afterwards, if they are nested
        self.seen = 0
        self.labelled = 0
        """Of the first records: how many were read, and how many had a label."""
        self._keys: list[str] = []
        self._label_warned = False
        self._warnings: list[str] = []
        self._numbers: tuple[list[Any], RecordDecoder, NumbersDecoder | None] | None = None

    def read(self, record: Any, decode: RecordDecoder) -> Event:
        """The event in a record; `convert` makes numbers of its features. EventError if it is none."""
        if (
            self._settled and decode.event is not None
        ):  # nearly every record: no call more than needed
            try:
                return decode.event(record)
            except EventError as error:
                return self._again(error, record, decode)
        layout = self.layout
        if layout is None:
            layout = self._decide(record, decode)
        if layout == NESTED:
            event = self._nested(record, decode)
        else:
            event = flat_event(decode.fields(record), self.rules, self._bounds, self._labels)
        if self._young and not is_label(event):
            self._count(event, record, decode)
        return event

    def numbers_decoder(
        self, columns: Sequence[Any], decode: RecordDecoder
    ) -> NumbersDecoder | None:
        """A decoder for records of these columns, all of them numbers, that are taken as they are: what it
        gives is what `read` and `convert` would give. None if there is none, or if there are no columns.
        """
        if not columns or decode.numbers is None or self._young or not self.columns.passes_numbers:
            return None
        made = self._numbers
        if made is None or made[0] != columns or made[1] is not decode:
            made = list(columns), decode, decode.numbers(columns, self.layout == FLAT)
            self._numbers = made
        return made[2]

    def read_label(self, record: Any, decode: RecordDecoder) -> Event:
        """The label in a record of a topic that holds nothing else."""
        fields = decode.fields(record)
        if self.layout != FLAT and fields.get("v", VERSION) != VERSION:
            raise EventError(
                f"invalid event: envelope version {shown(fields['v'])}, this consumer reads {VERSION}",
                "version",
            )
        return label_of(fields, self.rules, self._bounds)

    def _decide(self, record: Any, decode: RecordDecoder) -> str:
        """The layout of the first record counts for all. One without any feature decides nothing."""
        fields = decode.fields(record)
        if is_nested(fields):
            self.layout = NESTED
            return NESTED
        try:
            event = flat_event(fields, self.rules, self._bounds, self._labels)
        except EventError as error:
            if "x" in fields or str(error) == NO_FEATURES:
                return NESTED
            raise
        x: Any = event.x
        if is_label(event) or not any(
            value is not None and name not in ("v", "ts") for name, value in x.items()
        ):
            return NESTED
        self.layout = FLAT
        return FLAT

    def _nested(self, record: Any, decode: RecordDecoder) -> Event:
        """By the compiled codec; what it refuses in `x`, such as an object in it, is looked at again."""
        if decode.event is None:
            return self._by_fields(decode.fields(record))
        try:
            return decode.event(record)
        except EventError as error:
            return self._again(error, record, decode)

    def _again(self, error: EventError, record: Any, decode: RecordDecoder) -> Event:
        """An event that the compiled codec has refused, if it is one for what is in `x`."""
        if "required field `x`" in str(error) and self.layout and self.rules.layout == "auto":
            raise EventError(
                f"{error}; an earlier record had it, which made the layout 'nested': if that was a "
                "mistake, start over with features.layout = 'flat'",
                error.reason,
            )
        if error.reason not in ("invalid", "too_long") or "$.x" not in str(error):
            raise error
        try:
            fields = decode.fields(record)
        except EventError:
            raise error from None
        if not isinstance(fields.get("x"), dict):
            raise error
        return self._by_fields(fields)

    def _by_fields(self, fields: Mapping[str, Any]) -> Event:
        if "x" in fields or not self._labels:
            return nested_event(fields, self.rules, self._bounds)
        label = label_of(fields, self.rules, self._bounds)
        if (label.y is None and label.coarse is None) or label.id is None:
            raise EventError("invalid event: neither features nor a label with its id", "invalid")
        return label

    # ---- warnings about the first records

    def _count(self, event: Event, record: Any, decode: RecordDecoder) -> None:
        if self.seen >= ROWS:
            self._young, self._settled = False, self.layout == NESTED
            self._warnings += self.columns.finish_profile()
            return
        if not self.seen:
            self._keys = [printable(str(key), 100) for key in decode.fields(record)][:_MAX_KEYS]
        self.seen += 1
        self.labelled += event.y is not None
        if self.seen == _WITHOUT_LABEL:
            self._warnings += self.finish()

    def finish(self) -> list[str]:
        """A warning if no record had a label; also for the end of a stream, however short it was."""
        if self._label_warned or self.labelled or self._labels or not self.seen:
            return []
        self._label_warned = True
        keys, meant = ", ".join(map(shown, self._keys)), guess(self.rules.label, self._keys)
        return [
            f"none of the first {self.seen:,} records has the label {shown(self.rules.label)} "
            f"(features.label), so nothing is learned; their fields are {keys}: set features.label to "
            f"the one that holds the label{'; ' * bool(meant)}{meant}"
        ]

    def take_warnings(self) -> list[str]:
        """The warnings since the last call."""
        if not self._warnings and not self.columns.warnings:
            return []
        warnings = [*self._warnings, *self.columns.warnings]
        self._warnings, self.columns.warnings = [], []
        return warnings

    def describe(self) -> list[ColumnReport]:
        """What each column was taken for, and how many of its values did not fit."""
        return self.columns.describe()

    # ---- snapshots

    def state(self) -> dict[str, Any]:
        """Plain data, a function of the records alone."""
        return {
            "rules": self.rules.settings(),
            "layout": self.layout,
            "seen": self.seen,
            "labelled": self.labelled,
            "label_warned": self._label_warned,
            "keys": self._keys,
            **self.columns.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `state()` described, under the same rules; ValueError if it describes nothing."""
        layout = state["layout"]
        if layout not in (None, NESTED, FLAT):
            raise ValueError(f"layout {shown(layout)}")
        self.layout = layout
        self.seen, self.labelled = (
            count(state["seen"], "seen"),
            count(state["labelled"], "labelled"),
        )
        self._label_warned = bool(state["label_warned"])
        self._keys = [printable(str(key), 100) for key in rows(state["keys"], "keys")[:_MAX_KEYS]]
        self.columns.restore(state)
        self._young = self.columns.profile is not None
        self._settled = not self._young and layout == NESTED

    def adopt(self, names: list[Any], numeric: list[bool]) -> None:
        """Go on with a run that was begun before layouts and types were kept."""
        self.layout, self._young, self._settled, self._label_warned = NESTED, False, True, True
        self.columns.adopt(names, numeric)

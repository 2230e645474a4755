"""A reader that answers for a stream and learns nothing from what it reads.

A pipeline's reader learns from every record: a new column gets its type, the first date of a column counts
from then on, values that do not fit are counted. Whoever asks a model about an event must leave no such
trace. Two processes that have followed the same commit would otherwise answer differently, by what each was
asked before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamforest.io.codec.decoders import RecordDecoder
from streamforest.io.codec.events import Event
from streamforest.io.features.columns import Column, Columns
from streamforest.io.features.layout import NESTED
from streamforest.io.features.reader import EventReader


class FrozenColumns(Columns):
    """The columns of a stream as they are now. A column that is met for the first time is forgotten again."""

    def __init__(self, columns: Columns) -> None:
        vars(self).update(vars(columns))
        self.warnings = []
        self.profile = None
        self._settle()

    def _add(self, name: Any, column: Column) -> None:
        """It counts for this one value."""

    def _date(self, name: str, column: Column, value: Any, out: dict[Any, Any]) -> None:
        super()._date(name, column if column.first is not None else replace(column), value, out)

    def _misfit(self, name: Any, column: Column, value: Any) -> None:
        """Nothing is counted."""


class FrozenReader(EventReader):
    """Reads records as a stream's reader would read its next one; it shares what that one knows.

    It is to be made anew whenever that one has read on.

    >>> from streamforest.io.codec.decoders import by_value
    >>> from streamforest.io.codec.events import decoder, fields_decoder
    >>> from streamforest.io.sources.dataset import RecordedRow
    >>> stream, decode = EventReader(), by_value(decoder(), fields_decoder())
    >>> reader = FrozenReader(stream)
    >>> reader.read(RecordedRow(0, value=b'{"a": 1, "y": "cat"}'), decode).x
    {'a': 1}
    >>> reader.read(RecordedRow(1, value=b'{"x": {"a": 1}}'), decode).x, stream.layout
    ({'a': 1.0}, None)
    """

    def __init__(self, reader: EventReader) -> None:
        vars(self).update(vars(reader))
        self.columns = FrozenColumns(reader.columns)
        self.convert = self.columns.convert
        self._known = reader.layout
        self._young, self._settled = False, reader.layout == NESTED

    def read(self, record: Any, decode: RecordDecoder) -> Event:
        """The event in a record; EventError if it is none."""
        event = super().read(record, decode)
        self.layout = self._known  # the first record of a stream decides it, not a question
        return event

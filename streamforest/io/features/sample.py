"""A dry run over the first records of a stream: what they are taken for, and what would be refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from streamforest.errors import InputError
from streamforest.io.codec.decoders import RecordDecoder
from streamforest.io.codec.events import is_label
from streamforest.io.features.columns import ColumnReport
from streamforest.io.features.reader import EventReader

SAMPLE = 1_000
"""Records that are looked at."""


@dataclass
class Sample:
    """What the first records are."""

    records: int = 0
    labelled: int = 0
    layout: str | None = None
    columns: list[ColumnReport] = field(default_factory=list)
    refused: list[tuple[int, InputError]] = field(default_factory=list)
    """Offset of each record that would be a dead letter, and why."""
    warnings: list[str] = field(default_factory=list)


def sample(
    records: Iterable[Any],
    decode: RecordDecoder,
    reader: EventReader,
    admit: Callable[[Any, Any], Any] = lambda x, y: None,
    max_records: int = SAMPLE,
) -> Sample:
    """Read the first records with a new `reader`; `admit` may refuse an event, as the models would."""
    found = Sample()
    for record in islice(records, max_records):
        found.records += 1
        try:
            event = reader.read(record, decode)
            if not is_label(event):
                admit(reader.convert(event.x), event.y)
                found.labelled += event.y is not None
        except InputError as error:
            found.refused.append((record.offset, error))
    found.layout, found.columns = reader.layout, reader.describe()
    found.warnings = [*reader.take_warnings(), *reader.columns.finish_profile(), *reader.finish()]
    return found

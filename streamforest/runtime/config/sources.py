"""`[source]`: the recorded data set or file of a pipeline, checked, and opened if it is read here."""

from __future__ import annotations

import re
from pathlib import Path

from streamforest.errors import ConfigError, DatasetError
from streamforest.io.codec.events import Bounds
from streamforest.io.codec.registry import REGISTRY_FORMATS
from streamforest.io.features.rules import FeatureRules
from streamforest.io.sources.dataset import ClassSchedule, RecordedSource, Source
from streamforest.io.sources.opening import LINES, TABLES, open_file
from streamforest.io.sources.scheduled import ScheduledFile
from streamforest.runtime.config import schema
from streamforest.runtime.config.options import Checker, nearest
from streamforest.runtime.config.schema import Config, SourceTable

_OWN_KEY = re.compile(r"file = ")
_MOVED = {"label_column": "features.label", "id_column": "features.id"}


def read_source(
    check: Checker, features: FeatureRules, bounds: Bounds, needed: bool
) -> tuple[SourceTable | None, Source | None]:
    """The table and, if it is `needed` and valid, the opened source.

    Checking a schedule's order needs the labels of the data, so the source is opened here. A consumer of a
    topic does not need it: only `replay` reads it, perhaps on another machine.
    """
    if not needed and "source" not in check.settings.tables:
        return None, None
    before = len(check.problems)
    table = _table(check)
    if not needed or len(check.problems) > before:
        return table, None
    try:
        return table, open_source(table, features, bounds)
    except ConfigError as error:
        check.problems.append(str(error))
        return table, None


def open_source(table: SourceTable, features: FeatureRules, bounds: Bounds) -> Source:
    """The source that a table describes; ConfigError names the key at fault if it cannot be read."""
    try:
        if table.file is None:
            return RecordedSource.open(str(table.dataset), table.max_events, table.schedule)
        if table.file.suffix in TABLES and features.layout == "nested":
            raise ConfigError(
                f"features.layout = 'nested': {table.file} is a table, whose rows are flat; remove it"
            )
        opened = open_file(table.file, table.max_events, features, bounds)
        if table.schedule is None:
            return opened
        return ScheduledFile(opened, table.schedule, features, bounds)
    except (ConfigError, DatasetError) as error:
        if str(error).startswith("features."):
            raise
        own = _OWN_KEY.match(str(error)) is not None
        raise ConfigError(f"source{'.' if own else ': '}{error}") from error


def recorded_in(config: Config) -> Source:
    """The source that `replay` sends to the pipeline's topic; ConfigError if there is none."""
    if config.source is None:
        raise ConfigError("[source]: missing; replay and --broker send a recorded data set or file")
    refusal = lines_in_msgpack(config.source, config.events_format)
    if refusal is None and config.events_format in REGISTRY_FORMATS:
        refusal = f"events.format = '{config.events_format}': replay sends JSON or MessagePack only"
    if refusal is not None:
        raise ConfigError(refusal)
    return open_source(config.source, config.features, config.bounds)


def lines_in_msgpack(table: SourceTable, format: str) -> str | None:
    """Why the events of this source cannot be read in this format; None if they can."""
    if format == "json" or not is_lines(table):
        return None
    return (
        f"events.format = '{format}': the lines of {table.file} are JSON and are used unchanged; "
        "remove it, or give a table or a data set"
    )


def is_lines(table: SourceTable | None) -> bool:
    """Whether a source is a file of messages, which are sent unchanged."""
    return table is not None and table.file is not None and table.file.suffix in LINES


def _table(check: Checker) -> SourceTable:
    values = check.read("source", schema.SOURCE, also=("schedule", *_MOVED))
    for key, now in _MOVED.items():
        if key in check.table("source"):
            check.hidden(f"source.{key}", f"is now {now}, for files and topics alike")
    dataset, file, known = values["dataset"], values["file"], RecordedSource.names()
    if dataset is not None and file is not None:
        check.problem("source.file", file, "dataset is set too; remove one of the two")
    if dataset is not None and dataset not in known:
        check.problem("source.dataset", dataset, f"no such data set; {nearest(dataset, known)}")
    raw = check.table("source")
    if dataset is None and file is None and "dataset" not in raw and "file" not in raw:
        check.problems.append(
            "source.dataset: missing; give the name of a data set, a file, or [kafka] bootstrap_servers"
        )
    schedule = None
    if "schedule" in raw:
        schedule = ClassSchedule(**check.read("source.schedule", schema.SCHEDULE))
    path = Path(file) if file else None
    return SourceTable(
        dataset,
        path,
        values["max_events"],
        schedule,
    )

"""The source for a file, by how its name ends."""

from __future__ import annotations

from pathlib import Path

from streamforest.errors import ConfigError
from streamforest.io.codec.events import BOUNDS, Bounds
from streamforest.io.features.rules import FeatureRules
from streamforest.io.sources.delimited import DelimitedSource
from streamforest.io.sources.files import FileSource, LinesSource
from streamforest.io.sources.parquet import ParquetSource
from streamforest.io.sources.tables import DEFAULT_RULES

LINES = (".jsonl", ".ndjson")
DELIMITED = (".csv", ".tsv")
TABLES = (*DELIMITED, ".parquet")
SUFFIXES = (*LINES, *TABLES)


def open_file(
    path: Path,
    events: int | None = None,
    rules: FeatureRules = DEFAULT_RULES,
    bounds: Bounds = BOUNDS,
) -> FileSource:
    """The source for a file; ConfigError says what is wrong with it."""
    if path.suffix in LINES:
        return LinesSource(path, events, bounds)
    if path.suffix in DELIMITED:
        return DelimitedSource(path, events, rules, bounds)
    if path.suffix == ".parquet":
        return ParquetSource(path, events, rules, bounds)
    raise ConfigError(f"file = '{path}': expected a name that ends in {', '.join(SUFFIXES)}")

"""What tables in files have in common: named columns, one of which is the label, and rows as records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamforest.errors import ConfigError
from streamforest.io.codec.events import BOUNDS, Bounds
from streamforest.io.features.rules import FeatureRules
from streamforest.io.sources.dataset import RecordedRow
from streamforest.io.sources.files import FileSource
from streamforest.text import guess, printable

DEFAULT_RULES = FeatureRules()


class TableSource(FileSource):
    """Rows with named columns."""

    def __init__(
        self,
        path: Path,
        events: int | None = None,
        rules: FeatureRules = DEFAULT_RULES,
        bounds: Bounds = BOUNDS,
    ) -> None:
        self._rules, self._bounds = rules, bounds
        super().__init__(path, events)


class MissingColumnError(ConfigError):
    """A table lacks the column that is to be its label, its id or its coarse label (the `key`)."""

    def __init__(self, key: str, name: str, problem: str) -> None:
        super().__init__(f"features.{key} = {name!r}: {problem}")
        self.key, self.name, self.problem = key, name, problem


def check_columns(path: Path, names: Sequence[str], rules: FeatureRules) -> None:
    """ConfigError if a table lacks what the rules name, or cannot be read by its names."""
    if not names:
        raise ConfigError(
            f"file = '{path}': is empty: no header line; write the names of the columns there"
        )
    for name in names:
        if not is_unicode(name):
            raise ConfigError(
                f"file = '{path}': the column {name!r} is not named in UTF-8; set features.encoding, "
                "for example 'cp1252'"
            )
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        listed = printable(", ".join(twice[:5]))
        raise ConfigError(
            f"file = '{path}': more than one column is called {listed}; rename all but one"
        )
    wanted = [("label", rules.label)] if rules.needs_label else []
    if rules.id != DEFAULT_RULES.id:
        wanted.append(("id", rules.id))
    if rules.coarse != DEFAULT_RULES.coarse:
        wanted.append(("coarse", rules.coarse))
    for key, path_of in wanted:
        if path_of not in names and path_of.split(".")[0] not in names:
            meant = guess(path_of, names)
            raise MissingColumnError(
                key,
                path_of,
                f"{path} has no such column; it has {printable(', '.join(names))}"
                + (f"; {meant}" if meant else ""),
            )


def row_of(number: int, record: dict[str, Any]) -> RecordedRow:
    """A row as a record; as bytes, which the codec refuses, if it has text that is not Unicode."""
    for text in record.values():
        if isinstance(text, str) and not is_unicode(text):
            raw = json.dumps(record, ensure_ascii=False, default=str)
            return RecordedRow(number, None, raw.encode("utf-8", "surrogateescape"))
    return RecordedRow(number, record=record)


def refused(number: int, problem: str, **more: Any) -> RecordedRow:
    """An invalid row that says what is wrong with it."""
    details = json.dumps({"problem": problem, **more}, ensure_ascii=False)
    return RecordedRow(number, None, details.encode("utf-8", "surrogateescape"), problem)


def is_unicode(text: str) -> bool:
    """Whether a text can be encoded; one read from bytes that are not in the file's encoding cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

"""CSV and its relatives: a header, a separator, and a type for each column.

A text file has no types, so they come from its first 1,000 rows: a column whose cells are numbers holds
numbers, one of true and false holds booleans, any other one texts. Dates, categories and sentences are told
apart later, as in a message. An odd cell further down stays a text, and is counted as one that does not fit.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from streamforest.errors import ConfigError
from streamforest.io.codec.events import BOUNDS, Bounds
from streamforest.io.features.parsing import is_absent, is_bool, is_decimal
from streamforest.io.features.rules import FeatureRules
from streamforest.io.sources.dataset import RecordedRow
from streamforest.io.sources.tables import (
    DEFAULT_RULES,
    TableSource,
    check_columns,
    refused,
    row_of,
)

SEPARATORS = (",", ";", "\t", "|")
_MAX_ROW = 4 << 20  # characters of a row, unless events.max_bytes is more
_SAMPLE = 1_000  # rows that decide the types of the columns
_NEARLY_ALL = 0.95  # of a column's cells must be numbers for it to hold numbers
_COMMA = re.compile(r"[+-]?\d+(,\d+)?")
TEXT, NUMBER, COMMA_NUMBER, BOOL = "text", "number", "decimal comma", "bool"


class DelimitedSource(TableSource):
    """Separated values with a header."""

    def __init__(
        self,
        path: Path,
        events: int | None = None,
        rules: FeatureRules = DEFAULT_RULES,
        bounds: Bounds = BOUNDS,
    ) -> None:
        self._separator = rules.separator
        self._encoding = rules.encoding
        super().__init__(path, events, rules, bounds)

    def _open(self) -> TextIO:
        if self._encoding is None:
            self._encoding = _encoding_of(self.path)
        # bytes that are not in this encoding are kept, and make their row a dead letter
        return self.path.open(newline="", encoding=self._encoding, errors="surrogateescape")

    def _rows(self, file: TextIO) -> Iterator[tuple[int, list[str]]]:
        """The line number and the cells of every row, the header included; blank lines are skipped."""
        lines = _Lines(file, max(_MAX_ROW, self._bounds.max_bytes))
        if self._separator is None:
            self._separator = _separator_of(lines.peek(), self.path)
        reader = csv.reader(lines, delimiter=self._separator)
        try:
            for cells in reader:
                lines.row = 0
                if cells:
                    yield reader.line_num, cells
        except csv.Error as error:
            line = reader.line_num + lines.failed
            raise ConfigError(
                f"file = '{self.path}': line {line} is not a row of a table: {error}; is a quote not closed?"
            ) from error

    def _count(self) -> int:
        with self._open() as file:
            rows = self._rows(file)
            _, header = next(rows, (0, []))
            names = [name.strip() or f"column {i + 1}" for i, name in enumerate(header)]
            check_columns(self.path, names, self._rules)
            sample = [cells for _, cells in islice(rows, _SAMPLE)]
            if not sample:
                raise ConfigError(f"file = '{self.path}': has a header and no rows; add some")
            fitting = [cells for cells in sample if len(cells) == len(names)]
            self._types = [
                _type_of([cells[i] for cells in fitting], self._separator == ";")
                for i in range(len(names))
            ]
            if self._rules.id in names:
                self._types[names.index(self._rules.id)] = TEXT  # 007 is not 7
            self._names = names
            return len(sample) + sum(1 for _ in rows)

    def _read(self, start: int) -> Iterator[RecordedRow]:
        names, types = self._names, self._types
        label = self._rules.label
        with self._open() as file:
            rows = self._rows(file)
            next(rows)
            for number, (line, cells) in enumerate(rows):
                if number < start:
                    continue
                if len(cells) != len(names):
                    yield _misshapen(number, line, cells, len(names))
                    continue
                record: dict[str, Any] = dict(zip(names, map(cell_value, cells, types)))
                y = record.get(label)
                if type(y) is float and y.is_integer():
                    record[label] = int(y)
                yield row_of(number, record)


def cell_value(text: str, kind: str) -> Any:
    """A cell as a value of its column; None if it is empty.

    >>> cell_value("3", NUMBER), cell_value("3,5", COMMA_NUMBER), cell_value("?", NUMBER)
    (3.0, 3.5, '?')
    >>> cell_value("3", TEXT), cell_value(" ", TEXT), cell_value("True", BOOL)
    ('3', None, True)
    """
    if not text or text.isspace():
        return None
    if kind == TEXT:
        return text
    if kind == BOOL:
        return text.strip().lower() == "true" if is_bool(text) else text
    if kind == COMMA_NUMBER and _COMMA.fullmatch(text.strip()):
        return float(text.replace(",", "."))
    try:
        return float(text) if is_decimal(text) else text
    except ValueError:
        return text


def _type_of(cells: list[str], may_have_commas: bool) -> str:
    """What a column holds, by its first cells."""
    given = [cell for cell in cells if not is_absent(cell)]
    if not given:
        return TEXT
    if all(map(is_bool, given)):
        return BOOL
    enough = _NEARLY_ALL * len(given)
    if sum(map(is_decimal, given)) >= enough:
        return NUMBER
    if may_have_commas and sum(_COMMA.fullmatch(c.strip()) is not None for c in given) >= enough:
        return COMMA_NUMBER
    return TEXT


def _encoding_of(path: Path) -> str:
    """By the mark that a file begins with; UTF-8 without one."""
    with path.open("rb") as file:
        first = file.read(4)
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return "utf-16" if first.startswith(marks) else "utf-8-sig"


def _separator_of(header: str, path: Path) -> str:
    """The separator that occurs most often in the header, outside of quotes."""
    plain = "".join(header.split('"')[::2])
    best = max(SEPARATORS, key=plain.count)  # the first of those that are equal
    if path.suffix == ".tsv" and not plain.count(best):
        return "\t"
    return best


class _Lines:
    """The lines of a file for a reader of rows; csv.Error once a row is too long."""

    def __init__(self, file: TextIO, max_row: int) -> None:
        self._file, self._max_row = file, max_row
        self._peeked: str | None = None
        self.row = 0
        """Characters of the row so far; the reader resets it after each row."""
        self.failed = False

    def __iter__(self) -> Iterator[str]:
        return self

    def peek(self) -> str:
        """The first line that is not blank, which is read again."""
        while self._peeked is None:
            line = self._file.readline(self._max_row + 1)
            if not line or not line.isspace():
                self._peeked = line
        return self._peeked

    def __next__(self) -> str:
        if self._peeked is not None:
            line, self._peeked = self._peeked, None
        else:
            line = self._file.readline(self._max_row - self.row + 1)
        self.row += len(line)
        if self.row > self._max_row:
            self.failed = True
            raise csv.Error(f"it is longer than {self._max_row:,} characters")
        if not line:
            raise StopIteration
        return line


def _misshapen(number: int, line: int, cells: list[str], wanted: int) -> RecordedRow:
    """A row whose number of cells is not that of the header: nobody knows which column is missing."""
    count = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
    message = f"line {line} has {count}, the header has {wanted}: correct or quote its cells"
    return refused(number, message, cells=cells)

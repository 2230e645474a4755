"""Recorded files as sources: JSON lines, CSV, Parquet.

A line of JSON is a message, as in a topic. In a table one column is the label, one may be the id, and the
others are features: a cell is a number if it can be read as one, else a category; an empty one is missing.
"""

from __future__ import annotations

import abc
import csv
import hashlib
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from streamforest.errors import ConfigError, DatasetError
from streamforest.io.codec.events import BOUNDS, Bounds, Event
from streamforest.io.sources.dataset import RecordedRow
from streamforest.text import printable

LINES = (".jsonl", ".ndjson")
SUFFIXES = (*LINES, ".csv", ".parquet")
_BLOCK = 1 << 20
_MAX_ROW = 4 << 20  # characters of a table's row, unless events.max_bytes is more
_MAX_HELD = 64 << 20  # bytes of a Parquet file's rows in memory
_BOM = b"\xef\xbb\xbf"


class FileSource(abc.ABC):
    """The common part of the three formats."""

    def __init__(self, path: Path, events: int | None = None) -> None:
        if not path.is_file():
            raise ConfigError(f"file = '{path}': no such file in {path.absolute().parent}")
        self.path = path
        self.topic = path.name
        self._checksum = _checksum(path)
        count = self._count()
        self.total = count if events is None else min(events, count)

    @abc.abstractmethod
    def _count(self) -> int:
        """How many events the file holds."""

    @abc.abstractmethod
    def _read(self, start: int) -> Iterator[RecordedRow]:
        """The events from number `start` to the end of the file."""

    def describe(self) -> dict[str, Any]:
        """Name, length and checksum as JSON values."""
        return {"file": self.path.name, "events": self.total, "checksum": self._checksum}

    def rows(self, start: int) -> Iterator[RecordedRow]:
        """The events from number `start` on."""
        return islice(self._read(start), max(0, self.total - start))


class LinesSource(FileSource):
    """JSON lines; the codec reads each line as it reads a message."""

    def __init__(self, path: Path, events: int | None = None, bounds: Bounds = BOUNDS) -> None:
        self._max_line = bounds.max_bytes + 2
        super().__init__(path, events)

    def _count(self) -> int:
        with self.path.open("rb") as file:
            lines, last = 0, b"\n"
            while block := file.read(_BLOCK):
                lines += block.count(b"\n")
                last = block[-1:]
        return lines + (last != b"\n")

    def _read(self, start: int) -> Iterator[RecordedRow]:
        with self.path.open("rb") as file:
            number = 0
            while line := file.readline(self._max_line):
                while not line.endswith(b"\n") and len(line) >= self._max_line:
                    rest = file.readline(
                        _BLOCK
                    )  # skip the rest of a line that is too long for an event
                    if not rest or rest.endswith(b"\n"):
                        break
                if number >= start:
                    text = line.removeprefix(_BOM) if number == 0 else line
                    yield RecordedRow(number, None, text.rstrip(b"\r\n"))
                number += 1


class TableSource(FileSource):
    """Rows with named columns, one of which is the label."""

    def __init__(
        self,
        path: Path,
        events: int | None = None,
        label: str = "y",
        identity: str | None = None,
        bounds: Bounds = BOUNDS,
    ) -> None:
        self._label, self._id, self._bounds = label, identity, bounds
        super().__init__(path, events)


class CsvSource(TableSource):
    """Comma-separated values with a header."""

    def _open(self) -> TextIO:
        # bytes that are not UTF-8 are kept, and make their row a dead letter
        return self.path.open(newline="", encoding="utf-8-sig", errors="surrogateescape")

    def _rows(self, file: TextIO) -> Iterator[tuple[int, list[str]]]:
        """The line number and the cells of every row, the header included; blank lines are skipped."""
        lines = _Lines(file, max(_MAX_ROW, self._bounds.max_bytes))
        reader = csv.reader(lines)
        try:
            for cells in reader:
                lines.row = 0
                if cells:
                    yield reader.line_num, cells
        except csv.Error as error:
            line = reader.line_num + lines.failed
            raise ConfigError(
                f"file = '{self.path}': line {line} is not a row of a table: {error}"
            ) from error

    def _count(self) -> int:
        with self._open() as file:
            rows = self._rows(file)
            _, names = next(rows, (0, []))
            _check_columns(self.path, names, self._label, self._id)
            return sum(1 for _ in rows)

    def _read(self, start: int) -> Iterator[RecordedRow]:
        with self._open() as file:
            rows = self._rows(file)
            _, names = next(rows)
            own = None if self._id is None else names.index(self._id)
            for number, (line, cells) in enumerate(rows):
                if number < start:
                    continue
                if len(cells) != len(names):
                    yield _misshapen(number, line, cells, len(names))
                    continue
                row: dict[str, Any] = dict(zip(names, map(_cell, cells)))
                if own is not None:  # as text: 007 is not 7
                    row[names[own]] = cells[own] if cells[own].strip() else None
                yield _row(number, row, self._label, self._id, self._bounds)


class _Lines:
    """The lines of a file for a reader of rows; csv.Error once a row is too long."""

    def __init__(self, file: TextIO, max_row: int) -> None:
        self._file, self._max_row = file, max_row
        self.row = 0
        """Characters of the row so far; the reader resets it after each row."""
        self.failed = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._file.readline(self._max_row - self.row + 1)
        self.row += len(line)
        if self.row > self._max_row:
            self.failed = True
            raise csv.Error(f"it is longer than {self._max_row:,} characters")
        if not line:
            raise StopIteration
        return line


class ParquetSource(TableSource):
    """A Parquet file, read through pyarrow a batch at a time."""

    def _open(self) -> Any:
        try:
            from pyarrow import parquet
        except ImportError:
            raise ConfigError(
                f"file = '{self.path}': Parquet needs pyarrow: pip install 'streamforest[parquet]'"
            ) from None
        try:
            return parquet.ParquetFile(self.path)
        except Exception as error:  # pyarrow raises anything, depending on the damage
            raise ConfigError(
                f"file = '{self.path}': not a Parquet file ({_first(error)})"
            ) from error

    def _batches(self) -> Iterator[Any]:
        file = self._open()
        try:
            yield from file.iter_batches(batch_size=_rows_at_once(file.metadata))
        except Exception as error:  # the footer is intact, the data is damaged
            raise DatasetError(f"{self.path}: damaged: {_first(error)}") from error

    def _count(self) -> int:
        file = self._open()
        _check_columns(self.path, file.schema_arrow.names, self._label, self._id)
        return int(file.metadata.num_rows)

    def _read(self, start: int) -> Iterator[RecordedRow]:
        number = 0
        for batch in self._batches():
            if number + len(batch) > start:
                for i, row in enumerate(_pylist(batch)):
                    if number + i < start:
                        continue
                    if isinstance(row, str):
                        yield _refused(number + i, f"row {number + i} cannot be read: {row}")
                    else:
                        yield _row(number + i, row, self._label, self._id, self._bounds)
            number += len(batch)


def _rows_at_once(metadata: Any) -> int:
    """How many rows to hold in memory: fewer if they are large."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    largest = max((g.total_byte_size / max(1, g.num_rows) for g in groups), default=0.0)
    return max(1, min(4_096, int(_MAX_HELD / max(1.0, largest))))


def _pylist(batch: Any) -> list[dict[str, Any] | str]:
    """The rows of a batch; the error's text in place of a row with a value that Python cannot hold."""
    try:
        return batch.to_pylist()  # type: ignore[no-any-return]
    except Exception:  # text that is not UTF-8, a year beyond 9999, an unknown time zone
        if len(batch) > 1:
            return [row for i in range(len(batch)) for row in _pylist(batch.slice(i, 1))]
        try:
            return batch.to_pylist()  # type: ignore[no-any-return]
        except Exception as error:
            return [_first(error)]


def open_file(
    path: Path, events: int | None, label: str, identity: str | None, bounds: Bounds = BOUNDS
) -> FileSource:
    """The source for a file, by its suffix."""
    if path.suffix in LINES:
        return LinesSource(path, events, bounds)
    if path.suffix == ".csv":
        return CsvSource(path, events, label, identity, bounds)
    if path.suffix == ".parquet":
        return ParquetSource(path, events, label, identity, bounds)
    raise ConfigError(f"file = '{path}': expected a name that ends in {', '.join(SUFFIXES)}")


def _row(
    number: int, row: dict[str, Any], label: str, identity: str | None, bounds: Bounds
) -> RecordedRow:
    """A row as an event; as bytes, which the codec refuses, if it has text that no event may hold."""
    y = row.pop(label, None)
    if isinstance(y, float) and y.is_integer():
        y = int(y)
    own = None if identity is None else row.pop(identity, None)
    for text in (y, own, *row.values()):
        if isinstance(text, str) and (len(text) > bounds.max_text or not _is_unicode(text)):
            fields = json.dumps({"x": row, "y": y, "id": own}, ensure_ascii=False, default=str)
            return RecordedRow(number, None, fields.encode("utf-8", "surrogateescape"))
    return RecordedRow(number, Event(row, y, own))


def _first(error: BaseException) -> str:
    """The first line of a library's error message."""
    return printable(str(error).split("\n")[0], 200)


def _misshapen(number: int, line: int, cells: list[str], wanted: int) -> RecordedRow:
    """A row whose number of cells is not that of the header: nobody knows which column is missing."""
    count = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
    return _refused(number, f"line {line} has {count}, the header has {wanted}", cells=cells)


def _refused(number: int, problem: str, **more: Any) -> RecordedRow:
    """An invalid row that says what is wrong with it."""
    details = json.dumps({"problem": problem, **more}, ensure_ascii=False)
    return RecordedRow(number, None, details.encode("utf-8", "surrogateescape"), problem)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _cell(text: str) -> float | str | None:
    """A cell as a number, a category or missing.

    >>> _cell("3"), _cell("red"), _cell(" ")
    (3.0, 'red', None)
    """
    if not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        return text


def _check_columns(path: Path, names: list[str], label: str, identity: str | None) -> None:
    if not names:
        raise ConfigError(f"file = '{path}': is empty: no header line")
    for name in names:
        if not _is_unicode(name):
            raise ConfigError(f"file = '{path}': the column {name!r} is not named in UTF-8")
    for key, wanted in (("label_column", label), ("id_column", identity)):
        if wanted is not None and wanted not in names:
            columns = printable(", ".join(names))
            raise ConfigError(f"{key} = {wanted!r}: {path} has no such column; it has {columns}")


def _checksum(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()

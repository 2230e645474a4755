"""A Parquet file as a source, read through pyarrow a batch at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import time, timedelta
from typing import Any

from streamforest.errors import ConfigError, DatasetError
from streamforest.io.sources.dataset import RecordedRow
from streamforest.io.sources.tables import TableSource, check_columns, refused, row_of
from streamforest.text import printable

_MAX_HELD = 64 << 20  # bytes of a file's rows in memory


class ParquetSource(TableSource):
    """The rows of a Parquet file."""

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
        check_columns(self.path, file.schema_arrow.names, self._rules)
        return int(file.metadata.num_rows)

    def _read(self, start: int) -> Iterator[RecordedRow]:
        number, label = 0, self._rules.label
        for batch in self._batches():
            if number + len(batch) > start:
                for i, row in enumerate(_pylist(batch)):
                    if number + i < start:
                        continue
                    if isinstance(row, str):
                        yield refused(number + i, f"row {number + i} cannot be read: {row}")
                        continue
                    record = {name: _value(value) for name, value in row.items()}
                    y = record.get(label)
                    if type(y) is float and y.is_integer():
                        record[label] = int(y)
                    yield row_of(number + i, record)
            number += len(batch)


def _value(value: Any) -> Any:
    """A value as a message would have it: NaN and NaT are missing, a list of pairs is an object."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is float:
        return value if math.isfinite(value) else (None if value != value else value)
    if isinstance(value, dict):
        return {str(name): _value(one) for name, one in value.items()}
    if isinstance(value, list):
        if value and all(type(one) is tuple and len(one) == 2 for one in value):
            return {str(name): _value(one) for name, one in value}  # an Arrow map
        return [_value(one) for one in value]
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, time):
        return (value.hour * 60 + value.minute) * 60 + value.second + value.microsecond / 1e6
    return None if value != value else value


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


def _first(error: BaseException) -> str:
    """The first line of a library's error message."""
    return printable(str(error).split("\n")[0], 200)

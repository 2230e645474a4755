"""A Parquet file as a source, read through pyarrow a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamforest.errors import ConfigError, DatasetError
from streamforest.io.codec.plain import plain_value
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
                f"file = '{self.path}': Parquet needs pyarrow: pip install pyarrow"
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
                    record = {name: plain_value(value) for name, value in row.items()}
                    y = record.get(label)
                    if type(y) is float and y.is_integer():
                        record[label] = int(y)
                    yield row_of(number + i, record)
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


def _first(error: BaseException) -> str:
    """The first line of a library's error message."""
    return printable(str(error).split("\n")[0], 200)

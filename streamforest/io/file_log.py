"""A recorded file as the log of a pipeline: its rows are partition 0, a commit is an fsync and rename.

commit.json          what the last commit says; the only file that decides anything
predictions.jsonl    one line per event; commit.json says how many bytes count
dead_letters.jsonl   events that were refused, and why
journal.jsonl        one line per commit
snapshots/           models and position, see `runtime/checkpoint/store.py`
lock                 held while a run is under way
"""

from __future__ import annotations

import base64
import json
import logging
import os
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from streamforest.errors import EventError, RecoveryError
from streamforest.io.codec.decoders import RecordDecoder
from streamforest.io.codec.events import Bounds, Event
from streamforest.io.failpoints import failpoint
from streamforest.io.features.layout import nested_event
from streamforest.io.features.rules import FeatureRules
from streamforest.io.log import (
    Commit,
    Log,
    OutputRecord,
    Owned,
    Partition,
    Records,
    Transaction,
)
from streamforest.io.sources.dataset import RecordedRow
from streamforest.io.sources.dataset import Source as Recorded
from streamforest.private_files import (
    FILE_MODE,
    read_json,
    recreate,
    update,
)

if sys.platform != "win32":
    pass

log = logging.getLogger(__name__)

_COMMIT = "commit.json"
_FILES = ("predictions", "dead_letters", "journal")


class AppendFile:
    """A file that only grows, opened at a known length: what was written after it is cut off."""

    def __init__(self, path: Path, size: int = 0, mode: int = FILE_MODE) -> None:
        self._file = update(path, mode)
        there = self._file.seek(0, os.SEEK_END)
        if there < size:
            self._file.close()
            raise RecoveryError(
                f"{path}: {there} bytes, but the last commit was after {size}; "
                "put the file back, or start over with --fresh"
            )
        self._file.truncate(size)
        self._file.seek(size)
        self.size = size

    def append(self, data: bytes) -> None:
        """Add bytes; they are on disk for certain only after `sync`."""
        self._file.write(data)
        self.size += len(data)

    def sync(self) -> None:
        """Force everything to disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class FileSource:
    """The rows of a recorded source as the one partition of a log."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self.partition: Partition = (recorded.topic, 0)
        self._position = 0
        self._rows: Iterator[RecordedRow] = iter(())

    def poll(self, max_records: int, timeout: float) -> Records:
        """The next rows, without waiting."""
        rows = list(islice(self._rows, max_records))
        self._position += len(rows)
        return Records.of(self.partition, rows)

    def seek(self, positions: Mapping[Partition, int], times: Mapping[Partition, int]) -> None:
        """Continue from this row."""
        self._position = positions[self.partition]
        self._rows = self.recorded.rows(self._position)

    def reader(self, positions: Mapping[Partition, int]) -> FileReader:
        """A reader of the rows from a position on."""
        return FileReader(self.recorded, positions.get(self.partition, 0))

    def lag(self) -> dict[Partition, int]:
        """Rows that are left."""
        return {self.partition: self.recorded.total - self._position}

    def unread(self, positions: Mapping[Partition, int]) -> bool:
        """Whether there are rows after a position."""
        return positions.get(self.partition, 0) < self.recorded.total

    def ends(self) -> dict[Partition, int]:
        """The number of rows."""
        return {self.partition: self.recorded.total}

    def at_end(self) -> bool:
        """Whether no row is left."""
        return self._position >= self.recorded.total


class RunFolder:
    """Sink, journal and membership of a log without a broker: the files of a run folder.

    `RunLock` keeps other processes out, so the process that asks is the owner.
    """

    numbers_commits = False
    committed_only = True

    def __init__(self, folder: Path, partition: Partition, mode: int = FILE_MODE) -> None:
        self.folder = folder
        self._partition = partition
        self._mode = mode
        self._out: dict[str, AppendFile] = {}

    @property
    def commit_file(self) -> Path:
        """The file that decides."""
        return self.folder / _COMMIT

    # ---- membership

    def try_acquire(self) -> Owned:
        """Read the last commit and cut every file back to it."""
        details = _read_commit(self.commit_file)
        sizes = details.get("sizes", {})
        self.release()
        self._out = {
            name: AppendFile(self.folder / f"{name}.jsonl", sizes.get(name, 0), self._mode)
            for name in _FILES
        }
        if not details:
            return Owned(Commit(None, {}, {self._partition: 0}))
        return Owned(Commit(str(details["metadata"]), {self._partition: details["position"]}))

    def keep_alive(self) -> None:
        """Nobody else can take a locked folder."""

    def release(self) -> None:
        """Close the files; the next run cuts off what was not committed."""
        for file in self._out.values():
            file.close()
        self._out = {}

    def trouble(self) -> str | None:
        """A folder is always there."""
        return None

    # ---- sink

    def commit(self, transaction: Transaction) -> None:
        """Make it true: (1) lines to the end of the files, (2) fsync, (3) rename of commit.json."""
        out = self._out
        out["predictions"].append(
            b"".join((m.value or b"") + b"\n" for m in transaction.predictions)
        )
        out["dead_letters"].append(b"".join(_letter(m) for m in transaction.dead_letters))
        place = out["journal"].size
        out["journal"].append(transaction.journal + b"\n")
        failpoint("after-produce")
        for written in out.values():
            written.sync()
        details = {
            "metadata": transaction.metadata(place),
            "position": transaction.positions[self._partition],
            "sizes": {name: file.size for name, file in out.items()},
        }
        part = self.commit_file.with_suffix(".part")
        with recreate(part, self._mode) as file:
            file.write(json.dumps(details).encode())
            file.flush()
            os.fsync(file.fileno())
        failpoint("before-commit")
        os.replace(part, self.commit_file)
        _sync_folder(self.folder)
        failpoint("after-commit")

    def clear(self) -> None:
        """Forget the last run; the rename of the next commit puts a new one in its place."""
        self.commit_file.unlink(missing_ok=True)

    # ---- journal

    def read(
        self, since: int, until: int | None, keep_alive: Callable[[], None] = lambda: None
    ) -> Generator[tuple[int, bytes], None, None]:
        """Lines after the one at byte `since`, up to and including the one at `until`."""
        with (self.folder / "journal.jsonl").open("rb") as file:
            if since >= 0:
                file.seek(since)
                file.readline()
            while until is None or file.tell() <= until:
                place, line = file.tell(), file.readline()
                if until is None and not line:
                    return
                if not line.endswith(b"\n"):
                    raise RecoveryError(f"{file.name}: cut short at byte {place}")
                yield place, line

    def tail(self, since: int) -> None:
        """No process follows a file: its folder is locked."""

    def last_commit(self) -> str | None:
        """The metadata in commit.json."""
        return committed_metadata(self.folder)


def file_log(recorded: Recorded, folder: Path, mode: int = FILE_MODE) -> Log:
    """The log of a pipeline without a broker."""
    source = FileSource(recorded)
    files = RunFolder(folder, source.partition, mode)
    return Log(source, files, files, files)


def by_row(decode: RecordDecoder, rules: FeatureRules, bounds: Bounds) -> RecordDecoder:
    """A decoder of recorded rows. Most have their fields already; the others are lines, decoded as
    messages are.
    """

    def decode_fields(row: Any) -> dict[str, Any]:
        if row.event is not None or row.record is not None:
            fields: dict[str, Any] = row.fields()
            return fields
        _refuse_problem(row)
        return decode.fields(row)

    def decode_event(row: Any) -> Event:
        event: Event | None = row.event
        if event is not None:
            return event
        if row.record is not None or decode.event is None:
            return nested_event(decode_fields(row), rules, bounds)
        _refuse_problem(row)
        return decode.event(row)

    return RecordDecoder(decode_event, decode_fields)


def _refuse_problem(row: Any) -> None:
    if row.problem is not None:
        raise EventError(f"invalid event: {row.problem}", "invalid")


def _read_commit(file: Path) -> dict[str, Any]:
    """What the last commit says; empty before the first."""
    try:
        commit = read_json(file)
        if not isinstance(commit, dict) or not {"metadata", "position", "sizes"} <= set(commit):
            raise ValueError("fields are missing")
        if not isinstance(commit["sizes"], dict):
            raise ValueError("sizes is not an object")
        for number in (commit["position"], *commit["sizes"].values()):
            if type(number) is not int or not 0 <= number < 1 << 63:
                raise ValueError(f"{number!r} is not a position or a size")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RecoveryError(f"{file}: cannot be read ({error}); start over with --fresh") from error
    return dict(commit)


def committed_metadata(folder: Path) -> str | None:
    """What the last commit in a run folder says of the run's position."""
    commit = _read_commit(folder / _COMMIT)
    return str(commit["metadata"]) if commit else None


def committed_sizes(folder: Path) -> dict[str, int]:
    """The bytes of each file of a run folder that are committed; empty before the first commit."""
    return dict(_read_commit(folder / _COMMIT).get("sizes", {}))


class FileReader:
    """Reads rows again, forward, for recovery."""

    def __init__(self, source: Recorded, position: int) -> None:
        self._source = source
        self._position = position
        self._rows = source.rows(position)

    def take(
        self, partition: Partition, first: int, end: int, max_records: int | None = None
    ) -> list[Any]:
        """The rows from `first` to before `end`, or the first `max_records` of them."""
        if max_records is not None:
            end = min(end, first + max_records)
        if first != self._position:
            self._rows = self._source.rows(first)
        self._position = end
        return list(islice(self._rows, end - first))

    def close(self) -> None:
        """Nothing is held."""


def _letter(message: OutputRecord) -> bytes:
    """A dead letter as a line: headers as text, the original bytes in base64."""
    headers = {name: value.decode(errors="replace") for name, value in message.headers}
    value = None if message.value is None else base64.b64encode(message.value).decode()
    return json.dumps({"headers": headers, "value": value}).encode() + b"\n"


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

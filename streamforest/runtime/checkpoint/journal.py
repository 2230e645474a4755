"""The journal: in which order events were taken, commit by commit; and what a commit says of itself.

The models are deterministic, so a snapshot plus the journal's slices after it *is* the state.
Recovery, and whoever checks a run offline, read nothing else.

The merge by record time may change the partition with every record. So a journal record has one slice of each
partition, and their order run by run: a run is a number of records of one partition in a row. Each is one
number, (records - 1) * partitions + index of the slice, as a varint; all of them in base64. A commit of
10,000 events that alternate between 16 partitions takes 13 KB.
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

import msgspec

from streamforest.errors import RecoveryError
from streamforest.io.log import Partition, Records
from streamforest.runtime.operate.requests import Announcement
from streamforest.runtime.processing.adapters import Model

_FORMAT = 3  # 1 had no `order`, 2 no `announced`
MAX_BYTES = 700_000
"""Of slices and order in one journal record; a commit comes early rather than go beyond. A topic takes
messages of 1 MB by default, and a poll brings up to 100,000 records more."""
_SLICE_BYTES = 60  # besides the topic's name

Slice = tuple[str, int, int, int]
Run = tuple[int, int]
"""Index of the slice, number of records."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One journal record: the slices advanced since the one before.

    A slice is (topic, partition, from, to), half open. Without `order` they were advanced one after the
    other; with it there is one of each partition, and `order` says how they alternate
    (`Interleaving`). `first` is the number of the first event in it, `events` that of the
    first one after it. `added` lists partitions met for the first time, with the offset at which each
    begins; `rules` by what the events were judged beside the models' parameters.
    """

    commit: int
    first: int
    events: int
    slices: list[tuple[str, int, int, int]] = []
    added: list[tuple[str, int, int]] = []
    rules: str = ""
    promoted: str = ""
    """The model that publishes from here on."""
    adopted: str = ""
    """The snapshot that an operator has let the pipeline go on from, `origin` from where on, and `moved`
    to which positions; such an entry takes an event number of its own."""
    origin: str = ""
    moved: list[tuple[str, int, int]] = []
    revisions: dict[str, int] = {}
    """The learning revision of each model; one that is not named has the first."""
    order: str = ""
    v: int = 1
    announced: list[Announcement] = []
    """Classes that an operator announced, with their support classes; they count from here on."""


class CommitMetadata(msgspec.Struct, frozen=True):
    """What is committed together with the offsets: where the run stands, and how to get there."""

    commit: int
    journal: int
    """Where the journal record of this commit is."""
    events: int
    snapshot: str
    """The newest durable snapshot, the hash of its file, and the journal record it was taken after."""
    hash: str
    since: int
    v: int = 1

    def text(self) -> str:
        """For the commit."""
        return msgspec.json.encode(self).decode()


# made here, once: msgspec crashes where two threads are the first to decode a type
_decode_metadata = msgspec.json.Decoder(CommitMetadata).decode
_decode_entry = msgspec.json.Decoder(Entry).decode


def read_commit_metadata(text: str) -> CommitMetadata:
    """What a commit said."""
    try:
        metadata = _decode_metadata(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RecoveryError(
            f"the last commit says {text[:100]!r}, which this version cannot read ({error})"
        ) from error
    if metadata.v != 1:
        raise RecoveryError(
            f"the last commit is of format {metadata.v}: use the version of streamforest it is from"
        )
    return metadata


def read_entry(place: int, value: bytes) -> Entry:
    """A decoded journal record."""
    try:
        entry = _decode_entry(value)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RecoveryError(f"journal record {place} cannot be read: {error}") from error
    if entry.v > _FORMAT:
        raise RecoveryError(
            f"journal record {place} is of format {entry.v}: use the version of streamforest it is from"
        )
    return entry


def read_entries(
    raw: Iterable[tuple[int, bytes]], exactly_once: bool = True
) -> Iterator[tuple[int, Entry]]:
    """Decoded journal records, each commit once.

    Without transactions a record can stand there whose offsets were never committed; the same commit
    number then comes again, and the last one counts. And a record that was sent twice, since no answer
    came, can arrive once more after later commits: those were made without it, and it counts for nothing.
    """
    held: tuple[int, Entry] | None = None
    for place, value in raw:
        entry = read_entry(place, value)
        if not exactly_once and held is not None and entry.commit < held[1].commit:
            continue
        if held is not None and held[1].commit != entry.commit:
            yield held
        held = place, entry
    if held is not None:
        yield held


def revisions_of(models: Mapping[str, Model]) -> dict[str, int]:
    """The learning revision of each model that is beyond the first, as a journal record has it."""
    found = {name: int(model.forest.learning_revision) for name, model in models.items()}
    return {name: revision for name, revision in found.items() if revision != 1}


class Interleaving:
    """The records since the last commit: from where to where in each partition, and in which order.

    >>> from types import SimpleNamespace as R
    >>> a, b = ("t", 0), ("t", 1)
    >>> both = Interleaving()
    >>> both.add(Records([a, a, b], [R(offset=5), R(offset=6), R(offset=0)]))
    >>> both.add(Records([a], [R(offset=7)]))
    >>> both.slices(), both.runs
    ([('t', 0, 5, 8), ('t', 1, 0, 1)], [(0, 2), (1, 1), (0, 1)])
    """

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._index: dict[Partition, int] = {}
        self._bounds: list[list[int]] = []
        self._records = self._named = 0

    @property
    def size(self) -> int:
        """The most bytes that it can take in the journal.

        A varint has 1 + log128(n) bytes at most. The sum over all runs is largest if all are of one length.
        """
        runs = len(self.runs)
        if not runs:
            return self._named
        longest = 1 + math.log(max(1, self._records * len(self._bounds) / runs), 128)
        return self._named + math.ceil(4 / 3 * runs * longest)

    def add(self, records: Records) -> None:
        """Records that were advanced."""
        index, runs, at = self._index, self.runs, 0
        for partition, group in groupby(records.partitions):
            count = len(list(group))
            number = index.get(partition)
            if number is None:
                number = self._begin(partition, records.records[at].offset)
            if runs and runs[-1][0] == number:
                runs[-1] = number, runs[-1][1] + count
            else:
                runs.append((number, count))
            at += count
        self._records += at
        for partition, record in records.last().items():
            self._bounds[index[partition]][1] = record.offset + 1

    def _begin(self, partition: Partition, offset: int) -> int:
        number = self._index[partition] = len(self._bounds)
        self._bounds.append([offset, offset])
        self._named += len(partition[0]) + _SLICE_BYTES
        return number

    def slices(self) -> list[Slice]:
        """One slice of each partition, in the order of their first records."""
        return [
            (*partition, first, end)
            for partition, (first, end) in zip(self._index, self._bounds, strict=True)
        ]

    def order(self) -> str:
        """How the slices alternate; empty if each was advanced in one go."""
        count = len(self._bounds)
        if len(self.runs) == count:
            return ""
        packed = bytearray()
        for number, records in self.runs:
            rest = (records - 1) * count + number
            while rest > 127:
                packed.append(rest & 127 | 128)
                rest >>= 7
            packed.append(rest)
        return binascii.b2a_base64(packed, newline=False).decode()


def runs_of(entry: Entry) -> Iterator[Run]:
    """The runs of a journal record that has an order; RecoveryError if it cannot be read."""
    count, left = len(entry.slices), entry.events - entry.first
    try:
        packed = binascii.a2b_base64(entry.order, strict_mode=True)
    except ValueError as error:
        raise _damaged(entry) from error
    rest = shift = 0
    for byte in packed:
        rest |= (byte & 127) << shift
        shift += 7
        if byte & 128:
            if shift > 63:
                raise _damaged(entry)
            continue
        records = rest // count + 1 if count else left + 1
        left -= records
        if left < 0:
            raise _damaged(entry)
        yield rest % count, records
        rest = shift = 0
    if left or shift:
        raise _damaged(entry)


def _damaged(entry: Entry) -> RecoveryError:
    return RecoveryError(
        f"the journal record of commit {entry.commit} says in a damaged form how its partitions alternate: "
        "restore the journal, or start over under another name"
    )

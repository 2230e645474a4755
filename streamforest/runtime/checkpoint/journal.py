"""The journal: in which order events were taken, commit by commit; and what a commit says of itself.

The models are deterministic, so a snapshot plus the journal's slices after it *is* the state.
Recovery, and whoever checks a run offline, read nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from streamforest.errors import RecoveryError
from streamforest.runtime.processing.adapters import Model

_FORMAT = 2  # 1 had no `order`


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One journal record: the slices advanced since the one before.

    A slice is (topic, partition, from, to), half open. Without `order` they were advanced one after the
    other; with it there is one of each partition, and `order` says how they alternate
    (`checkpoint/interleaving.py`). `first` is the number of the first event in it, `events` that of the
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


def read_commit_metadata(text: str) -> CommitMetadata:
    """What a commit said."""
    try:
        metadata = msgspec.json.decode(text, type=CommitMetadata)
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
        entry = msgspec.json.decode(value, type=Entry)
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

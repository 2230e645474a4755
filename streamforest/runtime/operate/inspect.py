"""A run seen from outside: its snapshots and its last commit.

Nothing here owns the run; another process may be running it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from streamforest.errors import ConfigError
from streamforest.io.file_log import committed_metadata
from streamforest.io.kafka.reader import last_commit
from streamforest.runtime.checkpoint.journal import CommitMetadata, read_commit_metadata
from streamforest.runtime.checkpoint.store import SnapshotFolder
from streamforest.runtime.config.load import Pipeline
from streamforest.runtime.config.options import nearest
from streamforest.runtime.factory import snapshots_of


@dataclass(frozen=True)
class Listed:
    """One line of the list of snapshots."""

    name: str
    events: int
    bytes: int
    written: str
    pinned: bool
    named: bool | None
    """Whether the last commit names it, so that recovery begins there; None if that is unknown."""


def folder_of(pipeline: Pipeline, partition: int | None = None) -> SnapshotFolder:
    """The snapshots of a pipeline, or of one partition if each has a forest of its own; ConfigError if
    there is no such folder.
    """
    run, kafka = pipeline.config.run, pipeline.config.kafka
    each = kafka is not None and kafka.model_scope == "partition"
    if each and partition is None:
        raise ConfigError("--partition: missing; this pipeline has a forest for each partition")
    if partition is not None and not each:
        raise ConfigError(
            f"--partition {partition}: this pipeline has one forest for all partitions (kafka.model_scope)"
        )
    folder = snapshots_of(pipeline, partition)
    if not folder.storage.is_there():
        place = "no snapshots there" if run.snapshots else "no such folder"
        key = "run.snapshots" if run.snapshots else "run.folder"
        raise ConfigError(
            f"{folder.path}: {place}; {pipeline.config.name} has not run here ({key} names the place)"
        )
    return folder


def last_commit_of(pipeline: Pipeline, partition: int | None = None) -> CommitMetadata | None:
    """The metadata of the last commit of a pipeline, or of one partition; None before the first commit."""
    config = pipeline.config
    if config.kafka is None:
        text = committed_metadata(config.run.folder)
    else:
        text = last_commit(
            config.kafka.connection, config.kafka.group_id, config.topics.events, partition
        )
    return None if text is None else read_commit_metadata(text)


def listed(folder: SnapshotFolder, last: CommitMetadata | None, known: bool) -> list[Listed]:
    """All snapshots, oldest first. `known` says whether the last commit is known."""
    pinned = folder.pins.names()
    found = []
    for name in folder.names():
        try:
            size, changed = folder.stat(name)
        except FileNotFoundError:
            continue  # the run has deleted it in the meantime
        named = None
        if known:
            named = last is not None and last.snapshot == name
        when = _written(folder.sidecar(name)) or _utc(changed)
        found.append(Listed(name, int(name[2:]), size, when, name in pinned, named))
    return found


def pin(folder: SnapshotFolder, name: str) -> None:
    """Keep a snapshot for ever; ConfigError if it does not exist."""
    with folder.pins.held():
        folder.pins.add(find_snapshot(folder, name))


def unpin(folder: SnapshotFolder, name: str) -> None:
    """Stop keeping a snapshot; ConfigError if it is not pinned."""
    name = full_name(name)
    with folder.pins.held():
        if not folder.pins.remove(name):
            pinned = ", ".join(sorted(folder.pins.names())) or "none"
            raise ConfigError(f"{name}: not pinned; the pinned ones are: {pinned}")


def find_snapshot(folder: SnapshotFolder, name: str) -> str:
    """The full name of a snapshot, given its name or number of events; ConfigError if there is none."""
    name, names = full_name(name), folder.names()
    if name not in names:
        remedy = nearest(name, names) if names else "there are none"
        raise ConfigError(f"{name}: no such snapshot in {folder.path}; {remedy}")
    return name


def full_name(name: str) -> str:
    """The name of a snapshot, given its name or its number of events.

    >>> full_name("s-000000050000"), full_name("50000")
    ('s-000000050000', 's-000000050000')
    """
    return f"s-{int(name):012d}" if name.isascii() and name.isdigit() and len(name) < 20 else name


def _written(sidecar: dict[str, Any]) -> str | None:
    """When a snapshot was written, according to its sidecar; None if that is unknown."""
    try:
        written = sidecar["written"]
        return str(datetime.fromisoformat(written).strftime("%Y-%m-%dT%H:%M:%SZ"))
    except (ValueError, TypeError, KeyError):
        return None


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

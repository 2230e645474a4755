"""What an operator wants to know of a run from outside: its snapshots, and where it stands.

Nothing here owns the run: it may be at work in another process meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from streamforest.errors import ConfigError
from streamforest.io.file_log import committed_metadata
from streamforest.io.kafka.reader import last_commit
from streamforest.private_files import read_json
from streamforest.runtime.checkpoint.journal import CommitMetadata, read_commit_metadata
from streamforest.runtime.checkpoint.store import SnapshotFolder
from streamforest.runtime.config.load import Pipeline
from streamforest.runtime.config.options import nearest
from streamforest.runtime.partition_workers import partition_folder


@dataclass(frozen=True)
class Listed:
    """A snapshot as a list shows it."""

    name: str
    events: int
    bytes: int
    written: str
    pinned: bool
    named: bool | None
    """Whether the last commit names it, so that recovery begins there; None where nobody knows."""


def folder_of(pipeline: Pipeline, partition: int | None = None) -> SnapshotFolder:
    """The snapshots of a pipeline's run, or of one partition's where each has its own; ConfigError
    where there is no such folder.
    """
    run, kafka = pipeline.config.run, pipeline.config.kafka
    each = kafka is not None and kafka.model_scope == "partition"
    if each and partition is None:
        raise ConfigError("--partition: which one? This pipeline has a forest for each of them")
    if partition is not None and not each:
        raise ConfigError(
            f"--partition {partition}: this pipeline has one forest for all (kafka.model_scope)"
        )
    if partition is not None:
        folder = partition_folder(pipeline, partition)
    else:
        folder = SnapshotFolder(run.folder / "snapshots", run.keep_snapshots, run.file_mode)
    if not folder.path.is_dir():
        raise ConfigError(
            f"{folder.path}: no such folder; {pipeline.config.name} has not run here "
            "(run.folder says where it does)"
        )
    return folder


def standing_of(pipeline: Pipeline, partition: int | None = None) -> CommitMetadata | None:
    """What the last commit of a pipeline, or of one partition, says, asked of its log; None before
    the first.
    """
    config = pipeline.config
    if config.kafka is None:
        text = committed_metadata(config.run.folder)
    else:
        text = last_commit(
            config.kafka.connection, config.kafka.group_id, config.topics.events, partition
        )
    return None if text is None else read_commit_metadata(text)


def listed(folder: SnapshotFolder, standing: CommitMetadata | None, known: bool) -> list[Listed]:
    """All snapshots, oldest first. `known` says whether the last commit could be asked for."""
    pinned = folder.pins.names()
    found = []
    for name in folder.names():
        path = folder.file(name)
        try:
            size, changed = path.stat().st_size, path.stat().st_mtime
        except FileNotFoundError:
            continue  # the run has deleted it meanwhile
        named = None
        if known:
            named = standing is not None and standing.snapshot == name
        when = _written(path) or _clock(changed)
        found.append(Listed(name, int(name[2:]), size, when, name in pinned, named))
    return found


def pin(folder: SnapshotFolder, name: str) -> None:
    """Keep a snapshot for ever; ConfigError if it is not there."""
    name = full_name(name)
    with folder.pins.held():
        names = folder.names()
        if name not in names:
            what = nearest(name, names) if names else "there are none"
            raise ConfigError(f"{name}: no such snapshot in {folder.path}; {what}")
        folder.pins.add(name)


def unpin(folder: SnapshotFolder, name: str) -> None:
    """Let a snapshot go the way of the others; ConfigError if it is not pinned."""
    name = full_name(name)
    with folder.pins.held():
        if not folder.pins.remove(name):
            pinned = ", ".join(sorted(folder.pins.names())) or "none"
            raise ConfigError(f"{name}: not pinned; pinned are: {pinned}")


def full_name(name: str) -> str:
    """A snapshot's name, also from the number of events in it.

    >>> full_name("s-000000050000"), full_name("50000")
    ('s-000000050000', 's-000000050000')
    """
    return f"s-{int(name):012d}" if name.isascii() and name.isdigit() and len(name) < 20 else name


def _written(path: Path) -> str | None:
    """When a snapshot was written, as its sidecar says."""
    try:
        told = read_json(Path(f"{path}.json"))["written"]
        return str(datetime.fromisoformat(told).strftime("%Y-%m-%dT%H:%M:%SZ"))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

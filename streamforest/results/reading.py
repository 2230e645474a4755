"""Predictions as they were published, from a run folder, a file or a topic."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from streamforest.errors import InputError
from streamforest.io.codec.events import Prediction
from streamforest.io.features.reader import EventReader
from streamforest.io.file_log import committed_sizes
from streamforest.io.kafka.auth.connection import Connection
from streamforest.io.tools.dlq import committed_records
from streamforest.runtime.config.load import Pipeline, load_pipeline
from streamforest.runtime.decoding import decoder_of
from streamforest.text import printable

_NAME = "predictions"
_one = msgspec.json.Decoder(Prediction)
_several = msgspec.json.Decoder(list[Prediction])
# columns of any type
_AS_IS = ("label", "truth", "id", "top", "coarse", "coarse_truth", "novel_in")


def read(
    path: str | os.PathLike[str],
    bootstrap_servers: str | Connection | None = None,
    limit: int | None = None,
) -> pd.DataFrame:
    """The predictions of a run, one row each, in the order of their events.

    Parameters
    ----------
    path
        A run folder, a file of predictions (`.jsonl`), a pipeline file (`.toml`), or the name of a topic.
    bootstrap_servers
        The broker that has the topic.
    limit
        Read so many predictions at most.

    Returns
    -------
    The fields of a prediction as columns, and `correct`: whether the label was predicted, None without
    one. A prediction that was delivered twice is there once.
    """
    return as_frame(islice(predictions(path, bootstrap_servers), limit))


def as_frame(predictions: Iterable[Prediction]) -> pd.DataFrame:
    """Predictions as a frame; see `read`."""
    found = list(predictions)
    columns: dict[str, Any] = {
        name: [getattr(one, name) for one in found] for name in Prediction.__struct_fields__
    }
    for name in _AS_IS:
        columns[name] = pd.Series(columns[name], dtype=object)
    columns["correct"] = pd.Series(
        [None if one.truth is None else one.truth == one.label for one in found], dtype="boolean"
    )
    for name in ("commit", "novelty", "coarse_probability"):
        kind = "Int64" if name == "commit" else "float64"
        columns[name] = pd.Series(columns[name], dtype=kind)
    frame = pd.DataFrame(columns)
    frame = frame.drop_duplicates(["topic", "partition", "offset"])
    return frame.sort_values(["event", "partition"], kind="stable", ignore_index=True)


def predictions(
    path: str | os.PathLike[str], bootstrap_servers: str | Connection | None = None
) -> Iterator[Prediction]:
    """The predictions one by one, as they lie there."""
    where = Path(path)
    if bootstrap_servers is not None:
        return _of_topic(bootstrap_servers, os.fspath(path))
    if where.suffix == ".toml":
        return of_pipeline(load_pipeline(where, os.environ))
    if where.is_dir():
        return _of_folder(where)
    if not where.exists():
        raise InputError(
            f"{where}: no such file or folder; give a run folder, a file of predictions, a pipeline "
            "file, or a topic with its bootstrap_servers"
        )
    return _lines(where, where.stat().st_size)


def of_pipeline(pipeline: Pipeline) -> Iterator[Prediction]:
    """The predictions of a pipeline, from its folder or topic; labels that came later are matched by id."""
    config = pipeline.config
    if config.kafka is None:
        return _of_folder(config.run.folder)
    found = _of_topic(config.kafka.connection, config.topics.predictions)
    if config.labels is None:
        return found
    return _with_labels(found, _late_labels(pipeline, config.kafka.connection))


def _with_labels(found: Iterator[Prediction], labels: dict[Any, Any]) -> Iterator[Prediction]:
    for one in found:
        if one.truth is None and one.id is not None:
            one.truth = labels.get(one.id)
        yield one


def _late_labels(pipeline: Pipeline, connection: Connection) -> dict[Any, Any]:
    """Id -> label, the first of each; what is no label has become a dead letter and is left out."""
    config, decode = pipeline.config, decoder_of(pipeline)
    own = config.topics.labels is not None
    reader = EventReader(config.features, config.bounds, labels=True)
    labels: dict[Any, Any] = {}
    for _, record in committed_records(connection, config.topics.labels or config.topics.events):
        try:
            event = reader.read_label(record, decode) if own else reader.read(record, decode)
        except InputError:
            continue
        if event.y is not None and event.id is not None:
            labels.setdefault(event.id, event.y)
    return labels


def _of_folder(folder: Path) -> Iterator[Prediction]:
    size = committed_sizes(folder).get(_NAME)
    if size is None:
        parts = sorted(one.name for one in folder.glob("partition-*"))
        on_kafka = " (this run is on Kafka: name its pipeline file or its topic)"
        known = on_kafka if parts or (folder / "snapshots").exists() else ""
        raise InputError(f"{folder}: holds no predictions{known}")
    return _lines(folder / f"{_NAME}.jsonl", size)


def _lines(path: Path, size: int) -> Iterator[Prediction]:
    """What is committed: the first `size` bytes."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            size -= len(line)
            if size < 0:
                return  # written after the last commit
            if line.strip():
                yield from _decoded(line, f"{path}, line {number}")


def _of_topic(connection: str | Connection, topic: str) -> Iterator[Prediction]:
    for (name, partition), record in committed_records(connection, topic):
        if record.value is not None:
            yield from _decoded(record.value, f"{name}-{partition}@{record.offset}")


def _decoded(value: bytes, place: str) -> list[Prediction]:
    """One message: a prediction, or several in an array."""
    try:
        return _several.decode(value) if value[:1] == b"[" else [_one.decode(value)]
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputError(
            f"{printable(place)}: not a prediction of streamforest ({printable(str(error), 100)})"
        ) from error

"""The tables of a pipeline file: the allowed values and the default of each key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamforest.io.codec.events import BOUNDS, Bounds
from streamforest.io.codec.registry import REGISTRY_FORMATS
from streamforest.io.features.rules import LAYOUTS, MAX_PATTERNS, TYPES, FeatureRules
from streamforest.io.kafka.auth.connection import Connection, Security
from streamforest.io.kafka.topics import DEFAULT_PARTITIONS, Topics
from streamforest.io.sources.dataset import ClassSchedule
from streamforest.object_files import is_address
from streamforest.private_files import FILE_MODE
from streamforest.runtime.config.login_keys import SECURITY
from streamforest.runtime.config.options import Option, choice, is_url, text, whole
from streamforest.runtime.config.serving import SERVE, ServeTable


@dataclass(frozen=True)
class ModelTable:
    """`[model]` or one `[[shadow]]`: the kind of forest and its parameters, or a factory."""

    name: str
    kind: str
    parameters: Mapping[str, Any]
    factory: str | None = None


@dataclass(frozen=True)
class SourceTable:
    """`[source]`: a recorded data set or file, how many of its events, and when its classes appear."""

    dataset: str | None
    file: Path | None
    max_events: int | None
    schedule: ClassSchedule | None


@dataclass(frozen=True)
class KafkaTable:
    """`[kafka]`: the broker, and how the consumer behaves as a member of its group."""

    bootstrap_servers: str
    group_id: str
    delivery: str
    model_scope: str
    auto_offset_reset: str
    group_instance_id: str | None
    session_timeout_ms: int
    stall_seconds: int
    retry_seconds: int
    partitions: int
    order: str
    order_wait_ms: int
    security: Security

    @property
    def connection(self) -> Connection:
        """The connection of every client of the pipeline."""
        return Connection(self.bootstrap_servers, self.security, self.retry_seconds)


@dataclass(frozen=True)
class LabelsTable:
    """`[labels]`: labels that come later; how long, and how many, events wait for them."""

    expire_after_seconds: int
    max_events: int
    max_bytes: int
    max_early_labels: int
    max_clock_step_seconds: int


@dataclass(frozen=True)
class RunTable:
    """`[run]`: sizes, intervals and the folder."""

    batch_size: int
    commit_interval_ms: int | None
    commit_interval_events: int
    snapshot_interval_events: int | None
    snapshot_interval_seconds: int | None
    keep_snapshots: int
    folder: Path
    file_mode: int = FILE_MODE
    allow_unlearned: bool = False
    snapshots: str | None = None
    """Where snapshots are in object storage; None if they are in the folder."""


@dataclass(frozen=True)
class Config:
    """A whole pipeline file, checked."""

    name: str
    source: SourceTable | None
    kafka: KafkaTable | None
    topics: Topics
    labels: LabelsTable | None
    models: tuple[ModelTable, ...]
    run: RunTable
    events_format: str
    registry: str | None
    bounds: Bounds
    features: FeatureRules
    min_class_events: int
    max_pending_classes: int
    max_text_bytes: int | None
    on_capacity: str
    bad_events: str
    top_k: int
    batch_messages: bool
    metrics_host: str
    metrics_port: int
    metrics_allowed: tuple[str, ...]
    serve: ServeTable = ServeTable()  # noqa: RUF009 - frozen


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


_HOST = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")


def _are_hosts(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= 100
        and all(isinstance(v, str) and len(v) < 255 and _HOST.fullmatch(v) for v in value)
    )


PIPELINE = {
    "name": Option(_is_name, "a name of letters, digits, '.', '_' and '-', at most 100"),
}
SOURCE = {
    "dataset": text("the name of a recorded data set"),
    "file": text("the path of a .jsonl, .csv, .tsv or .parquet file"),
    "max_events": whole(1, 10**12, default=None),
}
SCHEDULE = {
    "order": Option(
        lambda value: (
            isinstance(value, str)
            or (isinstance(value, list) and all(isinstance(v, str | int | float) for v in value))
        ),
        "'recorded', 'random' or a list of labels",
        default=ClassSchedule.order,
    ),
    "first": whole(1, 10**6, default=ClassSchedule.first),
    "every": whole(1, 10**12, default=ClassSchedule.every),
    "seed": whole(0, 2**63 - 1, default=ClassSchedule.seed),
}
KAFKA = {
    "bootstrap_servers": text("host:port of the broker, several as one text: 'a:9092,b:9092'"),
    "group_id": Option(_is_name, "a name of letters, digits, '.', '_' and '-'", None),
    "delivery": choice("exactly-once", "at-least-once", default="exactly-once"),
    "model_scope": choice("topic", "partition", default="topic"),
    "auto_offset_reset": choice("earliest", "latest", default="earliest"),
    "group_instance_id": text("the name of a static member"),
    "session_timeout_ms": whole(1_000, 600_000, default=10_000),
    "stall_seconds": whole(1, 86_400, default=60),
    "retry_seconds": whole(0, 86_400, default=60),
    "partitions": whole(1, 10_000, default=DEFAULT_PARTITIONS),
    "order": choice("time", "arrival", default="time"),
    "order_wait_ms": whole(0, 600_000, default=1_000),
}
_TOPIC = Option(
    lambda value: (
        isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9._-]{1,249}", value) is not None
    ),
    "a topic's name: letters, digits, '.', '_' and '-', at most 249",
    None,
)
TOPICS = dict.fromkeys(("events", "labels", "predictions", "dead_letters", "journal"), _TOPIC)
LABELS = {
    "expire_after_seconds": whole(1, 10**9, default=86_400),
    "max_events": whole(1, 10**7, default=100_000),
    "max_bytes": whole(1 << 16, 1 << 36, default=64 << 20),
    "max_early_labels": whole(1, 10**7, default=10_000),
    "max_clock_step_seconds": whole(1, 10**9, default=3_600),
}


EVENTS = {
    "format": choice("json", "msgpack", *REGISTRY_FORMATS, default="json"),
    "registry": Option(
        is_url,
        "the address of a schema registry, such as 'http://host:8081', without a password",
        None,
        shown=False,
    ),
    "decoder": text("module:function", None),
    "max_bytes": whole(64, 1 << 30, default=BOUNDS.max_bytes),
    "max_text_length": whole(1, 16_384, default=BOUNDS.max_text_length),
    "max_depth": whole(2, 100, default=BOUNDS.max_depth),
    "max_items": whole(16, 10**8, default=BOUNDS.max_items),
}


def _are_patterns(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= MAX_PATTERNS
        and all(isinstance(one, str) and one for one in value)
    )


def _are_types(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and len(value) <= MAX_PATTERNS
        and all(name and kind in TYPES for name, kind in value.items())
    )


def _is_encoding(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool("a".encode(value))
    except (LookupError, ValueError):
        return False


_PATTERNS = Option(_are_patterns, 'a list of column names or patterns such as ["debug.*"]', [])
FEATURES = {
    "label": text("the field that holds the label, with dots if it is nested", FeatureRules.label),
    "id": text("the field that holds the id, with dots if it is nested", FeatureRules.id),
    "coarse": text("the field that holds the coarse label", FeatureRules.coarse),
    "layout": choice(*LAYOUTS, default=FeatureRules.layout),
    "ignore": _PATTERNS,
    "only": _PATTERNS,
    "types": Option(
        _are_types,
        f"a table of column names or patterns, each with one of {', '.join(map(repr, TYPES))}",
        {},
    ),
    "separator": Option(
        lambda value: isinstance(value, str) and len(value) == 1 and value not in '"\n\r\0',
        "one character, such as ';' or '\\t'",
        None,
    ),
    "encoding": Option(_is_encoding, "the name of a text encoding, such as 'cp1252'", None),
}
LIMITS = {
    "min_class_events": whole(1, 10**9, default=1),
    "max_pending_classes": whole(1, 10**7, default=10_000),
    "max_text_bytes": whole(1_024, 1 << 36, default=None),
    "on_capacity": choice("degrade", "error", default="degrade"),
}
PREDICTIONS = {
    "top_k": whole(1, 1_000, default=3),
    "batch_messages": Option(lambda value: isinstance(value, bool), "true or false", False),
}
DEAD_LETTERS = {"policy": choice("dead-letter", "skip", "stop", default="dead-letter")}
RUN = {
    "batch_size": whole(1, 100_000, default=None),
    "commit_interval_ms": whole(1, 600_000, default=None),
    "commit_interval_events": whole(1, 10**6, default=None),
    "snapshot_interval_events": whole(1, 10**12, default=None),
    "snapshot_interval_seconds": whole(1, 86_400, default=None),
    "keep_snapshots": whole(1, 1_000, default=3),
    "folder": text("a path"),
    "snapshots": Option(
        lambda value: isinstance(value, str) and is_address(value),
        "an address such as 's3://bucket/prefix' (s3, gs, az), without a password",
        None,
        shown=False,
    ),
    "file_mode": choice("0600", "0640", "0644", "0660", "0664", default="0600"),
    "allow_unlearned": Option(lambda value: isinstance(value, bool), "true or false", False),
}
METRICS = {
    "host": text("an address to listen on", "127.0.0.1"),
    "port": whole(0, 65_535, default=None),
    "allowed_hosts": Option(
        _are_hosts, "a list of at most 100 host names without ports, such as ['consumer']", []
    ),
}
KEYS: dict[str, dict[str, Option]] = {
    "pipeline": PIPELINE,
    "source": SOURCE,
    "source.schedule": SCHEDULE,
    "kafka": {**KAFKA, **SECURITY},
    "topics": TOPICS,
    "labels": LABELS,
    "events": EVENTS,
    "features": FEATURES,
    "limits": LIMITS,
    "predictions": PREDICTIONS,
    "dead_letters": DEAD_LETTERS,
    "run": RUN,
    "metrics": METRICS,
    "serve": SERVE,
}
"""The keys of every table except `[model]` and `[[shadow]]`, whose keys are a forest's parameters, and
`[taxonomy]`, whose keys are categories."""
TABLES = [
    "pipeline",
    "source",
    "kafka",
    "topics",
    "labels",
    "events",
    "features",
    "taxonomy",
    "model",
    "shadow",
    "limits",
    "predictions",
    "dead_letters",
    "run",
    "metrics",
    "serve",
]


def run_table(
    values: Mapping[str, Any], name: str, on_kafka: bool, through: bool = False
) -> RunTable:
    """`[run]` with the defaults for a broker, or for a recorded file.

    A file run commits by number of events alone, so that a run that was killed writes the same bytes as an
    uninterrupted one. Sending the same file `through` a broker is another run, with a folder of its own.
    """
    folder = Path(values["folder"] or f"runs/{name}")
    every = values["snapshot_interval_events"] or (None if on_kafka else 1_000)
    seconds = values["snapshot_interval_seconds"]
    return RunTable(
        batch_size=values["batch_size"] or (500 if on_kafka else 100),
        commit_interval_ms=values["commit_interval_ms"] or (500 if on_kafka else None),
        commit_interval_events=values["commit_interval_events"]
        or (10_000 if on_kafka else every or 1_000),
        snapshot_interval_events=every,
        snapshot_interval_seconds=seconds or (60 if on_kafka and every is None else None),
        keep_snapshots=values["keep_snapshots"],
        folder=folder.with_name(f"{folder.name}-broker") if through else folder,
        file_mode=int(values["file_mode"], 8),
        allow_unlearned=values["allow_unlearned"],
        snapshots=values["snapshots"],
    )

"""From a checked pipeline to a run that has recovered."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Literal, cast

from streamforest.errors import RecoveryError
from streamforest.io.features.reader import EventReader
from streamforest.io.file_log import RunFolder, file_log
from streamforest.io.kafka.log import kafka_log
from streamforest.io.kafka.settings import KafkaSettings, check_permissions, for_partition
from streamforest.io.kafka.topics import ensure_topics
from streamforest.io.log import Log
from streamforest.io.run_lock import RunLock, claim, claim_objects
from streamforest.object_files import ObjectFolder
from streamforest.observe.telemetry import Listener
from streamforest.runtime.checkpoint.run_state import MakeReader, RunState
from streamforest.runtime.checkpoint.store import SnapshotFolder
from streamforest.runtime.config.load import Pipeline
from streamforest.runtime.decoding import codec_rules, decoder_of, written_format
from streamforest.runtime.labels.store import LateRules
from streamforest.runtime.operate.requests import OperatorRequests
from streamforest.runtime.processing.limits import Limits
from streamforest.runtime.processing.loop import Run, never
from streamforest.runtime.processing.models import limits_of
from streamforest.runtime.processing.schedule import Settings

log = logging.getLogger(__name__)

Waiting = Callable[[], AbstractContextManager[None]]
"""Entered while the broker is waited for; it may end the wait."""


@contextmanager
def opened(
    pipeline: Pipeline,
    *,
    fresh: bool = False,
    drain: bool = False,
    create_topics: bool = False,
    accept_version_change: bool = False,
    stopping: Callable[[], bool] = never,
    telemetry: Listener | None = None,
    waiting: Waiting = nullcontext,
    early: bool = False,
) -> Iterator[Run]:
    """A run in its folder, warmed up, owning its log and recovered; closed at the end.

    `fresh` forgets what the folder holds; on Kafka that is right only where the broker is new too.
    `accept_version_change` learns journalled events again that were learned by another rule. `waiting` is
    entered while the broker is waited for and nothing is owned yet. `early`: begin before all kernels are
    compiled; events that need one wait for it.
    """
    run_log: Log | None = None
    with prepared(pipeline, create_topics, waiting):
        try:
            snapshots = snapshots_of(pipeline)
            if fresh:
                snapshots.refuse_pinned()
                snapshots.clear()  # before the commit that names one: what is left then says so
            run_log = log_of(pipeline)
            if isinstance(run_log.sink, RunFolder):
                if fresh:
                    run_log.sink.clear()
                _refuse_lost_commit(run_log.sink, snapshots)
            run = new_run(
                pipeline,
                run_log,
                snapshots,
                drain,
                telemetry,
                accept_version_change=accept_version_change,
                stopping=stopping,
            )
            if not early:
                run.warm_up()  # compile before anything is owned
            run.recover()
            yield run
        finally:
            if run_log is not None:
                run_log.close()


@contextmanager
def prepared(
    pipeline: Pipeline, create_topics: bool, waiting: Waiting = nullcontext
) -> Iterator[None]:
    """The folder held, by one process or by those of one group; topics and permissions are there."""
    config = pipeline.config
    mode = config.run.file_mode
    lock = RunLock(config.run.folder, shared=config.kafka is not None, mode=mode)
    try:
        if config.run.snapshots is not None:
            claim_objects(ObjectFolder(config.run.snapshots), _identity(pipeline))
        if config.kafka is not None:
            claim(
                config.run.folder,
                _identity(pipeline),
                mode,
                lambda: not _has_read(config.run.folder) and lock.is_alone(),
            )
            each = config.kafka.model_scope == "partition"
            where, partitions = config.kafka.connection, config.kafka.partitions
            with waiting():
                created = ensure_topics(where, config.topics, create_topics, partitions, each)
                check_permissions(kafka_settings(pipeline))
            for name in created:
                if name in config.topics.inputs:
                    key = "events" if name == config.topics.events else "labels"
                    log.warning(
                        "topic %r did not exist and was created: topics.%s names it, and nothing has "
                        "written to it yet",
                        name,
                        key,
                    )
        yield
    finally:
        lock.release()


def new_run(
    pipeline: Pipeline,
    log: Log,
    snapshots: SnapshotFolder,
    drain: bool,
    telemetry: Listener | None = None,
    source: Mapping[str, object] | None = None,
    accept_version_change: bool = False,
    stopping: Callable[[], bool] = never,
) -> Run:
    """A run that owns nothing yet. `source` says more of where its events come from."""
    return Run(
        log,
        decoder_of(pipeline),
        pipeline.models,
        _limits(pipeline),
        snapshots,
        _settings(
            pipeline,
            drain,
            OperatorRequests(snapshots.home, snapshots.mode),
            accept_version_change,
        ),
        {**_described(pipeline), **(source or {})},
        telemetry,
        stopping,
        _reader(pipeline),
        _arguments(pipeline, source),
    )


def _arguments(pipeline: Pipeline, source: Mapping[str, object] | None) -> tuple[str, ...]:
    """How a command names a pipeline, or one partition of it; nothing for a recorded file, of which no
    snapshot can be adopted.
    """
    if pipeline.config.kafka is None:
        return ()
    if source is None or "partition" not in source:
        return pipeline.arguments
    return *pipeline.arguments, "--partition", str(source["partition"])


def snapshots_of(pipeline: Pipeline, partition: int | None = None) -> SnapshotFolder:
    """The snapshots of a pipeline, or of one partition if each has a forest of its own."""
    run = pipeline.config.run
    below = "" if partition is None else f"partition-{partition}"
    home = run.folder / below
    path: Path | ObjectFolder = home / "snapshots"
    if run.snapshots is not None:
        path = ObjectFolder(run.snapshots)
        path = path.child(below) if below else path
    return SnapshotFolder(path, run.keep_snapshots, run.file_mode, home)


def fresh_state(pipeline: Pipeline) -> RunState:
    """The state of a pipeline before its first event."""
    return RunState.new(pipeline.models, _limits(pipeline), late_rules(pipeline), _reader(pipeline))


def _reader(pipeline: Pipeline) -> MakeReader:
    return partial(EventReader, pipeline.config.features, pipeline.config.bounds)


def _limits(pipeline: Pipeline) -> Limits:
    config = pipeline.config
    return limits_of(
        list(pipeline.models.values()),
        config.min_class_events,
        config.max_pending_classes,
        codec_rules(pipeline, late_rules(pipeline)),
        config.max_text_bytes,
        config.on_capacity,
    )


def _has_read(folder: Path) -> bool:
    """Whether a snapshot in a run folder, or in that of a partition, is of any event."""
    return any(path.stem != "s-000000000000" for path in folder.glob("**/s-*.safetensors"))


def _identity(pipeline: Pipeline) -> dict[str, str]:
    """What all processes of a group have in common, and no two pipelines."""
    config = pipeline.config
    if config.kafka is None:
        return {"pipeline": config.name}
    return {"pipeline": config.name, "group": config.kafka.group_id, "events": config.topics.events}


def _refuse_lost_commit(files: RunFolder, snapshots: SnapshotFolder) -> None:
    """Snapshots that no commit names: somebody has deleted the file that says how far the run came."""
    names = [name for name in snapshots.names() if name != "s-000000000000"]
    if names and not files.commit_file.exists():
        raise RecoveryError(
            f"{snapshots.path} holds snapshots up to {names[-1]}, but {files.commit_file} is not there: "
            "put it back to go on, or start over with --fresh"
        )


def log_of(pipeline: Pipeline, partition: int | None = None) -> Log:
    """The log of a pipeline, or of one partition where each has a forest of its own."""
    config = pipeline.config
    if config.kafka is None:
        assert pipeline.source is not None
        return file_log(pipeline.source, config.run.folder, config.run.file_mode)
    settings = kafka_settings(pipeline)
    return kafka_log(settings if partition is None else for_partition(settings, partition))


def kafka_settings(pipeline: Pipeline) -> KafkaSettings:
    """How a pipeline talks to its broker."""
    config = pipeline.config
    kafka = config.kafka
    assert kafka is not None
    return KafkaSettings(
        servers=kafka.bootstrap_servers,
        topics=config.topics,
        group=kafka.group_id,
        exactly_once=kafka.delivery == "exactly-once",
        auto_offset_reset=kafka.auto_offset_reset,
        group_instance_id=kafka.group_instance_id,
        session_timeout_ms=kafka.session_timeout_ms,
        stall_seconds=kafka.stall_seconds,
        retry_seconds=kafka.retry_seconds,
        security=kafka.security,
        order=kafka.order,
        order_wait_seconds=kafka.order_wait_ms / 1000,
    )


def late_rules(pipeline: Pipeline) -> LateRules | None:
    """By what labels meet their events; None where every event brings its label."""
    labels = pipeline.config.labels
    if labels is None:
        return None
    return LateRules(
        wait_ms=1000 * labels.expire_after_seconds,
        max_events=labels.max_events,
        max_bytes=labels.max_bytes,
        max_early=labels.max_early_labels,
        clock_step_ms=1000 * labels.max_clock_step_seconds,
    )


def _settings(
    pipeline: Pipeline, drain: bool, requests: OperatorRequests, accept: bool
) -> Settings:
    config, run = pipeline.config, pipeline.config.run
    return Settings(
        batch=run.batch_size,
        commit_seconds=None if run.commit_interval_ms is None else run.commit_interval_ms / 1000,
        commit_events=run.commit_interval_events,
        snapshot_seconds=run.snapshot_interval_seconds,
        snapshot_events=run.snapshot_interval_events,
        bad_events=cast(Literal["dead-letter", "skip", "stop"], config.bad_events),
        top=config.top_k,
        pack=config.batch_messages,
        late=late_rules(pipeline),
        events_format=written_format(config),
        requests=requests,
        labels_topic=config.topics.labels,
        accept_version_change=accept,
        drain=drain or config.kafka is None,
    )


def _described(pipeline: Pipeline) -> dict[str, object]:
    """What a snapshot says of where its events came from."""
    config = pipeline.config
    form = config.events_format if pipeline.decoder is None else "decoder"
    if config.kafka is not None:
        told: dict[str, object] = {"topic": config.topics.events, "format": form}
        if config.labels is not None:
            told["labels"] = config.topics.labels or config.topics.events
        return told
    assert pipeline.source is not None
    return {**pipeline.source.describe(), **({"format": form} if pipeline.decoder else {})}

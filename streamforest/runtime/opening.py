"""From a checked pipeline to a run that stands where it last stood."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, cast

from streamforest.runtime.clocks import Settings
from streamforest.runtime.config import Pipeline
from streamforest.runtime.late import LateRules
from streamforest.runtime.loop import Run
from streamforest.runtime.models import limits_of
from streamforest.runtime.snapshots import SnapshotFolder
from streamforest.runtime.telemetry import Silent, Telemetry
from streamforest.stream.decoders import RecordDecoder, by_function, by_value
from streamforest.stream.events import Format, decoder
from streamforest.stream.files import FileLog, RunLock, claim
from streamforest.stream.kafka import KafkaLog, KafkaSettings, check_permissions
from streamforest.stream.kafka_topics import ensure_topics
from streamforest.stream.records import Log


@contextmanager
def opened(
    pipeline: Pipeline,
    *,
    fresh: bool = False,
    drain: bool = False,
    create_topics: bool = False,
    stopping: Callable[[], bool] = lambda: False,
    telemetry: Telemetry | None = None,
) -> Iterator[Run]:
    """A run in its folder, warmed up, owning its log and recovered; closed at the end.

    `fresh` forgets what the folder holds; on Kafka that is right only where the broker is new too.
    """
    config = pipeline.config
    lock = RunLock(config.run.folder, shared=config.kafka is not None)
    log: Log | None = None
    try:
        snapshots = SnapshotFolder(config.run.folder / "snapshots", config.run.keep_snapshots)
        if config.kafka is not None:
            claim(config.run.folder, _identity(pipeline))
        told = telemetry or Silent()

        def waiting() -> bool:
            told.beat()
            return stopping()

        if fresh:
            snapshots.refuse_pinned()
        log = _log(pipeline, fresh, create_topics, waiting)
        if fresh:
            snapshots.clear()
        run = Run(
            log,
            pipeline.models,
            limits_of(
                list(pipeline.models.values()),
                config.min_class_events,
                config.max_waiting,
                _codec_rules(pipeline),
            ),
            snapshots,
            _settings(pipeline, drain),
            _described(pipeline),
            told,
        )
        run.warm_up()  # compile before anything is owned
        run.recover()
        yield run
    finally:
        if log is not None:
            log.close()
        lock.release()


def _identity(pipeline: Pipeline) -> dict[str, str]:
    """What all processes of a group have in common, and no two pipelines."""
    config = pipeline.config
    assert config.kafka is not None
    return {"pipeline": config.name, "group": config.kafka.group, "events": config.topics.events}


def _log(pipeline: Pipeline, fresh: bool, create_topics: bool, stopping: Callable[[], bool]) -> Log:
    config = pipeline.config
    decode = _decoder(pipeline)
    if config.kafka is None:
        assert pipeline.source is not None
        files = FileLog(pipeline.source, config.run.folder, decode)
        if fresh:
            files.clear()
        return files
    kafka = config.kafka
    ensure_topics(kafka.connection, config.topics, create_topics, kafka.partitions)
    settings = KafkaSettings(
        servers=kafka.servers,
        topics=config.topics,
        group=kafka.group,
        exactly_once=kafka.delivery == "exactly-once",
        start=kafka.start,
        instance=kafka.instance,
        session_ms=kafka.session_ms,
        stall_seconds=kafka.stall_seconds,
        security=kafka.security,
        align_seconds=None if config.labels is None else config.labels.align_ms / 1000,
    )
    check_permissions(settings)
    return KafkaLog(settings, decode, stopping)


def _decoder(pipeline: Pipeline) -> RecordDecoder:
    """From records to events: the codec, or the function that the pipeline names."""
    config = pipeline.config
    if pipeline.decoder is None:
        form = cast(Format, config.events_format)
        return by_value(decoder(form, config.bounds, config.labels is not None))
    topic = config.topics.events
    if config.kafka is None:
        assert pipeline.source is not None
        topic = pipeline.source.topic
    return by_function(pipeline.decoder, config.bounds, topic, config.labels is not None)


def _codec_rules(pipeline: Pipeline) -> str:
    """By what messages become events, for the journal."""
    rules = pipeline.config.bounds.rules()
    if pipeline.decoder is not None:
        rules += f" decoder={pipeline.decoder.name}"
    late = late_rules(pipeline)
    return rules if late is None else f"{rules} {late.told()}"


def late_rules(pipeline: Pipeline) -> LateRules | None:
    """By what labels meet their events; None where every event brings its label."""
    labels = pipeline.config.labels
    if labels is None:
        return None
    return LateRules(
        wait_ms=1000 * labels.wait_seconds,
        max_events=labels.max_events,
        max_bytes=labels.max_bytes,
        max_early=labels.max_early,
        clock_step_ms=1000 * labels.max_clock_step_seconds,
    )


def _settings(pipeline: Pipeline, drain: bool) -> Settings:
    config, run = pipeline.config, pipeline.config.run
    return Settings(
        batch=run.batch,
        commit_seconds=None if run.commit_ms is None else run.commit_ms / 1000,
        commit_events=run.commit_events,
        snapshot_seconds=run.snapshot_seconds,
        snapshot_events=run.snapshot_every,
        bad_events=cast(Literal["dead-letter", "skip", "stop"], config.bad_events),
        top=config.top,
        pack=config.pack,
        late=late_rules(pipeline),
        labels_topic=config.topics.labels,
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

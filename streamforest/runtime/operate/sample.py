"""The first records of a pipeline, read and judged as a run would do it, without learning anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from streamforest.errors import InputError
from streamforest.forests.core.sparsity import sparse_advice
from streamforest.io.codec.dead_letters import place_of
from streamforest.io.features.columns import ColumnReport
from streamforest.io.log import Partition, Records
from streamforest.io.tools.dlq import committed_records
from streamforest.observe.accounting import Refused, RowCounts, Summary
from streamforest.observe.telemetry import EventRefused
from streamforest.runtime.config.load import Pipeline
from streamforest.runtime.decoding import decoder_of
from streamforest.runtime.factory import fresh_state
from streamforest.runtime.processing.intake import reason_of, rows_read, take_in

MAX_RECORDS = 1_000


@dataclass(frozen=True)
class Sample:
    """What a run would make of the first records."""

    summary: Summary
    refused: Mapping[str, Refused]
    columns: list[ColumnReport]
    categories: Mapping[Any, int]
    """Column -> how many different values it has, of those that are categories."""
    classes: int
    warnings: list[str]


def of_source(pipeline: Pipeline) -> Sample:
    """The first rows of the pipeline's recorded source."""
    assert pipeline.source is not None
    rows = list(islice(pipeline.source.rows(0), MAX_RECORDS))
    return judge(pipeline, Records.of((pipeline.source.topic, 0), rows))


def of_topics(pipeline: Pipeline) -> Sample:
    """The first records of the topics that the pipeline reads, in the order of their timestamps."""
    config = pipeline.config
    assert config.kafka is not None
    found = [
        one
        for topic in config.topics.inputs
        for one in committed_records(config.kafka.connection, topic, MAX_RECORDS)
    ]
    found.sort(key=lambda one: one[1].timestamp)
    first = found[:MAX_RECORDS]
    return judge(pipeline, Records([one[0] for one in first], [one[1] for one in first]))


def judge(pipeline: Pipeline, records: Records) -> Sample:
    """Take records in as a run does that has seen none before."""
    config = pipeline.config
    state, counts = fresh_state(pipeline), RowCounts()

    def refuse(record: Any, partition: Partition, error: InputError) -> None:
        place = place_of(record, partition)
        counts.on_event(EventRefused(reason_of(error), place, str(error)))

    intake = take_in(state, records, decoder_of(pipeline), refuse, config.topics.labels)
    waiting = 0 if state.late is None else len(state.late.waiting)
    counts.on_event(rows_read(intake, len(records), waiting))
    features = state.gate.features
    return Sample(
        summary=counts.summary(),
        refused=counts.refused,
        columns=state.reader.describe(),
        categories={
            name: len(codes) for name, codes in zip(features.names, features.categories) if codes
        },
        classes=len(state.gate.labels.labels),
        warnings=[
            *state.reader.take_warnings(),
            *state.reader.finish(),
            *state.reader.columns.finish_profile(),
            *_sparsity(pipeline, intake.rows.dicts),
        ],
    )


def _sparsity(pipeline: Pipeline, events: list[Mapping[Any, Any]]) -> list[str]:
    """Advice for sparse rows, where a model takes what they lack as missing."""
    models = pipeline.models.values()
    if all(getattr(model.forest, "absent", "zero") == "zero" for model in models):
        return []
    advice = sparse_advice(events)
    return [] if advice is None else [advice]

"""How the records of a pipeline become events: the codec of its format, or the function that it names."""

from __future__ import annotations

from streamforest.io.codec.decoders import (
    Function,
    NumbersCodec,
    RecordDecoder,
    by_function,
    by_value,
    numbers_codec,
)
from streamforest.io.codec.events import (
    Bounds,
    Decoder,
    FieldsDecoder,
    Format,
    Names,
    decoder,
    fields_decoder,
    has_type,
)
from streamforest.io.codec.registry import SchemaStore, avro_decoder, framed_json_decoder
from streamforest.io.features.rules import FeatureRules
from streamforest.io.file_log import by_row
from streamforest.runtime.config.load import Pipeline
from streamforest.runtime.config.schema import Config
from streamforest.runtime.labels.store import LateRules


def decoder_of(pipeline: Pipeline) -> RecordDecoder:
    """From records to events: the codec, or the function that the pipeline names."""
    config, source = pipeline.config, pipeline.source
    rules = config.features
    late, names = config.labels is not None, (rules.label, rules.id, rules.coarse)
    if pipeline.decoder is None:
        decode = by_value(*_codec(config, late, names), rules.id, _numbers(config, names))
    else:
        topic = config.topics.events
        if config.kafka is None:
            assert source is not None
            topic = source.topic
        decode = by_function(pipeline.decoder, config.bounds, topic, late, names)
    return by_row(decode, rules, config.bounds) if config.kafka is None else decode


def row_decoder(
    rules: FeatureRules, bounds: Bounds, function: Function | None = None
) -> RecordDecoder:
    """From the rows of a file to events: its lines are JSON, or what the user's `function` reads."""
    names = (rules.label, rules.id, rules.coarse)
    if function is not None:
        decode = by_function(function, bounds, "file", names=names)
    else:
        typed = decoder("json", bounds, False, names) if has_type(names) else None
        decode = by_value(typed, fields_decoder("json", bounds), rules.id)
    return by_row(decode, rules, bounds)


def _codec(config: Config, late: bool, names: Names) -> tuple[Decoder | None, FieldsDecoder]:
    """From the value of a message to an event, if that can be told by type, and to its fields."""
    if config.events_format == "avro":
        assert config.registry is not None
        folder = config.run.folder / "schemas"
        store = SchemaStore(config.registry, folder, config.run.file_mode)
        return None, avro_decoder(store, config.bounds)
    if config.events_format == "json-schema":
        return None, framed_json_decoder(config.bounds)
    format = written_format(config)
    typed = decoder(format, config.bounds, late, names) if has_type(names) else None
    return typed, fields_decoder(format, config.bounds)


def _numbers(config: Config, names: Names) -> NumbersCodec | None:
    """The codec for events of numbers, if messages can be decoded by type."""
    if config.events_format not in ("json", "msgpack") or not has_type(names):
        return None
    return numbers_codec(written_format(config), config.bounds, names)


def written_format(config: Config) -> Format:
    """The format of a message that we write ourselves."""
    return "msgpack" if config.events_format == "msgpack" else "json"


def codec_rules(pipeline: Pipeline, late: LateRules | None) -> str:
    """By what messages become events, for the journal."""
    rules = f"{pipeline.config.bounds.rules()} {pipeline.config.features.text()}"
    if pipeline.decoder is not None:
        rules += f" decoder={pipeline.decoder.name}"
    return rules if late is None else f"{rules} {late.described()}"

"""A pipeline's configuration: typed, and checked as a whole before anything starts.

All problems are reported at once, each with its key, the value, where it was set and what is allowed. An
unknown key is an error, since a misspelt key would otherwise silently keep its default. Source and models
are opened as part of the check, because only they can judge their own settings. On Kafka only `replay` reads
the source, and opens it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from streamforest.errors import ConfigError
from streamforest.forests.core import registry
from streamforest.forests.sharded import ray_actors
from streamforest.io.codec.decoders import Function
from streamforest.io.codec.events import Bounds
from streamforest.io.codec.registry import REGISTRY_FORMATS
from streamforest.io.features.rules import FeatureRules
from streamforest.io.kafka.topics import Topics
from streamforest.io.sources.dataset import Source
from streamforest.runtime.config import schema
from streamforest.runtime.config.environment import warn_of_single_underscores
from streamforest.runtime.config.imports import find_decoder
from streamforest.runtime.config.kafka_auth import read_security, refuse_secrets
from streamforest.runtime.config.layers import gather
from streamforest.runtime.config.login_keys import SECURITY
from streamforest.runtime.config.options import Checker, nearest
from streamforest.runtime.config.schema import (
    Config,
    KafkaTable,
    LabelsTable,
    ModelTable,
    SourceTable,
)
from streamforest.runtime.config.serving import read_serve
from streamforest.runtime.config.sources import is_lines, lines_in_msgpack, read_source
from streamforest.runtime.processing.adapters import Model, RiverModel
from streamforest.runtime.processing.models import (
    build,
    from_factory,
    kind_meant,
    kinds_with,
)

MAIN = "main"
DEFAULT_KIND = "auto"


@dataclass(frozen=True)
class Pipeline:
    """A checked configuration, and what was opened to check it: source, new models by name, decoder."""

    config: Config
    source: Source | None
    models: dict[str, Model]
    decoder: Function | None = None
    arguments: tuple[str, ...] = ("PIPELINE",)
    """Its file and the settings that were given with it, for commands that messages quote."""


def load_pipeline(
    path: Path,
    environ: Mapping[str, str] | None = None,
    flags: Iterable[str] = (),
    bootstrap_servers: str | None = None,
) -> Pipeline:
    """Read, check and open a pipeline; ConfigError lists all problems.

    `bootstrap_servers` sends the recorded source through that broker, whatever the file says.
    """
    warn_of_single_underscores(environ or {})
    flags = list(flags)
    settings = gather(path, environ or {}, flags)
    if bootstrap_servers is not None:
        settings.set("kafka.bootstrap_servers", bootstrap_servers, "--broker")
    check = Checker(settings, schema.KEYS)
    for name in settings.tables:
        if name not in schema.TABLES:
            check.unknown(name, schema.TABLES)
    name = check.read("pipeline", schema.PIPELINE)["name"]
    events = check.read("events", schema.EVENTS)
    # what is sent through a broker must not meet what others have sent to the pipeline's own topics
    own = f"{name}-broker" if bootstrap_servers is not None else str(name)
    kafka = _kafka(check, own)
    bounds = Bounds(
        max_bytes=events["max_bytes"],
        max_text_length=events["max_text_length"],
        max_depth=events["max_depth"],
        max_items=events["max_items"],
    )
    _check_registry(check, events)
    features = _features(check)
    read_here = kafka is None or (bootstrap_servers is not None and "source" in settings.tables)
    table, source = read_source(check, features, bounds, needed=read_here)
    if table is not None and read_here and events["decoder"] is None:
        refusal = lines_in_msgpack(table, events["format"])
        if refusal is not None:
            check.problems.append(refusal)
    if read_here and kafka is not None and events["format"] in REGISTRY_FORMATS:
        check.problem("events.format", events["format"], "replay sends JSON or MessagePack only")
    function = _decoder(check, events["decoder"], path.parent, table if kafka is None else None)
    topics = Topics.of(own, **check.read("topics", schema.TOPICS))
    for topic, keys in topics.shared().items():
        check.problem(
            f"topics.{keys[-1]}", topic, f"{keys[0]} has the same name; each needs its own"
        )
    labels = _labels(check, topics, on_kafka=kafka is not None)
    described, models = _models(check, path.parent)
    if any(isinstance(model, RiverModel) for model in models.values()):
        features = replace(features, derive=False)
    limits = check.read("limits", schema.LIMITS)
    predictions = check.read("predictions", schema.PREDICTIONS)
    letters = check.read("dead_letters", schema.DEAD_LETTERS)
    run = check.read("run", schema.RUN)
    metrics = check.read("metrics", schema.METRICS)
    serve = read_serve(check, environ or {})
    if check.problems:
        raise ConfigError(_listed(path, check.problems))
    port = metrics["port"] if metrics["port"] is not None else (9108 if kafka else 0)
    config = Config(
        name=name,
        source=table,
        kafka=kafka,
        topics=topics,
        labels=labels,
        models=tuple(described),
        run=schema.run_table(run, name, kafka is not None, through=bootstrap_servers is not None),
        events_format=events["format"],
        registry=events["registry"],
        bounds=bounds,
        features=features,
        min_class_events=limits["min_class_events"],
        max_pending_classes=limits["max_pending_classes"],
        max_text_bytes=limits["max_text_bytes"],
        on_capacity=limits["on_capacity"],
        bad_events=letters["policy"],
        top_k=predictions["top_k"],
        batch_messages=predictions["batch_messages"],
        metrics_host=metrics["host"],
        metrics_port=port,
        metrics_allowed=tuple(metrics["allowed_hosts"]),
        serve=serve,
    )
    # those of [serve] concern no command that is quoted, and nobody has looked whether one is a secret
    quoted = [flag for flag in flags if not flag.lstrip().startswith("serve.")]
    arguments = str(path), *(word for flag in quoted for word in ("--set", flag))
    return Pipeline(config, source, models, function, arguments)


def _features(check: Checker) -> FeatureRules:
    """`[features]`: what the fields of a record mean."""
    values = check.read("features", schema.FEATURES)
    for key in ("ignore", "only"):
        values[key] = tuple(values[key])
    return FeatureRules(**values)


def _check_registry(check: Checker, events: Mapping[str, Any]) -> None:
    """Avro needs a registry and a library; no other format reads either."""
    format, registry = events["format"], events["registry"]
    if format == "avro":
        if registry is None and "registry" not in check.table("events"):
            check.problems.append(
                "events.registry: missing; give the address of the schema registry, such as "
                "'http://host:8081'"
            )
        if find_spec("fastavro") is None:
            check.problem(
                "events.format", format, "needs fastavro: pip install 'streamforest[avro]'"
            )
    elif registry is not None:
        check.problem("events.registry", registry, f"has no effect with format = '{format}'")


def _kafka(check: Checker, name: str) -> KafkaTable | None:
    if "kafka" not in check.settings.tables:
        return None
    known = {**schema.KAFKA, **SECURITY}
    refuse_secrets(check, known)
    values = check.read("kafka", known)
    noted = ("kafka.bootstrap_servers", "kafka =")
    if values["bootstrap_servers"] is None and not any(p.startswith(noted) for p in check.problems):
        check.problems.append("kafka.bootstrap_servers: missing; give host:port of the broker")
    if values["model_scope"] == "partition" and values["delivery"] != "exactly-once":
        check.problem("kafka.model_scope", "partition", "works with delivery = 'exactly-once' only")
    security = read_security(check, values)
    own = {key: values[key] for key in schema.KAFKA}
    return KafkaTable(**{**own, "group_id": values["group_id"] or name, "security": security})


def _labels(check: Checker, topics: Topics, on_kafka: bool) -> LabelsTable | None:
    """`[labels]`; None if neither it nor a topic of labels is set, so that labels come with their events."""
    values = check.read("labels", schema.LABELS)
    if "labels" not in check.settings.tables and topics.labels is None:
        return None
    if not on_kafka:
        check.problem("labels", "…", "late labels need Kafka; add [kafka] bootstrap_servers")
    return LabelsTable(**values)


def _decoder(
    check: Checker, spec: str | None, beside: Path, recorded: SourceTable | None
) -> Function | None:
    """The function that `events.decoder` names; `recorded` is what it would have to decode."""
    if spec is None:
        return None
    if "format" in check.table("events"):
        check.problem("events.decoder", spec, "format is set too; remove one of the two")
    if recorded is not None and not is_lines(recorded):
        check.problem("events.decoder", spec, "a data set or table has no messages to decode")
    try:
        return find_decoder(spec, beside)
    except ConfigError as error:
        check.problems.append(f"events.{error}")
        return None


def _models(check: Checker, beside: Path) -> tuple[list[ModelTable], dict[str, Model]]:
    """`[model]`, which publishes, and every `[[shadow]]`, which is only measured."""
    described: list[ModelTable] = []
    models: dict[str, Model] = {}
    shadows = check.settings.tables.get("shadow", [])
    if not isinstance(shadows, list) or not all(isinstance(raw, dict) for raw in shadows):
        check.problem("shadow", "…", "expected tables of the form [[shadow]]")
        shadows = []
    pairs = _taxonomy(check)
    named = [("model", MAIN, dict(check.table("model")))]
    for number, raw in enumerate(shadows):
        raw = dict(raw)
        name = raw.pop("name", f"shadow{number + 1}")
        if not isinstance(name, str) or not schema.NAME.fullmatch(name) or name in models:
            check.problem(f"shadow.{number}.name", name, "expected a name that no other model has")
            continue
        named.append((f"shadow.{number}", name, raw))
    for where, name, parameters in named:
        if pairs and "factory" in parameters:
            check.problem(
                "taxonomy", "…", f"a factory ({where}) gives its forest the taxonomy itself"
            )
        elif pairs and "taxonomy" in parameters:
            check.problem(f"{where}.taxonomy", "…", "[taxonomy] is set too; remove one of the two")
        elif pairs:
            parameters["taxonomy"] = pairs
        table, model = _model(check, where, name, parameters, beside)
        described.append(table)
        if model is not None:
            if name in models:
                check.problem(f"{where}.name", name, "another model has that name; choose another")
            models[name] = model
    return described, models


def _taxonomy(check: Checker) -> list[list[Any]]:
    """`[taxonomy]`: the classes of each category, as pairs."""
    pairs: list[list[Any]] = []
    known: dict[Any, str] = {}
    raw = check.settings.tables.get("taxonomy", {})
    for category, classes in (raw if isinstance(raw, dict) else {"": raw}).items():
        if not isinstance(classes, list) or not all(
            isinstance(y, str | int | float) for y in classes
        ):
            check.problem(
                f"taxonomy.{category}".rstrip("."),
                classes,
                'expected the classes of a category, such as feline = ["lion", "tiger"]',
            )
            continue
        for y in classes:
            if known.setdefault(y, category) != category:
                check.problem(
                    f"taxonomy.{category}", y, f"is in {known[y]!r} too; a class has one category"
                )
            else:
                pairs.append([y, category])
    return pairs


def _model(
    check: Checker, where: str, name: str, parameters: dict[str, Any], beside: Path
) -> tuple[ModelTable, Model | None]:
    factory = parameters.pop("factory", None)
    if factory is not None:
        table = ModelTable(name, "factory", parameters, str(factory))
        if parameters:
            check.problem(
                f"{where}.factory",
                factory,
                "other keys have no effect beside a factory; remove them",
            )
            return table, None
        try:
            made = from_factory(str(factory), beside)
            return table, _with_ray(check, f"{where}.factory", str(factory), made)
        except ConfigError as error:
            check.problems.append(f"{where}.{error}")
            return table, None
    kind = parameters.pop("kind", DEFAULT_KIND)
    table = ModelTable(name, str(kind), parameters)
    if not isinstance(kind, str) or kind not in registry.kinds():
        near = nearest(kind_meant(str(kind)), registry.kinds())
        check.problem(f"{where}.kind", kind, f"no such model; {near}")
        return table, None
    model, problems = build(kind, parameters)
    for problem in problems:
        others = kinds_with(problem.parameter) if problem.valid else []
        if others:
            listed = " or ".join(repr(other) for other in others)
            check.hidden(
                f"{where}.{problem.parameter}",
                f"no parameter of kind = '{kind}'; it belongs to kind = {listed}",
            )
        elif problem.valid:
            check.unknown(f"{where}.{problem.parameter}", ["kind", *problem.valid])
        else:
            dotted = f"{where}.{problem.parameter}".rstrip(".")
            check.problem(dotted, parameters.get(problem.parameter), problem.message)
    return table, _with_ray(check, f"{where}.executor", "ray", model)


def _with_ray(check: Checker, dotted: str, value: str, model: Model | None) -> Model | None:
    """A model, after a look whether there is the Ray that it asks for."""
    if model is not None and model.forest.executor == "ray" and not ray_actors.is_installed():
        check.problem(dotted, value, f"executor = 'ray' {ray_actors.NEEDS}")
    return model


def _listed(path: Path, problems: list[str]) -> str:
    """One problem as one line, several as a list under the file's name."""
    if len(problems) == 1:
        return f"{path}: {problems[0]}"
    return "\n  ".join([f"{path}: {len(problems)} problems", *problems])

"""A trained model outside its pipeline: look into it, ask it about events, let it explain an answer.

It comes from a snapshot: of a run, with the rules by which the run read its records, or of `save`. Records
are read by the same reader as in a pipeline. Nothing is learned, owned or written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from streamforest.errors import ConfigError, InputError, SnapshotError
from streamforest.forests.core import registry
from streamforest.forests.core.capacity import NUMBER, UNKNOWN
from streamforest.forests.core.explanation import Explanation
from streamforest.forests.persistence import snapshot
from streamforest.io.codec.decoders import RecordDecoder
from streamforest.io.codec.events import BOUNDS, Prediction
from streamforest.io.features.reader import EventReader
from streamforest.io.features.rules import FeatureRules
from streamforest.io.sources.dataset import RecordedRow, Source
from streamforest.io.sources.opening import open_file
from streamforest.observe.measures import Evaluation
from streamforest.private_files import read_json
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.config.load import MAIN, Pipeline
from streamforest.runtime.config.options import nearest
from streamforest.runtime.decoding import row_decoder
from streamforest.runtime.operate.inspect import find_snapshot, folder_of
from streamforest.runtime.processing.adapters import (
    Model,
    RiverModel,
    unknown_features,
    wrap_model,
)
from streamforest.runtime.processing.admission import Admission
from streamforest.runtime.processing.advancing import answers, plain_novelty, top_classes
from streamforest.runtime.processing.intake import reason_of
from streamforest.runtime.processing.models import limits_of
from streamforest.text import printable, shown

_BATCH = 500
_FEATURES = 20


@dataclass(frozen=True)
class Refused:
    """A row that is no event."""

    row: int
    reason: str
    message: str


@dataclass
class OpenModel:
    """The models of a snapshot, and how their run read records."""

    path: Path | str
    """Where it is, for people."""
    state: RunState
    rules: FeatureRules
    decode: RecordDecoder
    source: dict[str, Any] | None
    """What the run was fed from; None for a model that `save` wrote."""
    publishes: str
    pipeline: Pipeline | None = None
    bytes: int = 0
    sidecar: Mapping[str, Any] = field(default_factory=dict)
    """When and with what it was written, where that is known."""

    def model(self, name: str | None = None) -> Model:
        """A model by its name, by default the one that publishes; ConfigError if there is none."""
        models = self.state.models
        wanted = self.publishes if name is None else name
        if wanted not in models:
            raise ConfigError(
                f"--model {shown(wanted)}: not in {self.path}; {nearest(wanted, list(models))}"
            )
        return models[wanted]

    def rows_of(self, file: Path | None) -> Source:
        """The rows of a file, or of the recorded source of the pipeline."""
        if file is not None:
            rules = replace(self.rules, needs_label=False)
            try:
                return open_file(file, None, rules, BOUNDS)
            except ConfigError as error:
                raise ConfigError(str(error).removeprefix("file = ")) from error
        if self.pipeline is None or self.pipeline.source is None:
            raise ConfigError(
                "FILE: missing; name a .jsonl, .csv, .tsv or .parquet file, or give a pipeline file "
                "with a [source]"
            )
        return self.pipeline.source

    # ---- what it is

    def describe(self) -> dict[str, Any]:
        """All that the snapshot tells, as plain data."""
        state = self.state
        about: dict[str, Any] = {
            "snapshot": str(self.path),
            "bytes": self.bytes,
            **_provenance(self.sidecar),
            "source": self.source,
            "events": state.events if self.source is not None else None,
        }
        if self.source is not None:
            about["rows"] = asdict(state.rows.summary())
            about["columns"] = [asdict(column) for column in state.reader.describe()]
        about["models"] = {name: self._described(name) for name in state.models}
        return about

    def _described(self, name: str) -> dict[str, Any]:
        model, measures = self.state.models[name], self.state.measures.get(name)
        totals = None if measures is None else measures.totals
        parameters = model.parameters()
        kind = registry.find_class(parameters.pop("kind"))
        importances = sorted(model.forest.feature_importances().items(), key=lambda one: -one[1])
        if totals is None or not totals.labelled:
            classes = [{"label": label} for label in model.classes_]
        else:
            classes = [
                {
                    "label": one.label,
                    "first": one.first,
                    "events": one.events,
                    "predicted": one.predicted,
                    "recall": one.recall,
                    "precision": one.precision,
                }
                for one in totals.by_class()
            ]
        return {
            "kind": type(model.forest).__name__ if kind is None else kind.kind,
            "publishes": name == self.publishes,
            "learned": model.n_learned,
            "labelled": None if totals is None else totals.labelled,
            "accuracy": None if totals is None else totals.accuracy,
            "kappa": None if totals is None else totals.kappa,
            "parameters": parameters,
            "summary": model.summary(),
            "importances": [[str(key), share] for key, share in importances[:_FEATURES]],
            "classes": classes,
        }

    # ---- what it says

    def predict(
        self, file: Path | None, name: str | None = None, top: int = 3
    ) -> Iterator[Prediction | Refused]:
        """The prediction for each row, or why it is no event. Labels are carried along, not learned."""
        model, source = self.model(name), self.rows_of(file)
        known = set(model.classes_)
        rows = source.rows(0)
        first = True
        while batch := list(islice(rows, _BATCH)):
            taken, refused = self._taken(batch)
            if first and taken:
                self._refuse_strangers(model, [x for _, x, _, _ in taken])
                first = False
            answered = model.advance(self.state.gate.take())
            labels = answers(answered.posteriors, model.classes_)
            likely = top_classes(answered.posteriors, model.classes_, top)
            novelty = plain_novelty(answered.novelty, len(taken))
            found: dict[int, Prediction | Refused] = {one.row: one for one in refused}
            for (row, _, y, identity), label, best, far in zip(taken, labels, likely, novelty):
                found[row] = Prediction(
                    event=row,
                    label=label,
                    probability=best[0][1] if best else 0.0,
                    truth=y,
                    top=best,
                    topic=source.topic,
                    partition=0,
                    offset=row,
                    learned=model.n_learned,
                    new=y is not None and y not in known,
                    id=identity,
                    novelty=far,
                )
            yield from (found[one.offset] for one in batch)

    def _taken(
        self, batch: list[RecordedRow]
    ) -> tuple[list[tuple[int, Any, Any, Any]], list[Refused]]:
        """Number, features, label and id of the rows that are events; the others."""
        taken, refused = [], []
        for row in batch:
            try:
                event = self.state.reader.read(row, self.decode)
                x = self.state.reader.convert(event.x)
                self.state.gate.admit(x, None)
                taken.append((row.offset, x, event.y, event.id))
            except InputError as error:
                refused.append(Refused(row.offset, reason_of(error), str(error)))
        return taken, refused

    def _refuse_strangers(self, model: Model, events: list[Any]) -> None:
        """ConfigError if no row has a feature that the forest knows: its answers would mean nothing."""
        names = unknown_features(model, events)
        if names is not None:
            have, want = names
            raise ConfigError(
                f"the rows have no feature that the model knows; they have {have}; it knows {want}"
            )

    def explain(
        self, row: RecordedRow, name: str | None = None, tree: int | None = None
    ) -> tuple[Explanation, dict[Any, Any], Any]:
        """Why a model answers as it does; the features as the forest sees them, and the label."""
        model = self.model(name)
        event = self.state.reader.read(row, self.decode)
        x = self.state.reader.convert(event.x)
        self._refuse_strangers(model, [x])
        named = dict(x) if isinstance(x, Mapping) else dict(enumerate(x))
        seen = model.features_of(named)
        return model.forest.explain_one(seen, tree), seen, event.y


def event_of(text: str) -> RecordedRow:
    """An event that was given as JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--event: not JSON ({printable(str(error), 100)})") from error
    return RecordedRow(0, value=text.encode("utf-8", "surrogatepass"))


def open_snapshot(path: Path, rules: FeatureRules | None = None) -> OpenModel:
    """The models of a snapshot file, or of the newest snapshot of a run folder.

    `rules` say how records are read, where the snapshot does not (one that `save` wrote).
    """
    if path.is_dir():
        path = snapshot.newest(path)
    if not path.exists():
        raise ConfigError(f"{path}: no such file; give a snapshot, a run folder or a pipeline file")
    models, runtime = snapshot.read(path)
    opened = _opened(path, models, runtime, None, rules)
    opened.bytes, opened.sidecar = path.stat().st_size, _read_sidecar(path)
    return opened


def open_pipeline(pipeline: Pipeline, name: str | None, partition: int | None) -> OpenModel:
    """The models of a pipeline as of its newest snapshot, or of the one called `name`."""
    folder = folder_of(pipeline, partition)
    names = folder.names()
    if name is None and not names:
        raise ConfigError(f"{folder.path}: holds no snapshot yet; run the pipeline first")
    name = names[-1] if name is None else find_snapshot(folder, name)
    models, runtime = folder.load(name, "")
    opened = _opened(folder.file(name), models, runtime, pipeline, None)
    opened.bytes, opened.sidecar = folder.stat(name)[0], folder.sidecar(name)
    return opened


def _opened(
    path: Path | str,
    models: Mapping[str, Any],
    runtime: Mapping[str, Any],
    pipeline: Pipeline | None,
    rules: FeatureRules | None,
) -> OpenModel:
    wrapped = {name: wrap_model(model) for name, model in models.items()}
    limits = limits_of(list(wrapped.values()), 1, 10_000, "")
    bounds = BOUNDS if pipeline is None else pipeline.config.bounds
    function = None if pipeline is None else pipeline.decoder
    derive = not any(isinstance(model, RiverModel) for model in wrapped.values())
    if not runtime:
        rules = replace(rules or FeatureRules(), derive=derive)
        reader = EventReader(rules, bounds, limits.max_features)
        state = RunState(wrapped, Admission(limits), Evaluation({}), reader=reader)
        if (
            len(wrapped) == 1 and derive
        ):  # steps of a pipeline make other columns of those in a record
            _know_columns(state, next(iter(wrapped.values())))
        main = MAIN if MAIN in wrapped else min(wrapped)
        decode = row_decoder(rules, bounds, function)
        return OpenModel(path, state, rules, decode, None, main, pipeline)
    try:
        kept = runtime.get("features")
        rules = (
            FeatureRules(layout="nested", derive=derive)
            if kept is None
            else FeatureRules.from_settings(kept["rules"])
        )
        source = dict(runtime["source"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SnapshotError(f"{path}: its rules of reading cannot be read ({error})") from error
    # the run's settings are its own here: nothing can differ from them
    state = RunState.restored(
        models, runtime, wrapped, limits, source, reader=partial(EventReader, rules, bounds)
    )
    publishes = state.main or (MAIN if MAIN in wrapped else min(wrapped))
    decode = row_decoder(rules, bounds, function)
    return OpenModel(path, state, rules, decode, source, publishes, pipeline)


def _know_columns(state: RunState, model: Model) -> None:
    """The columns that a model has learned have the types it learned them with, as in a run."""
    table = model.forest._features
    state.gate.features.restore(table.state())
    state.gate.take()  # the next batch has its columns
    known = [(n, k) for n, k in zip(table.names, table.kinds) if k != UNKNOWN]
    state.reader.columns.adopt([name for name, _ in known], [kind == NUMBER for _, kind in known])


def _read_sidecar(path: Path) -> dict[str, Any]:
    try:
        told = read_json(Path(f"{path}.json"))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _provenance(sidecar: Mapping[str, Any]) -> dict[str, Any]:
    """When and with what a snapshot was written, where its sidecar is still there."""
    try:
        versions = sidecar["versions"]
        return {"written": str(sidecar["written"]), "version": str(versions["streamforest"])}
    except (TypeError, KeyError):
        return {"written": None, "version": None}

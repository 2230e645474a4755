"""A pipeline's configuration: typed, and checked as a whole before anything starts.

Every wrong value is reported at once, each with its table and key, the value, where it was set and
what would be right. An unknown key is refused, since a misspelt one would silently be a default.
Source and model are opened as part of the check: they are the judges of their own settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamforest.errors import ConfigError, DatasetError
from streamforest.runtime.models import KINDS, Model, build
from streamforest.runtime.options import Checker, Option, nearest, whole
from streamforest.runtime.settings import gather
from streamforest.stream.recorded import ClassSchedule, RecordedSource


@dataclass(frozen=True)
class PipelineTable:
    """`[pipeline]`: what it is called; its run folder is named after it."""

    name: str


@dataclass(frozen=True)
class SourceTable:
    """`[source]`: a recorded set by name, how many of its events, when its classes appear."""

    dataset: str
    events: int | None
    schedule: ClassSchedule | None


@dataclass(frozen=True)
class ModelTable:
    """`[model]`: the kind of forest, and its constructor's parameters by name."""

    kind: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class RunTable:
    """`[run]`: rows advanced at once, events between two snapshots, where files go."""

    batch: int
    snapshot_every: int
    folder: Path


@dataclass(frozen=True)
class Config:
    """A whole pipeline file, checked."""

    pipeline: PipelineTable
    source: SourceTable
    model: ModelTable
    run: RunTable


@dataclass(frozen=True)
class Pipeline:
    """A configuration, and what was opened to check it: the source and new models by name."""

    config: Config
    source: RecordedSource
    models: dict[str, Model]


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_PIPELINE = {
    "name": Option(
        lambda value: isinstance(value, str) and _NAME.fullmatch(value) is not None,
        "a name of letters, digits, '.', '_' and '-', at most 100",
    ),
}
_SOURCE = {
    "dataset": Option(lambda value: isinstance(value, str), "the name of a recorded set"),
    "events": whole(1, 10**12, default=None),
}
_SCHEDULE = {
    "order": Option(
        lambda value: isinstance(value, str | list),
        "'recorded', 'random' or a list of labels",
        default=ClassSchedule.order,
    ),
    "first": whole(1, 10**6, default=ClassSchedule.first),
    "every": whole(1, 10**12, default=ClassSchedule.every),
    "seed": whole(0, 2**63 - 1, default=ClassSchedule.seed),
}
_RUN = {
    "batch": whole(1, 100_000, default=100),
    "snapshot_every": whole(1, 10**12, default=1_000),
    "folder": Option(
        lambda value: isinstance(value, str) and value.strip() != "", "a path", default=None
    ),
}
_TABLES = ["pipeline", "source", "model", "run"]


def load_pipeline(
    path: Path, environ: Mapping[str, str] | None = None, flags: Iterable[str] = ()
) -> Pipeline:
    """Read, check and open a pipeline; ConfigError with everything that is wrong."""
    settings = gather(path, environ or {}, flags)
    check = Checker(settings)
    for name in settings.tables:
        if name not in _TABLES:
            check.unknown(name, _TABLES)
    name = check.read("pipeline", _PIPELINE)["name"]
    table, source = _source(check)
    kind, parameters, model = _model(check)
    run = check.read("run", _RUN)
    if check.problems or source is None or model is None:
        raise ConfigError(_listed(path, check.problems))
    config = Config(
        PipelineTable(name),
        table,
        ModelTable(kind, parameters),
        RunTable(run["batch"], run["snapshot_every"], Path(run["folder"] or f"runs/{name}")),
    )
    return Pipeline(config, source, {"main": model})


def _source(check: Checker) -> tuple[SourceTable, RecordedSource | None]:
    """The table and, where nothing is wrong with it, the source itself.

    Only the labels of the data can tell whether a schedule's order is right, so it is opened here.
    """
    before = len(check.problems)
    values = check.read("source", _SOURCE, also=("schedule",))
    dataset, known = values["dataset"], RecordedSource.names()
    if dataset is not None and dataset not in known:
        check.problem("source.dataset", dataset, f"no such set; {nearest(dataset, known)}")
    schedule = None
    if "schedule" in check.table("source"):
        schedule = ClassSchedule(**check.read("source.schedule", _SCHEDULE))
    table = SourceTable(dataset, values["events"], schedule)
    if len(check.problems) > before:
        return table, None
    try:
        return table, RecordedSource.open(table.dataset, table.events, table.schedule)
    except (ConfigError, DatasetError) as error:
        check.problems.append(f"source: {error}")
        return table, None


def _model(check: Checker) -> tuple[str, dict[str, Any], Model | None]:
    parameters = dict(check.table("model"))
    kind = parameters.pop("kind", "consistent")
    if not isinstance(kind, str) or kind not in KINDS:
        check.problem("model.kind", kind, f"no such model; {nearest(str(kind), list(KINDS))}")
        return str(kind), parameters, None
    model, problems = build(kind, parameters)
    for problem in problems:
        if problem.valid:
            check.unknown(f"model.{problem.parameter}", ["kind", *problem.valid])
        else:
            dotted = f"model.{problem.parameter}".rstrip(".")
            check.problem(dotted, parameters.get(problem.parameter), problem.message)
    return kind, parameters, model


def _listed(path: Path, problems: list[str]) -> str:
    """One problem on one line; several as a list under the file's name."""
    if len(problems) == 1:
        return f"{path}: {problems[0]}"
    return "\n  ".join([f"{path}: {len(problems)} problems", *problems])

"""Coarse labels in a pipeline: what is learned, said, measured and refused; refinements; exact resume."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from river import compose, preprocessing
from support.coarse_stream import GENUS, two_levels

from streamforest import NCMForestClassifier, StreamForestClassifier
from streamforest.cli import root
from streamforest.errors import ConfigError
from streamforest.forests.core.batch import joined
from streamforest.forests.persistence import snapshot
from streamforest.io.codec.decoders import by_value
from streamforest.io.codec.events import decoder, encode, fields_decoder
from streamforest.io.log import Records
from streamforest.observe.prometheus import PipelineMetrics
from streamforest.observe.telemetry import NullTelemetry
from streamforest.runtime.checkpoint.run_state import RunState
from streamforest.runtime.config.load import load_pipeline
from streamforest.runtime.factory import opened
from streamforest.runtime.labels.store import LateRules
from streamforest.runtime.processing.adapters import Model, wrap_model
from streamforest.runtime.processing.admission import Admission
from streamforest.runtime.processing.advancing import Said, advance_models
from streamforest.runtime.processing.intake import rows_read, take_in
from streamforest.runtime.processing.loop import Run
from streamforest.runtime.processing.models import limits_of

PIPELINE = """
[pipeline]
name = "kinds"
[source]
file = "{file}"
[model]
kind = "{kind}"
n_trees = 3
[run]
batch_size = 40
snapshot_interval_events = 100
folder = "{folder}"
{more}
"""


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in events), encoding="utf-8")
    return path


def events_of(n: int) -> list[dict[str, Any]]:
    """Events with either label, or both."""
    told = [{"x": x, "y": y, "coarse": c} for x, y, c in zip(*two_levels(n))]
    return [{name: value for name, value in one.items() if value is not None} for one in told]


def run_file(
    folder: Path, events: list[dict[str, Any]], kind: str = "stream", more: str = "", limit: int = 0
) -> list[dict[str, Any]]:
    """The predictions of a run of a file; with a `limit` it is stopped there and started again."""
    folder.mkdir(exist_ok=True)
    file = write(folder / "events.jsonl", events)
    text = PIPELINE.format(file=file, kind=kind, folder=folder / "run", more=more)
    path = folder / "p.toml"
    path.write_text(text, encoding="utf-8")
    for most in (limit, None) if limit else (None,):
        with opened(load_pipeline(path)) as run:
            run.consume(max_events=most)
    lines = (folder / "run" / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("kind", ["stream", "ncm"])
def test_predictions_carry_categories_and_a_resumed_run_has_the_same(
    tmp_path: Path, kind: str
) -> None:
    events = events_of(300)
    told = run_file(tmp_path / "a", events, kind)
    assert told == run_file(tmp_path / "b", events, kind, limit=130)
    late = told[100:]
    right = [p["coarse"] == p["coarse_truth"] for p in late if "coarse_truth" in p]
    assert len(right) > 100
    assert sum(right) / len(right) > 0.5
    for event, prediction in zip(events, told, strict=True):
        assert prediction["truth"] == event.get("y")
        if "coarse" in event and "coarse" in prediction:
            assert prediction["coarse_truth"] == event["coarse"]
        assert 0 <= prediction.get("coarse_probability", 0) <= 1
    if kind == "ncm":
        assert {p["novel_in"] for p in late} <= set(GENUS.values())


class Crash(Exception):
    """The process ends here, without a last commit."""


@pytest.mark.parametrize("kind", ["stream", "ncm"])
def test_a_run_that_crashed_between_commits_ends_with_the_same_predictions(
    tmp_path: Path, kind: str
) -> None:
    """The last snapshot is at event 100, the last commit at 140: the journal is replayed in between."""
    more = "commit_interval_events = 20"
    events = events_of(260)
    told = run_file(tmp_path / "a", events, kind, more)
    folder = tmp_path / "b"
    folder.mkdir()
    path = folder / "p.toml"
    file = write(folder / "events.jsonl", events)
    text = PIPELINE.format(file=file, kind=kind, folder=folder / "run", more=more)
    path.write_text(text.replace("batch_size = 40", "batch_size = 10"), encoding="utf-8")

    def crash(run: Run) -> None:
        if run.events >= 150:
            raise Crash

    with pytest.raises(Crash), opened(load_pipeline(path)) as run:
        run.consume(watch=crash)
    done = (folder / "run" / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(done) == 140
    assert run_file(folder, events, kind, more) == told


def test_a_river_pipeline_learns_categories_too(tmp_path: Path) -> None:
    """In one batch and row by row alike."""
    xs, ys, coarse = two_levels(80)
    answers = []
    for cut in (1, 80):
        steps = preprocessing.StandardScaler() | StreamForestClassifier(n_trees=2, seed=0)
        model = wrap_model(compose.Select("f1", "f2", "f3") | steps)
        gate = Admission(limits_of([model], 1, 100, ""))
        parts = []
        for first in range(0, 80, cut):
            for i in range(first, first + cut):
                gate.admit(xs[i], ys[i], coarse=coarse[i])
            parts.append(model.advance(gate.take()))
        answers.append(joined(parts))
        assert model.n_learned == 80
        assert set(model.categories_) == {name for name in coarse if name}
    assert answers[0].coarse is not None
    assert answers[1].coarse is not None
    np.testing.assert_array_equal(answers[0].coarse, answers[1].coarse)
    np.testing.assert_array_equal(answers[0].posteriors, answers[1].posteriors)


def test_without_coarse_labels_predictions_have_no_fields_of_them(tmp_path: Path) -> None:
    events = [{"x": e["x"], "y": e["y"]} for e in events_of(150) if "y" in e]
    assert not any("coarse" in p or "novel_in" in p for p in run_file(tmp_path, events))


def test_a_pair_against_the_taxonomy_is_a_dead_letter_that_names_both(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [
        {"x": {"a": 1.0}, "y": "lion", "coarse": "feline"},
        {"x": {"a": 2.0}, "y": "wolf"},
        {"x": {"a": 2.0}, "y": "wolf", "coarse": "feline"},
        {"x": {"a": 3.0}, "coarse": "feline"},
        {"x": {"a": 1.0}, "y": "lion", "coarse": "canine"},
    ]
    told = run_file(tmp_path, events, more='[taxonomy]\ncanine = ["wolf"]\n')
    assert [p["event"] for p in told] == [0, 1, 3]
    assert told[1]["coarse_truth"] == "canine"
    text = (tmp_path / "run" / "dead_letters.jsonl").read_text(encoding="utf-8")
    for names in (("wolf", "canine", "feline"), ("lion", "feline", "canine")):
        assert any(all(name in line for name in names) for line in text.splitlines())
    result = CliRunner().invoke(root, ["run", str(tmp_path / "p.toml"), "--fresh", "--quiet"])
    assert "taxonomy 2" in result.output
    assert "categories" in result.output


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('[taxonomy]\nfeline = "lion"', "expected the classes of a category"),
        ('[taxonomy]\na = ["x"]\nb = ["x"]', "a class has one category"),
    ],
)
def test_a_wrong_taxonomy_is_refused(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run_file(tmp_path, events_of(3), more=more)


# ---- late labels

RULES = LateRules(wait_ms=10**9, clock_step_ms=60_000)


def late_records(n: int) -> list[Any]:
    """Events, their categories soon after, and for most of them their class later still."""
    sent: list[tuple[int, dict[str, Any]]] = []
    xs, _, _ = two_levels(n)
    _, names, _ = two_levels(n, first_coarse=n)
    for i, (x, y) in enumerate(zip(xs, names)):
        if i % 5 == 0:  # the label comes along
            sent.append((10 * i, {"id": i, "x": x, "y": y, "coarse": GENUS[y]}))
            continue
        first = {"id": i, "x": x}
        if i % 5 == 1:
            first["coarse"] = GENUS[y]
        else:  # after its event, or before it
            sent.append((10 * i + (35 if i % 5 < 4 else -5), {"id": i, "coarse": GENUS[y]}))
        sent.append((10 * i, first))
        if i % 7:
            sent.append((10 * i + 135, {"id": i, "y": y}))
        if i % 11 == 0:
            sent.append((10 * i + 150, {"id": i, "y": y}))
    sent.sort(key=lambda one: one[0])
    return [
        SimpleNamespace(offset=i, timestamp=10**12 + at, key=None, value=encode(one), headers=())
        for i, (at, one) in enumerate(sent)
    ]


def models() -> dict[str, Model]:
    return {
        "main": wrap_model(NCMForestClassifier(n_trees=3, seed=0)),
        "other": wrap_model(StreamForestClassifier(n_trees=2, seed=0)),
    }


def limits() -> Any:
    return limits_of(list(models().values()), 1, 100, "")


def go_on(state: RunState, several: list[Any], cut: int) -> list[Said]:
    decode = by_value(decoder(labels=True), fields_decoder())
    told = []
    for first in range(0, len(several), cut):
        records = Records.of(("t", 0), several[first : first + cut])
        intake = take_in(state, records, decode, lambda *refused: pytest.fail(str(refused)))
        told.append(advance_models(state, intake, "main", 3, NullTelemetry(), lambda: False))
        assert state.late is not None
        state.rows.on_event(rows_read(intake, len(records), len(state.late.waiting)))
    return told


def new_state() -> RunState:
    return RunState.new(models(), limits(), RULES)


def said(told: list[Said]) -> list[Any]:
    return [[*one] for t in told for one in zip(t.labels, t.top, t.novelty, t.levels)]


def test_where_records_are_cut_changes_nothing_with_refinements() -> None:
    several = late_records(160)
    states, answers = [], []
    for cut in (1, 13, 1_000):
        state = new_state()
        answers.append(repr(said(go_on(state, several, cut))))
        states.append(state.jsonable({}))
    assert answers[0] == answers[1] == answers[2]
    assert states[0] == states[1] == states[2]
    counts = states[0]["labels"]["counts"]
    assert counts["refined"] > 30
    assert counts["duplicate"] > 3
    assert states[0]["coarse_totals"]["main"]["labelled"] == 160


def test_a_snapshot_in_the_middle_changes_nothing() -> None:
    several = late_records(160)
    state = new_state()
    go_on(state, several[:170], 50)
    assert state.late is not None
    assert state.late.refinable
    raw = snapshot.encode({name: model.estimator for name, model in state.models.items()})
    loaded, _ = snapshot.decode(raw)
    told = json.loads(json.dumps(state.jsonable({})))
    again = RunState.restored(loaded, told, models(), limits(), {}, RULES)
    assert again.jsonable({}) == state.jsonable({})
    assert repr(said(go_on(again, several[170:], 50))) == repr(
        said(go_on(state, several[170:], 31))
    )
    assert again.jsonable({}) == state.jsonable({})


def test_a_class_after_its_category_is_learned_by_every_model() -> None:
    """The NCM forest takes an estimate back; the stream forest has only what was withheld from it."""
    several = late_records(160)
    state = new_state()
    go_on(state, several, 20)
    assert state.late is not None
    counts = state.late.counts
    levels = state.models["main"].summary()["levels"]
    assert counts["refined"] == levels["refined"] > 0
    assert counts["refinement_missed"] == levels["missed"]
    other = state.models["other"].summary()["levels"]
    assert other["refined"] > 0.8 * levels["refined"]
    assert other["refined"] + other["missed"] == counts["refined"] + counts["refinement_missed"]
    for told in (levels, other):
        assert told["refinable_rows"] <= told["coarse_rows"] - told["refined"]


def test_ids_are_kept_within_the_bounds_and_a_class_after_that_is_missed() -> None:
    state = RunState.new(models(), limits(), LateRules(wait_ms=10**9, max_events=5))
    xs, names = two_levels(40, first_coarse=40)[:2]
    sent = [{"id": i, "x": x, "coarse": GENUS[y]} for i, (x, y) in enumerate(zip(xs, names))]
    sent += [{"id": 25, "y": names[25]}, {"id": 0, "y": names[0]}]
    several = [
        SimpleNamespace(offset=i, timestamp=0, key=None, value=encode(one), headers=())
        for i, one in enumerate(sent)
    ]
    go_on(state, several, 100)
    assert state.late is not None
    assert len(state.late.refinable) == 10
    assert state.late.counts["refinement_missed"] == 1  # the other is forgotten, and waits
    assert state.late.counts["early"] == 1


def test_metrics_of_categories_are_there_with_coarse_labels_only(tmp_path: Path) -> None:
    for name, events in (("with", events_of(80)), ("without", [{"x": {"a": 1.0}, "y": "b"}] * 9)):
        folder = tmp_path / name
        run_file(folder, events)
        metrics = PipelineMetrics(name)
        with opened(load_pipeline(folder / "p.toml"), fresh=True, telemetry=metrics) as run:
            run.consume()
        value = metrics.registry.get_sample_value(
            "streamforest_coarse_labelled_events_total", {"model": "main"}
        )
        assert value == (run.measures["main"].coarse.labelled or None)
